"""The simulator of placed parts: jobs arrive, a policy places their parts, they contend, learn, and end.

The theory in half a page. A part computes as fast as its device and its node's cores allow. An iteration
of a job takes the longest part of each level, and what is sent between levels, to the server, or around a
ring. Between two **events** nothing of this changes, so that progress is a straight line, and the moment
at which a job ends is computed. The events are: a plan is due, a job has made all iterations, a machine
goes or comes back.

Plans are made every period. What a part uses of its device and of cores goes up and down; it is taken to
be constant in a period. A job whose parts start, move or go pauses, and loses the iteration in hand.

The policy sees what a live run can know: times alone, losses and accuracies of the iterations made, and
what parts use now. What the accuracy will be, it must guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.arguments import ArgumentError
from relaqs.sharing.parts import (
    NETWORK,
    WAITS,
    Load,
    NodeResources,
    Parts,
    PlacedJobs,
    PlacedPlan,
    PlacedPolicy,
    PlacedView,
)
from relaqs_lab.simulation.placed.contention import PartTable, pace_of, rows_of
from relaqs_lab.simulation.placed.placed_workload import PlacedWorkload


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """A job pauses when one of its parts starts, moves or goes, and the iteration in hand is lost.

    Args:
        restart_seconds: each time. A part that has learned fetches its state over the network as well.
        are_free: nothing pauses, to see what the pauses cost. The iteration in hand is lost all the same.
    """

    restart_seconds: float = 5.0
    are_free: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.restart_seconds < math.inf:
            raise ValueError(f"restart_seconds is {self.restart_seconds}; it must be finite and 0 or more")

    def pause_seconds(self, state_bytes: FloatArray, bytes_per_second: float) -> FloatArray:
        """Return how long jobs pause whose largest moved state is so large, shape (n,)."""
        if self.are_free:
            return state_bytes * 0.0
        return self.restart_seconds + state_bytes / max(bytes_per_second, 1.0)


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A machine that is away for a while. node: its position."""

    node: int
    from_seconds: float
    until_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.from_seconds < self.until_seconds:
            raise ValueError(
                f"node {self.node} is away from {self.from_seconds} to {self.until_seconds} s; the first "
                "must be 0 or more and less than the second"
            )


FALL_ITERATIONS = 5  # over which the mean fall of the loss is told
GAIN_SHARE = 0.1  # of all iterations, over which the gain of accuracy is told


