"""What a task costs beside its work: threads of the process, and Dask inside the same process.

    python -m benchmarks.executors [--rounds 100]

Both run the same empty tasks through the same `Executor` door. import: of what the executor needs beyond
what runs queries (DuckDB, pyarrow), in a fresh interpreter. round trip: from one submitted task to its
result, nothing else running. tasks a second: 500 submitted at once. The choice made by it:
docs/decisions/0003-embedded-executor.md.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from statistics import median

from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table

from relaqs.executors import Executor, open_executor
from relaqs.jobs.job import JobDescription, Task, TaskKey, TaskResult

CORES = 2
TASKS_AT_ONCE = 500

Opened = Callable[[], AbstractContextManager[Executor]]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Work that takes no time."""

    def run(self, owner: str) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one executor."""

    name: str
    import_ms: float
    start_ms: float
    round_trip_ms: float
    tasks_per_second: float


@contextmanager
def threads() -> Iterator[Executor]:
    with closing(open_executor(cores=CORES)) as executor:
        yield executor


@contextmanager
def dask_in_process() -> Iterator[Executor]:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=CORES, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        closing(open_executor(client)) as executor,
    ):
        yield executor


def seconds_to_run(executor: Executor, job: str, count: int) -> float:
    """Return the seconds from submitting so many empty tasks to the last result."""
    results: SimpleQueue[TaskResult] = SimpleQueue()
    tasks = [Task(TaskKey(job, 0, index), Nothing()) for index in range(count)]
    executor.enter(JobDescription(job))
    started = time.perf_counter()
    executor.submit(tasks, results.put)
    for _ in tasks:
        results.get()
    elapsed = time.perf_counter() - started
    executor.cancel(job)
    return elapsed


def import_seconds(module: str) -> float:
    """Return what importing the module takes in a fresh interpreter that can run queries already."""
    timed = f"started = time.perf_counter(); import {module}; print(time.perf_counter() - started)"
    script = f"import relaqs.executors.duck_process, time; {timed}"
    return float(subprocess.check_output([sys.executable, "-c", script]))


def measure(name: str, module: str, opened: Opened, rounds: int) -> Figures:
    started = time.perf_counter()
    with opened() as executor:
        start_seconds = time.perf_counter() - started
        trips = [seconds_to_run(executor, f"trip-{number}", 1) for number in range(rounds)]
        at_once = seconds_to_run(executor, "at-once", TASKS_AT_ONCE)
    imported = median(import_seconds(module) for _ in range(3))
    return Figures(name, imported * 1e3, start_seconds * 1e3, median(trips) * 1e3, TASKS_AT_ONCE / at_once)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executors", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="round trips measured, default 100")
    rounds = parser.parse_args(arguments).rounds
    table = Table("executor", "import ms", "start ms", "round trip ms", "tasks a second")
    for figures in (
        measure("threads", "relaqs.executors.threads", threads, rounds),
        measure("Dask in process", "relaqs.executors.dask", dask_in_process, rounds),
    ):
        table.add_row(
            figures.name,
            f"{figures.import_ms:.0f}",
            f"{figures.start_ms:.1f}",
            f"{figures.round_trip_ms:.2f}",
            f"{figures.tasks_per_second:,.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
