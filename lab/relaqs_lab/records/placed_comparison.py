"""What is told of jobs whose parts were placed, so that placed policies can be compared."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from relaqs_lab.records.placed_run import PlacedRun

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
