"""From which size on estimates pay: first estimate, exact end and the answer at once, beside DuckDB.

    python -m benchmarks.small_tables [--flights FILE] [--warehouse DIR ...] [--runs 5]

FILE is `flights-3m.parquet` of the npm package vega-datasets 3.2.1, which is laid out in a temporary folder.
Each DIR has TPC-H tables, made by `relaqs tpch generate`. Seconds passed and core-seconds; medians, in open
sessions and connections. DuckDB reads the same files. *at once*: with `exact_below_seconds`, whatever it is
predicted to take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts import shuffle
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks.first_questions import QUESTIONS
from benchmarks.plain_duckdb import PlainDuckDB, files_of_layouts
from relaqs.executors.threads import usable_cores

ALWAYS_SECONDS = 1e6
LINEITEM = (
    "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, count(*) AS n FROM lineitem GROUP BY ALL",
    "SELECT sum(l_extendedprice * l_discount) AS r FROM lineitem WHERE l_discount BETWEEN 0.05 AND 0.07",
    "SELECT l_shipmode, count(*) AS n FROM lineitem WHERE l_receiptdate > l_commitdate GROUP BY 1",
)
Way = Callable[[str], object]


def ways(warehouse: Path, opened: ExitStack) -> dict[str, Way]:
    """Return the ways to ask, by name."""
    threads = usable_cores()
    steps = opened.enter_context(relaqs.connect(warehouse, threads=threads))
    once = opened.enter_context(
        relaqs.connect(warehouse, threads=threads, exact_below_seconds=ALWAYS_SECONDS)
    )
    files = {name: list(paths) for name, paths in files_of_layouts(Catalog.open(warehouse)).items()}
    duckdb = opened.enter_context(PlainDuckDB(files, threads))
    return {
        "DuckDB": duckdb.table,
        "first estimate": lambda sql: next(steps.online_sql(sql)),
        "exact end": lambda sql: steps.online_sql(sql).result(),
        "at once": lambda sql: once.online_sql(sql).result(),
    }


def timed(way: Way, sql: str) -> tuple[float, float]:
    """Return the seconds passed and the core-seconds until the answer is there."""
    begun, cores = time.perf_counter(), time.process_time()
    way(sql)
    return time.perf_counter() - begun, time.process_time() - cores


def measured(asked: dict[str, Way], sql: str, runs: int) -> dict[str, tuple[float, float]]:
    """Return the medians of each way, which take turns. The first run finds files and plans that are new."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for run in range(runs + 1):
        for name, way in asked.items():
            seconds = timed(way, sql)
            time.sleep(0.05)  # what a stopped query still runs is no part of the next one
            if run:
                taken[name].append(seconds)
    return {name: (median(w for w, _ in each), median(c for _, c in each)) for name, each in taken.items()}


def print_table(console: Console, warehouse: Path, questions: Sequence[str], runs: int) -> None:
    with ExitStack() as opened:
        asked = ways(warehouse, opened)
        table = Table("question", *asked, box=SIMPLE_HEAD, title=f"{warehouse.name}: seconds (core-seconds)")
        for sql in questions:
            found = measured(asked, sql, runs)
            cells = [f"{wall:.3f} ({cores:.3f})" for wall, cores in found.values()]
            table.add_row(sql if len(sql) <= 60 else f"{sql[:59]}…", *cells)
        console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flights", type=Path, metavar="FILE")
    parser.add_argument("--warehouse", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args(arguments)
    console = Console(width=160)
    if given.flights is not None:
        with TemporaryDirectory() as folder:
            shuffle(given.flights, Path(folder) / "flights-3m" / "flights")
            print_table(console, Path(folder) / "flights-3m", QUESTIONS["flights"], given.runs)
    for warehouse in given.warehouse:
        print_table(console, warehouse, LINEITEM, given.runs)


if __name__ == "__main__":
    main()
