"""Models in parts on a real Dask cluster, and the same on the simulated one: do they end at the same times?

    python -m benchmarks.placed_replay [--jobs 12] [--seeds 0] [--workers 2] [--policy mlf_h]

Each kind of model (`benchmarks.placed_models`) first trains alone, on a scheduler and workers of one thread:
that is what it takes alone. Then a seed's runs come as a Poisson process and share the cores fairly. The
simulator (`relaqs_lab.simulation.placed`) gets when each came, what it takes alone, its parts and what they
ask of a core, and asks the same placed policy twice a second. A simulated part is slower by what is asked of
its device. A real one takes turns.

*Equal views*: each view for which a live plan was made goes to a new policy of that name, as another process
would read it. Its plan must be the same.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_lab.simulation.placed.placed_simulator import MoveCosts, PlacedRules, simulate_placed
from relaqs_lab.simulation.placed.placed_workload import Algorithm, LearningCurve, PlacedJob, PlacedWorkload
from relaqs_lab.simulation.workload import poisson_arrivals
from rich.console import Console
from rich.table import Table

from benchmarks.live import JobDriver, LiveJob
from benchmarks.placed_live import KINDS, ModelKind, on_workers, verdict, warehouse
from benchmarks.placed_seen import NotedPlacements, SentTurns
from benchmarks.record import circumstances, headline, write
from relaqs.policies.registry import make_placed_policy
from relaqs.sharing.parts import DEVICES, NodeResources, PlacedPlan, PlacedView
from relaqs.sharing.view import Kind
from relaqs.training.parted.placing import TakingTurns

AGREES = 0.10  # of the mean completion time
PERIOD_SECONDS = 0.5  # between two simulated plans
ALONE_TIMES = 3  # that each kind trains alone; the mean of all but the first counts
A_DAY_SECONDS = 86_400.0
SHARING = "fair"  # the policy of the cores, since the simulator has no other


@dataclass(frozen=True, slots=True)
class NotedViews(NotedPlacements):
    """Keeps each view, as another process would read it, with its plan."""

    views: list[tuple[bytes, PlacedPlan]] = field(default_factory=list, compare=False)

    def plan(self, view: PlacedView) -> PlacedPlan:
        made = NotedPlacements.plan(self, view)
        self.views.append((pickle.dumps(view), made))
        return made

    def share(self, run: str) -> float:
        """Return what a part of a run asked of a device at most. It asks for less where parts take turns."""
        found = []
        for read, _ in self.views:
            view: PlacedView = pickle.loads(read)
            if run in view.jobs.ids:
                own = view.parts.job == view.jobs.ids.index(run)
                found.append(float(view.parts.demand[own, DEVICES].mean()))
        return max(found)

    def as_planned(self, policy: str) -> int:
        """Return for how many views a new policy of that name plans the same."""
        count = 0
        for read, made in self.views:
            again = make_placed_policy(policy).plan(pickle.loads(read))
            same_places = (again.node == made.node).all() and (again.device == made.device).all()
            count += bool(same_places and (again.stops == made.stops).all())
        return count


@dataclass(frozen=True, slots=True)
class LiveTimes:
    """What a seed's runs did on a cluster, each in a column. seconds: from coming to its end."""

    kinds: tuple[ModelKind, ...]
    arrival_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    alone_seconds: tuple[float, ...]
    device_shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A seed: mean completion times in seconds, and for how many of the live views plans were the same."""

    live_seconds: float
    simulated_seconds: float
    views: int
    as_planned: int
    live: tuple[float, ...]
    simulated: tuple[float, ...]

    @property
    def is_off(self) -> float:
        """The simulated mean relative to the live one, less 1."""
        return self.simulated_seconds / self.live_seconds - 1.0


def training(kind: ModelKind, number: int, policy: NotedPlacements) -> LiveJob:
    return LiveJob(
        f"{kind.module} {number}",
        Kind.TRAINING,
        lambda session: kind.started(session, policy, None, passes=kind.passes),
    )


@dataclass(frozen=True, slots=True)
class Alone:
    """A kind of model that nobody is beside. share: what a part of it asks of a device."""

    seconds: float
    share: float


def alone(driver: JobDriver, policy: NotedViews) -> dict[str, Alone]:
    """Return what a run of each kind takes that nobody is beside."""
    found = {}
    for kind in KINDS:
        took = []
        for number in range(ALONE_TIMES):
            [ran] = driver.run([training(kind, number, policy)], np.zeros(1)).finished
            took.append(float(ran.at_seconds[-1]))
        found[kind.module] = Alone(float(np.mean(took[1:])), policy.share(ran.id))
    return found


def live(options: argparse.Namespace, seed: int, policy: NotedViews) -> LiveTimes:
    """Let a seed's runs train on a new cluster."""
    random = np.random.default_rng(seed)
    kinds = [KINDS[at % len(KINDS)] for at in random.permutation(options.jobs).tolist()]
    arrivals: FloatArray = poisson_arrivals(random, len(kinds), options.arrival)
    with on_workers(options, policy, SentTurns(), sharing=SHARING) as (driver, _):
        takes = alone(driver, policy)
        policy.views.clear()
        jobs = [training(kind, number, policy) for number, kind in enumerate(kinds)]
        run = driver.run(jobs, arrivals)
    return LiveTimes(
        tuple(kinds),
        tuple(arrivals.tolist()),
        tuple(float(each.at_seconds[-1]) - each.arrival_seconds for each in run.finished),
        tuple(takes[kind.module].seconds for kind in kinds),
        tuple(takes[kind.module].share for kind in kinds),
    )


