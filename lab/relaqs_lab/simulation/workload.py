"""Who comes when: jobs, each with a trace, and their arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.records.trace import Trace
from relaqs_lab.simulation.families import FAMILIES
from relaqs_lab.simulation.job_goals import JobGoals

SIZE_SPREAD = 0.5  # jobs need this much more or less than the mean
DISTINCT_TRACES = 1000  # at most so many are made up; more jobs than these share them


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """J jobs in the order of their arrival. All arrays have shape (J,).

    Attributes:
        trace: index into traces.
        arrival_seconds: rising.
        cost_scale: what the trace's core-seconds are multiplied by.
        cores_most: more than these a job cannot use at once.
        goals: what is wanted of training runs beside their losses. None: nothing.
    """

    traces: tuple[Trace, ...]
    trace: IntArray
    arrival_seconds: FloatArray
    cost_scale: FloatArray
    weight: FloatArray
    cores_most: FloatArray
    goals: JobGoals | None = None

    def __post_init__(self) -> None:
        assert (np.diff(self.arrival_seconds) >= 0).all(), "jobs stand in the order of their arrival"

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.traces[index].name for index in self.trace)

    @property
    def core_seconds(self) -> float:
        """What all jobs need together."""
        needed = np.array([trace.core_seconds.sum() for trace in self.traces])
        return float((needed[self.trace] * self.cost_scale).sum())


def poisson_arrivals(random: np.random.Generator, jobs: int, mean_seconds: float) -> FloatArray:
    """Return the times of so many arrivals, shape (jobs,), the first at 0, the gaps exponential."""
    gaps = random.exponential(mean_seconds, jobs)
    gaps[:1] = 0.0
    return gaps.cumsum()


def workload_of(
    traces: Sequence[Trace],
    arrival_seconds: FloatArray,
    *,
    trace: IntArray | None = None,
    cost_scale: FloatArray | float = 1.0,
    cores_most: FloatArray | float = np.inf,
    goals: JobGoals | None = None,
) -> Workload:
    """Return jobs that replay these traces. trace: which one each replays; default: one job a trace."""
    count = len(arrival_seconds)
    return Workload(
        traces=tuple(traces),
        trace=np.arange(count) if trace is None else trace,
        arrival_seconds=arrival_seconds,
        cost_scale=np.broadcast_to(np.asarray(cost_scale, dtype=np.float64), (count,)).copy(),
        weight=np.ones(count),
        cores_most=np.full(count, cores_most),
        goals=goals,
    )


def synthetic_workload(
    random: np.random.Generator,
    arrival_seconds: FloatArray,
    *,
    core_seconds: float,
    training_share: float = 0.0,
    cores_most: float = np.inf,
) -> Workload:
    """Return made-up jobs: core_seconds each on average, this share of them training runs."""
    jobs = len(arrival_seconds)
    names = np.where(random.random(min(jobs, DISTINCT_TRACES)) < training_share, "training", "query")
    return workload_of(
        [FAMILIES[name](random, core_seconds) for name in names],
        arrival_seconds,
        trace=np.arange(jobs) % len(names),
        cost_scale=random.uniform(1 - SIZE_SPREAD, 1 + SIZE_SPREAD, jobs),
        cores_most=cores_most,
    )
