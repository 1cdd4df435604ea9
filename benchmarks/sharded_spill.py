"""What memory workers take for parameters in shards that are larger than their budget, in files and not.

    python -m benchmarks.sharded_spill [--budgets 3] [--passes 8]

Two workers on this machine, and parameters of so many times the budget. *In memory* is the same run with
RELAQS_SPILL_LIMIT=0. The most that a process takes is looked at twenty times a second: all of it, with pages
of files that are mapped, and what is its own alone, which no system can take away.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from distributed import Client, LocalCluster

from benchmarks.sharded_live import LONG_SECONDS, PARTITIONS, ROWS, SleptTraining
from relaqs import connect, shuffle
from relaqs.training.row_cache import LIMIT_VARIABLE

MEMORY_LIMIT_BYTES = 256 << 20  # of the session, the least that there is
BUDGET_BYTES = MEMORY_LIMIT_BYTES * 3 // 8  # of it, for what training keeps
WORKERS = 2
LOOK_SECONDS = 0.05


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    for name, limit in (("in files", None), ("in memory", "0")):
        with _spilling(limit), tempfile.TemporaryDirectory() as folder:
            shuffle(pa.table({"x": np.arange(ROWS) / ROWS}), Path(folder) / "points", partitions=PARTITIONS)
            print(f"{name}: {measured(folder, options)}", flush=True)


def measured(folder: str, options: argparse.Namespace) -> str:
    """Return the most memory of a worker, and what a pass takes, for people."""
    cluster = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, memory_limit=0, dashboard_address=":0", processes=True
    )
    with (
        cluster,
        Client(cluster, set_as_default=False) as client,
        connect(folder, cluster=client, memory_limit=MEMORY_LIMIT_BYTES) as db,
    ):
        job = SleptTraining("SELECT x FROM points", options.budgets * BUDGET_BYTES / 1e6, 0.0)
        with _watched(list(client.run(os.getpid).values())) as most:
            run = db.train(job, parameters="sharded", max_steps=options.passes)
            run.result(timeout=LONG_SECONDS)
        seconds = (run.steps[-1].elapsed_seconds - run.steps[0].elapsed_seconds) / (options.passes - 1)
        return (
            f"parameters of {job.megabytes:.0f} MB, budget {BUDGET_BYTES / 1e6:.0f} MB; a worker took "
            f"{most['VmRSS'] / 1e6:.0f} MB at most, {most['RssAnon'] / 1e6:.0f} MB its own; a pass "
            f"{seconds:.2f} s"
        )


@contextmanager
def _spilling(limit: str | None) -> Iterator[None]:
    """Let processes that are started inside spill no more than this."""
    before = os.environ.pop(LIMIT_VARIABLE, None)
    if limit is not None:
        os.environ[LIMIT_VARIABLE] = limit
    try:
        yield
    finally:
        os.environ.pop(LIMIT_VARIABLE, None)
        if before is not None:
            os.environ[LIMIT_VARIABLE] = before


@contextmanager
def _watched(processes: Sequence[int]) -> Iterator[dict[str, int]]:
    """Give the most bytes that one of the processes takes inside, by the names of /proc."""
    most = {"VmRSS": 0, "RssAnon": 0}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_SECONDS):
            for process in processes:
                for name, value in _memory_of(process).items():
                    most[name] = max(most[name], value)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        is_over.set()
        watcher.join()


def _memory_of(process: int) -> dict[str, int]:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded_spill")
    parser.add_argument("--budgets", type=float, default=3.0, help="how many budgets the parameters are")
    parser.add_argument("--passes", type=int, default=8)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
