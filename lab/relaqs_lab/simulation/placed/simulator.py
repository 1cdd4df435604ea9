"""The simulator of placed parts: jobs arrive, a policy places their parts, they contend, learn, and end.

The theory in half a page. A part computes as fast as its device and its node's cores allow. An iteration of a
job takes the longest part of each level, and what is sent between levels, to the server, or around a ring.
Between two **events** nothing of this changes, so that progress is a straight line, and the moment at which
a job ends is computed. The events are: a plan is due, a job has made all iterations, a machine goes or
comes back.

Plans are made every period. What a part uses of its device and of cores goes up and down; it is taken to be
constant in a period. A job whose parts start, move or go pauses, and loses the iteration in hand.

The policy sees what a live run can know: times alone, losses and accuracies of the iterations made, and what
parts use now. What the accuracy will be, it must guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.arguments import ArgumentError
from relaqs.parts.load import Load
from relaqs.parts.policy import PlacedPolicy
from relaqs.parts.resources import NodeResources
from relaqs_lab.simulation.placed.moves import MoveCosts, NodeFault
from relaqs_lab.simulation.placed.states import PlacedStates
from relaqs_lab.simulation.placed.workload import PlacedWorkload

DAY_SECONDS = 86_400.0  # of plans that place nothing, after which a simulation is given up
WEEK_SECONDS = 7 * DAY_SECONDS  # without a whole iteration, after which it is as well

OVERLOAD = 0.9  # of a device or a resource, used by several parts


@dataclass(frozen=True, slots=True)
class PlacedRules:
    """When plans are made, what moves cost, how demands swing, and which machines fail.

    Args:
        period_seconds: the time between two plans.
        moves: what they cost.
        swing: the share by which a part's use of its device and of cores goes up and down.
        faults: machines that are away for a while.
        until_seconds: when to stop, even if jobs are left.
    """

    period_seconds: float = 60.0
    moves: MoveCosts = field(default_factory=MoveCosts)
    swing: float = 0.2
    faults: tuple[NodeFault, ...] = ()
    until_seconds: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.period_seconds < math.inf or not self.until_seconds > 0:
            raise ValueError(
                f"period_seconds is {self.period_seconds} and until_seconds is {self.until_seconds}; both "
                "must be above 0, and the first finite"
            )
        if not 0 <= self.swing < 1:
            raise ValueError(f"swing is {self.swing}; give 0 or more, and less than 1")


@dataclass(frozen=True, slots=True, eq=False)
class PlacedOutcome:
    """What each of J jobs did, columns of shape (J,) in the order of arrival. Times in seconds, NaN: never.

    Attributes:
        end_seconds: when it ended, on the simulator's clock.
        executed_seconds: how long some part of it was placed.
        accuracy: of its best model at the end; NaN if it did not end.
        accuracy_at_deadline: of its best model when its deadline came, or when it ended before; NaN where
            neither was simulated.
        iterations_done: in all, when it ended or when the simulation did.
        stopped: which ended by the policy's word.
        sent_bytes: between nodes, moves included.
        overloads: nodes that were overloaded when a plan was due, over all plans.
        placed_moves: parts that moved from one place to another, over all plans.
        decision_seconds: what each plan took by the stopwatch, shape (plans,).
    """

    names: tuple[str, ...]
    arrival_seconds: FloatArray
    end_seconds: FloatArray
    deadline_seconds: FloatArray
    urgency: FloatArray
    executed_seconds: FloatArray
    accuracy: FloatArray
    accuracy_at_deadline: FloatArray
    accuracy_required: FloatArray
    iterations_done: FloatArray
    iterations_most: FloatArray
    stopped: BoolArray
    preemptions: FloatArray
    sent_bytes: FloatArray
    overloads: int
    placed_moves: int
    decision_seconds: FloatArray

    @property
    def completion_seconds(self) -> FloatArray:
        """Each job's time from arrival to end."""
        return self.end_seconds - self.arrival_seconds


def simulate_placed(
    workload: PlacedWorkload,
    policy: PlacedPolicy,
    nodes: NodeResources,
    rules: PlacedRules | None = None,
    *,
    seed: int = 0,
    stopwatch: Callable[[], float] = lambda: 0.0,
) -> PlacedOutcome:
    """Return what a placed policy makes of a workload.

    Args:
        seed: of how demands go up and down.
        stopwatch: the only clock of the real world. It times decisions, and changes nothing else.

    Raises:
        ArgumentError: for a day of plans jobs wait, none works, and none comes; or for a week no job makes a
            whole iteration, and no end of the simulation was given.
    """
    return _PlacedSimulation(workload, policy, nodes, rules or PlacedRules(), seed, stopwatch).run()


