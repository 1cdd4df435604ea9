"""Is every answer right, or an error that says why, while processes die, hang and run out of room?

    python -m benchmarks.faults [--seed 1] [--faults 30] [--kinds "worker killed,busy disk"] [--scale 0.05]

A scheduler, a worker on its own and one with a nanny, a client that asks queries, one that trains and one
that asks a server of the same cluster (`relaqs serve`), over a small TPC-H warehouse. For each fault the next
query of a mix is sent, the fault happens at a drawn moment (a worker that is in want joins before it), and
the answer must be DuckDB's on the original files, or an error of the cluster, the data or the memory that
says so, within a minute. Then the cluster is healed, and the next fault comes. Training runs beside it all,
one run after another; its losses must be those of a run without faults, and the last one must end. The server
is asked one query after another, too. At the end all processes are sent SIGTERM, and none may be left 5 s
later. The seed draws the faults.

A full disk is a file system of a megabyte where this is run by root on Linux, else a limit to the size of
files. A busy disk is another process that reads all partitions, again and again, past the machine's cache.
The bits of a partition are flipped in a copy of the warehouse, and flipped back.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import psycopg
from relaqs_tpch.data import ORIGINALS
from rich.console import Console

from benchmarks import record, tpch
from benchmarks.faults_client import MEMORY_LIMIT, ClientProcess
from benchmarks.faults_cluster import LOOK_SECONDS, Cluster, Processes, free_port
from benchmarks.faults_drawn import CLIENT, JOINING, KINDS, Fault, drawn
from benchmarks.faults_happen import Faults, Undo
from benchmarks.faults_judged import EQUAL, MIX, PASSES, Tally, Truth

HANG_SECONDS = 60.0
LAST_TRAINING_SECONDS = 180.0
END_SECONDS = 5.0
TRAINING = "training beside it"
SERVING = "a server beside it"


class Run:
    """One run of the harness: the faults, one after another, and what became of the answers."""

    def __init__(
        self,
        cluster: Cluster,
        processes: Processes,
        warehouse: Path,
        faults: Faults,
        truth: Truth,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._truth = truth
        self._say = say
        self._client = ClientProcess(processes, cluster.address, warehouse)
        self._trainer = ClientProcess(processes, cluster.address, warehouse)
        self._guest = ClientProcess(processes, cluster.address, warehouse)
        self._server = served(processes, cluster.address, warehouse)
        self._questions = itertools.cycle(range(len(MIX)))
        self._question = 0
        self.tally = Tally()

    def all_of(self, faults: Sequence[Fault]) -> None:
        self._trainer.ask(train=PASSES)
        self._ask_server()
        for number, fault in enumerate(faults):
            self._one(number, fault)
            self._look_at_training()
            self._look_at_server()
        self._judge_training(LAST_TRAINING_SECONDS)
        self._judge_server(HANG_SECONDS)

    def _one(self, number: int, fault: Fault) -> None:
        name, sql = list(MIX.items())[fault.query]
        if fault.kind in JOINING:  # to start takes longer than most queries
            undo = self._happen(fault)
            self._cluster.wait_for_joining()
        sent = time.monotonic()
        self._client.ask(sql=sql, seed=fault.seed)
        if fault.kind not in JOINING:
            time.sleep(fault.after_seconds)
            undo = self._happen(fault)
        try:
            said = self._client.answer(HANG_SECONDS - (time.monotonic() - sent))
        finally:
            undo()
        verdict = self._truth.verdict(fault.query, said)
        self.tally.faults[fault.kind] += 1
        self.tally.add(fault.kind, name, verdict)
        took = time.monotonic() - sent
        self.tally.longest[fault.kind] = max(self.tally.longest.get(fault.kind, 0.0), took)
        self._say(f"{number + 1:4} {fault.kind:24} {name:24} {verdict[0]} after {took:.1f} s {verdict[1]}")
        self._cluster.heal()

    def _happen(self, fault: Fault) -> Undo:
        if fault.kind != CLIENT:
            return self._faults.happen(fault)
        self._client.kill_and_ask_again()
        return lambda: None

    def _look_at_training(self) -> None:
        if self._trainer.has_answer():
            self._judge_training(0.0)
            self._trainer.ask(train=PASSES)

    def _ask_server(self) -> None:
        self._question = next(self._questions)
        self._guest.ask(sql=list(MIX.values())[self._question], server=self._server)

    def _look_at_server(self) -> None:
        if self._guest.has_answer():
            self._judge_server(0.0)
            self._ask_server()

    def _judge_server(self, timeout_seconds: float) -> None:
        said = self._guest.answer(timeout_seconds)
        verdict = self._truth.verdict(self._question, said)
        self.tally.faults[SERVING] += 1
        took = math.inf if said is None else said.get("seconds", math.inf)
        self.tally.longest[SERVING] = max(self.tally.longest.get(SERVING, 0.0), took)
        name = list(MIX)[self._question]
        self.tally.add(SERVING, name, verdict)
        self._say(f"     {SERVING:24} {name:24} {verdict[0]} after {took:.1f} s {verdict[1]}")

    def _judge_training(self, timeout_seconds: float) -> None:
        verdict = self._truth.verdict(0, self._trainer.answer(timeout_seconds))
        self.tally.faults[TRAINING] += 1
        self.tally.add(TRAINING, "KMeans", verdict)
        self._say(f"     {TRAINING:24} {verdict[0]} {verdict[1]}")


def served(processes: Processes, cluster: str, warehouse: Path) -> str:
    """Start a server on a cluster, and return by which words clients connect to it."""
    port = free_port()
    processes.start(
        *("relaqs", "serve", "--data", str(warehouse), "--cluster", cluster, "--port", str(port)),
        *("--memory-limit", MEMORY_LIMIT),
    )
    address = f"host=127.0.0.1 port={port} user=ana dbname=relaqs"
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            return address


def named(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return "one that has ended meanwhile"


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="draws the faults, default 1")
    parser.add_argument("--faults", type=int, default=30, help="how many, default 30")
    parser.add_argument("--scale", type=float, default=0.05, help="of the TPC-H data, default 0.05")
    parser.add_argument(
        "--data", type=Path, help="a warehouse with its original files, instead of making one"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}; default all")
    parser.add_argument("--page", type=Path, help="of Markdown, to write the table into")
    options = parser.parse_args(words)
    options.kinds = [kind.strip() for kind in options.kinds.split(",")]
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Return 0 if every answer was right or a clear error, training ended, and nothing was left."""
    options = arguments(words)
    console = Console(soft_wrap=True, width=110)
    facts = record.circumstances("faults", words)
    folder = options.data or tpch.warehouse(options.scale)[0]
    with ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaqs-faults-")))
        warehouse = scratch / "warehouse"
        shutil.copytree(folder, warehouse, ignore=shutil.ignore_patterns(ORIGINALS))
        truth = Truth.of(folder / ORIGINALS, warehouse)
        processes = Processes(scratch / "processes.log")
        stack.callback(processes.kill)
        with Cluster(processes) as cluster:
            run = Run(
                cluster, processes, warehouse, Faults(cluster, warehouse, scratch), truth, console.print
            )
            run.all_of(drawn(options.seed, options.faults, options.kinds, len(MIX)))
            orphans = [named(each) for each in processes.left_after_sigterm(END_SECONDS)]
        kinds = [*options.kinds, TRAINING, SERVING]
        rows = run.tally.rows(kinds)
        console.print(record.headline(facts), run.tally.table(kinds), sep="\n")
        console.print(
            f"processes left {END_SECONDS:.0f} s after SIGTERM: {len(orphans)}",
            *orphans,
            *run.tally.notes,
            sep="\n",
        )
        console.print(f"Record: {record.write('faults', facts, {'rows': rows, 'left': len(orphans)})}")
        if options.page is not None:
            record.put_into(options.page, "faults of a cluster", facts, rows)
        has_trained = run.tally.counted[TRAINING, EQUAL] > 0
        return 0 if run.tally.is_good and has_trained and not orphans else 1
    return 130


if __name__ == "__main__":
    sys.exit(main())
