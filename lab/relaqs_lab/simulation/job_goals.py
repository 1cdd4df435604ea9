"""What users want of simulated training runs, and what the runs tell of their accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.accuracy_ahead import accuracy_ahead

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
