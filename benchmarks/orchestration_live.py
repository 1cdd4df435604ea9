"""Elastic training and queries that share a Dask cluster for real, beside gangs of fixed size.

    python -m benchmarks.orchestration_live [--workers 2] [--seeds 0,1,2] [--jobs 12] [--arrival 1]

A scheduler and workers of one thread, as processes of their own. Networks that are trained by mini-batches,
and six TPC-H queries, arrive as a Poisson process, in an order that the seed draws. Each training ends once
its loss on held-out rows is that of steps of fixed size after some passes. A seed is run in four ways, each
on a new cluster:

- *fixed gangs*: steps of fixed size, and slots first in, first out. A gang has one slot for each piece of 256
  rows of its steps, all of them or none.
- *ones*, *completion_rate*: steps that grow, and slots by that policy.
- *whole passes*: the same networks by tasks, each step a pass over all rows (L-BFGS), as training is without
  mini-batches. Each run is there for as long as its elastic one was under `completion_rate`, so that
  queries have as many jobs beside them.

A training's *completion* is from its arrival to its end. A query's *error* is the integral of its true
normalised error from its arrival on. *Idle* is the share of the workers' time in which they ran nothing while
a task was queued, or while a job that had come and was not over ran nothing, whatever it waited for. All by
the clock on the wall, so it is for a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from distributed import Client
from relaqs_engine.catalog import Catalog
from relaqs_lab.records.comparison import Figure
from relaqs_tpch.warehouse import query
from rich.console import Console
from rich.table import Table

from benchmarks import tpch
from benchmarks.cluster_client import QUERIES
from benchmarks.cluster_figures import idle_beside_work
from benchmarks.cluster_observer import Observer
from benchmarks.cluster_shares import WAIT_SECONDS, cluster, seen_by
from benchmarks.live import Clock, JobDriver, LiveRun
from benchmarks.live_record import outcome_of, query_trace
from benchmarks.orchestration_jobs import Drawn, FixedGangs, Mix, Template, targets, templates
from benchmarks.policies_live import query_job
from benchmarks.record import circumstances, headline, write
from relaqs.executors.dask import DaskExecutor
from relaqs.executors.dask.plugin import RelaqsPlugin
from relaqs.jobs.job import StepReport
from relaqs.memory import machine_memory_bytes
from relaqs.policies import DEFAULT_POLICY
from relaqs.session import Session
from relaqs.sharing.gangs import SlotPolicy
from relaqs.sharing.view import Kind

FIXED, WHOLE = "fixed gangs", "whole passes"
ELASTIC = ("ones", "completion_rate")
WARM_LOSS = 1e9  # any pass reaches it
COMPLETION_MOST, ERROR_MOST, IDLE_MOST = 0.85, 1.10, 0.04


class ReportingExecutor(DaskExecutor):
    """A cluster's executor that notes when each step of each job was folded."""

    def __init__(
        self,
        address: str,
        slot_policy: str | SlotPolicy | None,
        clock: Clock,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        self._clock = clock
        self.reports: dict[str, list[tuple[float, StepReport]]] = {}
        super().__init__(address, policy=policy, slot_policy=slot_policy)

    def report(self, job_id: str, report: StepReport) -> None:
        self.reports.setdefault(job_id, []).append((self._clock.now(), report))
        super().report(job_id, report)


@dataclass(frozen=True, slots=True)
class Way:
    """What came of a seed's jobs in one way.

    Attributes:
        completion_seconds: of each training, by its name.
        losses: the least of each training, by its name.
        error_seconds: the mean over the queries.
        idle_share: of the workers' time.
    """

    completion_seconds: dict[str, float]
    losses: dict[str, float]
    error_seconds: float
    idle_share: float

    @property
    def mean_completion_seconds(self) -> float:
        return float(np.mean([*self.completion_seconds.values()]))


@contextmanager
def session_on_cluster(
    warehouse: Path, workers: int, slot_policy: str | SlotPolicy
) -> Iterator[tuple[JobDriver, Client]]:
    """Give a session on a new cluster, and a Dask client that observes it."""
    with cluster(workers) as address, Client(address, timeout=WAIT_SECONDS, set_as_default=False) as dask:
        dask.wait_for_workers(workers, timeout=WAIT_SECONDS)
        with observed_session(dask, address, warehouse, workers, slot_policy=slot_policy) as driver:
            yield driver, dask


def observed_session(
    dask: Client,
    address: str,
    warehouse: Path,
    workers: int,
    *,
    slot_policy: str | SlotPolicy | None = None,
    policy: str = DEFAULT_POLICY,
) -> JobDriver:
    """Return a session on a cluster that the Dask client observes from now on. address: of its scheduler."""
    dask.register_plugin(RelaqsPlugin())
    dask.register_plugin(Observer())
    clock = Clock("wall", workers)
    executor = ReportingExecutor(address, slot_policy, clock, policy)
    session = Session(
        Catalog.open(warehouse),
        {},
        executor,
        memory_limit_bytes=machine_memory_bytes() // 2 // workers,
        exact_threads=1,
    )
    return JobDriver(session, clock, executor.reports, executor.describe(), [])


def way(
    options: argparse.Namespace, slot_policy: str | SlotPolicy, mix: Mix, chosen: Sequence[Template]
) -> Way:
    """Return what came of the mix on a new cluster under a slot policy, or by tasks alone."""
    with session_on_cluster(options.data, options.workers, slot_policy) as (driver, dask):
        warm_up(driver.session, chosen)
        began = time.time()
        run = driver.run(mix.jobs, mix.arrival_seconds)
        trained = [each for each in run.finished if each.job.kind is Kind.TRAINING]
        there = {
            each.id: (began + each.arrival_seconds, began + float(each.at_seconds[-1]))
            for each in run.finished
        }
        return Way(
            {each.job.name: float(each.at_seconds[-1]) - each.arrival_seconds for each in trained},
            {each.job.name: min(report.quality for report in each.reports) for each in trained},
            query_error_seconds(run, driver.session),
            idle_beside_work(seen_by(dask), options.workers, there),
        )


def warm_up(session: Session, chosen: Sequence[Template]) -> None:
    """Let each worker import and open what jobs need: a query, and a pass of each kind of training."""
    runs = [each.started(session, each.job.start_rows, WARM_LOSS) for each in chosen]
    query_job(QUERIES[0], 0).start(session).wait()
    for run in runs:
        run.result()


def query_error_seconds(run: LiveRun, session: Session) -> float:
    """Return the integral of a query's true normalised error over time, the mean over the queries."""
    queries = tuple(each for each in run.finished if each.job.kind is Kind.QUERY)
    traced = [query_trace(each, session.plan(query(int(each.job.name[1:])))) for each in queries]
    return float(outcome_of(replace(run, finished=queries), traced).error_seconds().mean())


def ways_of(
    options: argparse.Namespace, chosen: Sequence[Template], losses: Mapping[str, float], seed: int
) -> dict[str, Way]:
    """Return what came of a seed's jobs in each way, by its name."""
    queries = [query_job(number, seed) for number in QUERIES[: options.queries]]
    drawn = Drawn.of(seed, chosen, options.jobs, queries, options.arrival)
    found: dict[str, Way] = {}

    def measure(name: str, slot_policy: str | SlotPolicy, mix: Mix) -> None:
        print(f"seed {seed}, {name} …", file=sys.stderr, flush=True)
        found[name] = made = way(options, slot_policy, mix, chosen)
        print(f"  {described(made)}", file=sys.stderr, flush=True)

    measure(FIXED, FixedGangs(), drawn.by_gangs("fixed", losses))
    for policy in ELASTIC:
        measure(policy, policy, drawn.by_gangs("elastic", losses))
    measure(WHOLE, ELASTIC[-1], drawn.by_whole_passes(found[ELASTIC[-1]].completion_seconds))
    for name in (FIXED, *ELASTIC):
        missed = [each for each, loss in drawn.targets(losses).items() if found[name].losses[each] > loss]
        if missed:
            print(f"  {name}: {', '.join(missed)} ended before the target", file=sys.stderr, flush=True)
    return found


def described(made: Way) -> str:
    return (
        f"completion {made.mean_completion_seconds:.1f} s, queries' error {made.error_seconds:.2f} s, "
        f"idle {made.idle_share:.1%}"
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A figure that is asked for. most: what it may be. values: one a seed."""

    what: str
    most: float
    values: tuple[float, ...]
    is_share: bool = False

    @property
    def figure(self) -> Figure:
        return Figure.of(self.values)

    @property
    def is_reached(self) -> bool:
        return self.figure.mean <= self.most

    def cells(self) -> tuple[str, str, str, str]:
        """Return the row of the table."""

        def shown(value: float) -> str:
            return f"{100 * value:.1f} %" if self.is_share else f"{value:.2f}"

        error = self.figure.standard_error
        spread = "" if math.isnan(error) else f" ± {shown(error)}"
        read = shown(self.figure.mean) + spread
        return self.what, f"≤ {shown(self.most)}", read, "reached" if self.is_reached else "not reached"


def asked(seeds: Sequence[dict[str, Way]]) -> list[Asked]:
    """Return all that is asked, and what was read. seeds: the ways of each."""
    rows = []
    for policy in ELASTIC:
        completion = [
            ways[policy].mean_completion_seconds / ways[FIXED].mean_completion_seconds for ways in seeds
        ]
        error = [ways[policy].error_seconds / ways[WHOLE].error_seconds for ways in seeds]
        idle = [ways[policy].idle_share for ways in seeds]
        rows += [
            Asked(f"completion, {policy} / {FIXED}", COMPLETION_MOST, tuple(completion)),
            Asked(f"queries' error, beside {policy} / {WHOLE}", ERROR_MOST, tuple(error)),
            Asked(f"idle beside work, {policy}", IDLE_MOST, tuple(idle), is_share=True),
        ]
    return rows


def tables(seeds: Sequence[dict[str, Way]]) -> tuple[Table, Table]:
    """Return the table of what is asked, and that of the ways, means over seeds."""
    verdicts = Table("", "asked", "read", "")
    for row in asked(seeds):
        verdicts.add_row(*row.cells())
    means = Table("way", "completion, s", "queries' error, s", "idle beside work")
    for name in seeds[0]:
        ways = [each[name] for each in seeds]
        completion = "as " + ELASTIC[-1]
        if name != WHOLE:
            completion = f"{np.mean([each.mean_completion_seconds for each in ways]):.1f}"
        error = np.mean([each.error_seconds for each in ways])
        idle = np.mean([each.idle_share for each in ways])
        means.add_row(name, completion, f"{error:.2f}", f"{idle:.1%}")
    return verdicts, means


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.orchestration_live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread, default 2")
    parser.add_argument("--seeds", default="0,1,2", help="of jobs, their order and arrivals, default 0,1,2")
    parser.add_argument("--jobs", type=int, default=12, help="trainings of a seed, default 12")
    parser.add_argument("--kinds", type=int, default=4, help="of trainings, the first so many; default all")
    parser.add_argument("--queries", type=int, default=len(QUERIES), help="of a seed, default and most 6")
    parser.add_argument("--arrival", type=float, default=1.0, help="mean seconds between arrivals, default 1")
    parser.add_argument("--scale", type=float, default=0.05, help="of the TPC-H data, default 0.05")
    parser.add_argument("--data", type=Path, help="a warehouse that has it, instead of making one")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("orchestration_live", words)
    if options.data is None:
        options.data = tpch.warehouse(options.scale)[0]
    chosen = templates()[: options.kinds]
    print(f"targets of {len(chosen)} kinds of jobs …", file=sys.stderr, flush=True)
    losses = targets(options.data, chosen)
    seeds = [ways_of(options, chosen, losses, int(seed)) for seed in options.seeds.split(",")]
    console = Console()
    console.print(headline(facts), *tables(seeds), sep="\n")
    content = {
        "seeds": [{name: asdict(each) for name, each in ways.items()} for ways in seeds],
        "asked": [asdict(row) | {"is_reached": row.is_reached} for row in asked(seeds)],
    }
    console.print(f"Record: {write('orchestration_live', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
