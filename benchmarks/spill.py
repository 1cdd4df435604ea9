"""What a pass of training costs where the rows do not fit into memory: mapped from files, or read by DuckDB.

    python -m benchmarks.spill [--scale 1] [--passes 8] [--runs 3] [--workers 2] [--data FOLDER]

The rows are seven columns of TPC-H lineitem, three times what may be kept in memory. Each way trains the same
jobs, embedded or (with --workers) on Dask workers of this machine: with all rows in memory, with rows spilled
to files, and with rows read again. Printed: CPU seconds and seconds on the clock for a pass, the least of the
runs, after two passes that count for nothing. Other losses than those from memory fail the benchmark.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from relaqs_tpch import generate
from rich.console import Console
from rich.table import Table

from benchmarks.record import DATA, circumstances, headline, write
from benchmarks.training_data import LINEITEM
from relaqs.opening import connect
from relaqs.session import Session
from relaqs.training import BoostedClassifier, KMeans, LinearSVM, LogisticRegression, TrainingJob
from relaqs.training.row_cache import KEPT, LIMIT_VARIABLE, SPILL

FIRST_PASSES = 2  # not counted: what is read first, and tasks of sizes that nobody has measured
PARTITIONS = 40
NUMBERS = 7  # in a row
ROWS_PER_SCALE = 6_001_215
TIMES = 3  # what may be kept fits so often into the rows
SHARE = 0.75 * 0.5  # of the session's memory limit may be kept
PLENTY = 100


@dataclass(frozen=True, slots=True)
class Way:
    """How rows come to a pass. times: how often the memory that may be kept fits into them."""

    name: str
    times: float
    spill_limit: str


WAYS = (
    Way("in memory", 1 / PLENTY, "0"),
    Way("spilled", TIMES, "1TB"),
    Way("read by DuckDB", TIMES, "0"),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pass took, and the losses of all passes. spilled_bytes: at the end, in this process."""

    job: str
    way: str
    cpu_seconds: float
    wall_seconds: float
    spilled_bytes: int
    losses: tuple[float, ...]


def jobs() -> dict[str, TrainingJob]:
    features = f"SELECT {LINEITEM}"
    classes = f"{features}, l_returnflag = 'R' AS y FROM lineitem"
    return {
        "linear SVM": LinearSVM(classes, target="y"),
        "logistic regression": LogisticRegression(classes, target="y"),
        "boosted trees": BoostedClassifier(classes, target="y", trees=12, depth=4),
        "K-Means": KMeans(f"{features} FROM lineitem", clusters=10, tolerance=0),
    }


def cpu_seconds() -> float:
    """Return what this process and its workers have computed so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def measure(db: Session, name: str, job: TrainingJob, way: Way, passes: int) -> Cost:
    """Return the means of the passes after the first ones."""
    run = db.train(job, max_steps=FIRST_PASSES + passes)
    while len(run.losses) < FIRST_PASSES and not run.wait(0.001):
        pass
    begun, cpu, wall = len(run.losses), cpu_seconds(), time.perf_counter()
    while len(run.losses) < FIRST_PASSES + passes and not run.wait(0.001):
        spilled = SPILL.byte_count
    cpu, wall, counted = cpu_seconds() - cpu, time.perf_counter() - wall, len(run.losses) - begun
    run.result()
    return Cost(name, way.name, cpu / counted, wall / counted, spilled, run.losses)


@contextmanager
def opened(options: argparse.Namespace, way: Way) -> Iterator[Session]:
    """Give a session with so much memory, on threads of this process or on workers of its own."""
    row_bytes = options.scale * ROWS_PER_SCALE * NUMBERS * 8
    limit = int(row_bytes / way.times / SHARE)
    os.environ[LIMIT_VARIABLE] = way.spill_limit
    KEPT.drop_unused_since(float("inf"))
    with ExitStack() as closing:
        address = None
        if options.workers:
            from distributed import LocalCluster

            cluster = LocalCluster(
                options.workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0
            )
            address = closing.enter_context(cluster).scheduler_address
        yield closing.enter_context(connect(options.folder, cluster=address, memory_limit=limit))


def measured(options: argparse.Namespace) -> list[Cost]:
    found = []
    for _ in range(options.runs):
        for way in WAYS:
            with opened(options, way) as db:
                for name, job in jobs().items():
                    found.append(measure(db, name, job, way, options.passes))
                    print(f"{name}, {way.name}: {found[-1].cpu_seconds:.3f} CPU s a pass", flush=True)
    for name in jobs():
        if len({cost.losses for cost in found if cost.job == name}) != 1:
            raise SystemExit(f"{name} has other losses where its rows are not in memory")
    return found


def table(costs: Sequence[Cost]) -> Table:
    """Return the least that a pass took. The last column: what rows cost that are not in memory."""
    found = Table("job", "rows", "CPU s a pass", "s a pass", "DuckDB / this", "CPU s above memory")
    for name in jobs():
        of_job = {
            way.name: [cost for cost in costs if (cost.job, cost.way) == (name, way.name)] for way in WAYS
        }
        cpu = {way: min(cost.cpu_seconds for cost in of_way) for way, of_way in of_job.items()}
        for way, of_way in of_job.items():
            wall = min(cost.wall_seconds for cost in of_way)
            ratio, above = cpu[WAYS[-1].name] / cpu[way], cpu[way] - cpu[WAYS[0].name]
            found.add_row(name, way, f"{cpu[way]:.3f}", f"{wall:.3f}", f"{ratio:.1f}", f"{above:.3f}")
    return found


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spill", description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H")
    parser.add_argument("--passes", type=int, default=8, help="that are measured, of each run")
    parser.add_argument("--runs", type=int, default=3, help="of each job in each way")
    parser.add_argument("--workers", type=int, default=0, help="processes of Dask. 0: embedded")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for data that is made")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("spill", words)
    options.folder = options.data / f"spill-{options.scale:g}"
    generate(options.scale, options.folder, partitions=PARTITIONS)
    costs = measured(options)
    console = Console(width=110)
    console.print(headline(facts))
    console.print(table(costs))
    print(write("spill", facts, {"costs": [asdict(cost) for cost in costs]}))


if __name__ == "__main__":
    main()
