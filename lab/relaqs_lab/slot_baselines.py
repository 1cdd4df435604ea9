"""Slot policies to compare ours with: those of papers, all slots for the oldest, and ONES solved exactly.

- Tiresias: whole gangs, those that have used little first.
- Optimus: one more slot where it shortens the rest of a job most.
- Pollux: slots and batches together, by what useful rows a second the jobs would have.
- One at a time: all slots for the oldest job, and the next oldest what is left.
- Exact utilisation: equation 3 of ONES by dynamic programming, instead of an evolution.

`relaqs.policies.registry` finds them by entry points, so a cluster can run them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.gangs import Gangs, SlotPlan, SlotView, fewest_pieces, packed, split_batch, step_seconds
from relaqs.slot_policies import planned_by_arrival
from relaqs.slot_policies.ones import (
    Draws,
    Predictor,
    Progress,
    SlotSeconds,
    by_ended_jobs,
    rows_left,
    slot_rows,
)
from relaqs.slot_policies.sia import Goodput, unmeasured_batch


@dataclass(frozen=True, slots=True)
class Tiresias:
    """Each job has the slots and the batch that its user asked for, or none; two queues say who comes first.

    A job begins in the first queue. Once it has used `threshold_slot_seconds` it goes to the end of the
    second. Within a queue, the first come are served first; who does not fit is passed over. Running jobs are
    stopped where jobs before them need the slots.

    Source: Gu et al., Tiresias, NSDI 2019: discretised two-dimensional least attained service.

    >>> from relaqs.sharing.gangs import Gang
    >>> from relaqs.sharing.gangs import Nodes
    >>> old = Gang("old", slots_asked=3, attained_slot_seconds=9e4, held=(3,))
    >>> jobs = Gangs.of([old, Gang("new", 5.0, slots_asked=2)], nodes=1)
    >>> Tiresias().plan(SlotView(60.0, Nodes.equal(1, slots=4), jobs)).slots_by_id()
    {'old': 0, 'new': 2}
    """

    threshold_slot_seconds: float = 16 * 3600.0
    name: ClassVar[str] = "tiresias"
    reads_speeds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.threshold_slot_seconds > 0:
            raise ValueError(f"threshold_slot_seconds is {self.threshold_slot_seconds}; it must be above 0")

    def plan(self, view: SlotView) -> SlotPlan:
        gangs = view.gangs
        demoted = self._demoted(view)
        place = {name: at for at, name in enumerate(demoted)}
        rank = np.array([place.get(name, -1) for name in gangs.ids], dtype=np.int64)
        order = np.lexsort([np.array(gangs.ids), gangs.arrival_seconds, rank])
        counts = _served_in_order(asked_slots(view), order, int(view.nodes.usable_slots.sum()))
        slots = packed(counts, gangs.held, view.nodes, order, tight=False)
        return SlotPlan.of(view, slots, asked_rows(gangs), memory=demoted)

    def _demoted(self, view: SlotView) -> tuple[str, ...]:
        """Return the ids of the second queue, in the order in which they came to it."""
        gangs = view.gangs
        known = view.memory if isinstance(view.memory, tuple) else ()
        used = gangs.attained_slot_seconds >= self.threshold_slot_seconds - 1e-6
        by_arrival = np.lexsort([np.array(gangs.ids), gangs.arrival_seconds])
        new = [gangs.ids[job] for job in by_arrival if used[job] and gangs.ids[job] not in known]
        there = set(gangs.ids)
        return (*(name for name in known if name in there), *new)


def asked_slots(view: SlotView) -> IntArray:
    """Return the slots that each job's user asked for, 1 if none, and at most all there are; shape (E,)."""
    total = int(view.nodes.usable_slots.sum())
    return np.clip(view.gangs.slots_asked, 1, max(total, 1))


def asked_rows(gangs: Gangs) -> FloatArray:
    """Return the batch that each job's user asked for, or the one it starts with; shape (E,)."""
    return np.where(np.isnan(gangs.rows_asked), gangs.start_rows, gangs.rows_asked)


def _served_in_order(asked: IntArray, order: IntArray, slots: int) -> IntArray:
    counts = np.zeros_like(asked)
    for job in order:
        if asked[job] <= slots:
            counts[job] = asked[job]
            slots -= int(asked[job])
    return counts


