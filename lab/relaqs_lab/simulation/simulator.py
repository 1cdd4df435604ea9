"""The simulator: jobs arrive, a policy shares the cores out, jobs work, steps end, and again.

The theory in half a page. A policy is judged by what a whole cluster does over hours, with hundreds of jobs
and several seeds. Running that for real takes hours for each policy. But a policy sees only numbers: how much
work each job has done, and how good its result was after each step. A **trace** has these numbers for one
job, recorded or made up from theory. So a cluster can be computed: given traces, times of arrival and a
policy, what is each job's quality at each moment?

Time passes in two ways.

- **Plans** are events. One is made every `epoch_seconds`, and (as live) at once when a job arrives, gives its
  first result or ends. For a plan the simulator fills the same `View` as the live scheduler, by the same
  predictions, and asks the same policy. So what is measured is the policy that will run.
- **Between two plans** work is fluid. A job with 2.5 cores does 2.5 core-seconds of its trace each second.
  Real tasks start and end; here a job with half a core works on its task at half the speed. Where a trace
  knows its tasks (`Pipeline`), a task uses one core at most, and a step has a result only after it was
  folded, which takes time and no core. Cores for which a job has no tasks go to jobs that have some. The
  moments at which steps end are computed, and not stepped through.

The loop is: admit the jobs that have arrived; ask for a plan; let the jobs work until the next plan is due;
take out those that are over. With no job running, time jumps to the next arrival.

Example. Two jobs of 3 core-seconds each arrive at 0 s on a cluster of 2 cores. Fair sharing gives each one
core, and both end at 3 s. First in, first out gives both cores to the first: it ends at 1.5 s, and the second
at 3 s. (The example of `simulate` runs this.)

How near this is to a real cluster was measured: `relaqs simulate --validate` replays a live run. What it is
trusted for, and what would change it: docs/decisions/0013-simulator.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.scheduling import EPOCH_SECONDS
from relaqs.sharing.plan import Plan
from relaqs.sharing.policy import Policy
from relaqs_lab.records.outcome import Decisions, Outcome
from relaqs_lab.simulation.columns import JobColumns
from relaqs_lab.simulation.workload import Workload

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
