"""Policies side by side: what each makes of the same jobs, relative to fair sharing, over several seeds.

A measure is a number of one run. Runs of one setting differ by policy and seed. `policy_rows` has the mean
of each measure over the seeds for each policy, with its standard error. Any kind of record can be compared
so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.policies import Fair
from relaqs_lab.records.schedule_run import REDUCTIONS, ScheduleRun
from relaqs_lab.records.trace import LEVELS

REFERENCE = Fair.name


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeds, and its standard error (NaN with one seed)."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        known = [value for value in values if math.isfinite(value)]
        if not known:
            return cls(math.nan, math.nan)
        spread = float(np.std(known, ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else math.nan
        return cls(float(np.mean(known)), spread)


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in one setting. Changes are relative to fair sharing of the same seeds: −0.2 is less.

    Attributes:
        error_seconds: the integral of a job's normalised error over time, the mean over jobs.
        reduced: seconds to REDUCTIONS.
        crossing: the last reduction of the error before the policy falls behind fair sharing.
        worst_job: the largest time to a 90 % reduction of any job, relative to what it has under fair
            sharing.
    """

    policy: str
    runs: tuple[ScheduleRun, ...]
    error_seconds: Figure
    error_change: Figure
    reduced: tuple[Figure, ...]
    reduced_change: tuple[Figure, ...]
    crossing: Figure
    worst_job: Figure
    decision_ms: Figure


def settings(runs: Sequence[ScheduleRun]) -> list[list[ScheduleRun]]:
    """Return runs that may be compared, setting by setting; of equal ones the newest alone."""
    newest = {repr(run.key): run for run in runs}
    ordered = sorted(newest.values(), key=_order)
    return [list(group) for _, group in groupby(ordered, key=_order)]


def _order(run: ScheduleRun) -> tuple[str | float, ...]:
    arrival = math.inf if math.isnan(run.arrival_seconds) else run.arrival_seconds
    return (run.source, run.workload, run.capacity_cores, run.cores_most, len(run.jobs.names), arrival)


def compare(runs: Sequence[ScheduleRun]) -> list[Row]:
    """Return one row a policy over the runs of one setting, fair sharing first. Policies keep their order."""
    names = sorted({run.policy: None for run in runs}, key=lambda name: name != REFERENCE)
    fair = {run.seed: run for run in runs if run.policy == REFERENCE}
    return [_row(name, [run for run in runs if run.policy == name], fair) for name in names]


def _row(policy: str, runs: list[ScheduleRun], fair: dict[int, ScheduleRun]) -> Row:
    pairs = [(run, fair[run.seed]) for run in runs if run.seed in fair]

    def change(measure: Callable[[ScheduleRun], float]) -> Figure:
        return Figure.of([measure(run) / measure(reference) - 1.0 for run, reference in pairs])

    return Row(
        policy=policy,
        runs=tuple(runs),
        error_seconds=Figure.of([error_seconds(run) for run in runs]),
        error_change=change(error_seconds),
        reduced=tuple(Figure.of([seconds_to(run, level) for run in runs]) for level in REDUCTIONS),
        reduced_change=tuple(
            change(lambda run, level=level: seconds_to(run, level))  # type: ignore[misc]
            for level in REDUCTIONS
        ),
        crossing=Figure.of([crossing(run, reference) for run, reference in pairs]),
        worst_job=Figure.of([worst_job(run, reference) for run, reference in pairs]),
        decision_ms=Figure.of([run.decision_ms_mean for run in runs]),
    )


def error_seconds(run: ScheduleRun) -> float:
    """Return the mean over jobs of the integral of the normalised error, in seconds."""
    return float(run.jobs.error_seconds.mean())


def seconds_to(run: ScheduleRun, reduction: float) -> float:
    """Return the mean over jobs of the time to a reduction of the error; NaN if a job did not get there."""
    return float(run.jobs.reduced(reduction).mean())


def crossing(run: ScheduleRun, fair: ScheduleRun) -> float:
    """Return the last reduction of the error before the policy falls behind fair sharing, on average.

    1 if it never does, 0 if it always is.
    """
    ahead = run.mean_level_seconds <= fair.mean_level_seconds * (1 + 1e-9)
    falls_behind = np.flatnonzero(ahead[:-1] & ~ahead[1:])
    if len(falls_behind):
        return float(LEVELS[falls_behind[-1]])
    return 1.0 if ahead[-1] else 0.0


def worst_job(run: ScheduleRun, fair: ScheduleRun) -> float:
    """Return the largest ratio of any job's time to a 90 % reduction to its time under fair sharing."""
    ratios: FloatArray = run.jobs.reduced(0.9) / fair.jobs.reduced(0.9)
    known = ratios[np.isfinite(ratios)]
    return float(known.max()) if len(known) else math.nan


class PolicyRun(Protocol):
    """What was measured of one policy with one seed."""

    @property
    def policy(self) -> str:
        """Its name, and what differs from its defaults."""

    @property
    def seed(self) -> int:
        """That drew the jobs."""

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two policies to be compared."""


_Run = TypeVar("_Run", bound=PolicyRun)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy in one setting. figures: by the names of measures, over seeds."""

    policy: str
    seeds: tuple[int, ...]
    figures: dict[str, Figure]


def by_setting(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return the runs by setting, in the order in which settings first come."""
    groups: dict[tuple[object, ...], list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return list(groups.values())


def by_policy(runs: Sequence[_Run]) -> dict[str, list[_Run]]:
    """Return the runs by policy, in the order in which policies first come."""
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.policy, []).append(run)
    return groups


def policy_rows(runs: Sequence[_Run], measures: Mapping[str, Callable[[_Run], float]]) -> list[PolicyRow]:
    """Return one row a policy over the runs of one setting. Policies keep their order."""
    return [
        PolicyRow(
            policy,
            tuple(run.seed for run in own),
            {name: over_seeds([measure(run) for run in own]) for name, measure in measures.items()},
        )
        for policy, own in by_policy(runs).items()
    ]


def ratio_to(reference: Sequence[_Run], runs: Sequence[_Run], measure: Callable[[_Run], float]) -> Figure:
    """Return how many times that of a reference a measure of runs is: the mean over the seeds of both."""
    theirs = {run.seed: measure(run) for run in reference}
    return over_seeds([measure(run) / theirs[run.seed] for run in runs if run.seed in theirs])


def over_seeds(values: Sequence[float]) -> Figure:
    """Return the mean over seeds, unknown if one seed's is: leaving it out would flatter the policy."""
    return Figure.of(values) if all(map(math.isfinite, values)) else Figure(math.nan, math.nan)
