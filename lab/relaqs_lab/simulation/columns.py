"""Simulated jobs as columns: how far each is, what it has reported, and the view a policy gets of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction import WINDOW, Curves
from relaqs.prediction.family import PARAMETERS
from relaqs.scheduling.forecast import steps_ahead
from relaqs.sharing.outlook import QUALITY_FAMILIES, fit_quality_curves
from relaqs.sharing.view import Jobs, Kind, View
from relaqs_lab.records.trace import TraceTable
from relaqs_lab.simulation.simulated_job import StepsInFlight
from relaqs_lab.simulation.workload import Workload


class JobColumns:
    """All jobs of a workload, from arrival to end. Arrays have shape (jobs,) or (jobs, WINDOW).

    Filled as the live ledger is, job by job there and all at once here: the same observations, the same
    forecasts, and so the same plans (tests/lab/simulation/test_columns.py).
    """

    def __init__(self, workload: Workload, capacity_cores: float) -> None:
        count = len(workload)
        self.traces = TraceTable.of(workload.traces)
        self.trace = workload.trace
        self.cost_scale = workload.cost_scale
        self.steps = self.traces.steps[self.trace]
        self.arrival_seconds = workload.arrival_seconds
        self.attained_core_seconds = np.zeros(count)
        self.step_seconds = np.full((count, len(self.traces.cost_to[0])), np.nan)  # when each ended
        self._ids = np.array([f"job {index:06}" for index in range(count)], dtype=object)
        self._kind = np.array([trace.kind for trace in workload.traces], dtype=np.int64)[self.trace]
        self.flight = StepsInFlight(
            self.traces, self.trace, self._kind, self.cost_scale, self.arrival_seconds, capacity_cores
        )
        self._weight = workload.weight
        self._cores_most = workload.cores_most
        trains = self._kind == Kind.TRAINING
        self._goals = workload.goals
        last = np.inf if workload.goals is None else self.steps
        self._work_total = np.where(trains, last, 1.0)
        self._observed = np.full((4, count, WINDOW), np.nan)  # work, quality, core-seconds, progress
        self._first_quality = np.full(count, np.nan)
        self._largest_change = np.zeros(count)
        self._ahead = np.tile([np.nan, np.nan, 0.0], (count, 1))  # work, core-seconds and growth of the step
        self._chosen = np.zeros(count, dtype=np.int64)
        self._parameters = np.zeros((count, PARAMETERS))
        self._has_reported = np.zeros(count, dtype=bool)  # since its forecast was made

    @property
    def step(self) -> IntArray:
        """The earliest step of each that has no result yet."""
        return self.flight.head

    def _cost_to(self, jobs: IntArray, step: IntArray) -> FloatArray:
        """Return the core-seconds from a job's start to the end of a step, inf behind its last."""
        within = np.minimum(step, self.traces.cost_to.shape[1] - 1)
        cost = self.traces.cost_to[self.trace[jobs], within] * self.cost_scale[jobs]
        return np.where(step < self.steps[jobs], cost, np.inf)

    def is_over(self, jobs: IntArray) -> BoolArray:
        return self.step[jobs] >= self.steps[jobs]

    def error(self, jobs: IntArray) -> FloatArray:
        """Return the true normalised error of the newest result, 1 before the first."""
        newest = self.traces.error[self.trace[jobs], np.maximum(self.step[jobs] - 1, 0)]
        return np.where(self.step[jobs] > 0, newest, 1.0)

    def work(self, jobs: IntArray, cores: FloatArray, from_seconds: float, span_seconds: float) -> None:
        """Let jobs work on so many cores each for a while, and note every step that ends meanwhile."""
        until_seconds = from_seconds + span_seconds
        now = np.full(len(jobs), from_seconds)
        while len(jobs):
            passed, used, is_folded = self.flight.advance(jobs, cores, now, until_seconds)
            self.attained_core_seconds[jobs] += used
            now += passed
            self._end_step(jobs[is_folded], now[is_folded])
            goes_on = ~self.is_over(jobs) & (now < until_seconds)
            jobs, cores, now = jobs[goes_on], cores[goes_on], now[goes_on]

    def _end_step(self, jobs: IntArray, at_seconds: FloatArray) -> None:
        """Note the results of the steps that were just folded."""
        step, trace = self.step[jobs] - 1, self.trace[jobs]
        table = self.traces
        quality = table.quality[trace, step]
        before = self._observed[1, jobs, -1]
        both_known = np.isfinite(quality) & np.isfinite(before)
        change = np.abs(np.where(both_known, quality, 0.0) - np.where(both_known, before, 0.0))
        observed = self._observed[:, jobs]
        observed[:, :, :-1] = observed[:, :, 1:]
        newest = (
            table.work_to[trace, step],
            quality,
            table.cost[trace, step] * self.cost_scale[jobs],
            table.progress[trace, step],
        )
        observed[:, :, -1] = newest
        self._observed[:, jobs] = observed
        is_first = np.isnan(self._first_quality[jobs]) & np.isfinite(quality)
        self._first_quality[jobs] = np.where(is_first, quality, self._first_quality[jobs])
        self._largest_change[jobs] = np.maximum(self._largest_change[jobs], change)
        self.step_seconds[jobs, step] = at_seconds
        self._has_reported[jobs] = True

    def view(self, jobs: IntArray, now_seconds: float, epoch_seconds: float, capacity_cores: float) -> View:
        """Return what a policy sees of these jobs."""
        self._forecast(jobs[self._has_reported[jobs]])
        return View(
            time_seconds=now_seconds,
            capacity_cores=capacity_cores,
            jobs=self._jobs(jobs),
            epoch_seconds=epoch_seconds,
            curves=Curves(QUALITY_FAMILIES, self._chosen[jobs], self._parameters[jobs]),
        )

    def _forecast(self, jobs: IntArray) -> None:
        """Fit the curves and costs of those that have reported."""
        if not len(jobs):
            return
        work, _, core_seconds, _ = self._observed[:, jobs]
        grows = np.zeros(len(jobs), dtype=bool)
        self._ahead[jobs] = steps_ahead(work, core_seconds, self.step[jobs], self._work_total[jobs], grows)
        curves = fit_quality_curves(self._jobs(jobs))
        self._chosen[jobs], self._parameters[jobs] = curves.chosen, curves.parameters
        self._has_reported[jobs] = False

    def _goal_columns(self, jobs: IntArray) -> dict[str, Any]:
        goals, count = self._goals, len(jobs)
        if goals is None:
            unknown, none = np.full(count, np.nan), np.zeros(count, dtype=bool)
            columns = {"accuracy": unknown, "accuracy_required": unknown, "work_needed": unknown}
            stops = {"is_best": none, "may_stop_best": none, "may_stop_required": none}
            no_hurry = {"deadline_seconds": np.full(count, np.inf), "urgency": np.ones(count)}
            return columns | stops | no_hurry
        accuracy, is_best, work_needed = goals.after(jobs, self.step[jobs])
        return {
            "deadline_seconds": self.arrival_seconds[jobs] + goals.deadline_seconds[jobs],
            "urgency": goals.urgency[jobs],
            "accuracy": accuracy,
            "accuracy_required": goals.required[jobs],
            "is_best": is_best,
            "work_needed": work_needed,
            "may_stop_best": goals.may_stop[jobs],
            "may_stop_required": goals.may_stop[jobs],
        }

    def _jobs(self, jobs: IntArray) -> Jobs:
        unknown = np.full(len(jobs), np.nan)
        work, quality, core_seconds, progress = self._observed[:, jobs]
        reported = self.step[jobs] - 1
        paid = np.where(reported >= 0, self._cost_to(jobs, np.maximum(reported, 0)), 0.0)
        return Jobs(
            ids=tuple(self._ids[jobs]),
            kind=self._kind[jobs],
            arrival_seconds=self.arrival_seconds[jobs],
            weight=self._weight[jobs],
            cores_most=self._cores_most[jobs],
            work_total=self._work_total[jobs],
            step_work=self._ahead[jobs, 0],
            step_core_seconds=self._ahead[jobs, 1],
            growth_core_seconds=self._ahead[jobs, 2],
            spent_core_seconds=np.maximum(self.attained_core_seconds[jobs] - paid, 0.0),
            attained_core_seconds=self.attained_core_seconds[jobs],
            target=unknown,
            **self._goal_columns(jobs),
            count=self.step[jobs],
            first_quality=self._first_quality[jobs],
            largest_change=self._largest_change[jobs],
            work=work,
            quality=quality,
            core_seconds=core_seconds,
            progress=progress,
        )
