"""Workloads: who comes when, each job with a trace, and what its user wants.

Traces are recorded, or made up from theory for studies beyond the recorded: sampling, and two kinds of
convergence. Arrivals follow from a seed. Users of training runs may want an accuracy by a deadline, and
their runs may end early once they are good enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.accuracy import accuracy_ahead
from relaqs.sharing.view import Kind
from relaqs_lab.records.trace import Trace

EarlyStops: TypeAlias = Literal["own", "same", "none"]
"""`own`: only a policy that has such a rule itself. `same`: every policy, by that rule. `none`: nobody."""


CONFIDENT = 1.96  # standard errors of a 95 % interval
COST_SPREAD = 0.2  # steps take this much more or less than their mean
QUERY_STEPS, TRAINING_STEPS = 50, 60
MOST_CELLS = 50


def query_trace(random: np.random.Generator, core_seconds: float, *, steps: int = QUERY_STEPS) -> Trace:
    """Return an aggregation query in equal mini-batches: after i of N the standard error is √((N−i)/(iN)).

    Its 1 to 50 cells are means over the mini-batches so far of normal values, so that estimates, their true
    errors and how far they move from one to the next belong together as they do in sampling.
    """
    cells = int(random.integers(1, MOST_CELLS + 1))
    deviation = random.uniform(0.02, 0.5)
    i = np.arange(1, steps + 1.0)
    means = random.normal(size=(cells, steps)).cumsum(axis=1) / i
    moves = np.abs(np.diff(means, axis=1, prepend=np.nan))
    largest = np.fmax.accumulate(moves, axis=1)
    half_width = CONFIDENT * deviation * np.sqrt((steps - i) / (i * steps))
    return Trace(
        name="query",
        kind=Kind.QUERY,
        work_done=i / steps,
        quality=half_width * random.uniform(0.95, 1.05, steps),
        true_error=deviation * np.abs(means - means[:, -1:]).mean(axis=0),
        core_seconds=_costs(random, core_seconds, steps),
        progress=np.concatenate([[1.0], (moves[:, 1:] / largest[:, 1:]).mean(axis=0)]),
    )


def training_trace(random: np.random.Generator, core_seconds: float, *, steps: int = TRAINING_STEPS) -> Trace:
    """Return a training run: its loss falls like 1/(1 + r·k), or like μᵏ, each half of the time.

    Source: SLAQ, sublinear and linear convergence.
    """
    k = np.arange(float(steps))
    is_sublinear = random.random() < 0.5
    rate, ratio = random.uniform(0.1, 1.0), random.uniform(0.8, 0.95)
    shape = 1 / (1 + rate * k) if is_sublinear else ratio**k
    loss = random.uniform(0.1, 1000.0) * (shape + random.uniform(0.0, 1.0))
    change = np.abs(np.diff(loss, prepend=np.nan))
    return Trace(
        name="sublinear training" if is_sublinear else "linear training",
        kind=Kind.TRAINING,
        work_done=k + 1.0,
        quality=loss,
        true_error=loss - loss.min(),
        core_seconds=_costs(random, core_seconds, steps),
        progress=np.where(k == 0, 1.0, change / np.nanmax(change)),
    )


def _costs(random: np.random.Generator, core_seconds: float, steps: int) -> FloatArray:
    return core_seconds / steps * random.uniform(1 - COST_SPREAD, 1 + COST_SPREAD, steps)


TraceFamily = Callable[[np.random.Generator, float], Trace]

FAMILIES: dict[str, TraceFamily] = {"query": query_trace, "training": training_trace}


JOBS_AT_ONCE = 8  # what is foreseen after all their steps is some tens of megabytes


@dataclass(frozen=True, slots=True, eq=False)
class JobGoals:
    """The goals of J simulated jobs of S steps at most, and what they tell after each step.

    Attributes:
        accuracy: after each step, shape (J, S), NaN behind the last.
        required: the accuracy that is wanted, shape (J,).
        deadline_seconds: after the arrival, shape (J,).
        urgency: from 1 to 10, shape (J,).
        may_stop: whether a policy may stop the job at its best or at the required accuracy, shape (J,).
        is_best, work_needed: what the job tells after each step (`AccuracySoFar`), shape (J, S).
    """

    accuracy: FloatArray
    required: FloatArray
    deadline_seconds: FloatArray
    urgency: FloatArray
    may_stop: BoolArray
    is_best: BoolArray
    work_needed: FloatArray

    @classmethod
    def of(
        cls,
        accuracy: FloatArray,
        required: FloatArray,
        deadline_seconds: FloatArray,
        urgency: FloatArray,
        *,
        may_stop: bool,
    ) -> JobGoals:
        """Return the goals of jobs, with what these foresee after each step."""
        jobs, steps = accuracy.shape
        last = np.isfinite(accuracy).sum(axis=1).astype(np.float64)
        is_best, work_needed = np.zeros((jobs, steps), dtype=bool), np.full((jobs, steps), np.nan)
        is_seen = np.tri(steps, dtype=bool)  # after each step
        for first in range(0, jobs, JOBS_AT_ONCE):
            few = slice(first, first + JOBS_AT_ONCE)
            seen = np.where(is_seen, accuracy[few, None, :], np.nan).reshape(-1, steps)
            ahead = accuracy_ahead(seen, np.repeat(required[few], steps), np.repeat(last[few], steps))
            is_best[few] = ahead.is_best.reshape(-1, steps)
            work_needed[few] = ahead.passes_needed.reshape(-1, steps)
        allowed = np.full(jobs, may_stop)
        return cls(accuracy, required, deadline_seconds, urgency, allowed, is_best, work_needed)

    def after(self, jobs: IntArray, steps: IntArray) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Return accuracy, is_best and work_needed of some jobs after so many steps, shape (len(jobs),)."""
        at, has = np.maximum(steps - 1, 0), steps > 0
        return (
            np.where(has, self.accuracy[jobs, at], np.nan),
            self.is_best[jobs, at] & has,
            np.where(has, self.work_needed[jobs, at], np.nan),
        )


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