class _PlacedSimulation:
    def __init__(
        self,
        workload: PlacedWorkload,
        policy: PlacedPolicy,
        nodes: NodeResources,
        rules: PlacedRules,
        seed: int,
        stopwatch: Callable[[], float],
    ) -> None:
        self._states = PlacedStates(workload, nodes, rules.moves, rules.swing, seed)
        self._policy, self._rules, self._stopwatch = policy, rules, stopwatch
        changes = [(fault.from_seconds, False, fault.node) for fault in rules.faults]
        changes += [(fault.until_seconds, True, fault.node) for fault in rules.faults]
        self._changes = sorted(changes, reverse=True)
        self._now = 0.0
        self._rounds = 0
        self._overloads = 0
        self._decision_seconds: list[float] = []
        self._plans_in_vain = 0
        self._newest_iteration = 0.0, 0.0  # how many were made in all, and when the last of them was noted

    def run(self) -> PlacedOutcome:
        states, rules = self._states, self._rules
        while states.unfinished and self._now < rules.until_seconds:
            due = self._next_plan()
            fault = self._changes[-1][0] if self._changes else math.inf
            until = min(due, fault, states.next_end_seconds(self._now), rules.until_seconds)
            states.pass_time(self._now, until)
            self._now = until
            states.end_jobs(self._now)
            while self._changes and self._changes[-1][0] <= self._now:
                _, comes, node = self._changes.pop()
                if comes:
                    states.restore(node)
                else:
                    states.fail(node, self._now)
            if until >= due:
                self._rounds += 1
                self._plan()
            states.set_pace(self._now)
            if until >= due:
                self._refuse_to_wait_for_ever()
        return self._outcome()

    def _refuse_to_wait_for_ever(self) -> None:
        """Raise ArgumentError where nothing can come any more, and jobs wait, or begin, again and again."""
        states, policy = self._states, self._policy.name
        waiting = states.active(self._now)
        is_all = bool(len(waiting)) and len(waiting) == states.unfinished and not self._changes
        in_vain = is_all and math.isinf(states.next_end_seconds(self._now))
        self._plans_in_vain = self._plans_in_vain + 1 if in_vain else 0
        if self._plans_in_vain * self._rules.period_seconds >= DAY_SECONDS:
            raise ArgumentError(
                f"policy {policy!r} placed nothing for a day though no job ran, and job "
                f"{states.names[waiting[0]]!r} waits, with {len(waiting) - 1} more; it may not fit: simulate "
                "more nodes, or nodes of more devices"
            )
        made = float(np.floor(states.done).sum())
        if not is_all or made > self._newest_iteration[0]:
            self._newest_iteration = made, self._now
        if self._now - self._newest_iteration[1] >= WEEK_SECONDS and math.isinf(self._rules.until_seconds):
            raise ArgumentError(
                f"policy {policy!r} let no job make a whole iteration for a week, and {len(waiting)} are "
                "left: it takes them off their devices before one is over; give an end, such as --until "
                "864000, or another policy"
            )

    def _next_plan(self) -> float:
        """Return when the next plan is due. Plans at which there is no job are passed over."""
        states, period = self._states, self._rules.period_seconds
        if not len(states.active(self._now)):
            self._rounds = max(self._rounds, math.ceil(states.next_arrival_seconds / period) - 1)
        return (self._rounds + 1) * period

    def _plan(self) -> None:
        states = self._states
        states.set_demand(self._now)
        jobs = states.active(self._now)
        if not len(jobs):
            return
        view = states.view(jobs, self._now, self._rules.period_seconds)
        self._overloads += int(Load(view).overloaded(OVERLOAD).sum())
        started = self._stopwatch()
        plan = self._policy.plan(view)
        self._decision_seconds.append(self._stopwatch() - started)
        assert plan.ids == view.jobs.ids
        states.carry_out(jobs, plan, self._now)

    def _outcome(self) -> PlacedOutcome:
        states = self._states
        ended = ~np.isnan(states.end_seconds)
        in_time = ended & (states.end_seconds <= states.deadline_seconds)
        by_deadline = np.where(in_time, states.done, states.done_at_deadline)
        known = ~np.isnan(by_deadline)
        return PlacedOutcome(
            names=states.names,
            arrival_seconds=states.arrival_seconds,
            end_seconds=states.end_seconds,
            deadline_seconds=states.deadline_seconds,
            urgency=states.urgency,
            executed_seconds=states.executed_seconds,
            accuracy=np.where(ended, states.accuracy_after(states.done), math.nan),
            accuracy_at_deadline=np.where(
                known, states.accuracy_after(np.where(known, by_deadline, 0.0)), math.nan
            ),
            accuracy_required=states.accuracy_required,
            iterations_done=states.done,
            iterations_most=states.iterations_most,
            stopped=states.stopped,
            preemptions=states.preemptions,
            sent_bytes=states.sent_bytes,
            overloads=self._overloads,
            placed_moves=int(states.migrations.sum()),
            decision_seconds=np.array(self._decision_seconds),
        )
