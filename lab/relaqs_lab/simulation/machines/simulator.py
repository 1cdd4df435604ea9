"""The simulator over machines: gangs arrive, a slot policy gives them slots, they train, and end.

The theory in half a page. An elastic job's speed depends on which slots it holds and on its batch, and what a
row of training is worth depends on the batch as well. Between two **events** neither changes, so that a job's
progress is a straight line, and the moments at which lines reach something are computed. The events are: a
job arrives; a job that was moved is ready again; a stage of a job's convergence is over; a job has reached
its end; a machine fails, is back, or is slow from then on; a plan is due.

Plans are made every `round_seconds`, at events (an arrival, an end, or a machine that fails or is back), or
both. For a plan the simulator
fills the same `SlotView` as a live cluster, and asks the same policy. A job whose slots change pauses for
`rescale_seconds` and holds its slots meanwhile. A batch alone changes at once.

The policy sees what live jobs can measure: speeds fitted to the steps that a job has made, its gradient
noise, its passes. The truth is in `rates.py` and `convergence.py`. A policy that must know more than a live
run can tell says so (`needs_oracle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.gangs.nodes import Nodes
from relaqs.gangs.policy import SlotPolicy
from relaqs_lab.simulation.machines.faults import Faults, FaultTimes
from relaqs_lab.simulation.machines.states import GangStates, Knows
from relaqs_lab.simulation.machines.workloads import GangWorkload


@dataclass(frozen=True, slots=True)
class Timing:
    """When plans are made, and what a change costs.

    Args:
        round_seconds: the time between two plans; inf: only events call for one.
        at_events: plan also at once when a job arrives or ends, or a machine fails or is back.
        rescale_seconds: how long a job pauses when its slots change, or when it starts.
        until_seconds: when to stop, even if jobs are left.

    Raises:
        ValueError: a time is negative or none, or nothing ever calls for a plan.
    """

    round_seconds: float = 60.0
    at_events: bool = False
    rescale_seconds: float = 1.0
    until_seconds: float = math.inf

    def __post_init__(self) -> None:
        if not self.round_seconds > 0 or not self.until_seconds > 0:
            raise ValueError(
                f"round_seconds is {self.round_seconds} and until_seconds is {self.until_seconds}; "
                "both must be above 0"
            )
        if not 0 <= self.rescale_seconds < math.inf:
            raise ValueError(f"rescale_seconds is {self.rescale_seconds}; it must be finite and 0 or more")
        if math.isinf(self.round_seconds) and not self.at_events:
            raise ValueError("no plan would be made; give round_seconds a finite time, or at_events=True")


@dataclass(frozen=True, slots=True, eq=False)
class GangOutcome:
    """What each of J jobs did, columns of shape (J,) in the order of arrival. Times in seconds, NaN: never.

    Attributes:
        start_seconds: when it first held slots, on the simulator's clock.
        end_seconds: when it ended.
        executed_seconds: how long it held slots, pauses included.
        paused_seconds: how long it held slots without working.
        rescales: how often its slots changed after its start.
        rows_done: the rows it processed, but for those lost.
        rows_lost: the rows it had to process again, because all machines with its state failed.
        slot_seconds: the slots it held, over time.
        used_share: of all slots that were there, from the first arrival to the last end.
        change_seconds: when slots may have changed hands, on the simulator's clock, rising, shape (C,).
        held_slots: how many slots jobs held from then on, shape (C,).
        decision_seconds: what each plan took by the stopwatch, shape (plans,).
    """

    names: tuple[str, ...]
    arrival_seconds: FloatArray
    start_seconds: FloatArray
    end_seconds: FloatArray
    executed_seconds: FloatArray
    paused_seconds: FloatArray
    rescales: FloatArray
    rows_done: FloatArray
    rows_lost: FloatArray
    slot_seconds: FloatArray
    used_share: float
    change_seconds: FloatArray
    held_slots: FloatArray
    decision_seconds: FloatArray

    @property
    def completion_seconds(self) -> FloatArray:
        """Each job's time from arrival to end."""
        return self.end_seconds - self.arrival_seconds

    @property
    def queuing_seconds(self) -> FloatArray:
        """Each job's time without slots, from arrival to end."""
        return self.completion_seconds - self.executed_seconds


def simulate_gangs(
    workload: GangWorkload,
    policy: SlotPolicy,
    nodes: Nodes,
    timing: Timing | None = None,
    *,
    faults: Faults | None = None,
    stopwatch: Callable[[], float] = lambda: 0.0,
) -> GangOutcome:
    """Return what a slot policy makes of a workload on a cluster of machines.

    Args:
        workload: the jobs, and when each arrives.
        policy: says who holds which slots. It may say `needs_oracle = True` to be shown what no live run
            knows, or `reads_speeds = False` so that no speeds are fitted. Its `predictor` may say
            `needs_rows_left = True` to be shown the rows that are left.
        nodes: the machines.
        timing: when plans are made, and what changes cost.
        faults: what goes wrong with the machines. None: nothing.
        stopwatch: the only clock of the real world. It times decisions, and changes nothing else.

    Raises:
        ValueError: there are no slots, or a time passed in which jobs waited and none ever ran.
    """
    if not nodes.usable_slots.any():
        raise ValueError("the cluster has no slots; give it nodes with slots that are alive")
    return _GangSimulation(workload, policy, nodes, timing or Timing(), faults, stopwatch).run()


