"""Programs that write tables and are killed at any moment: what is there afterwards, and what is left over.

    python -m benchmarks.layout_kills [--kills 100] [--seed 0] [--rows 300000] [--signal KILL]

Three ways to write take turns: a layout in a warehouse replaces another, a session lays out a file whose
earlier state has a layout in the cache, and a session copies a JSON file to the cache. The moment of a kill
is drawn uniformly over the time that such a write takes. Afterwards the old table or the new one must be
there, with the right bytes and the right answer; and after the next start nothing else may be left. After
ctrl-C (--signal INT) nothing may be left at once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import duckdb
from relaqs_engine.layouts import Layout, read_manifest, shuffle, verify
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks.plain_duckdb import relation
from relaqs.cli.reading import progress_bar
from relaqs.queries import tables

SUM = "SELECT count(*) AS n, sum(fare) AS fare FROM trips"
PARTITIONS = 20
LONGEST_SECONDS = 120.0
_BEYOND = 1.1  # of the time that a write took: some kills come when it is over
_PROCESSES = multiprocessing.get_context("forkserver")  # each is forked from one that has no threads
_PROCESSES.set_forkserver_preload(["relaqs.opening", "relaqs_engine.layouts"])


class FoundWrongError(Exception):
    """What a killed program left is not what must be there."""


@dataclass(frozen=True, slots=True)
class Written(ABC):
    """One way to write a table, in a folder of its own."""

    folder: Path
    rows: int

    @property
    def source(self) -> Path:
        return self.folder / "trips.parquet"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def prepare(self) -> None:
        """Write the source, and the table a first time."""
        self.folder.mkdir()
        self._write_source(
            relation(f"SELECT i AS id, i % 7 AS zone, hash(i) % 100 AS fare FROM range({self.rows}) AS t(i)")
        )
        self.write()

    def _write_source(self, rows: duckdb.DuckDBPyRelation) -> None:
        rows.write_parquet(str(self.source), row_group_size=20_480)

    def change_source(self) -> None:
        """Give the source another state, so that there is something to write."""
        os.utime(self.source, ns=(0, self.source.stat().st_mtime_ns + 1))

    @abstractmethod
    def write(self) -> None:
        """Write the table. This is what is killed."""

    @abstractmethod
    def state(self) -> object:
        """Return what tells the old table from the new one."""

    @abstractmethod
    def start(self) -> None:
        """Do what the next program does that uses the table."""

    @abstractmethod
    def rubbish(self) -> list[Path]:
        """Return the files that nothing uses."""

    @abstractmethod
    def check(self) -> None:
        """Raise FoundWrongError unless the table is whole and right."""

    def _check_answer(self, db: relaqs.Session) -> None:
        expected = relation(SUM.replace("trips", f"'{self.source}'")).fetchall()
        answer = [tuple(row.values()) for row in db.online_sql(SUM).result().estimate.to_pylist()]
        if answer != expected:
            raise FoundWrongError(f"the answer is {answer}, not {expected}")


class Replaced(Written):
    """A layout in a warehouse, replaced by one of the next seed."""

    @property
    def table(self) -> Path:
        return self.folder / "warehouse" / "trips"

    def write(self) -> None:
        seed = self._layout().seed + 1 if self.table.exists() else 0
        shuffle(self.source, self.table, partitions=PARTITIONS, force=True, seed=seed)

    def state(self) -> object:
        return self._layout().seed

    def start(self) -> None:
        self.write()

    def rubbish(self) -> list[Path]:
        kept = {self.table / MANIFEST_NAME, self._layout().paths[0].parent}
        return [path for path in self.table.iterdir() if path not in kept]

    def check(self) -> None:
        _check_layout(self._layout(), self.rows)
        with relaqs.connect(self.table.parent, threads=1) as db:
            self._check_answer(db)

    def _layout(self) -> Layout:
        return read_manifest(self.table)


class LaidOut(Written):
    """A layout in the cache, of a file that has changed since it was laid out."""

    def write(self) -> None:
        with self._opened() as db:
            db.lay_out("trips")

    def state(self) -> object:
        return {entry.path for entry in relaqs.Cache(self.cache).entries() if not entry.is_stale}

    def start(self) -> None:
        with self._opened() as db:
            self._check_answer(db)

    def rubbish(self) -> list[Path]:
        entries = [entry.path for entry in relaqs.Cache(self.cache).entries()]
        records = {entry.parent / "source.json" for entry in entries}
        return [
            path
            for path in self.cache.rglob("*")
            if path.is_file() and path not in records and not any(_is_of(entry, path) for entry in entries)
        ]

    def check(self) -> None:
        for entry in relaqs.Cache(self.cache).entries():
            if entry.row_count != self.rows:
                raise FoundWrongError(f"{entry.path} has {entry.row_count} rows, not {self.rows}")
            if entry.kind == "layout":
                _check_layout(read_manifest(entry.path), self.rows)

    def _opened(self) -> relaqs.Session:
        return relaqs.connect(self.source, cache_directory=self.cache, threads=1)


class Copied(LaidOut):
    """A copy of a JSON file in the cache. Its nested numbers are why it is copied."""

    @property
    def source(self) -> Path:
        return self.folder / "trips.json"

    def _write_source(self, rows: duckdb.DuckDBPyRelation) -> None:
        nested = rows.project("*, {'whole': id} AS nested")
        nested.query("rows", f"COPY rows TO '{self.source}' (FORMAT json)")

    def write(self) -> None:
        self._opened().close()
        if not self.state():
            raise FoundWrongError(f"{self.source} is not copied")


WAYS: tuple[type[Written], ...] = (Replaced, LaidOut, Copied)


def _is_of(entry: Path, path: Path) -> bool:
    """Whether a file belongs to an entry: nothing that is hidden does."""
    return path.is_relative_to(entry) and not any(
        part.startswith(".") for part in path.relative_to(entry).parts
    )


def _check_layout(layout: Layout, rows: int) -> None:
    report = verify(layout.directory)
    if layout.row_count != rows or not report.ok:
        wrong = [each.detail for each in report.checks if not each.ok]
        raise FoundWrongError(f"{layout} is not what was written: {wrong}")


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one program. left: the files of no use that it left, before the next start and after."""

    way: str
    after_seconds: float
    is_over: bool
    is_new: bool
    left_by_it: int
    left_at_last: int


