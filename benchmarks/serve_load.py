"""Does a server lose anything under many connections, and what does it cost beside an embedded session?

    python -m benchmarks.serve_load WAREHOUSE [--connections 50] [--seconds 300] [--threads 2]
    python -m benchmarks.serve_load WAREHOUSE --small [--connections 20] [--seconds 30] [--page PAGE]

A process serves the warehouse, one of TPC-H. Another one opens the connections. Each asks ten questions one
after another, exactly and with a target of 5 % in turn. In a third process so many threads ask one session
the same. The two take turns, a quarter of the time each, and so they do with one asker alone. Every exact
answer must be DuckDB's. Last, one client fetches many rows.

With --small it tells how many small statements a second are answered, what CPU time each takes, and what
memory the server has: by one, two and four processes (`relaqs serve --processes`), from one connection, and
from all as those of one user and of several. --page docs/robustness.md writes the table into that page.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import psycopg
import pyarrow as pa
from relaqs_engine.catalog import Catalog
from rich.console import Console
from rich.table import Table

from benchmarks import record
from benchmarks.first_questions import TPCH as QUESTIONS
from benchmarks.plain_duckdb import PlainDuckDB, files_of_layouts
from benchmarks.serve_askers import (
    GOOD,
    KINDS,
    TARGET,
    VERDICTS,
    Asked,
    AskingProcess,
    Door,
    EmbeddedDoor,
    Order,
    ServerDoor,
)
from benchmarks.server_process import Running, serving

SERVER, EMBEDDED = "server", "embedded"
TURNS = (SERVER, EMBEDDED) * 2
LISTS_ALONE = 3  # for each turn
ALONE_SECONDS = 600.0  # at most
ALLOWED_RATIO = 1.5  # of the first answers, to one client alone
WIDE = "SELECT * FROM lineitem WHERE l_orderkey <= 40000"
FETCHES = 3
SMALL, SMALL_ANSWER = "SELECT count(*) FROM nation", [(25,)]
NO_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class Figures:
    """How long the answers of one kind took, through one door. seconds: the median, and at 95 %."""

    kind: str
    askers: int
    door: str
    answers: int
    median_seconds: float
    most_seconds: float

    @classmethod
    def of(cls, kind: str, askers: int, door: str, asked: Sequence[Asked]) -> Figures:
        seconds = [each.seconds for each in asked if each.kind == kind and each.verdict in GOOD]
        middle, most = np.percentile(seconds, [50, 95]) if seconds else (math.nan, math.nan)
        return cls(kind, askers, door, len(seconds), float(middle), float(most))


@dataclass(frozen=True, slots=True)
class Load:
    """What a run came to. asked: by askers at once and door. values_per_second: one client fetches."""

    asked: dict[tuple[int, str], list[Asked]]
    values_per_second: float

    @property
    def figures(self) -> list[Figures]:
        return [
            Figures.of(kind, askers, door, asked)
            for (askers, door), asked in self.asked.items()
            for kind in KINDS
        ]

    @property
    def first_ratio(self) -> float:
        """How much longer a first answer takes through the server, to one client alone."""
        found = {(each.askers, each.door, each.kind): each.median_seconds for each in self.figures}
        return found[1, SERVER, TARGET] / found[1, EMBEDDED, TARGET]

    def verdicts(self, door: str) -> Counter[str]:
        return Counter(
            each.verdict for (_, there), asked in self.asked.items() if there == door for each in asked
        )

    @property
    def bad(self) -> list[str]:
        """What was said of each question that had no good answer."""
        return [
            f"{each.verdict}, {door}, {each.kind}, {each.said}"
            for (_, door), asked in self.asked.items()
            for each in asked
            if each.verdict not in GOOD
        ]


def measure(warehouse: Path, connections: int, seconds: float, threads: int) -> Load:
    """Ask for so long with all connections, and as often as LISTS_ALONE says with one."""
    truths = truths_of(warehouse, threads)
    with ExitStack() as stack:
        server = stack.enter_context(serving(warehouse, "--threads", str(threads)))
        doors: dict[str, Door] = {
            SERVER: ServerDoor.of(server, connections),
            EMBEDDED: EmbeddedDoor(warehouse, threads),
        }
        processes = {name: stack.enter_context(AskingProcess(door, truths)) for name, door in doors.items()}
        once = len(KINDS) * len(QUESTIONS)
        for process in processes.values():
            process.take(Order(1, ALONE_SECONDS, once))  # whatever the first questions open stays open
        asked: dict[tuple[int, str], list[Asked]] = {}
        for order in (
            Order(1, ALONE_SECONDS, LISTS_ALONE * once),
            Order(connections, seconds / len(TURNS), NO_LIMIT),
        ):
            for door in TURNS:
                asked.setdefault((order.askers, door), []).extend(processes[door].take(order))
        return Load(asked, values_per_second(server))


def truths_of(warehouse: Path, threads: int) -> list[pa.Table]:
    """Return DuckDB's answers to the questions."""
    with PlainDuckDB(files_of_layouts(Catalog.open(warehouse)), threads) as duckdb:
        return [duckdb.table(sql) for sql in QUESTIONS]


def values_per_second(server: Running) -> float:
    """Return how many values one client fetches in a second, the query's own time included."""
    rates = []
    with psycopg.connect(server.address()) as connection:
        for _ in range(FETCHES):
            started = time.perf_counter()
            rows = connection.execute(WIDE).fetchall()
            rates.append(sum(map(len, rows)) / (time.perf_counter() - started))
    return median(rates)