class _GangSimulation:
    def __init__(
        self,
        workload: GangWorkload,
        policy: SlotPolicy,
        nodes: Nodes,
        timing: Timing,
        faults: Faults | None,
        stopwatch: Callable[[], float],
    ) -> None:
        oracle = getattr(policy, "needs_oracle", False)
        speeds = getattr(policy, "reads_speeds", True) and not oracle
        rows_left = getattr(getattr(policy, "predictor", None), "needs_rows_left", False)
        self._states = GangStates(workload, nodes, Knows(speeds, oracle, rows_left))
        self._policy = policy
        self._timing = timing
        self._stopwatch = stopwatch
        self._save_seconds = (faults or Faults()).save_seconds
        self._fault_times = FaultTimes(faults, len(nodes))
        self._available_slot_seconds = 0.0
        self._held: list[tuple[float, int]] = []
        self._now = 0.0
        self._rounds = 0
        self._memory: object | None = None
        self._decision_seconds: list[float] = []

    def run(self) -> GangOutcome:
        states, timing = self._states, self._timing
        arrivals = states.arrival_seconds
        if timing.at_events:
            self._plan()  # for the jobs that are there from the start
            self._held.append((self._now, int(states.held.sum())))
        while not states.has_ended().all() and self._now < timing.until_seconds:
            round_due = self._next_round()
            later = arrivals[arrivals > self._now]
            arrival = float(later[0]) if len(later) else math.inf
            fault = self._fault_times.next_seconds
            until = min(round_due, arrival, fault, states.next_event_seconds(self._now), timing.until_seconds)
            if math.isinf(until):
                raise ValueError(
                    f"at {self._now:g} s jobs wait, none runs, and nothing calls for another plan: policy "
                    f"{self._policy.name!r} leaves slots idle"
                )
            self._pass_time(until)
            ended = states.end_stages(self._now)
            has_changed = self._change_nodes()
            is_round = until >= round_due
            if is_round:
                self._rounds += 1
            if is_round or (timing.at_events and (ended or has_changed or until >= arrival)):
                self._plan()
            self._held.append((self._now, int(states.held.sum())))
        return self._outcome()

    def _pass_time(self, until: float) -> None:
        states = self._states
        if self._now >= states.arrival_seconds[0]:
            usable = float(states.nodes.usable_slots.sum())
            self._available_slot_seconds += usable * (until - self._now)
        states.pass_time(self._now, until - self._now)
        self._now = until

    def _change_nodes(self) -> bool:
        """Let happen what is due to happen to machines. Return whether one has failed or is back."""
        changes = self._fault_times.taken(self._now)
        for change in changes:
            if change.slow_factor is not None:
                self._states.set_slow(change.node, change.slow_factor)
            elif change.is_alive:
                self._states.bring_back(change.node)
            else:
                pause = self._timing.rescale_seconds
                self._states.lose_node(change.node, self._now, pause, self._save_seconds)
        return any(change.is_alive is not None for change in changes)

    def _next_round(self) -> float:
        """Return when the next round begins. Rounds in which there is no job are passed over."""
        timing, states = self._timing, self._states
        if math.isinf(timing.round_seconds):
            return 0.0 if self._must_begin() else math.inf
        waits = (states.arrival_seconds <= self._now) & ~states.has_ended()
        if not waits.any():
            first = float(states.arrival_seconds[~states.has_ended()].min())
            self._rounds = max(self._rounds, math.ceil(first / timing.round_seconds) - 1)
        return (self._rounds + 1) * timing.round_seconds

    def _must_begin(self) -> bool:
        return not self._decision_seconds and bool((self._states.arrival_seconds <= self._now).any())

    def _plan(self) -> None:
        states = self._states
        jobs = np.flatnonzero((states.arrival_seconds <= self._now) & ~states.has_ended())
        if not len(jobs):
            return
        view = states.view(jobs, self._now, self._memory)
        started = self._stopwatch()
        plan = self._policy.plan(view)
        self._decision_seconds.append(self._stopwatch() - started)
        assert plan.ids == view.gangs.ids
        assert (plan.slots_by_node.sum(axis=0) <= view.nodes.usable_slots).all()
        self._memory = plan.memory
        states.carry_out(jobs, plan.slots_by_node, plan.batch_rows, self._now, self._timing.rescale_seconds)

    def _outcome(self) -> GangOutcome:
        states = self._states
        available, held = self._available_slot_seconds, np.array(self._held, dtype=np.float64).reshape(-1, 2)
        return GangOutcome(
            names=states.ids,
            arrival_seconds=states.arrival_seconds,
            start_seconds=states.first_start_seconds,
            end_seconds=states.end_seconds,
            executed_seconds=states.executed_seconds,
            paused_seconds=states.paused_seconds,
            rescales=states.rescales,
            rows_done=states.rows_done,
            rows_lost=states.rows_lost,
            slot_seconds=states.attained_slot_seconds,
            used_share=float(states.attained_slot_seconds.sum()) / available if available > 0 else math.nan,
            change_seconds=held[:, 0],
            held_slots=held[:, 1],
            decision_seconds=np.array(self._decision_seconds),
        )