@dataclass(frozen=True, slots=True)
class Optimus:
    """Every job first has one slot, the oldest first. Then slots go one by one where they save most time.

    What a slot saves is (step with n slots − step with n + 1) × the steps that are left. The batch is the one
    that the user asked for, so more slots compute it sooner. A simulator tells the rows that are left and the
    steps' seconds (`needs_oracle`). Where nobody does, passes are taken to be as many as were done, and steps
    to be as the job's speed says.

    Source: Peng et al., Optimus, EuroSys 2018, section 4.1.

    >>> from relaqs.sharing.gangs import Gang
    >>> from relaqs.sharing.gangs import Nodes
    >>> free, bound = (0.1, 0.01, 1e-8, 1e-8, 1e-8, 1e-8, 1.0), (0.1, 0.01, 0.5, 0.5, 0.5, 0.5, 1.0)
    >>> jobs = [Gang("free", rows_left=1e5, speed=free), Gang("bound", rows_left=1e5, speed=bound)]
    >>> Optimus().plan(SlotView(60.0, Nodes.equal(1, slots=4), Gangs.of(jobs, nodes=1))).slots_by_id()
    {'free': 3, 'bound': 1}
    """

    name: ClassVar[str] = "optimus"
    needs_oracle: ClassVar[bool] = True

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, _planned)


def _planned(view: SlotView) -> SlotPlan:
    gangs, total = view.gangs, int(view.nodes.usable_slots.sum())
    batch = asked_rows(gangs)
    seconds = _steps_by_slots(view, batch, total) * steps_left(gangs, batch)[:, None]
    counts = _given_one_by_one(seconds, _most(gangs, batch), total)
    smallest_first = np.argsort(counts, kind="stable")
    slots = packed(counts, gangs.held, view.nodes, smallest_first, tight=False)
    return SlotPlan.of(view, slots, batch)


def steps_left(gangs: Gangs, batch: FloatArray) -> FloatArray:
    """Return the steps that each job still needs with this batch, shape (E,): known, or as many as done."""
    guessed = np.maximum(gangs.rows_done, gangs.pass_rows)
    left = np.where(np.isnan(gangs.rows_left), guessed, gangs.rows_left)
    return np.asarray(np.maximum(left / batch, 1.0))


def _most(gangs: Gangs, batch: FloatArray) -> IntArray:
    most = np.floor(np.minimum(batch, gangs.rows_most) / gangs.slot_rows_least + 1e-9)
    return np.maximum(most, 1).astype(np.int64)


