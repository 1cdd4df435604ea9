"""Queries beside two jobs in shards, and beside two trainings that have equal shares of the cores.

    python -m benchmarks.sharded_queries [--seconds 0.1] [--megabytes 2.5] [--seeds 0,1,2]

Machines are emulated as `benchmarks.sharded_live` has them, and COMP sleeps. So many queries at once begin
together and run to their exact ends, and then the next ones begin. All have the same weight. The same queries
run in three ways on the same machines:

- *alone*: nothing beside them.
- *beside a group*: two jobs in shards train. What they leave idle while they send is for queries, too.
- *at equal shares*: two trainings in client mode, of 0.05 s a task, want every core at every moment.

*Error*: the integral of a query's true normalised error from its arrival on, the mean over the queries. It is
asked that it is no larger beside the group. *Slowed*: an iteration of the group beside queries, in those of
the group alone. It is asked that it is no more than 1 / (1 - the queries' share of the cores). *Points
below*: how much less of the core-time of a span the queries had than they were planned, or the others. It is
asked that this is at most 5 points. The group is not below its share where it has as much as it uses alone.

The core-time of a task counts evenly from when it began to its end. A step in shards begins with its PULL and
ends after its PUSH, so spans must be long beside an iteration. One query alone cannot use both cores, as it
waits for its client after each step: with `--at-once 1` it is its waits that are compared, and not its share.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from distributed import Client
from relaqs_bootstrap.arrays import FloatArray
from rich.console import Console
from rich.table import Table

from benchmarks.cluster_figures import Figures
from benchmarks.cluster_shares import seen_by
from benchmarks.live import JobDriver, LiveJob
from benchmarks.live_record import outcome_of, query_trace
from benchmarks.orchestration_live import observed_session
from benchmarks.record import circumstances, headline, write
from benchmarks.sharded_live import (
    LONG_SECONDS,
    WARM_PASSES,
    SleptTraining,
    can_emulate,
    emulated_machines,
    megabytes_of,
    told,
    waited_seconds,
)
from relaqs import shuffle
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions
from relaqs.session import Session
from relaqs.sharing.view import Kind
from relaqs.training import TrainingRun

PARTITIONS, POINTS = 32, 3200
SALES = 12_000_000
WORTH = "exp(sin(price)) * exp(cos(discount)) * pow(1 + price, discount) * ln(2 + sin(price * discount))"
QUERIES = (
    f"SELECT region, avg({WORTH}) AS mean, stddev(price * discount) AS spread FROM sales GROUP BY region",
    f"SELECT sum({WORTH} * pow(price, 0.3)) AS total FROM sales WHERE ln(1 + price) > 1",
    f"SELECT region, sum(ln(1 + price) * {WORTH}) AS total FROM sales GROUP BY region",
    f"SELECT avg({WORTH} * sqrt(price)) AS mean, count(*) AS sold FROM sales WHERE region <> 3",
)
TRAININGS = 2
TIMES = 2  # that each query is asked
TASK_SECONDS = 0.05  # of a training in client mode
FOR_EVER = 1_000_000  # passes
POINTS_MOST = 5.0

Span = tuple[float, float]
"""From when to when, in seconds of the epoch."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What came of the queries of a seed in one way, and of what ran beside them.

    Attributes:
        error_seconds: the integral of the error, the mean over the queries.
        exact_seconds: until a query was exact, alike.
        query_share: of all cores, by what the queries were charged.
        other_share: alike, of what ran beside them.
        query_below, other_below: points, of each span.
        iteration_seconds: of what ran beside them.
    """

    error_seconds: float
    exact_seconds: float
    query_share: float
    other_share: float
    query_below: tuple[float, ...]
    other_below: tuple[float, ...]
    iteration_seconds: float


@dataclass(frozen=True, slots=True)
class Seed:
    """What came of a seed.

    Attributes:
        group_seconds, group_share: an iteration of the group without queries, and its share of all cores.
        alone, group, equal: the ways.
    """

    group_seconds: float
    group_share: float
    alone: Beside
    group: Beside
    equal: Beside

    @property
    def slowed(self) -> float:
        return self.group.iteration_seconds / self.group_seconds

    @property
    def slowed_most(self) -> float:
        return 1 / (1 - self.group.query_share)

    @property
    def error_ratio(self) -> float:
        return self.group.error_seconds / self.equal.error_seconds


@dataclass(frozen=True, slots=True)
class Machines:
    """The emulated machines with a session on them."""

    driver: JobDriver
    dask: Client
    count: int

    def core_seconds(self, spans: Sequence[Span], jobs: set[str]) -> FloatArray:
        """Return what these jobs and all others were charged, in core-seconds. The shape is (spans, 2)."""
        figures = Figures(seen_by(self.dask), self.count)
        return np.array([_split(figures.used(*span), jobs) for span in spans])

    def planned(self, spans: Sequence[Span], jobs: set[str]) -> FloatArray:
        """Return what these jobs and all others were planned, alike."""
        plans = seen_by(self.dask).plans
        holding = list(zip(plans, [*(plan.at_seconds for plan in plans[1:]), math.inf], strict=True))
        return np.array(
            [
                sum(
                    max(0.0, min(until, end) - max(plan.at_seconds, begin))
                    * np.array(_split(plan.cores, jobs))
                    for plan, until in holding
                )
                for begin, end in spans
            ]
        )


def _split(amounts: Mapping[str, float], jobs: set[str]) -> tuple[float, float]:
    own = sum(amount for name, amount in amounts.items() if any(job in name for job in jobs))
    return own, sum(amounts.values()) - own


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    if not can_emulate():
        return
    facts = circumstances("sharded_queries", arguments)
    begun, waited = time.monotonic(), waited_seconds()
    with tempfile.TemporaryDirectory() as folder:
        _lay_out(Path(folder))
        with (
            emulated_machines(options.machines, options.megabits) as dask,
            observed_session(
                dask, dask.scheduler_info()["address"], Path(folder), options.machines, policy="weighted_fair"
            ) as driver,
        ):
            machines = Machines(driver, dask, options.machines)
            _stream(driver, 0, options.at_once)  # workers read and open
            seeds = [_seed(machines, int(seed), options) for seed in options.seeds.split(",")]
    share = (waited_seconds() - waited) / (time.monotonic() - begun)
    console = Console()
    console.print(headline(facts), _table(seeds), sep="\n")
    for line in _verdicts(seeds):
        console.print(line, highlight=False)
    console.print(f"somebody waited for a core in {share:.0%} of the seconds", highlight=False)
    write("sharded_queries", facts, {"seeds": [asdict(seed) for seed in seeds], "waited_share": share})


def _lay_out(folder: Path) -> None:
    random = np.random.default_rng(0)
    shuffle(pa.table({"x": np.arange(POINTS) / POINTS}), folder / "points", partitions=PARTITIONS)
    sales = {
        "region": random.integers(0, 12, SALES),
        "price": random.lognormal(3, 1, SALES),
        "discount": random.random(SALES),
    }
    shuffle(pa.table(sales), folder / "sales", partitions=PARTITIONS)


def _seed(machines: Machines, seed: int, options: argparse.Namespace) -> Seed:
    """Return what came of a seed: the group alone, with queries, and the queries at equal shares."""
    print(f"seed {seed} …", file=sys.stderr, flush=True)
    sql, row_seconds = "SELECT x FROM points", options.seconds * options.machines / POINTS
    sharded = SleptTraining(sql, megabytes_of(options), row_seconds)
    whole = SleptTraining(sql, 8 * 64 / 1e6, TASK_SECONDS * PARTITIONS / POINTS)
    with _training(machines.driver.session, sharded, "sharded") as runs:
        begin, passes = time.time(), [len(run.steps) for run in runs]
        time.sleep(options.alone)
        end = time.time()
        group_seconds = _iteration_seconds(runs, passes, end - begin)
        time.sleep(options.span)  # what ran at the end ends, and is told
        ((own, _),) = machines.core_seconds([(begin, end)], {run.id for run in runs})
        group_share = own / (end - begin) / machines.count
        group = _beside(machines, runs, seed, options, group_share)
    with _training(machines.driver.session, whole, "client") as runs:
        equal = _beside(machines, runs, seed, options, 1.0)
    alone = _beside(machines, [], seed, options, 0.0)
    return Seed(group_seconds, group_share, alone, group, equal)


@contextmanager
def _training(
    session: Session, job: SleptTraining, parameters: Literal["sharded", "client"]
) -> Iterator[list[TrainingRun]]:
    """Give trainings that have made their first passes, and end them."""
    runs = [session.train(job, parameters=parameters, max_steps=FOR_EVER) for _ in range(TRAININGS)]
    try:
        deadline = time.monotonic() + LONG_SECONDS
        while any(len(run.steps) <= WARM_PASSES for run in runs):
            if time.monotonic() > deadline or any(run.wait(0.02) for run in runs):
                raise RuntimeError(f"a training ended or hangs: {[run.state for run in runs]}")
        yield runs
    finally:
        for run in runs:
            run.stop()
        for run in runs:
            run.wait(LONG_SECONDS)


def _beside(
    machines: Machines, runs: Sequence[TrainingRun], seed: int, options: argparse.Namespace, most: float
) -> Beside:
    """Return what came of the queries beside trainings that run. most: that these use, of all cores."""
    begin, passes = time.time(), [len(run.steps) for run in runs]
    errors, exacts = _stream(machines.driver, seed, options.at_once)
    end = time.time()
    iteration_seconds = _iteration_seconds(runs, passes, end - begin)
    time.sleep(options.span)  # what ran at the end ends, and is told
    ids = {run.id for run in runs}
    spans = [(at, at + options.span) for at in np.arange(begin, end - options.span, options.span).tolist()]
    got, due = _shares(machines.core_seconds(spans, ids)), _shares(machines.planned(spans, ids))
    below = 100 * np.maximum(np.minimum(due, (most, 1.0)) - got, 0.0)
    ((other, own),) = machines.core_seconds([(begin, end)], ids) / (end - begin) / machines.count
    return Beside(
        float(np.mean(errors)),
        float(np.mean(exacts)),
        float(own),
        float(other),
        tuple(below[:, 1].tolist()),
        tuple(below[:, 0].tolist()),
        iteration_seconds,
    )


def _shares(amounts: FloatArray) -> FloatArray:
    return np.asarray(amounts / amounts.sum(axis=1, keepdims=True))


def _stream(driver: JobDriver, seed: int, at_once: int) -> tuple[list[float], list[float]]:
    """Run all queries, so many at once. Return the integral of the error of each, and its time to exact."""
    errors, exacts = [], []
    for first in range(0, TIMES * len(QUERIES), at_once):
        order = np.random.default_rng(seed).permutation(QUERIES * TIMES)[first : first + at_once].tolist()
        run = driver.run([_query(sql, seed) for sql in order], np.zeros(len(order)))
        traced = [query_trace(each, driver.session.plan(each.job.name)) for each in run.finished]
        errors += outcome_of(run, traced).error_seconds().tolist()
        exacts += [float(each.at_seconds[-1]) for each in run.finished]
    return errors, exacts


def _query(sql: str, seed: int) -> LiveJob:
    def start(session: Session) -> OnlineQuery:
        return session.submit(sql, QueryOptions(seed=seed))

    return LiveJob(sql, Kind.QUERY, start)


def _iteration_seconds(runs: Sequence[TrainingRun], passes: Sequence[int], seconds: float) -> float:
    """Return how long a pass took since there were so many of each. NaN where nothing trains."""
    if not runs:
        return math.nan
    made = [len(run.steps) - before for run, before in zip(runs, passes, strict=True)]
    return seconds / float(np.mean(made))


def _table(seeds: Sequence[Seed]) -> Table:
    """Return the table of the ways, means over seeds with their standard errors."""
    table = Table(
        "", "error, s", "exact after, s", "queries, %", "others, %", "below, of all spans: queries", "others"
    )
    for name, way in (("alone", "alone"), ("group", "beside a group"), ("equal", "at equal shares")):
        each: list[Beside] = [getattr(seed, name) for seed in seeds]
        table.add_row(
            way,
            told([beside.error_seconds for beside in each]),
            told([beside.exact_seconds for beside in each]),
            told([100 * beside.query_share for beside in each]),
            told([100 * beside.other_share for beside in each]),
            "" if name == "alone" else _spread([p for beside in each for p in beside.query_below]),
            "" if name == "alone" else _spread([p for beside in each for p in beside.other_below]),
        )
    return table


def _spread(points: Sequence[float]) -> str:
    return f"mean {np.mean(points):.1f}, 90 % {np.quantile(points, 0.9):.1f}, most {max(points):.1f}"


def _verdicts(seeds: Sequence[Seed]) -> Iterator[str]:
    ratio = [seed.error_ratio for seed in seeds]
    yield f"error beside a group / at equal shares: {told(ratio)}, asked ≤ 1: {_reached(np.mean(ratio) <= 1)}"
    slowed, most = [seed.slowed for seed in seeds], [seed.slowed_most for seed in seeds]
    alone, cores = [seed.group_seconds for seed in seeds], [100 * seed.group_share for seed in seeds]
    yield (
        f"an iteration of the group: {told(alone)} s alone, with {told(cores)} % of the cores; "
        f"beside queries {told(slowed)} times "
        f"as long, asked ≤ {told(most)}: {_reached(np.mean(slowed) <= np.mean(most))}"
    )
    below = [points for seed in seeds for points in (*seed.group.query_below, *seed.group.other_below)]
    share = float(np.mean([points <= POINTS_MOST for points in below]))
    yield f"spans in which nobody is below its share by more than {POINTS_MOST:g} points: {share:.0%}"


def _reached(is_reached: object) -> str:
    return "reached" if is_reached else "not reached"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sharded_queries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--megabits", type=int, default=200, help="a second, of each machine's link")
    parser.add_argument("--megabytes", type=float, help="of the parameters; not said: as sharded_live has it")
    parser.add_argument("--seconds", type=float, default=0.1, help="of COMP in a step, on each machine")
    parser.add_argument("--at-once", type=int, default=2, help="how many queries, default 2")
    parser.add_argument("--seeds", default="0,1,2", help="of the order of queries and of their partitions")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds of the group without queries")
    parser.add_argument("--span", type=float, default=2.0, help="seconds over which shares are compared")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
