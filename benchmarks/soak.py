"""Does anything grow, or stop being right, in hours of use? Minutes of it, and what each process holds.

    python -m benchmarks.soak --minutes 30 [--viewers 20] [--clients 5] [--every 20] [--scale 0.05] [--seed 1]
    python -m benchmarks.soak --queries 2000 [--scale 0.05]

The first: a dashboard's server with viewers, clients that ask queries and one that trains, all on one
cluster, beside a fault every so many seconds; every answer must be right, each training run end as it would
without faults, and the viewers hear from the server to the end. Queries: so many one after the other, in one
process. Memory (resident, MB) and open descriptors are printed at intervals; what counts is that from the
second quarter on they stay: by then all is imported, and all buffers have grown.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from relaqs_tpch.data import ORIGINALS
from relaqs_tpch.exact import difference
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks import record, tpch
from benchmarks.faults_client import ClientProcess
from benchmarks.faults_cluster import Cluster, Processes
from benchmarks.faults_drawn import KILLED, LATE, RESTARTED, STOPPED, drawn
from benchmarks.faults_happen import Faults
from benchmarks.faults_judged import EQUAL, MIX, PASSES, Tally, Truth
from benchmarks.soak_viewers import Board

KINDS = (KILLED, STOPPED, RESTARTED, LATE)
ANSWER_SECONDS = 120.0  # more than in `faults`: eight programs share two workers
LOOK_SECONDS = 0.2
QUERIES, TRAINING = "queries of the clients", "training"
LOOKS = 20  # at what processes hold, in a run
GROWTH = 1.25  # of memory, from the second quarter to the end; beyond it something grows
MORE_DESCRIPTORS = 16


@dataclass
class Held:
    """What one process held at each look. pid: of a process that stays; 0: not started yet."""

    name: str
    pid: int
    megabytes: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def look(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            self.megabytes.append(process.memory_info().rss / 1e6)
            self.descriptors.append(process.num_fds())

    @property
    def has_grown(self) -> bool:
        """Whether the last quarter has clearly more than the second one."""
        quarter = len(self.megabytes) // 4
        if not quarter:
            return False
        grown = max(self.megabytes[-quarter:]) > GROWTH * max(self.megabytes[quarter : 2 * quarter])
        early = max(self.descriptors[quarter : 2 * quarter])
        return grown or max(self.descriptors[-quarter:]) > early + MORE_DESCRIPTORS

    def line(self) -> str:
        return f"{self.name} {self.megabytes[-1]:.0f} MB, {self.descriptors[-1]}"


def table_of(held: Sequence[Held]) -> Table:
    table = Table("process", "MB first", "at a quarter", "last", "descriptors first", "at a quarter", "last")
    for each in held:
        quarter = len(each.megabytes) // 4
        memory = [f"{each.megabytes[at]:.0f}" for at in (0, quarter, -1)]
        table.add_row(each.name, *memory, *(str(each.descriptors[at]) for at in (0, quarter, -1)))
    return table


class Soak:
    """Viewers, clients and a training run beside faults, until the time is over."""

    def __init__(self, cluster: Cluster, processes: Processes, warehouse: Path, truth: Truth, faults: Faults):
        self._cluster = cluster
        self._truth = truth
        self._faults = faults
        self._trainer = ClientProcess(processes, cluster.address, warehouse)
        self._new_client: Callable[[], ClientProcess] = lambda: ClientProcess(
            processes, cluster.address, warehouse
        )
        self._clients: list[ClientProcess] = []
        self._asked: dict[int, tuple[int, float]] = {}  # by client: the query's number, and since when
        self.tally = Tally()
        self.held: list[Held] = []

    def run(self, seconds: float, clients: int, every_seconds: float, seed: int, board: Board) -> None:
        source = random.Random(seed)
        drawn_faults = itertools.cycle(drawn(seed, 1000, KINDS, len(MIX)))
        self._clients = [self._new_client() for _ in range(clients)]
        self._trainer.ask(train=PASSES)
        for number in range(clients):
            self._ask(number, source)
        started = time.monotonic()
        next_fault, next_look, undo = started + every_seconds, started, None
        while (now := time.monotonic()) < started + seconds:
            if now >= next_fault:
                next_fault += every_seconds
                fault = next(drawn_faults)
                self.tally.faults[fault.kind] += 1
                undo = self._faults.happen(fault)
                undo()
                self._cluster.heal()
            if now >= next_look:
                next_look += seconds / LOOKS
                self._look(now - started, board)
            self._collect(source)
            time.sleep(LOOK_SECONDS)
        self._finish()

    def close(self) -> None:
        for client in (*self._clients, self._trainer):
            client.kill()

    def _ask(self, number: int, source: random.Random) -> None:
        query = source.randrange(len(MIX))
        self._asked[number] = query, time.monotonic()
        self._clients[number].ask(sql=list(MIX.values())[query], seed=source.randrange(1000))

    def _collect(self, source: random.Random) -> None:
        for number, client in enumerate(self._clients):
            query, since = self._asked[number]
            if client.has_answer() or time.monotonic() > since + ANSWER_SECONDS:
                self._judge(QUERIES, list(MIX)[query], query, client, 0.0)
                self._ask(number, source)
        if self._trainer.has_answer():
            self._judge(TRAINING, "KMeans", 0, self._trainer, 0.0)
            self._trainer.ask(train=PASSES)

    def _finish(self) -> None:
        for number, client in enumerate(self._clients):
            query, _ = self._asked[number]
            self._judge(QUERIES, list(MIX)[query], query, client, ANSWER_SECONDS)
        self._judge(TRAINING, "KMeans", 0, self._trainer, ANSWER_SECONDS)

    def _judge(self, kind: str, what: str, number: int, client: ClientProcess, seconds: float) -> None:
        self.tally.add(kind, what, self._truth.verdict(number, client.answer(seconds)))

    def _look(self, seconds: float, board: Board) -> None:
        if not self.held:
            named = {
                "server": board.pid,
                "scheduler": self._cluster.scheduler_pid,
                "trainer": self._trainer.pid,
            }
            named |= {f"client {number}": client.pid for number, client in enumerate(self._clients)}
            self.held = [Held(name, pid) for name, pid in named.items()]
        for each in self.held:
            each.look()
        equal = self.tally.counted[QUERIES, EQUAL], self.tally.counted[TRAINING, EQUAL]
        print(
            f"{seconds:6.0f} s, {equal[0]} answers and {equal[1]} training runs right, "
            f"{board.updates} updates seen | " + " | ".join(each.line() for each in self.held),
            flush=True,
        )


def soak(options: argparse.Namespace, console: Console) -> int:
    """Return 0 if all held."""
    folder = tpch.warehouse(options.scale)[0]
    with ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaqs-soak-")))
        warehouse = scratch / "warehouse"
        shutil.copytree(folder, warehouse, ignore=shutil.ignore_patterns(ORIGINALS))
        truth = Truth.of(folder / ORIGINALS, warehouse)
        processes = Processes(scratch / "processes.log")
        stack.callback(processes.kill)
        with Cluster(processes) as cluster, Board(processes, cluster.address, warehouse, scratch) as board:
            board.open(options.viewers)
            faults = Faults(cluster, warehouse, scratch)
            run = Soak(cluster, processes, warehouse, truth, faults)
            run.run(options.minutes * 60, options.clients, options.every, options.seed, board)
            run.close()
            quiet = board.quiet_viewers()
        orphans = processes.alive()
        console.print(
            run.tally.table([QUERIES, TRAINING, *KINDS]), table_of(run.held), *run.tally.notes, sep="\n"
        )
        console.print(f"viewers that heard nothing at the end: {quiet}; processes left: {len(orphans)}")
        grown = [each.name for each in run.held if each.has_grown]
        console.print(f"grown: {', '.join(grown) or 'none'}")
        return 0 if run.tally.is_good and not (orphans or grown or quiet) else 1
    return 130


def queries(options: argparse.Namespace, console: Console) -> int:
    """Ask one query after the other in this process. Return 0 if all were right and nothing grew."""
    folder, originals = tpch.warehouse(options.scale)
    truth = Truth.of(originals, folder)
    held, wrong = Held("this process", os.getpid()), 0
    every = max(1, min(100, options.queries // LOOKS))
    with relaqs.connect(folder) as db:
        for number in range(options.queries):
            position = number % len(MIX)
            found = db.online_sql(list(MIX.values())[position], seed=number).result().estimate
            wrong += difference(truth.answers[position], found) is not None
            if number % every == every - 1:
                held.look()
                print(f"{number + 1:5} queries, {wrong} wrong | {held.line()}", flush=True)
    if held.megabytes:
        console.print(table_of([held]))
    return 0 if not wrong and not held.has_grown else 1


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="default 30")
    parser.add_argument("--viewers", type=int, default=20, help="of the dashboard, default 20")
    parser.add_argument("--clients", type=int, default=5, help="with queries, default 5")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between faults, default 20")
    parser.add_argument("--queries", type=int, default=0, help="so many, in one process, and nothing else")
    parser.add_argument("--scale", type=float, default=0.05, help="of the TPC-H data, default 0.05")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    console = Console(soft_wrap=True, width=110)
    console.print(record.headline(record.circumstances("soak", words)))
    return queries(options, console) if options.queries else soak(options, console)


if __name__ == "__main__":
    sys.exit(main())