def _steps_by_slots(view: SlotView, batch: FloatArray, total: int) -> FloatArray:
    """Return the seconds of a step of each job on 1 … total packed slots, shape (E, total)."""
    gangs = view.gangs
    if gangs.packed_step_seconds.shape[1] >= total:
        return gangs.packed_step_seconds[:, :total]
    slots = np.arange(1, total + 1)
    nodes = -(-slots // max(int(view.nodes.usable_slots.max()), 1))
    rows = batch[:, None]
    pieces = fewest_pieces(rows, slots, gangs.start_rows[:, None])
    split = split_batch(rows, slots, gangs.slot_rows_most[:, None], gangs.rows_most[:, None], pieces)
    unknown = np.any(np.isnan(gangs.speed), axis=1)
    speed = np.where(unknown[:, None], np.array([1e-8, 1e-3, *[1e-8] * 4, 1.0]), gangs.speed)
    return step_seconds(speed[:, None, :], slots, nodes, split.slot_rows, split.pieces)


def _given_one_by_one(seconds: FloatArray, most: IntArray, total: int) -> IntArray:
    """Return the slots of each job. seconds: of the rest of a job on 1, 2, … slots, shape (E, total)."""
    counts = np.zeros(len(most), dtype=np.int64)
    counts[:total] = 1
    left = total - int(counts.sum())
    saved = np.full(seconds.shape, -np.inf)
    saved[:, :-1] = np.nan_to_num(seconds[:, :-1] - seconds[:, 1:], nan=-np.inf)
    saved[np.arange(1, total + 1) >= most[:, None]] = -np.inf
    saved[counts == 0] = -np.inf
    gain = saved[:, 0].copy()
    while left and gain.max(initial=-np.inf) > 0:
        job = int(np.argmax(gain))
        counts[job] += 1
        left -= 1
        gain[job] = saved[job, counts[job] - 1]
    return counts


SlotCounts = NDArray[np.int16]  # (K, E, N): the slots of each job on each node, in K schedules

RESET, THIN, THIN_SHARE = 0.1, 0.1, 0.1  # the rates of mutation
LEAST_SPEEDUP = 1e-3
LEAST_KEPT = 0.01  # so that a job that has just come is worth starting
_PARENTS, _POINTS, _RESETS, _THINS, _ZEROS, _PLACES, _AMOUNTS, _TURNS = range(8)  # streams of draws


@dataclass(frozen=True, slots=True, eq=False)
class Schedules:
    """The population of the last plan: its jobs, its nodes, and the slots, shape (K, E, N)."""

    ids: tuple[str, ...]
    nodes: tuple[str, ...]
    slots: SlotCounts
    generation: int


@dataclass(frozen=True, slots=True)
class Pollux:
    """The harmonic mean of all jobs' speed-ups over an equal share, found by a genetic search.

    A job's speed is its goodput: rows a second times what a row is worth in the batch (`Goodput`). Each job
    takes the batch with the best goodput on its slots. A job may have twice the slots that it was ever
    measured with. One whose slots would change counts for less: its age less its pauses so far, relative to
    its age and one more pause. At most one job that spans nodes is on any node, so that none slows another.

    A population of schedules travels from plan to plan. In a generation, half of the jobs of one schedule
    are crossed with the rest of another; jobs are put back to what they hold, lose slots or get more; what
    breaks a limit is cut; the best are kept.

    Args:
        population: how many schedules are kept.
        generations: of the search in each plan.
        pause_seconds: what a change costs, until pauses have been measured.
        seed: of the draws.

    Source: Qiao et al., Pollux, OSDI 2021, section 4.2.

    >>> from relaqs.sharing.gangs import Gang
    >>> from relaqs.sharing.gangs import Nodes
    >>> speed = (0.1, 0.01, 1e-3, 1e-8, 1e-3, 1e-8, 1.0)
    >>> jobs = [Gang(name, speed=speed, noise_rows=1e4, slots_seen_most=2, rows_most=512.0) for name in "ab"]
    >>> Pollux().plan(SlotView(60.0, Nodes.equal(1, slots=4), Gangs.of(jobs, nodes=1))).slots_by_id()
    {'a': 2, 'b': 2}
    """

    population: int = 60
    generations: int = 40
    pause_seconds: float = 30.0
    seed: int = 0
    name: ClassVar[str] = "pollux"

    def __post_init__(self) -> None:
        if not self.population >= 2 or not self.generations >= 1:
            raise ValueError(
                f"population is {self.population} and generations is {self.generations}; "
                "give at least 2 and 1"
            )
        if not self.pause_seconds >= 0:
            raise ValueError(f"pause_seconds is {self.pause_seconds}; it must be 0 or more")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._planned)

    def _planned(self, view: SlotView) -> SlotPlan:
        order = np.lexsort(
            [np.array(view.gangs.ids), view.gangs.arrival_seconds, view.gangs.attained_slot_seconds]
        )
        slots, batches, memory = self._searched(view.of_jobs(order))
        back = np.argsort(order)
        return SlotPlan.of(view, slots[back], batches[back], memory)

    def _searched(self, view: SlotView) -> tuple[IntArray, FloatArray, Schedules]:
        gangs, known = view.gangs, _known(view)
        goodput = Goodput.of(gangs, int(view.nodes.usable_slots.sum()))
        contest = _Contest(view, goodput, self.pause_seconds)
        generation = 0 if known is None else known.generation
        population = contest.repaired(_seeded(view, known), Draws(self.seed, generation))
        costs = contest.costs(population)
        for _ in range(self.generations):
            generation += 1
            draws = Draws(self.seed, generation)
            children = contest.repaired(contest.mutated(self._crossed(population, draws), draws), draws)
            population = np.concatenate([population, children])
            costs = np.concatenate([costs, contest.costs(children)])
            best = _best_distinct(costs, self.population)
            population, costs = population[best], costs[best]
        slots = population[0].astype(np.int64)
        unknown = np.any(np.isnan(gangs.speed), axis=1)
        batches = np.where(unknown, unmeasured_batch(gangs, slots.sum(axis=1)), goodput.batch_of(slots))
        memory = Schedules(gangs.ids, view.nodes.ids, population, generation)
        return slots, np.minimum(batches, gangs.rows_most), memory

    def _crossed(self, population: SlotCounts, draws: Draws) -> SlotCounts:
        """Return children that have their first jobs from one parent and the others from another."""
        count, jobs = self.population, population.shape[1]
        parents = draws.integers(_PARENTS, len(population), 2, count)
        first = np.arange(jobs) < draws.integers(_POINTS, jobs + 1, count)[:, None]
        return np.asarray(np.where(first[:, :, None], population[parents[0]], population[parents[1]]))