def kill(written: Written, after_seconds: float, signal_number: signal.Signals) -> Kill:
    """Kill a program so many seconds after it has begun to write, and return what is there then.

    Raises FoundWrongError if the table is not whole, or not right.
    """
    written.change_source()
    before = written.state()
    is_over = _run_and_kill(written, after_seconds, signal_number)
    is_new = written.state() != before
    written.check()
    left_by_it = len(written.rubbish())
    written.start()
    written.check()
    return Kill(type(written).__name__, after_seconds, is_over, is_new, left_by_it, len(written.rubbish()))


def _run_and_kill(written: Written, after_seconds: float, signal_number: signal.Signals) -> bool:
    """Return whether the program ended before it was killed."""
    with _program(written) as program:
        program.join(after_seconds)
        is_over = program.exitcode is not None
        if not is_over:
            assert program.pid is not None
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(program.pid, signal_number)
        program.join(LONGEST_SECONDS)
        if program.exitcode is None:
            raise FoundWrongError(f"{written} did not end after {signal_number.name}")
    return is_over


@contextmanager
def _program(written: Written) -> Iterator[BaseProcess]:
    """Start a process, and give it when it begins to write."""
    begins, tell = _PROCESSES.Pipe(duplex=False)
    program = _PROCESSES.Process(target=_write, args=(written, tell))
    program.start()
    try:
        begins.recv()
        yield program
    finally:
        program.kill()
        program.join()


def _write(written: Written, begins: Connection) -> None:
    tables.announce = lambda message: None
    begins.send(None)
    try:
        written.write()
    except KeyboardInterrupt:
        sys.exit(130)


def usual_seconds(written: Written) -> float:
    """Return how long a write takes that nobody kills."""
    written.change_source()
    with _program(written) as program:
        begun_at = time.perf_counter()
        program.join(LONGEST_SECONDS)
        return time.perf_counter() - begun_at


def kills(count: int, seed: int, rows: int, signal_number: signal.Signals, folder: Path) -> Iterator[Kill]:
    """Kill so many programs at moments that follow from the seed, and yield what became of each."""
    tables.announce = lambda message: None
    draws = random.Random(seed)
    ways = [way(folder / way.__name__, rows) for way in WAYS]
    for written in ways:
        written.prepare()
    seconds = [usual_seconds(written) for written in ways]
    for i in range(count):
        way = i % len(ways)
        yield kill(ways[way], draws.uniform(0, _BEYOND * seconds[way]), signal_number)


def table_of(found: Sequence[Kill], signal_name: str) -> Table:
    table = Table(
        "way",
        signal_name,
        "over before",
        "old is there",
        "new is there",
        "left files",
        "left after next start",
        box=SIMPLE_HEAD,
    )
    for way in WAYS:
        of_way = [each for each in found if each.way == way.__name__]
        new = Counter(each.is_new for each in of_way)
        table.add_row(
            way.__name__,
            str(len(of_way)),
            str(sum(each.is_over for each in of_way)),
            str(new[False]),
            str(new[True]),
            str(sum(each.left_by_it > 0 for each in of_way)),
            str(sum(each.left_at_last > 0 for each in of_way)),
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--signal", choices=["KILL", "INT"], default="KILL")
    options = parser.parse_args(arguments)
    signal_number = signal.Signals[f"SIG{options.signal}"]
    found: list[Kill] = []
    with tempfile.TemporaryDirectory() as folder, progress_bar() as progress:
        for each in kills(options.kills, options.seed, options.rows, signal_number, Path(folder)):
            found.append(each)
            progress(len(found) / options.kills, each.way)
    Console().print(table_of(found, signal_number.name))
    if any(each.left_at_last or (options.signal == "INT" and each.left_by_it) for each in found):
        sys.exit("something was left over")


if __name__ == "__main__":
    main()