class PlacedStates:
    """J jobs and all their parts, as columns that change. Times in seconds on the simulator's clock.

    Attributes:
        done: iterations so far.
        end_seconds: when each ended, NaN while it has not.
        stopped: which ended by the policy's word.
        executed_seconds: how long some part of it was placed.
        device_seconds: the devices it held, over time.
        sent_bytes: between nodes, moves included.
        migrations: how often parts moved from one place to another.
        preemptions: how often it worked, and then had to wait.
        done_at_deadline: its iterations when its deadline came, NaN before.
        unfinished: how many have not ended.
    """

    def __init__(
        self, workload: PlacedWorkload, nodes: NodeResources, moves: MoveCosts, swing: float, seed: int
    ) -> None:
        jobs, count = workload.jobs, len(workload.jobs)
        capacity = nodes.capacity.copy()
        capacity[:, NETWORK] *= workload.network_scale
        self.nodes = NodeResources(nodes.ids, capacity, nodes.alive.copy())
        self.table = PartTable.of(workload, self.nodes, seed)
        self.names = tuple(job.name for job in jobs)
        self.arrival_seconds = np.array([job.arrival_seconds for job in jobs])
        self.deadline_seconds = np.array([job.deadline_seconds for job in jobs])
        self.iterations_most = np.array([float(job.iterations) for job in jobs])
        self.iteration_seconds = np.array([job.iteration_seconds for job in jobs])
        self.urgency = np.array([job.urgency for job in jobs])
        self.accuracy_required = np.array([job.accuracy_required for job in jobs])
        self._curve_starts = np.concatenate([[0], np.cumsum([job.iterations + 1 for job in jobs])])
        self._accuracy = np.concatenate([job.curve.accuracy for job in jobs])
        self._loss = np.concatenate([job.curve.loss for job in jobs])
        self._moves, self._swing = moves, swing
        self.done, self.executed_seconds, self.device_seconds = np.zeros((3, count))
        self.sent_bytes, self.migrations, self.preemptions = np.zeros((3, count))
        self.end_seconds, self.done_at_deadline = np.full((2, count), math.nan)
        self.stopped = np.zeros(count, dtype=np.bool_)
        self._paused_until = np.full(count, -math.inf)
        parts = len(self.table)
        self.node, self.device = np.full((2, parts), WAITS)
        self._queued_since = self.arrival_seconds[self.table.job].copy()
        self.demand = self.table.demand.copy()
        self._swung = np.empty(0, dtype=np.int64)  # parts whose demand is not their mean
        self._works = np.zeros(parts, dtype=np.bool_)
        self._work_rows = self._working = np.empty(0, dtype=np.int64)
        self._seconds = np.full(count, math.inf)
        self._bytes = np.zeros(count)
        # Most jobs have ended or not come. What happens often looks only at those that are here.
        self.unfinished, self._come = count, 0
        self._active = np.empty(0, dtype=np.int64)
        self._held, self._held_devices = np.empty((2, 0), dtype=np.int64)  # jobs with a part somewhere
        self._by_deadline = np.argsort(self.deadline_seconds, kind="stable")
        self._deadlines = self.deadline_seconds[self._by_deadline]

    def active(self, now: float) -> IntArray:
        """Return the jobs that have come and not ended, in the order of their arrival. Time goes on only."""
        come = int(np.searchsorted(self.arrival_seconds, now, side="right"))
        if come > self._come:
            self._active = np.concatenate([self._active, np.arange(self._come, come)])
            self._come = come
        return self._active

    @property
    def next_arrival_seconds(self) -> float:
        """When the next job comes, infinity if none does."""
        come = self._come
        return float(self.arrival_seconds[come]) if come < len(self.arrival_seconds) else math.inf

    def accuracy_after(self, iterations: FloatArray) -> FloatArray:
        """Return each job's best accuracy after so many iterations, shape (J,)."""
        return np.asarray(
            self._accuracy[self._curve_starts[:-1] + np.floor(iterations + 1e-9).astype(np.int64)]
        )

    # The passing of time.

    def next_end_seconds(self, now: float) -> float:
        """Return when the next job ends, if nothing changes before."""
        jobs = self._working
        if not len(jobs):
            return math.inf
        left = np.maximum(self.iterations_most[jobs] - self.done[jobs], 0.0)
        return float((np.maximum(now, self._paused_until[jobs]) + left * self._seconds[jobs]).min())

    def pass_time(self, start: float, end: float) -> None:
        """Let jobs work from one moment to another, between which nothing changes."""
        jobs = self._working
        begins = np.clip(self._paused_until[jobs], start, end)
        made = (end - begins) / self._seconds[jobs]
        before = self.done[jobs].copy()
        self.done[jobs] = np.minimum(before + made, self.iterations_most[jobs])
        self.sent_bytes[jobs] += (self.done[jobs] - before) * self._bytes[jobs]
        self.executed_seconds[self._held] += end - start
        self.device_seconds[self._held] += self._held_devices * (end - start)
        self._note_deadlines(start, end, jobs, before, begins)

    def _note_deadlines(
        self, start: float, end: float, jobs: IntArray, before: FloatArray, begins: FloatArray
    ) -> None:
        first, after = np.searchsorted(self._deadlines, [start, end], side="right")
        due = self._by_deadline[first:after]
        if not len(due):
            return
        self.done_at_deadline[due] = self.done[due]
        late = np.flatnonzero(np.isin(jobs, due))
        job = jobs[late]
        worked = np.maximum(self.deadline_seconds[job] - begins[late], 0.0) / self._seconds[job]
        self.done_at_deadline[job] = np.minimum(before[late] + worked, self.iterations_most[job])

    def end_jobs(self, now: float) -> None:
        """End the jobs that have made all iterations."""
        jobs = self._working
        ended = jobs[self.done[jobs] >= self.iterations_most[jobs] - 1e-7]
        self.done[ended] = self.iterations_most[ended]
        self._finish(ended, now)

    def stop_jobs(self, jobs: IntArray, now: float) -> None:
        """End jobs before their last iteration; the iteration in hand is lost."""
        self.done[jobs] = np.floor(self.done[jobs] + 1e-9)
        self.stopped[jobs] = True
        self._finish(jobs, now)

    def _finish(self, jobs: IntArray, now: float) -> None:
        if len(jobs):
            self.end_seconds[jobs] = now
            rows, _ = rows_of(self.table.starts, jobs)
            self.node[rows] = self.device[rows] = WAITS
            self.unfinished -= len(jobs)
            self._active = self._active[~np.isin(self._active, jobs)]
            holds = ~np.isin(self._held, jobs)
            self._held, self._held_devices = self._held[holds], self._held_devices[holds]

    def _note_held(self, jobs: IntArray) -> None:
        """Find out which of these jobs have parts somewhere; no other has."""
        rows, owner = rows_of(self.table.starts, jobs)
        placed = self.node[rows] >= 0
        holds = np.bincount(owner[placed], minlength=len(jobs)) > 0
        on_devices = np.bincount(owner[placed & ~self.table.is_server[rows]], minlength=len(jobs))
        self._held, self._held_devices = jobs[holds], on_devices[holds]

    # Where parts are.

    def carry_out(self, jobs: IntArray, plan: PlacedPlan, now: float) -> None:
        """Place the parts of the active jobs as planned, and end those that the plan stops."""
        rows, owner = rows_of(self.table.starts, jobs)
        node, device = self.node[rows], self.device[rows]
        changed = (node != plan.node) | (device != plan.device)
        if changed.any():
            self._place(jobs, rows, owner, plan, changed, now)
        self.stop_jobs(jobs[plan.stops], now)

    def _place(
        self,
        jobs: IntArray,
        rows: IntArray,
        owner: IntArray,
        plan: PlacedPlan,
        changed: BoolArray,
        now: float,
    ) -> None:
        was = self.node[rows]
        leaves, arrives = changed & (was >= 0), changed & (plan.node >= 0)
        np.add.at(self.migrations, jobs[owner[leaves & arrives]], 1)
        touched = np.unique(owner[changed])
        worked = np.isin(jobs, self._working)
        lost = jobs[touched[worked[touched]]]
        self.done[lost] = np.floor(self.done[lost] + 1e-9)
        self.node[rows], self.device[rows] = plan.node, plan.device
        self._queued_since[rows[leaves & ~arrives]] = now
        fetches = arrives & (was != plan.node) & (self.done[jobs[owner]] > 0)
        size = np.where(fetches, self.table.state_bytes[rows], 0.0)
        np.add.at(self.sent_bytes, jobs[owner], size)
        largest = np.zeros(len(jobs))
        np.maximum.at(largest, owner, size)
        network = float(self.nodes.capacity[:, NETWORK].min())
        pause = self._moves.pause_seconds(largest[touched], network)
        self._paused_until[jobs[touched]] = np.maximum(self._paused_until[jobs[touched]], now + pause)
        waits = np.zeros(len(jobs), dtype=np.bool_)
        waits[owner[leaves & ~arrives]] = True
        self.preemptions[jobs[worked & waits]] += 1
        self._note_held(jobs)

    def fail(self, node: int, now: float) -> None:
        """Take a node away: its parts wait, and the iterations in hand of their jobs are lost."""
        there = np.flatnonzero(self.node == node)
        hit = np.unique(self.table.job[there])
        self.done[hit] = np.floor(self.done[hit] + 1e-9)
        self.node[there] = self.device[there] = WAITS
        self._queued_since[there] = now
        self._note_held(self._held)
        self._set_alive(node, False)

    def restore(self, node: int) -> None:
        """Give a node back, empty."""
        self._set_alive(node, True)

    def _set_alive(self, node: int, alive: bool) -> None:
        mask = self.nodes.alive.copy()
        mask[node] = alive
        self.nodes = replace(self.nodes, alive=mask)

    def set_demand(self, now: float) -> None:
        """Let the demands of placed parts be those of this moment; what waits asks for its mean."""
        self.demand[self._swung] = self.table.demand[self._swung]
        rows, _ = rows_of(self.table.starts, self._held)
        self._swung = rows[self.node[rows] >= 0]
        self.demand[self._swung] = self.table.demand_at(self._swung, now, self._swing)

    def set_pace(self, now: float) -> None:
        """Compute who works, and how fast, from where parts are."""
        table, jobs = self.table, self._held
        rows, owner = rows_of(table.starts, jobs)
        waits, in_copy = self.node[rows] < 0, table.replica[rows] >= 0
        copies = table.copies(jobs)
        first_copy = np.cumsum(copies) - copies  # as if there were no other jobs
        copy = np.where(in_copy, table.replica[rows] + (first_copy - table.copy_starts[jobs])[owner], 0)
        broken = np.bincount(copy[waits & in_copy], minlength=int(copies.sum())) > 0
        works = np.where(in_copy, ~broken[copy], ~waits)
        some = np.bincount(owner[works & in_copy], minlength=len(jobs)) > 0
        serverless = np.bincount(owner[waits & ~in_copy], minlength=len(jobs)) > 0
        runs = some & ~serverless
        self._works[self._work_rows] = False
        self._work_rows = rows[works & runs[owner]]
        self._works[self._work_rows] = True
        self._seconds[self._working] = math.inf
        self._bytes[self._working] = 0.0
        self._working = jobs[runs]
        if len(self._working):
            pace = pace_of(
                self.table, self._working, self._works, self.node, self.device, self.demand, self.nodes
            )
            self._seconds[self._working] = pace.seconds
            self._bytes[self._working] = pace.sent_bytes

    # What a policy is told.

    def view(self, jobs: IntArray, now: float, period_seconds: float) -> PlacedView:
        """Return what a policy sees of the active jobs."""
        table = self.table
        rows, owner = rows_of(table.starts, jobs)
        edges, edge_owner = rows_of(table.edge_starts, jobs)
        flows, flow_owner = rows_of(table.flow_starts, jobs)
        counts = table.starts[jobs + 1] - table.starts[jobs]
        shift = np.concatenate([[0], np.cumsum(counts)])[:-1] - table.starts[jobs]
        node = self.node[rows]
        parts = Parts(
            job=owner,
            index=table.index[rows],
            replica=table.replica[rows],
            level=table.level[rows],
            is_server=table.is_server[rows],
            size_share=table.size_share[rows],
            demand=self.demand[rows],
            state_bytes=table.state_bytes[rows],
            alone_seconds=table.alone_seconds[rows],
            node=node,
            device=self.device[rows],
            queued_since_seconds=np.where(node >= 0, math.nan, self._queued_since[rows]),
            edges=table.edges[edges] + shift[edge_owner][:, None],
            flows=table.flows[flows] + shift[flow_owner][:, None],
            flow_bytes=table.flow_bytes[flows],
        )
        return PlacedView(now, self.nodes, self._jobs(jobs), parts, period_seconds)

    def _jobs(self, jobs: IntArray) -> PlacedJobs:
        whole, start = np.floor(self.done[jobs] + 1e-9).astype(np.int64), self._curve_starts[jobs]

        def loss(iteration: IntArray) -> FloatArray:
            return np.asarray(self._loss[start + np.maximum(iteration, 0)])

        known = whole >= 2
        past = np.clip(whole - 1, 1, FALL_ITERATIONS)
        window = np.ceil(GAIN_SHARE * self.iterations_most[jobs]).astype(np.int64)
        gain = self._accuracy[start + whole] - self._accuracy[start + np.maximum(whole - window, 0)]
        return PlacedJobs(
            ids=tuple(self.names[job] for job in jobs),
            arrival_seconds=self.arrival_seconds[jobs],
            weight=np.ones(len(jobs)),
            urgency=self.urgency[jobs],
            deadline_seconds=self.deadline_seconds[jobs],
            iterations_done=self.done[jobs].copy(),
            iterations_most=self.iterations_most[jobs],
            iteration_seconds=self.iteration_seconds[jobs],
            loss_fallen_last=np.where(known, loss(whole - 1) - loss(whole), math.nan),
            loss_fallen=np.where(known, loss(np.ones_like(whole)) - loss(whole), math.nan),
            loss_fall_rate=np.where(known, (loss(whole - past) - loss(whole)) / past, math.nan),
            accuracy=np.where(whole >= 1, self._accuracy[start + whole], math.nan),
            accuracy_gain=np.where(whole >= window, gain, math.nan),
            accuracy_required=self.accuracy_required[jobs],
            attained_device_seconds=self.device_seconds[jobs],
            may_stop=np.ones(len(jobs), dtype=np.bool_),
        )


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