class _Contest:
    """The schedules of one view: what they cost, how they mutate, and which limits they keep."""

    def __init__(self, view: SlotView, goodput: Goodput, pause_seconds: float) -> None:
        gangs = view.gangs
        self.node_slots = view.nodes.usable_slots.astype(np.int16)
        held = np.where(view.nodes.alive, gangs.held, 0)
        self.held: SlotCounts = held.astype(np.int16)
        total = int(view.nodes.usable_slots.sum())
        self.most = _most_slots(gangs, total)
        age = np.maximum(view.time_seconds - gangs.arrival_seconds, 0.0)
        pause = gangs.pauses(pause_seconds)
        kept = np.maximum(age - gangs.rescales * pause, 0.0) / (age + np.maximum(pause, 1e-9))
        self.kept_share = np.maximum(kept, LEAST_KEPT)
        self.speedup = _speedups(gangs, goodput, total, len(view.nodes))

    def costs(self, schedules: SlotCounts) -> FloatArray:
        """Return the mean over jobs of one over their speed-up, shape (K,): the smallest is best."""
        slots = schedules.sum(axis=2, dtype=np.int64)
        across = ((schedules > 0).sum(axis=2) > 1).astype(np.int64)
        speedup = self.speedup[np.arange(slots.shape[1]), across, slots]
        moved = (schedules != self.held).any(axis=2)
        speedup = np.where(moved, speedup * self.kept_share, speedup)
        return np.asarray((1.0 / (speedup + LEAST_SPEEDUP)).mean(axis=1))

    def mutated(self, schedules: SlotCounts, draws: Draws) -> SlotCounts:
        """Return schedules in which some jobs hold what they hold now, some lose slots, and some get more."""
        count, jobs, nodes = schedules.shape
        reset = draws.uniform(_RESETS, count, jobs) < RESET
        schedules = np.where(reset[:, :, None], self.held, schedules)
        thin = draws.uniform(_THINS, count, jobs) < THIN
        lost = (draws.uniform(_ZEROS, count, jobs, nodes) < THIN_SHARE) & thin[:, :, None]
        schedules = np.where(lost, 0, schedules).astype(np.int16)
        is_free = (schedules.sum(axis=1, dtype=np.int64) < self.node_slots)[:, None, :]
        anywhere = np.broadcast_to(is_free, schedules.shape)
        there = anywhere & (schedules > 0)
        odds = _even_odds(anywhere) + _even_odds(there) - _even_odds(anywhere) * _even_odds(there)
        grows = draws.uniform(_PLACES, count, jobs, nodes) < odds
        room = self.node_slots + 1 - schedules
        more = schedules + (draws.uniform(_AMOUNTS, count, jobs, nodes) * room).astype(np.int16)
        return np.asarray(np.where(grows, more, schedules).astype(np.int16))

    def repaired(self, schedules: SlotCounts, draws: Draws) -> SlotCounts:
        """Return schedules cut to the limits: one spanning job a node, a job's most slots, a node's slots."""
        nodes = schedules.shape[2]
        spans = (schedules > 0).sum(axis=2) > 1
        spanning = (schedules > 0) & spans[:, :, None]
        schedules = np.where(spanning & (np.cumsum(spanning, axis=1) > 1), 0, schedules).astype(np.int16)
        turn = draws.integers(_TURNS, nodes, len(schedules))[:, None, None]
        places = (np.arange(nodes) + turn) % nodes
        turned = np.take_along_axis(schedules, np.broadcast_to(places, schedules.shape), axis=2)
        reached = np.minimum(np.cumsum(turned, axis=2, dtype=np.int64), self.most[:, None])
        turned = np.diff(reached, axis=2, prepend=0).astype(np.int16)
        back = np.broadcast_to((np.arange(nodes) - turn) % nodes, schedules.shape)
        schedules = np.take_along_axis(turned, back, axis=2)
        filled = np.minimum(np.cumsum(schedules, axis=1, dtype=np.int64), self.node_slots)
        return np.diff(filled, axis=1, prepend=0).astype(np.int16)


