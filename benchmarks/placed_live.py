"""Models in parts with deadlines, beside queries, on a real Dask cluster: is what is promised of them so?

    python -m benchmarks.placed_live [--jobs 12] [--queries 6] [--seeds 0] [--workers 4] [--policy mlf_h]

A scheduler and workers of one thread, as processes of their own. Small models of five kinds
(`benchmarks.placed_models`) learn digits: each is cut into one to three stages, some with two replicas, and
has a deadline and an urgency that the seed draws. They and TPC-H queries arrive as a Poisson process. One
placed policy sees the parts of all runs, and the default policy shares out the cores.

*Where planned*: of all the times that a part made a turn, those on the worker that the newest plan had for
it, as the scheduler saw them. *Shares*: how far the job that is farthest off was from what was due to it of
the core-time that ran (`benchmarks.cluster_due`), a run in parts from when it asked for a turn on. *A query's
first task*: from its arrival on the scheduler, which is when turns in hand are to yield, to its start; and
how much of that its worker was in a turn, or ran a task of another job. *Skew*: from the first start of a
turn's tasks to the last. All by the clock on the wall, so it is for a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from distributed import Client
from distributed.protocol import pickle
from relaqs_engine.catalog import Catalog
from relaqs_lab.simulation.workload import poisson_arrivals
from relaqs_tpch import generate
from rich.console import Console
from rich.table import Table

from benchmarks.cluster_client import QUERIES
from benchmarks.cluster_figures import Figures
from benchmarks.cluster_shares import WAIT_SECONDS, cluster, seen_by
from benchmarks.live import Clock, JobDriver, LiveJob, LiveRun
from benchmarks.orchestration_live import ReportingExecutor
from benchmarks.placed_seen import (
    FirstWait,
    NotedPlacements,
    PartsSeen,
    PinnedObserver,
    SentTurns,
    first_waits,
    pinned_seen,
    with_turns_asked,
)
from benchmarks.policies_live import query_job
from benchmarks.record import DATA, circumstances, headline, write
from benchmarks.training_data import lay_out_bundled
from relaqs.executors.dask.plugin import RelaqsPlugin
from relaqs.jobs.executor import Done
from relaqs.jobs.job import Task
from relaqs.memory import machine_memory_bytes
from relaqs.policies import DEFAULT_POLICY
from relaqs.policies.registry import make_placed_policy
from relaqs.session import Session
from relaqs.sharing.view import Kind
from relaqs.training import ModelParts, TorchModule, TrainingRun

SQL = "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits"
BATCH_ROWS, PIECE_ROWS = 128, 64
DEADLINE_SECONDS = (10.0, 60.0)  # between which deadlines are drawn, from the arrival on
SHARES_MOST, FIRST_TASK_MOST_SECONDS, SKEW_MOST_SECONDS = 0.05, 0.06, 0.1
EPOCH = "each 10 s"


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A kind of model. passes: that a run of it makes, so that it computes for a second or a few."""

    module: str
    stages: int
    replicas: int
    passes: int

    def started(
        self, session: Session, policy: NotedPlacements, hurry: Hurry | None, passes: int, sql: str = SQL
    ) -> TrainingRun:
        """Start it in a session. hurry: its deadline, None where it has none."""
        job = TorchModule(
            sql,
            "y",
            f"benchmarks.placed_models:{self.module}",
            first_rate=0.05,
            start_rows=PIECE_ROWS,
            scaling="none",
            passes_most=passes,
            held_out=0.25,
            tolerance=0.0,
            patience_passes=10**6,
        )
        return session.train(
            job,
            batch=BATCH_ROWS,
            parts=ModelParts(self.stages, self.replicas, policy),
            deadline=None if hurry is None else hurry.deadline_seconds,
            urgency=1.0 if hurry is None else hurry.urgency,
        )


@dataclass(frozen=True, slots=True)
class Hurry:
    """What a user wants of a run, drawn by the seed."""

    deadline_seconds: float
    urgency: float


KINDS = (
    ModelKind("perceptron", 2, 2, 12),
    ModelKind("linear", 1, 1, 20),
    ModelKind("convolutional", 3, 1, 5),
    ModelKind("residual", 2, 1, 12),
    ModelKind("recurrent", 2, 1, 8),
)


