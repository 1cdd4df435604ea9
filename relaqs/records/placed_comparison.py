"""Placed policies side by side: what each makes of the same jobs, over several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relaqs.records.comparison import Figure
from relaqs.records.placed_run import PlacedRun

ENOUGH = 1e-9  # rounding of an accuracy


def _waiting(run: PlacedRun) -> float:
    return float((run.jobs.completion_seconds - run.jobs.executed_seconds).mean())


def _in_time(run: PlacedRun) -> float:
    return float((run.jobs.completion_seconds <= run.jobs.deadline_seconds).mean())


def _urgent_in_time(run: PlacedRun) -> float:
    urgent = run.jobs.urgency > 8
    met = run.jobs.completion_seconds[urgent] <= run.jobs.deadline_seconds[urgent]
    return float(met.mean()) if urgent.any() else math.nan


def _accuracy_met(run: PlacedRun) -> float:
    enough = run.jobs.accuracy_at_deadline >= run.jobs.accuracy_required - ENOUGH
    return float(np.where(np.isnan(run.jobs.accuracy_at_deadline), math.nan, enough).mean())


PLACED_MEASURES: dict[str, Callable[[PlacedRun], float]] = {
    "completion_seconds": lambda run: float(run.jobs.completion_seconds.mean()),
    "completion_seconds_median": lambda run: float(np.median(run.jobs.completion_seconds)),
    "makespan_seconds": lambda run: run.makespan_seconds,
    "waiting_seconds": _waiting,
    "deadlines_met": _in_time,
    "urgent_deadlines_met": _urgent_in_time,
    "accuracy_at_deadline": lambda run: float(run.jobs.accuracy_at_deadline.mean()),
    "accuracy_met": _accuracy_met,
    "iterations_share": lambda run: float(run.jobs.iterations_share.mean()),
    "sent_bytes": lambda run: float(run.jobs.sent_bytes.sum()),
    "overloads": lambda run: float(run.overloads),
    "placed_moves": lambda run: float(run.placed_moves),
    "preemptions": lambda run: float(run.jobs.preemptions.sum()),
    "decision_ms": lambda run: run.decision_ms_mean,
}
"""What is told of a run: one number each. NaN where a job did not end, or its deadline did not come."""


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """One policy in one setting. figures: by the names in PLACED_MEASURES, over seeds."""

    policy: str
    seeds: tuple[int, ...]
    figures: dict[str, Figure]


def settings_of_placed(runs: Sequence[PlacedRun]) -> list[list[PlacedRun]]:
    """Return the runs by setting, in the order in which settings first come."""
    groups: dict[tuple[object, ...], list[PlacedRun]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return list(groups.values())


def compare_placed(runs: Sequence[PlacedRun]) -> list[PlacedRow]:
    """Return one row a policy over the runs of one setting. Policies keep their order."""
    rows = []
    for policy in dict.fromkeys(run.policy for run in runs):
        own = [run for run in runs if run.policy == policy]
        figures = {name: _figure([measure(run) for run in own]) for name, measure in PLACED_MEASURES.items()}
        rows.append(PlacedRow(policy, tuple(run.seed for run in own), figures))
    return rows


def placed_change(
    runs: Sequence[PlacedRun], reference: Sequence[PlacedRun], measure: str = "completion_seconds"
) -> Figure:
    """Return by how much a number of some runs differs from that of others with the same seeds, as a share.

    −0.2 is a fifth less. The standard error is that of the differences of pairs.
    """
    of = PLACED_MEASURES[measure]
    theirs = {run.seed: of(run) for run in reference}
    return _figure([of(run) / theirs[run.seed] - 1.0 for run in runs if run.seed in theirs])


def _figure(values: Sequence[float]) -> Figure:
    """Return the mean over seeds, unknown if one seed's is: leaving it out would flatter the policy."""
    return Figure.of(values) if all(map(math.isfinite, values)) else Figure(math.nan, math.nan)