def simulated(times: LiveTimes, policy: str, workers: int) -> FloatArray:
    """Return the completion time of each run on simulated machines, in seconds."""
    columns = zip(times.kinds, times.arrival_seconds, times.alone_seconds, times.device_shares, strict=True)
    jobs = tuple(
        simulated_job(number, kind, arrival, seconds, share)
        for number, (kind, arrival, seconds, share) in enumerate(columns)
    )
    nodes = NodeResources.equal(workers, 1, cores=1e6, memory_bytes=1e15)  # only devices are short
    rules = PlacedRules(PERIOD_SECONDS, MoveCosts(0.0), swing=0.0)
    outcome = simulate_placed(
        PlacedWorkload("as live", jobs), TakingTurns(make_placed_policy(policy)), nodes, rules
    )
    return outcome.completion_seconds


def simulated_job(number: int, kind: ModelKind, arrival: float, seconds: float, share: float) -> PlacedJob:
    """Return a run as the simulator knows it: its stages one after another, with the replicas of each."""
    cut = "layers" if kind.replicas > 1 else "chain"
    flat = np.zeros(kind.passes + 1)
    return PlacedJob(
        name=f"{number:03} {kind.module}",
        algorithm=Algorithm(kind.module, 1e4, share, cut, 0.1, False, 1.0),
        devices=kind.stages * kind.replicas,
        by_server=False,
        arrival_seconds=arrival,
        run_seconds=seconds,
        iterations=kind.passes,
        urgency=1.0,
        deadline_seconds=arrival + A_DAY_SECONDS,
        accuracy_required=1.0,
        flow_bytes=0.0,
        curve=LearningCurve(flat, flat),
    )


def replayed(options: argparse.Namespace, seed: int) -> Replayed:
    """Let a seed's runs train, and simulate them."""
    policy = NotedViews(make_placed_policy(options.policy))
    times = live(options, seed, policy)
    ended = simulated(times, options.policy, options.workers)
    return Replayed(
        float(np.mean(times.seconds)),
        float(ended.mean()),
        len(policy.views),
        policy.as_planned(options.policy),
        times.seconds,
        tuple(ended.tolist()),
    )


def table_of(seeds: Sequence[tuple[int, Replayed]]) -> Table:
    table = Table("seed", "mean seconds, live", "simulated", "off", "≤ 10 %")
    table.add_column("same plans for equal views")
    for seed, found in seeds:
        table.add_row(
            str(seed),
            f"{found.live_seconds:.1f}",
            f"{found.simulated_seconds:.1f}",
            f"{100 * found.is_off:+.1f} %",
            verdict(abs(found.is_off) <= AGREES),
            f"{found.as_planned:,} of {found.views:,}",
        )
    return table


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.placed_replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=12, help="runs in parts of a seed, default 12")
    parser.add_argument("--seeds", default="0", help="of order and arrivals, default 0")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread, default 2")
    parser.add_argument("--policy", default="mlf_h", help="the placed policy, default mlf_h")
    parser.add_argument("--arrival", type=float, default=1.0, help="mean seconds between arrivals, default 1")
    parser.add_argument("--scale", type=float, default=0.05, help="of the data's folder, default 0.05")
    options = parser.parse_args(words)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    return options


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts: Any = circumstances("placed_replay", words)
    options.data = warehouse(options.scale)
    seeds = []
    for seed in options.seeds:
        print(f"seed {seed} …", file=sys.stderr, flush=True)
        seeds.append((seed, replayed(options, seed)))
    Console().print(headline(facts), table_of(seeds), sep="\n")
    record = write("placed_replay", facts, {"seeds": {seed: asdict(found) for seed, found in seeds}})
    print(f"Record: {record}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
