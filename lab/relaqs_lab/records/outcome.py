"""What came of many jobs on one cluster, computed or really run: errors over time, and how soon each fell."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.records.trace import TraceTable

LEVELS = np.arange(1, 21) / 20  # shares by which an error is reduced
GROUPS = ("worst third", "middle third", "best third")  # of the jobs, by their true error


class Decisions:
    """Who had how many cores when: the shares of the worst, the middle and the best third of the jobs."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []

    def add(self, at_seconds: float, span_seconds: float, errors: FloatArray, cores: FloatArray) -> None:
        """Note a plan that held for a while. errors, cores: of each job, shape (J,)."""
        thirds = np.array_split(np.argsort(-errors, kind="stable"), len(GROUPS))
        by_third = [float(cores[third].sum()) for third in thirds]
        self._rows.append((at_seconds, span_seconds, float(len(errors)), *by_third))

    @property
    def table(self) -> FloatArray:
        """The plans, shape (plans, 3 + GROUPS): when, for how long, for how many jobs, and cores by third."""
        return np.array(self._rows).reshape(-1, 3 + len(GROUPS))


def steps_for_good(traces: TraceTable, reductions: FloatArray) -> IntArray:
    """Return the step after which each trace's error stays reduced by so much, shape (T, levels)."""
    too_large = traces.error[:, :, None] > 1.0 - reductions + 1e-12
    behind = np.arange(too_large.shape[1])[None, :, None] + 1
    first = np.where(too_large, behind, 0).max(axis=1)
    return np.asarray(np.minimum(first, too_large.shape[1] - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """J jobs from arrival to end.

    A job's error is 1 until its first result. Then it is the true error relative to its run's largest, and 0
    at its end.

    Attributes:
        step_seconds: when each step ended, shape (J, S). NaN if it did not.
        trace: which row of `traces` has the errors of each job, shape (J,).
        end_seconds: when the run ended.
    """

    traces: TraceTable
    trace: IntArray
    arrival_seconds: FloatArray
    step_seconds: FloatArray
    end_seconds: float
    decisions: Decisions = field(default_factory=Decisions)

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def first_seconds(self) -> FloatArray:
        """Each job's time from arrival to its first result, shape (J,), NaN where there was none."""
        return self.step_seconds[:, 0] - self.arrival_seconds

    @property
    def completion_seconds(self) -> FloatArray:
        """Each job's time from arrival to its end, shape (J,), NaN where it did not end."""
        last = self.traces.steps[self.trace] - 1
        return self.step_seconds[np.arange(len(self)), last] - self.arrival_seconds

    def seconds_to(self, reductions: FloatArray) -> FloatArray:
        """Return each job's time from arrival until its error is reduced by so much for good, (J, levels).

        For good: an error that gets small by chance and grows again counts from when it stays small.
        """
        step = steps_for_good(self.traces, reductions)[self.trace]
        rows = np.arange(len(self))[:, None]
        return np.asarray(self.step_seconds[rows, step] - self.arrival_seconds[:, None])

    def error_seconds(self) -> FloatArray:
        """Return the integral of each job's error from its arrival to its end or that of the run, (J,)."""
        ends = np.where(np.isnan(self.step_seconds), self.end_seconds, self.step_seconds)
        begins = np.column_stack([self.arrival_seconds, ends[:, :-1]])
        errors = np.column_stack([np.ones(len(self)), self.traces.error[self.trace][:, :-1]])
        arrived = self.arrival_seconds < self.end_seconds
        lasting = np.where(arrived[:, None], np.maximum(ends - begins, 0.0), 0.0)
        return np.asarray((errors * lasting).sum(axis=1))

    def over_time(self, at_seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean error and the mean progress metric of the jobs that have arrived by then.

        at_seconds: shape (P,), rising; so are the results, NaN before the first job. A job that is over
        counts with error 0 and progress 0, one without a result with 1.
        """
        errors = self._mean_over_time(self.traces.error, at_seconds)
        progress = self.traces.progress.copy()
        progress[np.arange(len(progress)), self.traces.steps - 1] = 0.0
        return errors, self._mean_over_time(progress, at_seconds)

    def _mean_over_time(self, values: FloatArray, at_seconds: FloatArray) -> FloatArray:
        after = values[self.trace]
        changes = np.diff(after, axis=1, prepend=1.0)
        happened = ~np.isnan(self.step_seconds)
        times = np.concatenate([self.arrival_seconds, self.step_seconds[happened]])
        deltas = np.concatenate([np.ones(len(self)), changes[happened]])
        order = np.argsort(times, kind="stable")
        sums = np.concatenate([[0.0], deltas[order].cumsum()])
        total = sums[np.searchsorted(times[order], at_seconds, side="right")]
        arrived = np.searchsorted(np.sort(self.arrival_seconds), at_seconds, side="right")
        return np.where(arrived > 0, total / np.maximum(arrived, 1), np.nan)