def _even_odds(chosen: NDArray[np.bool_]) -> FloatArray:
    """Return 1 / (the chosen nodes of a job) where a node is chosen, else 0."""
    return np.asarray(chosen / np.maximum(chosen.sum(axis=2, keepdims=True), 1))


def _most_slots(gangs: Gangs, total: int) -> IntArray:
    tried = np.maximum(2 * gangs.slots_seen_most, 1)
    return np.minimum(np.minimum(tried, gangs.slots_most), total).astype(np.int64)


def _speedups(gangs: Gangs, goodput: Goodput, total: int, nodes: int) -> FloatArray:
    """Return each job's speed-up over an equal share on one node, scaled, shape (E, 2, total + 1)."""
    share = min(max(-(-total // max(len(gangs), 1)), 1), total)
    alike = np.arange(total + 1) / share
    base = goodput.useful_rows[:, 0, :]
    reference = base[np.arange(len(gangs)), np.minimum(share, gangs.slots_most).astype(np.int64)]
    with np.errstate(invalid="ignore", divide="ignore"):
        known = goodput.useful_rows / reference[:, None, None]
    unknown = np.any(np.isnan(gangs.speed), axis=1)
    speedup = np.where(unknown[:, None, None], alike, np.nan_to_num(known))
    return np.asarray(speedup * nodes / max(total, 1))


def _known(view: SlotView) -> Schedules | None:
    return view.memory if isinstance(view.memory, Schedules) else None


def _seeded(view: SlotView, known: Schedules | None) -> SlotCounts:
    """Return the schedules of the last plan for the jobs and nodes of now, and what is held."""
    held = np.where(view.nodes.alive, view.gangs.held, 0).astype(np.int16)[None]
    if known is None:
        return held
    jobs = {name: at for at, name in enumerate(known.ids)}
    nodes = {name: at for at, name in enumerate(known.nodes)}
    here = [(at, jobs[name]) for at, name in enumerate(view.gangs.ids) if name in jobs]
    there = [(at, nodes[name]) for at, name in enumerate(view.nodes.ids) if name in nodes]
    carried = np.zeros((len(known.slots), len(view.gangs), len(view.nodes)), dtype=np.int16)
    if here and there:
        (to_job, from_job), (to_node, from_node) = np.array(here).T, np.array(there).T
        carried[:, to_job[:, None], to_node] = known.slots[:, from_job[:, None], from_node]
    return np.concatenate([held, carried])


def _best_distinct(costs: FloatArray, count: int) -> IntArray:
    """Return the positions of the best schedules, those of equal cost once while there are enough others."""
    order = np.argsort(costs, kind="stable")
    is_new = np.concatenate([[True], np.diff(costs[order]) > 0])
    return np.concatenate([order[is_new], order[~is_new]])[:count]


@dataclass(frozen=True, slots=True)
class OneAtATime:
    """The oldest job gets all the slots that its largest batch can fill, and the next oldest what is left.

    Every job trains with the largest batch that it takes for its slots.

    >>> from relaqs.sharing.gangs import Gang, Gangs
    >>> from relaqs.sharing.gangs import Nodes
    >>> jobs = Gangs.of([Gang("new", 5.0), Gang("old", rows_most=96.0, slot_rows_least=32.0)], nodes=1)
    >>> OneAtATime().plan(SlotView(9.0, Nodes.equal(1, slots=4), jobs)).slots_by_id()
    {'new': 1, 'old': 3}
    """

    name: ClassVar[str] = "one_at_a_time"
    reads_speeds: ClassVar[bool] = False

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, _oldest_first)


def _oldest_first(view: SlotView) -> SlotPlan:
    gangs, total = view.gangs, int(view.nodes.usable_slots.sum())
    most = np.minimum(gangs.slots_most, total).astype(np.int64)
    before = np.cumsum(most) - most
    counts = np.clip(total - before, 0, most)
    slots = packed(counts, gangs.held, view.nodes, np.arange(len(gangs)))
    fitting = np.where(np.isinf(gangs.slot_rows_most), gangs.start_rows, gangs.slot_rows_most)
    batch = np.clip(fitting * np.maximum(counts, 1), gangs.start_rows, gangs.rows_most)
    return SlotPlan.of(view, slots, batch)


@dataclass(frozen=True, slots=True)
class ExactUtilisation:
    """The least slot-seconds of running jobs, while no slot is idle that could work.

    ONES searches for this by evolution (`relaqs.slot_policies.ones`). Once each job's slots are side by side,
    a schedule's score depends on nothing but how many slots each job has. The score is then a sum over jobs,
    and a knapsack finds the least one: exactly, without draws, and faster than one generation.

    What each job still needs is taken at its expected progress, where ONES draws it. A job may have as many
    slots as its user allows, with its start batch on each. A running job at most doubles at once.

    The least sum of all is that of no job running, since jobs that wait count nothing. So this takes the
    least sum among the schedules with as many slots at work as can be.

    Args:
        predictor: tells the passes that jobs still need.

    >>> from relaqs.sharing.gangs import Gang, Gangs
    >>> from relaqs.sharing.gangs import Nodes
    >>> jobs = [Gang("short", rows_done=1e4, rows_most=64.0), Gang("long", rows_done=1e6, rows_most=64.0)]
    >>> view = SlotView(0.0, Nodes.equal(1, slots=2), Gangs.of(jobs, nodes=1))
    >>> ExactUtilisation().plan(view).slots_by_id()
    {'short': 2, 'long': 0}
    """

    predictor: Predictor = by_ended_jobs
    name: ClassVar[str] = "exact_utilisation"

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._plan)

    def _plan(self, view: SlotView) -> SlotPlan:
        gangs, usable = view.gangs, view.nodes.usable_slots
        most = _slots_most(view)
        costs = SlotSeconds.of(gangs, most, usable)
        rows = rows_left(gangs.rows_done, Progress.of(gangs, view.finished, self.predictor).mean)
        slots = least_sum(rows[:, None] * costs.packed, most, int(usable.sum()))
        held = np.where(view.nodes.alive, gangs.held, 0)
        places = packed(slots, held, view.nodes, np.argsort(-slots, kind="stable"))
        return SlotPlan.of(view, places, slot_rows(gangs) * slots)


def _slots_most(view: SlotView) -> IntArray:
    gangs = view.gangs
    rows = np.where(gangs.is_running, np.minimum(gangs.rows_most, 2.0 * gangs.batch_rows), gangs.rows_most)
    most = np.minimum(np.floor(rows / slot_rows(gangs) + 1e-9), view.nodes.usable_slots.sum())
    return np.asarray(np.maximum(most, 1).astype(np.int64))


def least_sum(cost: FloatArray, most: IntArray, slots: int) -> IntArray:
    """Return the slots of each job with the least sum of costs, of those that use as many slots as can be.

    Args:
        cost: of 0, 1, … slots of each job, shape (J, C + 1).
        most: the slots that each job may have, at most C, shape (J,).
        slots: how many there are.

    >>> least_sum(np.array([[0.0, 3.0, 3.5], [0.0, 1.0, 9.0]]), np.array([2, 2]), slots=2).tolist()
    [2, 0]
    """
    choices, _ = _table(cost, most, slots)
    left = min(slots, int(most.sum()))
    taken = np.zeros(len(cost), dtype=np.int64)
    for job in range(len(cost) - 1, -1, -1):
        taken[job] = choices[job, left]
        left -= taken[job]
    return taken


def least_sums(cost: FloatArray, most: IntArray, slots: int) -> FloatArray:
    """Return the least sum of costs if just 0, 1, …, `slots` slots are used. Infinite: it cannot be."""
    return _table(cost, most, slots)[1]


def _table(cost: FloatArray, most: IntArray, slots: int) -> tuple[IntArray, FloatArray]:
    """Return the slots of each job, by how many are used up to it, (J, slots + 1), and the least sums."""
    least = np.full(slots + 1, np.inf)
    least[0] = 0.0
    choices = np.zeros((len(cost), slots + 1), dtype=np.int64)
    used = np.arange(slots + 1)
    for job, own in enumerate(np.minimum(most, slots).tolist()):
        before = np.concatenate([np.full(own, np.inf), least])
        window = np.lib.stride_tricks.sliding_window_view(before, own + 1)[:, ::-1]  # used − 0, used − 1, …
        sums = window + cost[job, : own + 1]
        choices[job] = sums.argmin(axis=1)
        least = sums[used, choices[job]]
    return choices, least