class NotingExecutor(ReportingExecutor):
    """A cluster's executor that notes the turns that are sent."""

    def __init__(self, address: str, clock: Clock, sent: SentTurns, policy: str) -> None:
        self._sent = sent
        super().__init__(address, None, clock, policy)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        self._sent.note(tasks)
        super().submit(tasks, done)

    def ask_turn(self, job_id: str, slots: tuple[str, ...] = (), number: int = 0) -> None:
        if slots:
            self._sent.note_asked(job_id)
        super().ask_turn(job_id, slots, number)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one seed gave.

    Attributes:
        parts: of turns.
        shares: points off what was due, of the job farthest off, in spans of ten seconds.
        first_waits: of the queries' first tasks.
        in_time: runs that ended by their deadline, of all.
        plan_ms: of each plan.
        seconds: that all took.
    """

    parts: PartsSeen
    shares: tuple[float, ...]
    first_waits: tuple[FirstWait, ...]
    in_time: tuple[int, int]
    plan_ms: tuple[float, ...]
    seconds: float


def drawn(
    options: argparse.Namespace, seed: int, policy: NotedPlacements
) -> tuple[list[LiveJob], list[float]]:
    """Return what comes, in its order, and the deadline of each; inf for queries."""
    random = np.random.default_rng(seed)
    jobs, deadlines = list[LiveJob](), list[float]()
    for number in range(options.jobs):
        kind = KINDS[number % len(KINDS)]
        hurry = Hurry(float(random.uniform(*DEADLINE_SECONDS)), float(random.integers(1, 11)))
        jobs.append(_training(f"{kind.module} {number}", kind, policy, hurry))
        deadlines.append(hurry.deadline_seconds)
    for number in range(options.queries):
        jobs.append(query_job(QUERIES[number % len(QUERIES)], seed))
        deadlines.append(math.inf)
    order = random.permutation(len(jobs)).tolist()
    return [jobs[at] for at in order], [deadlines[at] for at in order]


def _training(name: str, kind: ModelKind, policy: NotedPlacements, hurry: Hurry) -> LiveJob:
    return LiveJob(
        name, Kind.TRAINING, lambda session: kind.started(session, policy, hurry, passes=kind.passes)
    )


@contextmanager
def on_workers(
    options: argparse.Namespace, policy: NotedPlacements, sent: SentTurns, sharing: str = DEFAULT_POLICY
) -> Iterator[tuple[JobDriver, Client]]:
    """Start a scheduler and workers, and give a session's driver of jobs and Dask's own client of them.

    sharing: the policy that shares out the cores.
    """
    with (
        cluster(options.workers) as address,
        Client(address, timeout=WAIT_SECONDS, set_as_default=False) as dask,
    ):
        dask.wait_for_workers(options.workers, timeout=WAIT_SECONDS)
        dask.register_plugin(RelaqsPlugin())
        dask.register_plugin(PinnedObserver())
        clock = Clock("wall", options.workers)
        executor = NotingExecutor(address, clock, sent, sharing)
        session = Session(
            Catalog.open(options.data),
            {},
            executor,
            memory_limit_bytes=machine_memory_bytes() // 2 // options.workers,
            exact_threads=1,
        )
        with JobDriver(session, clock, executor.reports, executor.describe(), []) as driver:
            for run in [kind.started(session, policy, None, passes=1) for kind in KINDS]:
                run.result(WAIT_SECONDS)  # workers import PyTorch and read the rows
            yield driver, dask


def measured(options: argparse.Namespace, seed: int) -> Measured:
    """Let a seed's jobs run on a new cluster, and return what was seen."""
    policy, sent = NotedPlacements(make_placed_policy(options.policy)), SentTurns()
    jobs, deadlines = drawn(options, seed, policy)
    arrivals = poisson_arrivals(np.random.default_rng(seed), len(jobs), options.arrival)
    with on_workers(options, policy, sent) as (driver, dask):
        query_job(QUERIES[0], 0).start(driver.session).wait()
        policy.seconds.clear()
        began = time.time()
        run = driver.run(jobs, arrivals)
        ended, seen = time.time(), seen_by(dask)
        pinned = pickle.loads(dask.run_on_scheduler(pinned_seen))
    figures = Figures(with_turns_asked(seen, pinned, sent), options.workers)
    spans = ((began + 10 * at, began + 10 * (at + 1)) for at in range(int((ended - began) // 10)))
    queries = [each.id for each in run.finished if each.job.kind is Kind.QUERY]
    return Measured(
        PartsSeen.of([each for each in pinned if each.start_seconds >= began], sent, policy.plans),
        tuple(each for span in spans if not math.isnan(each := figures.deviation(*span))),
        tuple(first_waits(seen, queries, {each.job for each in pinned})),
        in_time(run, deadlines),
        tuple(1e3 * each for each in policy.seconds),
        ended - began,
    )


def in_time(run: LiveRun, deadlines: Sequence[float]) -> tuple[int, int]:
    """Return how many runs with a deadline ended by it, and how many there are."""
    met = [
        float(each.at_seconds[-1]) - each.arrival_seconds <= deadline
        for each, deadline in zip(run.finished, deadlines, strict=True)
        if math.isfinite(deadline)
    ]
    return sum(met), len(met)


def table_of(seeds: Sequence[Measured]) -> Table:
    """Return a row for each claim."""
    table = Table("", "asked", "read", "")
    parts = sum(each.parts.parts for each in seeds)
    for what, count in (
        ("parts that ran on the worker that their driver meant", sum(each.parts.as_sent for each in seeds)),
        ("parts that ran where planned", sum(each.parts.as_planned for each in seeds)),
    ):
        table.add_row(
            f"{what}, of {parts:,}", "100 %", f"{100 * count / parts:.2f} %", verdict(count == parts)
        )
    shares = [each for seed in seeds for each in seed.shares]
    most = 100 * SHARES_MOST
    table.add_row(
        f"points off what was due, {EPOCH}", f"≤ {most:.0f}", *_spread(shares, 100.0, ".1f", SHARES_MOST)
    )
    waits = [each for seed in seeds for each in seed.first_waits]
    for what, seconds in (
        ("a query's first task, ms after its arrival", [each.seconds for each in waits]),
        ("of these, behind turns of runs in parts", [each.turns_seconds for each in waits]),
        ("of these, behind tasks of other jobs", [each.tasks_seconds for each in waits]),
    ):
        read, held = _spread(seconds, 1e3, ".0f", FIRST_TASK_MOST_SECONDS)
        table.add_row(what, f"≤ {1e3 * FIRST_TASK_MOST_SECONDS:.0f}", read, held)
    skews = np.array([each for seed in seeds for each in seed.parts.skews_seconds])
    skew = float(np.quantile(skews, 0.95)) if len(skews) else math.nan
    asked = f"≤ {1e3 * SKEW_MOST_SECONDS:.0f}"
    table.add_row(
        f"skew of {len(skews):,} turns, ms, 95 %",
        asked,
        f"{1e3 * skew:.0f}",
        verdict(skew <= SKEW_MOST_SECONDS),
    )
    return table


def _spread(values: Sequence[float], scale: float, digits: str, most: float) -> tuple[str, str]:
    """Return what was read, and whether all of it is within what is asked."""
    if not values:
        return "nothing", "not reached"
    mean, ninth, largest = float(np.mean(values)), float(np.quantile(values, 0.9)), max(values)
    read = ", ".join(f"{scale * each:{digits}}" for each in (mean, ninth, largest))
    return f"{read} (mean, 90 %, most)", verdict(largest <= most)


def verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "not reached"


def described(found: Measured) -> str:
    met, count = found.in_time
    return (
        f"{found.seconds:.0f} s; {met} of {count} runs ended by their deadline; {found.parts.plans} places "
        f"of runs planned, {found.parts.changes} of them moves; a plan took {np.mean(found.plan_ms):.1f} ms"
    )


def warehouse(scale: float) -> Path:
    """Return a folder with TPC-H at this scale and the digits, made on first use."""
    folder = DATA / f"placed-{scale:g}"
    print(f"TPC-H at scale {scale:g} and digits in {folder} …", file=sys.stderr, flush=True)
    generate(scale, folder)
    lay_out_bundled(folder)
    return folder


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.placed_live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=12, help="runs in parts of a seed, default 12")
    parser.add_argument("--queries", type=int, default=len(QUERIES), help="of a seed, default 6")
    parser.add_argument("--seeds", default="0", help="of deadlines, order and arrivals, default 0")
    parser.add_argument("--workers", type=int, default=4, help="processes of one thread, default 4")
    parser.add_argument("--policy", default="mlf_h", help="the placed policy, default mlf_h")
    parser.add_argument("--arrival", type=float, default=1.0, help="mean seconds between arrivals, default 1")
    parser.add_argument("--scale", type=float, default=0.05, help="of the TPC-H data, default 0.05")
    options = parser.parse_args(words)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    return options


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("placed_live", words)
    options.data = warehouse(options.scale)
    seeds = []
    for seed in options.seeds:
        print(f"seed {seed} …", file=sys.stderr, flush=True)
        seeds.append(measured(options, seed))
        print(f"  {described(seeds[-1])}", file=sys.stderr, flush=True)
    console = Console()
    console.print(headline(facts), table_of(seeds), *map(described, seeds), sep="\n")
    console.print(f"Record: {write('placed_live', facts, {'seeds': [asdict(each) for each in seeds]})}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
