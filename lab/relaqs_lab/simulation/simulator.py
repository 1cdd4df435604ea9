"""The simulator: jobs arrive, a policy shares the cores out, jobs work, steps end, and again.

The theory in half a page. A policy is judged by what a whole cluster does over hours, with hundreds of
jobs and several seeds. Running that for real takes hours for each policy. But a policy sees only numbers:
how much work each job has done, and how good its result was after each step. A **trace** has these numbers
for one job, recorded or made up from theory. So a cluster can be computed: given traces, times of arrival
and a policy, what is each job's quality at each moment?

Time passes in two ways.

- **Plans** are events. One is made every `epoch_seconds`, and (as live) at once when a job arrives, gives
  its first result or ends. For a plan the simulator fills the same `View` as the live scheduler, by the
  same predictions, and asks the same policy. So what is measured is the policy that will run.
- **Between two plans** work is fluid. A job with 2.5 cores does 2.5 core-seconds of its trace each second.
  Real tasks start and end; here a job with half a core works on its task at half the speed. Where a trace
  knows its tasks (`Pipeline`), a task uses one core at most, and a step has a result only after it was
  folded, which takes time and no core. Cores for which a job has no tasks go to jobs that have some. The
  moments at which steps end are computed, and not stepped through.

The loop is: admit the jobs that have arrived; ask for a plan; let the jobs work until the next plan is
due; take out those that are over. With no job running, time jumps to the next arrival.

Example. Two jobs of 3 core-seconds each arrive at 0 s on a cluster of 2 cores. Fair sharing gives each one
core, and both end at 3 s. First in, first out gives both cores to the first: it ends at 1.5 s, and the
second at 3 s. (The example of `simulate` runs this.)

How near this is to a real cluster was measured: `relaqs simulate --validate` replays a live run. What it
is trusted for, and what would change it: docs/decisions/0013-simulator.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.jobs.runner import STEPS_IN_FLIGHT
from relaqs.prediction import WINDOW, Curves
from relaqs.prediction.curves import PARAMETERS
from relaqs.scheduling import EPOCH_SECONDS
from relaqs.scheduling.desk import steps_ahead
from relaqs.sharing.division import fill_evenly
from relaqs.sharing.outlook import QUALITY_FAMILIES, fit_quality_curves
from relaqs.sharing.view import Jobs, Kind, Plan, Policy, View
from relaqs_lab.records.trace import Decisions, Outcome, TraceTable
from relaqs_lab.simulation.workload import Workload

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


SHORTEST_SECONDS = 1e-6  # between plans: what is nearer than that, rounding may hide


@dataclass(frozen=True, slots=True)
class Options:
    """How time passes in a simulation.

    Args:
        epoch_seconds: the time between two plans.
        reacts_at_once: make a plan also whenever a job arrives, has its first result or ends, as live. If
            False, all that waits for the next plan, and the cores of a job that ended idle until then. With
            very many jobs that makes little difference, and takes much less time to compute.
        until_seconds: when to stop, even if jobs are left.

    Raises:
        ValueError: a time is not above 0.
    """

    epoch_seconds: float = EPOCH_SECONDS
    reacts_at_once: bool = True
    until_seconds: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.epoch_seconds < math.inf:
            raise ValueError(f"epoch_seconds is {self.epoch_seconds}; it must be a finite time above 0")
        if not self.until_seconds > 0:
            raise ValueError(f"until_seconds is {self.until_seconds}; it must be above 0")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What came of a simulation.

    Attributes:
        outcome: what each job did, and when.
        decision_seconds: what each plan took by the stopwatch, shape (plans,).
        stopped_seconds: when a plan stopped each job, NaN where none did, shape (J,).
    """

    outcome: Outcome
    decision_seconds: FloatArray
    stopped_seconds: FloatArray


