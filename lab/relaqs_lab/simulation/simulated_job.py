"""What simulated jobs can work on: the tasks of their steps in flight, as the runner has them."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.jobs.runner import STEPS_IN_FLIGHT
from relaqs.sharing.fill import fill_evenly
from relaqs.sharing.view import Kind
from relaqs_lab.records.trace import TraceTable

ROUNDING = 1e-9  # relative: core-seconds that a sum of many parts may be off
INSTANT_SECONDS = 1e-9  # what ends so soon has ended
LEAST_SHARE = 1e-9  # of the cores: what a job without a share counts with where others leave some


class StepsInFlight:
    """How far the steps of J jobs are worked off.

    The tasks of a step are worked off evenly, and a task uses one core at most. A job's cores go to its
    earliest step first. When the tasks of that step are done it is folded, which takes time and no core. Then
    a later step begins. Two steps are in flight at once, and more while they have fewer tasks than there are
    cores. A training run has one step in flight, because the next one needs its result. Jobs without a
    pipeline have endless tasks and no folds.

    Attributes:
        head: the earliest step of each job that is not folded, shape (J,).
    """

    def __init__(
        self,
        traces: TraceTable,
        trace: IntArray,
        kind: IntArray,
        cost_scale: FloatArray,
        arrival_seconds: FloatArray,
        capacity_cores: float,
    ) -> None:
        """Put every job before its first step.

        Args:
            traces: all traces.
            trace: which of them each job replays, shape (J,).
            kind: of each job, shape (J,).
            cost_scale: how many times as large the data are taken to be, with as many times the tasks, shape
                (J,).
            arrival_seconds: of each job, shape (J,).
            capacity_cores: of the cluster.
        """
        scale = cost_scale[:, None]
        tasks = np.ceil(traces.tasks[trace] * scale * (1 - ROUNDING))
        self._is_endless = np.isinf(tasks[:, 0])
        widest = min(max(STEPS_IN_FLIGHT, int(min(capacity_cores, 1e9)) + 1), tasks.shape[1])
        self._window = np.arange(1 if self._is_endless.all() else widest)
        behind = ((0, 0), (0, len(self._window)))  # so that a window never ends behind the columns
        self._cost = np.pad(traces.cost[trace] * scale, behind)
        self._left = self._cost.copy()
        self._tasks = np.pad(tasks, behind)
        self._fold_seconds = np.pad(traces.fold_seconds[trace], behind)
        self._least_steps = np.where(kind == Kind.TRAINING, 1, STEPS_IN_FLIGHT)
        self._most_tasks = np.where(kind == Kind.TRAINING, 0.0, capacity_cores)
        self._ready_seconds = arrival_seconds + traces.start_seconds[trace]
        self._folded_seconds = np.full(len(trace), np.inf)  # when the fold of the head ends, if it has begun
        self.head = np.zeros(len(trace), dtype=np.int64)

    def shared_out(self, jobs: IntArray, cores: FloatArray, at_seconds: float) -> FloatArray:
        """Return a plan's cores where what a job has no tasks for goes to jobs that have, shape (len(jobs),).

        Cores are shared as planned among the jobs that have tasks.
        """
        if self._is_endless[jobs].all():
            return cores
        usable = self._open_tasks(jobs, np.full(len(jobs), at_seconds)).sum(axis=1)
        given = np.minimum(cores, usable)
        weight = np.maximum(cores, LEAST_SHARE * cores.sum())
        more: FloatArray = fill_evenly(float(cores.sum() - given.sum()), weight, usable - given)
        return np.asarray(given + more)

    def seconds_to_event(self, jobs: IntArray, cores: FloatArray, at_seconds: float) -> float:
        """Return the time until some job can use more cores or fewer, has its first result, or ends.

        cores: what each has meanwhile. inf if no job gets anywhere.
        """
        endless = self._is_endless[jobs]
        free = jobs[endless]
        left = np.where(self.head[free] == 0, self._left[free, 0], self._left[free].sum(axis=1))
        with np.errstate(divide="ignore"):
            event = np.where(cores[endless] > 0, left / cores[endless], np.inf).min(initial=np.inf)
        bound, now = jobs[~endless], np.full(np.count_nonzero(~endless), at_seconds)
        change = self._change_seconds(bound, self._rates(bound, cores[~endless], now), now)
        return float(min(event, change.min(initial=np.inf)))

    def advance(
        self, jobs: IntArray, cores: FloatArray, now_seconds: FloatArray, until_seconds: float
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Let each job work until something changes for it; return seconds, core-seconds, who has a result.

        now_seconds: of each job. At most until then, and to the end of one fold. All shapes (len(jobs),).
        """
        rates = self._rates(jobs, cores, now_seconds)
        passed = np.minimum(self._change_seconds(jobs, rates, now_seconds), until_seconds - now_seconds)
        used = rates * passed[:, None]
        at = self._at(jobs)
        left = self._left[at] - used
        self._left[at] = np.where(left > ROUNDING * self._cost[at], left, 0.0)
        then = now_seconds + passed
        self._begin_folds(jobs, then)
        is_folded = self._folded_seconds[jobs] <= then + INSTANT_SECONDS
        self.head[jobs[is_folded]] += 1
        self._folded_seconds[jobs[is_folded]] = np.inf
        self._begin_folds(jobs[is_folded], then[is_folded])
        return passed, used.sum(axis=1), is_folded

    def _begin_folds(self, jobs: IntArray, now_seconds: FloatArray) -> None:
        """Let folds begin where all tasks of the head are done. Behind its last step a job has none."""
        head = self.head[jobs]
        begins = (
            np.isinf(self._folded_seconds[jobs])
            & (self._left[jobs, head] <= 0)
            & (self._cost[jobs, head] > 0)
        )
        chosen = jobs[begins]
        self._folded_seconds[chosen] = now_seconds[begins] + self._fold_seconds[chosen, self.head[chosen]]

    def _at(self, jobs: IntArray) -> tuple[IntArray, IntArray]:
        """Return the index of each job's next steps, as many as can be in flight, shape (len(jobs), W)."""
        return jobs[:, None], self.head[jobs][:, None] + self._window

    def _open_tasks(self, jobs: IntArray, now_seconds: FloatArray) -> FloatArray:
        """Return how many tasks there are to work on in each job's next steps, shape (len(jobs), W)."""
        at = self._at(jobs)
        tasks = self._tasks[at]
        before = np.cumsum(tasks, axis=1) - np.where(np.isinf(tasks), 0.0, tasks)
        in_flight = (self._window < self._least_steps[jobs][:, None]) | (
            before <= self._most_tasks[jobs][:, None]
        )
        is_open = (
            in_flight
            & (self._left[at] > 0)
            & (self._ready_seconds[jobs] <= now_seconds + INSTANT_SECONDS)[:, None]
        )
        return np.where(is_open, tasks, 0.0)

    def _rates(self, jobs: IntArray, cores: FloatArray, now_seconds: FloatArray) -> FloatArray:
        """Return what each of a job's next steps has of its cores, shape (len(jobs), W)."""
        tasks = self._open_tasks(jobs, now_seconds)
        most = np.minimum(tasks, cores[:, None])
        return np.asarray(np.clip(cores[:, None] - (np.cumsum(most, axis=1) - most), 0.0, most))

    def _change_seconds(self, jobs: IntArray, rates: FloatArray, now_seconds: FloatArray) -> FloatArray:
        """Return the time until a step's tasks are done, a fold ends or the first tasks are there."""
        with np.errstate(divide="ignore", invalid="ignore"):
            done = np.where(rates > 0, self._left[self._at(jobs)] / rates, np.inf).min(axis=1)
        ready = self._ready_seconds[jobs] - now_seconds
        waits = np.where(ready > INSTANT_SECONDS, ready, np.inf)
        folded = self._folded_seconds[jobs] - now_seconds
        return np.asarray(np.maximum(np.minimum(np.minimum(done, waits), folded), 0.0))
