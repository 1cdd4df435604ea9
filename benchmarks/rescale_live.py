"""What a change of a gang costs while it trains, beside a restart from a checkpoint.

    python -m benchmarks.rescale_live [--megabytes 0.1 4 40] [--times 5]

A cluster of four processes of one thread. A made-up model of some size trains on 1, 2, 4 and 1 ranks with
512 rows a step. *Pause* is from the end of the last step before a change to the start of the first one after
it, of the worst rank that had made one. *Restart* is the same change in another way: the last
state is written to a file, a new process starts, reads it, and makes a step. *Pace while it prepares*: the
steps a second while new ranks are made ready, as a share of those before.
"""

from __future__ import annotations

import argparse
import math
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import LocalCluster
from relaqs_bootstrap.arrays import FloatArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.executors.dask import DaskExecutor
from relaqs.training.elastic.course import FixedBatch, Order, first_course
from relaqs.training.elastic.rank import Lesson, Rank
from relaqs.training.protocol import MiniBatches
from relaqs.training.rows import Profile, Rows, Sums
from tests.relaqs.training.gangs import LoneGang

ROWS, FEATURES, PIECE_ROWS = 8192, 16, 64
STEP_ROWS, CHANGES = 512, (2, 4, 1)
SETTLE_SECONDS = 1.0  # of training before each change


@dataclass(frozen=True, kw_only=True)
class Sized(MiniBatches):
    """A model of so many bytes. Each step uses all of them once."""

    sql: str = "SELECT * FROM made_up"
    target: None = None
    start_rows: int = PIECE_ROWS
    rows_most: int | None = 512
    megabytes: float = 0.1

    def begin(self, profile: Profile | None) -> FloatArray:
        return np.zeros((round(self.megabytes * 1e6 / 8 / FEATURES), FEATURES))

    def rate(self, progress: float) -> float:
        return 1e-3

    def partial(self, state: Any, rows: Rows, draw: int) -> Sums:
        return np.asarray(1.0), state + rows.features.sum(axis=0)

    def gradients(self, sums: Sums) -> Sums:
        return ()

    def update(self, state: Any, sums: Sums, rows: int, rate: float) -> Any:
        return state - rate / rows * sums[1]

    def evaluate(self, state: Any, rows: Rows) -> Sums:
        return (np.asarray(1.0),)

    def estimator(self, profile: Profile, state: Any) -> FloatArray:
        return np.asarray(state)


@dataclass(frozen=True)
class Numbers:
    """Rows without a source."""

    order: Order

    def rows(self, piece: int) -> Rows:
        return Rows(np.random.default_rng(piece).normal(size=(PIECE_ROWS, FEATURES)), None)


@dataclass(frozen=True)
class SizedRecipe:
    """Makes the lesson of a model. prepare_seconds: how long imports of a large library would take."""

    job: Sized
    prepare_seconds: float = 0.0

    def actor(self, slot: str, owner: str) -> Rank:
        return Rank(slot, self.lesson())

    def lesson(self) -> Lesson:
        time.sleep(self.prepare_seconds)
        order = Order((ROWS,), PIECE_ROWS, 0)
        first = first_course(self.job, self.job.begin(None))
        return Lesson(self.job, FixedBatch(STEP_ROWS), order, first, Numbers(order))


@dataclass
class Found:
    """What was measured for one size."""

    pauses: list[float]
    restarts: list[float]
    kept_up: list[float]


def measured(executor: DaskExecutor, megabytes: float, times: int) -> Found:
    found = Found([], [], [])
    slots = executor.slots()
    for again in range(times):
        recipe = SizedRecipe(Sized(megabytes=megabytes), prepare_seconds=2.0)
        with training(executor, recipe, f"sized-{megabytes:g}-{again}", slots[:1]) as job:
            for ranks in CHANGES:
                before = pace(job, SETTLE_SECONDS)
                made = len(job.rescales)
                job.offered(slots[:ranks])
                if ranks > job.rescales[-1].ranks:
                    time.sleep(0.1)
                    found.kept_up.append(pace(job, SETTLE_SECONDS) / before)
                wait_for(job, lambda made=made: len(job.rescales) > made)
                pause_seconds = job.rescales[-1].pause_seconds
                found.pauses.append(
                    math.inf if pause_seconds is None else pause_seconds
                )  # all ranks were lost
        found.restarts.append(restart_seconds(recipe.job))
    return found


@contextmanager
def training(
    executor: DaskExecutor, recipe: SizedRecipe, name: str, slots: tuple[str, ...]
) -> Iterator[LoneGang]:
    """Train in the block. Raises the error that the gang ended with."""
    job = LoneGang(recipe, executor, name, slots)
    job.start()
    try:
        wait_for(job, lambda: job.rescales)
        yield job
    finally:
        job.stop()
        job.wait()


def pace(job: LoneGang, seconds: float) -> float:
    """Return the steps a second over some time, from the driver's own count."""
    began, step = time.monotonic(), job.step
    wait_for(job, lambda: time.monotonic() >= began + seconds and job.step > step)
    return (job.step - step) / (time.monotonic() - began)


RESTARTED = """
import pickle, sys
from benchmarks.rescale_live import SizedRecipe
recipe, state = pickle.load(open(sys.argv[1], "rb"))
lesson = recipe.lesson()
step = lesson.next(lesson.first)
course = lesson.after(lesson.first, step, lesson.sums(lesson.first, step.pieces))
"""


def restart_seconds(job: Sized) -> float:
    """Return what a checkpoint and a new process cost: write, start, import, read, and make a step."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        path.write_bytes(pickle.dumps((SizedRecipe(job), job.begin(None)), protocol=5))
        subprocess.run([sys.executable, "-c", RESTARTED, str(path)], check=True)
    return time.monotonic() - began


def wait_for(job: LoneGang, is_so: Any, limit_seconds: float = 60.0) -> None:
    deadline = time.monotonic() + limit_seconds
    while not is_so():
        if job.error is not None:
            raise job.error
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.01)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.1, 4.0, 40.0])
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args(arguments)
    table = Table(box=SIMPLE_HEAD)
    for name in ("model, MB", "pause, median s", "p99 s", "changes", "restart, median s", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("pace while it prepares", justify="right")
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        closing(DaskExecutor(cluster.scheduler_address)) as executor,
    ):
        for megabytes in options.megabytes:
            found = measured(executor, megabytes, options.times)
            pause, restart = statistics.median(found.pauses), statistics.median(found.restarts)
            table.add_row(
                f"{megabytes:g}",
                f"{pause:.3f}",
                f"{float(np.quantile(found.pauses, 0.99)):.3f}",
                str(len(found.pauses)),
                f"{restart:.2f}",
                f"{restart / pause:.0f}",
                f"{100 * statistics.median(found.kept_up):.0f} %",
            )
    Console().print(table)


if __name__ == "__main__":
    from benchmarks import rescale_live  # so that workers and the restarted process know its classes by name

    rescale_live.main()