def simulate(
    workload: Workload,
    policy: Policy,
    capacity_cores: float,
    options: Options | None = None,
    *,
    stopwatch: Callable[[], float] = lambda: 0.0,
) -> Run:
    """Return what a policy makes of a workload on a cluster of so many cores.

    Cores are handed out as shares. A share is worked off evenly until the next plan, by the tasks that a job
    has (`StepsInFlight`). A job that a plan stops works no more, and its later steps have no end.

    Args:
        workload: the jobs, and when each arrives.
        policy: shares the cores out.
        capacity_cores: what the whole cluster has; any number above 0.
        options: how time passes.
        stopwatch: the only clock of the real world. It times decisions, and changes nothing else.

    Raises:
        ValueError: there are no cores.

    >>> from relaqs.policies import Fair, Fifo, Kind
    >>> from relaqs_lab.simulation import Trace, workload_of
    >>> errors, halves, progress = np.array([0.1, 0.0]), np.array([1.5, 1.5]), np.array([1.0, 0.5])
    >>> job = Trace("job", Kind.QUERY, np.array([0.5, 1.0]), errors, errors, halves, progress)
    >>> two = workload_of([job, job], np.zeros(2))
    >>> [simulate(two, policy, 2.0).outcome.step_seconds[:, -1].tolist() for policy in (Fair(), Fifo())]
    [[3.0, 3.0], [1.5, 3.0]]
    """
    if not capacity_cores > 0:
        raise ValueError(f"the cluster has no cores: capacity_cores is {capacity_cores}; give more than 0")
    return _Simulation(workload, policy, capacity_cores, options or Options(), stopwatch).run()


class _Simulation:
    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        capacity_cores: float,
        options: Options,
        stopwatch: Callable[[], float],
    ) -> None:
        self._columns = JobColumns(workload, capacity_cores)
        self._workload = workload
        self._policy = policy
        self._capacity_cores = capacity_cores
        self._options = options
        self._stopwatch = stopwatch
        self._running: IntArray = np.zeros(0, dtype=np.int64)
        self._arrived = 0
        self._now_seconds = 0.0
        self._decisions = Decisions()
        self._decision_seconds: list[float] = []
        self._stopped_seconds = np.full(len(workload), np.nan)

    def run(self) -> Run:
        while self._now_seconds < self._options.until_seconds:
            self._admit()
            if not len(self._running):
                if self._arrived == len(self._workload):
                    break
                self._now_seconds = self._next_arrival()
                continue
            self._pass_time(self._carried_out(self._plan()))
        columns = self._columns
        return Run(
            Outcome(
                traces=columns.traces,
                trace=columns.trace,
                arrival_seconds=columns.arrival_seconds,
                step_seconds=columns.step_seconds,
                end_seconds=min(self._now_seconds, self._options.until_seconds),
                decisions=self._decisions,
            ),
            np.array(self._decision_seconds),
            self._stopped_seconds,
        )

    def _next_arrival(self) -> float:
        arrivals = self._workload.arrival_seconds
        return float(arrivals[self._arrived]) if self._arrived < len(arrivals) else math.inf

    def _admit(self) -> None:
        arrivals = self._workload.arrival_seconds
        arrived = int(np.searchsorted(arrivals, self._now_seconds, side="right"))
        self._running = np.concatenate([self._running, np.arange(self._arrived, arrived)])
        self._arrived = arrived

    def _plan(self) -> Plan:
        started = self._stopwatch()
        view = self._columns.view(
            self._running, self._now_seconds, self._options.epoch_seconds, self._capacity_cores
        )
        plan = self._policy.plan(view)
        self._decision_seconds.append(self._stopwatch() - started)
        return plan

    def _carried_out(self, plan: Plan) -> FloatArray:
        """Return the cores of the jobs that go on. Those that the plan stops run no more."""
        if not plan.stops:
            return plan.cores
        goes_on = ~np.isin(plan.ids, plan.stops)
        self._stopped_seconds[self._running[~goes_on]] = self._now_seconds
        self._running = self._running[goes_on]
        return plan.cores[goes_on]

    def _pass_time(self, cores: FloatArray) -> None:
        """Let the jobs work until the next plan is due."""
        columns, options, running = self._columns, self._options, self._running
        due = min(self._now_seconds + options.epoch_seconds, options.until_seconds)
        if options.reacts_at_once:
            due = min(due, self._next_arrival())
        is_new = columns.step[running] == 0
        while self._now_seconds < due:
            given = columns.flight.shared_out(running, cores, self._now_seconds)
            until = due
            if options.reacts_at_once:
                event = columns.flight.seconds_to_event(running, given, self._now_seconds)
                until = min(due, self._now_seconds + max(event, SHORTEST_SECONDS))
            span = until - self._now_seconds
            self._decisions.add(self._now_seconds, span, columns.error(running), given)
            columns.work(running, given, self._now_seconds, span)
            self._now_seconds = until
            is_over = columns.is_over(running)
            if is_over.any() or (is_new & (columns.step[running] > 0)).any():
                break
        self._running = running[~columns.is_over(running)]
