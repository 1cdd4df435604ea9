"""The loop: jobs arrive, a policy shares the cores out, jobs work, steps end, and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.records.outcome import Decisions, Outcome
from relaqs.scheduling import EPOCH_SECONDS
from relaqs.sharing.plan import Plan
from relaqs.sharing.policy import Policy
from relaqs.simulation.columns import JobColumns
from relaqs.simulation.workload import Workload

SHORTEST_SECONDS = 1e-6  # between plans: what is nearer than that, rounding may hide


@dataclass(frozen=True, slots=True)
class Options:
    """How time passes. epoch_seconds: between plans.

    reacts_at_once: a plan is also made whenever a job arrives, has its first result or ends, as live; else
    all that waits for the next epoch, and the cores of a job that ends idle until then: of very many jobs
    that makes little difference, and takes much less time to compute.
    until_seconds: when to stop, whoever is not over.
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
    """What came of a simulation. decision_seconds: what each plan took, by the stopwatch, shape (plans,)."""

    outcome: Outcome
    decision_seconds: FloatArray


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
        capacity_cores: what the whole cluster has; any number above 0.
        stopwatch: the only clock of the real world. It times decisions, and changes nothing else.

    Raises:
        ValueError: there are no cores.
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
