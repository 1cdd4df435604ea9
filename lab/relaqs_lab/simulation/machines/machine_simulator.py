"""The simulator over machines: gangs arrive, a slot policy gives them slots, they train, and end.

The theory in half a page. An elastic job's speed depends on which slots it holds and on its batch, and
what a row of training is worth depends on the batch as well. Between two **events** neither changes, so
that a job's progress is a straight line, and the moments at which lines reach something are computed. The
events are: a job arrives; a job that was moved is ready again; a stage of a job's convergence is over; a
job has reached its end; a machine fails, is back, or is slow from then on; a plan is due.

Plans are made every `round_seconds`, at events (an arrival, an end, or a machine that fails or is back),
or both. For a plan the simulator fills the same `SlotView` as a live cluster, and asks the same policy. A
job whose slots change pauses for `rescale_seconds` and holds its slots meanwhile. A batch alone changes at
once.

The policy sees what live jobs can measure: speeds fitted to the steps that a job has made, its gradient
noise, its passes. The truth is in `workloads.py`. A policy that must know more than a
live run can tell says so (`needs_oracle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.throughput import Measured, fit_speed
from relaqs.sharing.gangs import (
    FINISHED_COLUMNS,
    SPEED_NUMBERS,
    Gangs,
    Nodes,
    SlotPolicy,
    SlotView,
    fewest_pieces,
    split_batch,
)
from relaqs_lab.simulation.machines.faults import Faults, FaultTimes
from relaqs_lab.simulation.machines.workloads import ElasticJob, GangWorkload, seconds_a_step

POINTS_KEPT = 256  # of ended jobs, for those who predict from them
LEAST_LOSS = 0.02  # what is left of the loss at the end: traces have a quality and no loss


@dataclass(frozen=True, slots=True)
class Knows:
    """What a policy reads, so that nothing is computed that it does not ask for.

    Attributes:
        speeds: the seven numbers, fitted to what each job has measured.
        oracle: what no live run knows: the seconds of steps by slots, and the rows of the stages that have
            not begun. AdaptDL's simulator says the same: a job in its last stage has nothing left.
        rows_left: those rows alone.
    """

    speeds: bool = True
    oracle: bool = False
    rows_left: bool = False


class GangStates:
    """J jobs as columns of shape (J,), rows as in the workload. The loop changes them."""

    def __init__(self, workload: GangWorkload, nodes: Nodes, knows: Knows) -> None:
        count = len(workload)
        self.jobs = workload.jobs
        self.ids = tuple(job.name for job in workload)
        self.nodes = nodes
        self.slow_factor = np.ones(len(nodes))
        self.knows = knows
        self.arrival_seconds = np.array([job.arrival_seconds for job in workload])
        self.end_seconds = np.full(count, math.nan)
        self.first_start_seconds = np.full(count, math.nan)
        self.held = np.zeros((count, len(nodes)), dtype=np.int64)
        self.batch_rows = np.zeros(count)
        self.progress_rows = np.zeros(count)
        self.stage = np.zeros(count, dtype=np.int64)
        self.stage_end_rows = np.array([job.trains.convergence.stage_ends[0] for job in workload])
        self.rows_done = np.zeros(count)
        self.steps_done = np.zeros(count)
        self.unsaved_seconds = np.zeros(count)
        self.rows_lost = np.zeros(count)
        self.rows_at_change = np.zeros(count)
        self.pause_until_seconds = np.zeros(count)
        self.rows_a_second = np.zeros(count)
        self.steps_a_second = np.zeros(count)
        self.progress_a_second = np.zeros(count)
        self.executed_seconds = np.zeros(count)
        self.paused_seconds = np.zeros(count)
        self.attained_slot_seconds = np.zeros(count)
        self.waiting_since_seconds = self.arrival_seconds.copy()
        self.rescales = np.zeros(count)
        self.noise_rows = np.full(count, math.nan)
        self.slots_seen_most = np.zeros(count, dtype=np.int64)
        self.speed = np.full((count, SPEED_NUMBERS), math.nan)
        self._measured = [Measured() for _ in workload]
        self._fitted = np.zeros(count, dtype=np.int64)  # measurements behind each fit
        self._points: list[tuple[float, ...]] = []
        self._passed: list[list[tuple[float, ...]]] = [[] for _ in workload]
        self._oracle_steps: dict[tuple[int, float], FloatArray] = {}
        self._oracle_rows: dict[tuple[int, float], FloatArray] = {}

    def pass_time(self, now_seconds: float, span_seconds: float) -> None:
        """Let every job work for a span in which no rate changes."""
        slots = self.held.sum(axis=1)
        runs = slots > 0
        works = runs & (self.pause_until_seconds <= now_seconds)
        worked = np.where(works, span_seconds, 0.0)
        self.progress_rows += worked * self.progress_a_second
        self.rows_done += worked * self.rows_a_second
        self.steps_done += worked * self.steps_a_second
        self.unsaved_seconds += worked
        self.executed_seconds += np.where(runs, span_seconds, 0.0)
        self.paused_seconds += np.where(runs & ~works, span_seconds, 0.0)
        self.attained_slot_seconds += span_seconds * slots

    def next_event_seconds(self, now_seconds: float) -> float:
        """Return when the next pause is over or the next stage ends, inf if nobody runs."""
        runs = self.held.any(axis=1)
        paused = runs & (self.pause_until_seconds > now_seconds)
        works = runs & ~paused
        soonest = math.inf
        if paused.any():
            soonest = float(self.pause_until_seconds[paused].min())
        if works.any():
            left = self.stage_end_rows[works] - self.progress_rows[works]
            soonest = min(soonest, now_seconds + float((left / self.progress_a_second[works]).min()))
        return soonest

    def carry_out(
        self, jobs: IntArray, slots: IntArray, batch_rows: FloatArray, now: float, pause: float
    ) -> None:
        """Give jobs their slots and batches. Whose slots change pauses; a batch alone changes at once."""
        moved: BoolArray = np.any(slots != self.held[jobs], axis=1)
        runs: BoolArray = np.any(slots, axis=1)
        for job, has_moved, now_runs, places, batch in zip(
            jobs.tolist(), moved.tolist(), runs.tolist(), list(slots), batch_rows.tolist(), strict=True
        ):
            if not now_runs:
                if has_moved:
                    self._stop(job, now)
                continue
            if has_moved:
                self._move(job, places, now, pause)
            if has_moved or batch != self.batch_rows[job]:
                self.rows_at_change[job] = self.rows_done[job]
                self.batch_rows[job] = batch
                self.set_rates(job)

    def lose_node(self, node: int, now: float, pause: float, save_seconds: float) -> None:
        """Take a machine away, with what its ranks held. Who has others left goes on there after a pause.

        A job's ranks all have its state, so the others lose nothing. A job without others goes back to the
        state that was saved last: at the last change of its rates, or some multiple of save_seconds of
        work later.
        """
        self._set_alive(node, is_alive=False)
        for job in np.flatnonzero(self.held[:, node]).tolist():
            places = self.held[job].copy()
            places[node] = 0
            if places.any():
                self._move(job, places, now, pause)
                self.set_rates(job)
                continue
            self._go_back(job, self.unsaved_seconds[job] % save_seconds)
            self._stop(job, now)

    def bring_back(self, node: int) -> None:
        """Let a machine be there again, with all of its slots free."""
        self._set_alive(node, is_alive=True)

    def set_slow(self, node: int, factor: float) -> None:
        """Let a machine compute so many times as long from now on."""
        self.slow_factor[node] = factor
        for job in np.flatnonzero(self.held[:, node]).tolist():
            self.set_rates(job)

    def _set_alive(self, node: int, *, is_alive: bool) -> None:
        alive = self.nodes.alive.copy()
        alive[node] = is_alive
        self.nodes = replace(self.nodes, alive=alive)

    def _go_back(self, job: int, seconds: float) -> None:
        """Take back what a job made in its last so many seconds of work."""
        rows = seconds * self.rows_a_second[job]
        self.rows_lost[job] += rows
        self.rows_done[job] -= rows
        self.steps_done[job] -= seconds * self.steps_a_second[job]
        self.progress_rows[job] -= seconds * self.progress_a_second[job]

    def _stop(self, job: int, now: float) -> None:
        self.held[job] = 0
        self.waiting_since_seconds[job] = now
        self.progress_a_second[job] = self.rows_a_second[job] = self.steps_a_second[job] = 0.0

    def _move(self, job: int, places: IntArray, now: float, pause: float) -> None:
        if math.isnan(self.first_start_seconds[job]):
            self.first_start_seconds[job] = now
        else:
            self.rescales[job] += 1
        self.held[job] = places
        self.waiting_since_seconds[job] = math.nan
        self.pause_until_seconds[job] = now + pause

    def set_rates(self, job: int) -> None:
        """Compute what a job achieves with its slots and batch in its stage, and let it measure that.

        Its ranks wait for the slowest machine. What that computes longer overlaps with nothing. The job's
        state is taken to be saved now.
        """
        trains = self.jobs[job].trains
        placement = tuple(count for count in self.held[job].tolist() if count)
        slots, asked = sum(placement), self.batch_rows[job]
        split = split_batch(
            asked,
            slots,
            trains.slot_rows_most,
            trains.rows_most,
            fewest_pieces(asked, slots, trains.start_rows),
        )
        rows, slot_rows, pieces = float(split.batch_rows), float(split.slot_rows), float(split.pieces)
        step, compute = seconds_a_step(trains.rates, placement, slot_rows, pieces)
        slowest = float(self.slow_factor[self.held[job] > 0].max())
        step, compute = step + (slowest - 1.0) * pieces * compute, slowest * compute
        self.unsaved_seconds[job] = 0.0
        stage = int(self.stage[job])
        self.rows_a_second[job] = rows / step
        self.steps_a_second[job] = 1.0 / step
        self.progress_a_second[job] = rows / step * trains.convergence.worth(rows, stage)
        self.noise_rows[job] = trains.convergence.noise_rows(rows, stage)
        self.slots_seen_most[job] = max(self.slots_seen_most[job], slots)
        last = step - (pieces - 1) * compute
        self._measured[job].add(len(placement), slots, slot_rows, compute, last)

    def end_stages(self, now_seconds: float) -> bool:
        """Note the jobs whose stage is over now. Returns whether one of them has ended."""
        runs = self.held.any(axis=1)
        reached = runs & (self.progress_rows >= self.stage_end_rows * (1.0 - 1e-12) - 1e-9)
        ended = False
        for job in np.flatnonzero(reached).tolist():
            convergence = self.jobs[job].trains.convergence
            self.stage[job] += 1
            if self.stage[job] == convergence.stages:
                self._end(job, now_seconds)
                ended = True
                continue
            self.stage_end_rows[job] = convergence.stage_ends[self.stage[job]]
            self._passed[job].append(self._point(job))
            self.set_rates(job)
        return ended

    def _end(self, job: int, now_seconds: float) -> None:
        self.end_seconds[job] = now_seconds
        self._stop(job, now_seconds)
        passes = self.rows_done[job] / self.jobs[job].trains.pass_rows
        for row in self._passed[job]:
            self._points.append((*row[:-1], max(passes - row[-1], 0.0)))
        del self._points[:-POINTS_KEPT]
        self._passed[job] = []

    def _point(self, job: int) -> tuple[float, ...]:
        trains = self.jobs[job].trains
        first, loss, accuracy = self._losses(job)
        done = self.rows_done[job]
        return (trains.pass_rows, first, done, 1.0 - loss / first, accuracy, done / trains.pass_rows)

    def _losses(self, job: int) -> tuple[float, float, float]:
        """Return the first loss, the loss now and the accuracy: the complement of the quality, and it."""
        stage = int(self.stage[job])
        accuracy = float(self.jobs[job].trains.convergence.quality[stage - 1]) if stage else 0.0
        return 1.0, 1.0 - (1.0 - LEAST_LOSS) * accuracy, accuracy

    def view(self, jobs: IntArray, now_seconds: float, memory: object | None) -> SlotView:
        """Return what a policy sees of some jobs. jobs: their positions."""
        if self.knows.speeds:
            self._fit(jobs)
        rows = [self.jobs[job] for job in jobs.tolist()]
        trains = [row.trains for row in rows]
        losses = np.array([self._losses(job) for job in jobs.tolist()]).reshape(-1, 3)
        pass_rows = np.array([each.pass_rows for each in trains])
        measured = self.stage[jobs] > 0
        gangs = Gangs(
            ids=tuple(self.ids[job] for job in jobs.tolist()),
            arrival_seconds=self.arrival_seconds[jobs],
            weight=np.ones(len(jobs)),
            pass_rows=pass_rows,
            start_rows=np.array([each.start_rows for each in trains]),
            slot_rows_least=np.array([each.slot_rows_least for each in trains]),
            slot_rows_most=np.array([each.slot_rows_most for each in trains]),
            rows_most=np.array([each.rows_most for each in trains]),
            rows_done=self.rows_done[jobs],
            steps_done=self.steps_done[jobs],
            passes_done=np.floor(self.rows_done[jobs] / pass_rows + 1e-9),
            passes_since_change=np.floor(
                (self.rows_done[jobs] - self.rows_at_change[jobs]) / pass_rows + 1e-9
            ),
            first_loss=np.where(measured, losses[:, 0], math.nan),
            loss=np.where(measured, losses[:, 1], math.nan),
            accuracy=np.where(measured, losses[:, 2], math.nan),
            executed_seconds=self.executed_seconds[jobs],
            attained_slot_seconds=self.attained_slot_seconds[jobs],
            waiting_since_seconds=self.waiting_since_seconds[jobs],
            batch_rows=self.batch_rows[jobs],
            noise_rows=self.noise_rows[jobs],
            rescales=self.rescales[jobs],
            pause_seconds=self._pauses(jobs, now_seconds),
            slots_seen_most=self.slots_seen_most[jobs],
            slots_asked=np.array([row.slots_asked for row in rows], dtype=np.int64),
            rows_asked=np.array([row.rows_asked for row in rows], dtype=np.float64),
            rows_left=self._rows_left(jobs),
            speed=self.speed[jobs],
            held=self.held[jobs],
            packed_step_seconds=self._packed_steps(jobs),
        )
        arrived = int((self.arrival_seconds <= now_seconds).sum())
        return SlotView(
            now_seconds,
            self.nodes,
            gangs,
            finished=np.array(self._points, dtype=np.float64).reshape(-1, len(FINISHED_COLUMNS)),
            arrivals_per_second=arrived / now_seconds if now_seconds > 0 else math.nan,
            memory=memory,
        )

    def _pauses(self, jobs: IntArray, now_seconds: float) -> FloatArray:
        """Return the mean pause of each job so far, shape (len(jobs),); NaN before its first one is over."""
        starts = ~np.isnan(self.first_start_seconds[jobs])
        is_over = starts & (self.pause_until_seconds[jobs] <= now_seconds)
        changes = np.where(is_over, self.rescales[jobs] + 1.0, math.nan)
        return np.asarray(self.paused_seconds[jobs] / changes)

    def _fit(self, jobs: IntArray) -> None:
        for job in jobs.tolist():
            measured = self._measured[job]
            if len(measured) > self._fitted[job]:
                self.speed[job] = fit_speed(measured)
                self._fitted[job] = len(measured)

    def _rows_left(self, jobs: IntArray) -> FloatArray:
        left = np.full(len(jobs), math.nan)
        if self.knows.oracle or self.knows.rows_left:
            for at, job in enumerate(jobs.tolist()):
                left[at] = self._rows_after(self.jobs[job])[self.stage[job]]
        return left

    def _rows_after(self, job: ElasticJob) -> FloatArray:
        """Return the rows of all later stages while each stage runs, with the batch asked for, shape (S,)."""
        key = (id(job.trains), job.rows_asked)
        if key not in self._oracle_rows:
            rows = job.trains.convergence.rows_by_stage(job.rows_asked)
            self._oracle_rows[key] = rows.sum() - rows.cumsum()
        return self._oracle_rows[key]

    def _packed_steps(self, jobs: IntArray) -> FloatArray:
        if not self.knows.oracle:
            return np.empty((len(jobs), 0))
        steps = [self._packed_steps_of(self.jobs[job]) for job in jobs.tolist()]
        return np.array(steps).reshape(len(jobs), -1)

    def _packed_steps_of(self, job: ElasticJob) -> FloatArray:
        """Return the seconds of a step of the batch asked for on 1, 2, … packed slots; NaN: too many."""
        trains, asked = job.trains, job.rows_asked
        key = (id(trains), asked)
        if key not in self._oracle_steps:
            per_node, total = int(self.nodes.slots.max()), int(self.nodes.slots.sum())
            steps = np.full(total, math.nan)
            most = min(total, max(int(min(asked, trains.rows_most) / trains.slot_rows_least), 1))
            for slots in range(1, most + 1):
                whole, rest = divmod(slots, per_node)
                placement = (per_node,) * whole + ((rest,) if rest else ())
                split = split_batch(
                    asked,
                    slots,
                    trains.slot_rows_most,
                    trains.rows_most,
                    fewest_pieces(asked, slots, trains.start_rows),
                )
                steps[slots - 1], _ = seconds_a_step(
                    trains.rates, placement, float(split.slot_rows), float(split.pieces)
                )
            self._oracle_steps[key] = steps
        return self._oracle_steps[key]

    def has_ended(self) -> BoolArray:
        return np.asarray(~np.isnan(self.end_seconds))


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
