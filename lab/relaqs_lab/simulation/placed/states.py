"""What is true of each job while it is simulated, and what a policy is told of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.jobs import PlacedJobs
from relaqs.parts.parts import WAITS, Parts
from relaqs.parts.plan import PlacedPlan
from relaqs.parts.resources import NETWORK, NodeResources
from relaqs.parts.view import PlacedView
from relaqs_lab.simulation.placed.contention import pace_of
from relaqs_lab.simulation.placed.moves import MoveCosts
from relaqs_lab.simulation.placed.part_table import PartTable, rows_of
from relaqs_lab.simulation.placed.workload import PlacedWorkload

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