@dataclass(frozen=True, slots=True)
class Small:
    """How many small statements were answered. cpu_seconds, memory_bytes: of all processes together."""

    processes: int
    connections: int
    users: int
    statements: int
    seconds: float
    cpu_seconds: float
    memory_bytes: int

    @property
    def row(self) -> tuple[str, ...]:
        each = 1000 * self.cpu_seconds / self.statements
        rates = (
            f"{self.statements / self.seconds:.0f}",
            f"{each:.1f}",
            f"{self.cpu_seconds / self.seconds:.1f}",
        )
        return (
            *map(str, (self.processes, self.connections, self.users)),
            *rates,
            f"{self.memory_bytes / 1e6:.0f}",
        )


def measure_small(
    warehouse: Path, processes: int, connections: int, users: int, seconds: float, threads: int
) -> Small:
    """Ask a server for so long, each connection one small question again and again."""
    options = ("--threads", str(threads), "--processes", str(processes))
    with ExitStack() as stack:
        server = stack.enter_context(serving(warehouse, *options))
        opened = [
            stack.enter_context(psycopg.connect(server.address(f"user-{number % users}"), autocommit=True))
            for number in range(connections)
        ]
        for connection in opened:
            ask_small(connection, time.monotonic())  # whatever the first question opens stays open
        before, began = cpu_seconds(server), time.monotonic()
        with ThreadPoolExecutor(connections) as pool:
            counts = list(pool.map(partial(ask_small, until=began + seconds), opened))
        took = time.monotonic() - began
        used = cpu_seconds(server) - before
        memory = sum(each.memory_full_info().pss for each in family(server))
        return Small(processes, connections, users, sum(counts), took, used, memory)


def ask_small(connection: psycopg.Connection[Any], until: float) -> int:
    """Ask until a moment, once at least. Return how often."""
    count = 0
    while not count or time.monotonic() < until:
        assert connection.execute(SMALL).fetchall() == SMALL_ANSWER
        count += 1
    return count


def family(server: Running) -> list[psutil.Process]:
    """Return all processes of a server."""
    first = psutil.Process(server.process.pid)
    return [first, *first.children()]


def cpu_seconds(server: Running) -> float:
    """Return what a server's processes have computed so far."""
    times = [each.cpu_times() for each in family(server)]
    return float(sum(each.user + each.system for each in times))


def small(options: argparse.Namespace, facts: dict[str, Any], console: Console) -> int:
    """Measure small statements, and show how many there were."""
    many = options.connections
    cases = [(1, 1, 1), *((count, many, users) for count in (1, 2, 4) for users in (1, many))]
    seconds = options.seconds / len(cases)
    found = [measure_small(options.warehouse, *case, seconds, options.threads) for case in cases]
    head = ("processes", "connections", "users", "statements a second", "CPU ms each", "cores used", "MB")
    rows = [head, *(each.row for each in found)]
    for row in rows:
        console.print(" · ".join(row), markup=False)
    content = {"small": [asdict(each) for each in found]}
    console.print(f"{record.NOT_OFFICIAL} Record: {record.write('serve_load', facts, content)}")
    if options.page is not None:
        record.put_into(options.page, "small statements", facts, rows)
    return 0


def table_of(load: Load) -> Table:
    table = Table("answers", "askers", "door", "answered", "median s", "95 % s", "ratio", "ratio at 95 %")
    embedded = {(each.kind, each.askers): each for each in load.figures if each.door == EMBEDDED}
    for each in load.figures:
        own = embedded[each.kind, each.askers]
        ratios = (each.median_seconds / own.median_seconds, each.most_seconds / own.most_seconds)
        shown = [f"{ratio:.2f}" if each.door == SERVER else "" for ratio in ratios]
        times = [f"{seconds:.3f}" for seconds in (each.median_seconds, each.most_seconds)]
        table.add_row(each.kind, str(each.askers), each.door, str(each.answers), *times, *shown)
    return table


def verdicts_of(load: Load) -> Table:
    table = Table("door", *VERDICTS)
    for door in (SERVER, EMBEDDED):
        counted = load.verdicts(door)
        table.add_row(door, *(str(counted[verdict]) for verdict in VERDICTS))
    return table


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serve_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("warehouse", type=Path, help="with TPC-H laid out")
    parser.add_argument("--connections", type=int, default=50, help="at once, default 50")
    parser.add_argument("--seconds", type=float, default=300.0, help="for both doors, default 300")
    parser.add_argument("--threads", type=int, default=2, help="of the server and the session, default 2")
    parser.add_argument("--small", action="store_true", help="count small statements")
    parser.add_argument("--page", type=Path, help="of Markdown, to write the table of these into")
    options = parser.parse_args(words)
    facts = record.circumstances("serve_load", words)
    if options.small:
        return small(options, facts, Console(soft_wrap=True))
    load = measure(options.warehouse, options.connections, options.seconds, options.threads)
    console = Console(soft_wrap=True, width=110)
    console.print(record.headline(facts), table_of(load), verdicts_of(load), *load.bad, sep="\n")
    console.print(
        f"One client alone has its first answer after {load.first_ratio:.2f} × the time of an embedded one "
        f"({ALLOWED_RATIO:g} allowed). It fetches {load.values_per_second:,.0f} values a second."
    )
    content = {
        "figures": [asdict(each) for each in load.figures],
        "verdicts": {door: dict(load.verdicts(door)) for door in (SERVER, EMBEDDED)},
        "first_ratio": load.first_ratio,
        "values_per_second": load.values_per_second,
    }
    console.print(f"{record.NOT_OFFICIAL} Record: {record.write('serve_load', facts, content)}")
    return int(bool(load.bad) or load.first_ratio > ALLOWED_RATIO)


if __name__ == "__main__":
    sys.exit(main())
