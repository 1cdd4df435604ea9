"""Sia: one configuration for each job, those with the best goodput together, by a program that is solved.

A configuration is a number of slots that leaves nodes whole. Its goodput is what slots are worth to a job
that chooses its own batch: useful rows a second, by slots and by nodes.

`CompletionRate` solves the same program for another worth of a configuration: the rate at which jobs come
to their ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.gangs import (
    Gangs,
    Nodes,
    SlotPlan,
    SlotView,
    efficiency,
    fewest_pieces,
    packed_on_whole_nodes,
    rows_per_second,
    split_batch,
)
from relaqs.slot_policies import planned_by_arrival
from relaqs.slot_policies.ones import Predictor, Progress, by_ended_jobs, known_speed


def configurations(nodes: Nodes) -> IntArray:
    """Return the numbers of slots that a job may have, rising: powers of two within a node, then whole nodes.

    Where nodes differ, whole nodes are the largest ones. Jobs with such numbers fit side by side without
    leaving pieces that no job can use, if the nodes are alike and have a power of two of slots.

    Source: Jayaram Subramanya et al., Sia, SOSP 2023: the valid configurations of one kind of GPU.
    """
    usable = np.sort(nodes.usable_slots)[::-1]
    parts = 2 ** np.arange(int(usable.max(initial=0)).bit_length())
    within = parts[parts <= usable.max(initial=0)]
    return np.unique(np.concatenate([within, np.cumsum(usable[usable > 0])])).astype(np.int64)


def largest_sum(job: IntArray, slots: IntArray, worth: FloatArray, jobs: int, total: int) -> IntArray:
    """Return the slots of each job, shape (J,), with the largest sum of worth; 0 is worth 0.

    Each job takes one of its options or none. With slots of one kind, the integer program of Sia is a
    knapsack, which a table over the slots solves exactly: options × total additions. Of choices that are
    worth the same, the one is taken in which earlier jobs have slots, and fewer of them.

    Args:
        job: whose option it is, rising, shape (P,).
        slots: that the option takes, at least 1, shape (P,).
        worth: of the option, shape (P,).
        jobs: J.
        total: how many slots there are.

    >>> options = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([2.0, 2.5, 3.0])
    >>> largest_sum(*options, jobs=2, total=3).tolist(), largest_sum(*options, jobs=2, total=2).tolist()
    ([1, 2], [0, 2])
    """
    useful = (worth > 0) & (slots <= total)
    job, slots, worth = job[useful], slots[useful], worth[useful]
    ends = np.cumsum(np.bincount(job, minlength=jobs)).tolist()
    sums, taken = np.zeros(total + 1), np.zeros((jobs, total + 1), dtype=np.int64)
    for own, (first, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        before, sums = sums, sums.copy()
        for size, value in zip(slots[first:end].tolist(), worth[first:end].tolist(), strict=True):
            with_it = before[: total + 1 - size] + value
            better = with_it > sums[size:]
            sums[size:][better] = with_it[better]
            taken[own, size:][better] = size
    return _traced_back(taken, total)


def _traced_back(taken: IntArray, total: int) -> IntArray:
    """Return the slots of each job. taken: by job, of each number for it and those before, (J, C + 1)."""
    chosen = np.zeros(len(taken), dtype=np.int64)
    for own in range(len(taken) - 1, -1, -1):
        chosen[own] = taken[own, total]
        total -= int(chosen[own])
    return chosen


BATCHES_TRIED = 24


@dataclass(frozen=True, slots=True, eq=False)
class Goodput:
    """The best of each job on 1, 2, … slots: rows a second times what a row is worth, and the batch for it.

    Attributes:
        useful_rows: a second, shape (E, 2, C + 1): on one node or on several, by slots; 0 where impossible.
        batch_rows: shape (E, 2, C + 1).
    """

    useful_rows: FloatArray
    batch_rows: FloatArray

    @classmethod
    def of(cls, gangs: Gangs, slots_most: int) -> Goodput:
        """Return the goodput of jobs with known speeds; those of others are NaN.

        Args:
            gangs: the jobs. Where the noise is unknown, rows of larger batches are taken to count alike.
            slots_most: C.
        """
        job = np.arange(len(gangs))[:, None, None]
        slots = np.arange(slots_most + 1)[None, None, :]
        nodes = np.array([1, 2])[None, :, None]
        possible = (slots >= nodes) & (slots <= gangs.slots_most[:, None, None])
        useful, rows = best_batch(gangs, job, slots, nodes)
        return cls(np.where(possible, useful, 0.0), np.where(possible, rows, 0.0))

    def batch_of(self, slots_by_node: IntArray) -> FloatArray:
        """Return the best batch of each job in a placement, shape (E,), 0 without slots."""
        slots, across = slots_by_node.sum(axis=1), ((slots_by_node > 0).sum(axis=1) > 1).astype(np.int64)
        return np.asarray(self.batch_rows[np.arange(len(slots)), across, slots])


def best_batch(
    gangs: Gangs, job: IntArray, slots: IntArray, nodes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the most useful rows a second that jobs make on their slots, and the batch with which they do.

    Both have the shape to which the arguments broadcast. Useful rows are NaN where a job's speed is unknown.

    Args:
        gangs: the jobs. Where the noise is unknown, rows of larger batches are taken to count alike.
        job: positions in `gangs`.
        slots: how many a job has.
        nodes: how many machines these are on.
    """
    job, slots, nodes = job[..., None], slots[..., None], nodes[..., None]
    batch = _batches(gangs, job, slots)
    start, noise, most = gangs.start_rows[job], gangs.noise_rows[job], gangs.rows_most[job]
    split = split_batch(batch, slots, gangs.slot_rows_most[job], most, fewest_pieces(batch, slots, start))
    rate = rows_per_second(gangs.speed[job], slots, nodes, split.slot_rows, split.pieces)
    worth = np.where(np.isnan(noise), 1.0, efficiency(np.maximum(split.batch_rows, start), start, noise))
    useful = rate * worth
    best = np.argmax(np.where(np.isnan(useful), -1.0, useful), axis=-1)[..., None]
    rows = np.broadcast_to(split.batch_rows, useful.shape)
    return np.take_along_axis(useful, best, axis=-1)[..., 0], np.take_along_axis(rows, best, axis=-1)[..., 0]


def unmeasured_batch(gangs: Gangs, slots: IntArray) -> FloatArray:
    """Return the batch of jobs whose speed is unknown: the first one, or the least for their slots, (E,)."""
    return np.asarray(np.maximum(gangs.start_rows, gangs.slot_rows_least * np.maximum(slots, 1)))


def _batches(gangs: Gangs, job: IntArray, slots: IntArray) -> FloatArray:
    """Return the batches that are tried, evenly spread by ratio, on a last axis of BATCHES_TRIED."""
    least = np.maximum(gangs.start_rows[job], gangs.slot_rows_least[job] * np.maximum(slots, 1))
    most = np.maximum(gangs.rows_most[job], 1.0)
    most = np.where(np.isinf(most), least * 1024.0, most)
    ratio = np.maximum(most / least, 1.0)
    return np.asarray(least * ratio ** np.linspace(0.0, 1.0, BATCHES_TRIED))


TINY = 1e-12  # useful rows a second, where a job makes none on one slot


@dataclass(frozen=True, slots=True)
class Sia:
    """The policy that chooses a configuration for each job, or none, so that their costs sum to least.

    A configuration is a number of slots: a power of two within a node, or whole nodes (`configurations`).
    G is the goodput with it over that on one slot. Goodput is rows a second times what a row is worth in the
    batch, and each configuration has the batch with the best one. A job whose speed is unknown is taken to
    have a goodput that grows with its slots.

    Sia minimises the sum of (r·G)^p over the jobs that have slots, plus λ for each job without. This is to
    maximise the sum of λ − (r·G)^p over the jobs with slots, and so it is computed here. For p above 0, Sia
    maximises the sum of (r·G)^p, less λ for each job without: here, λ + (r·G)^p. A job counts by its weight.

    r is 1 for the configuration that a job has now, and for a job that waits. Another one discounts what the
    job would have: r = (T − N·S) / (T + S), at least 0, where T is its age, N how often it has changed, and S
    the seconds that a change takes, as measured. A job that has come just now is left as it is.

    A job that waits begins on one slot. In a plan it at most doubles the slots that it holds.

    Slots are of one kind here, where Sia tells kinds of GPUs apart. The integer program is then a knapsack,
    which is solved exactly. Jobs keep their places. Where a job would be spread over more nodes than it
    needs, smaller ones move out of its way.

    Args:
        fairness: p. Below 0, a job with few slots gains most by one more; the lower, the more so.
        waiting_cost: λ, that of a job without slots. At 1.1 a second slot for one job, where it helps, is
            worth more than the first slot for another. So jobs may wait while others have several.
        pause_seconds: S, until pauses have been measured.

    Source: Jayaram Subramanya et al., Sia, SOSP 2023, section 3; p = −0.5 and λ = 1.1 are those of its
    evaluation.

    >>> from relaqs.sharing.gangs import Gang
    >>> speed = (0.1, 0.01, 1e-3, 1e-8, 1e-3, 1e-8, 1.0)
    >>> jobs = [Gang(name, speed=speed, noise_rows=1e4, held=(1,), rows_most=512.0) for name in "abc"]
    >>> view = SlotView(900.0, Nodes.equal(1, slots=4), Gangs.of(jobs, nodes=1))
    >>> Sia().plan(view).slots_by_id(), Sia(waiting_cost=2.0).plan(view).slots_by_id()
    ({'a': 2, 'b': 2, 'c': 0}, {'a': 2, 'b': 1, 'c': 1})
    """

    fairness: float = -0.5
    waiting_cost: float = 1.1
    pause_seconds: float = 30.0
    name: ClassVar[str] = "sia"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.fairness) and self.fairness != 0):
            raise ValueError(f"fairness is {self.fairness}; give a number above or below 0, such as -0.5")
        least = 1.0 if self.fairness < 0 else 0.0
        if not least < self.waiting_cost < np.inf:
            raise ValueError(
                f"waiting_cost is {self.waiting_cost}; with fairness {self.fairness} it must be above "
                f"{least:g}, or no job would ever begin"
            )
        if not 0 <= self.pause_seconds < np.inf:
            raise ValueError(f"pause_seconds is {self.pause_seconds}; give 0 or more")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._planned)

    def _planned(self, view: SlotView) -> SlotPlan:
        options = SlotOptions.of(view)
        return _plan_of_most_worth(view, options, self.worth(view, options))

    def worth(self, view: SlotView, options: SlotOptions) -> FloatArray:
        """Return what each option is worth, shape (P,), relative to a job that waits; −inf: never."""
        gangs, job = view.gangs, options.job
        present = np.where(view.nodes.alive, gangs.held, 0).sum(axis=1)
        changes = (present > 0)[job] & (options.slots != present[job])
        kept = np.where(changes, self._kept_share(view)[job], 1.0)
        with np.errstate(divide="ignore"):
            power = (kept * options.speedup) ** self.fairness
        return np.asarray(gangs.weight[job] * (self.waiting_cost + np.sign(self.fairness) * power))

    def _kept_share(self, view: SlotView) -> FloatArray:
        """Return r of each job, shape (E,): of its age, what one more change would leave."""
        gangs, pause = view.gangs, view.gangs.pauses(self.pause_seconds)
        age = np.maximum(view.time_seconds - gangs.arrival_seconds, 0.0)
        left = np.maximum(age - gangs.rescales * pause, 0.0)
        return np.where(age + pause > 0, left / np.where(age + pause > 0, age + pause, 1.0), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class SlotOptions:
    """The P configurations that the jobs of a view may have now, by job and then by slots, shape (P,).

    Attributes:
        job: whose option it is.
        slots: that it takes.
        speedup: G, the goodput over that on one slot.
        batch_rows: the batch with that goodput; NaN where the job's speed is unknown.
    """

    job: IntArray
    slots: IntArray
    speedup: FloatArray
    batch_rows: FloatArray

    @classmethod
    def of(cls, view: SlotView) -> SlotOptions:
        gangs, sizes = view.gangs, configurations(view.nodes)
        most = np.minimum(np.maximum(2 * gangs.slots, 1), gangs.slots_most)
        job, size = np.nonzero(sizes <= most[:, None])
        slots = sizes[size]
        nodes = np.where(slots > view.nodes.usable_slots.max(), 2, 1)
        useful, batch = best_batch(gangs, job, slots, nodes)
        alone = np.maximum(useful[slots == 1], TINY)
        unknown = np.any(np.isnan(gangs.speed), axis=1)[job]
        speedup = np.where(unknown, slots, useful / alone[job])
        return cls(job, slots, speedup, np.where(unknown, np.nan, batch))

    def batches(self, gangs: Gangs, counts: IntArray) -> FloatArray:
        """Return the batch of each job on its slots, shape (E,); one that waits has that of its start."""
        batch = unmeasured_batch(gangs, counts)
        taken = (self.slots == counts[self.job]) & ~np.isnan(self.batch_rows)
        batch[self.job[taken]] = self.batch_rows[taken]
        return np.minimum(batch, gangs.rows_most)


LEAST_BETA = 1.5  # the mean of 1/Y is infinite at 1


@dataclass(frozen=True, slots=True)
class CompletionRate:
    """The policy that gives slots where they raise jobs' speeds most, by how many jobs wait for each.

    The configurations, their goodput, and what a change costs are those of Sia, and as there the best choice
    of one for each job is found exactly, by a knapsack. Two things differ.

    A job counts by who waits for it. Say that jobs end in the order of the time that each would still need
    alone on one slot. A second saved on a job is then a second for it and for each job with a longer way. So
    a job counts by the number of these, by weight: by a power of it, since the times are only predicted.

    No job waits while there are slots for all. A job without slots costs 2 by default, where one with a
    single slot costs 1. So the first slot of a job is worth more than any other one, where Sia lets jobs wait
    while others have several.

    How far a job has come is a Beta distribution, as in ONES. Its mean of 1 / Y has a closed form, where Y is
    what the job still needs, so nothing is drawn. Until some jobs have ended, nothing tells how long a job
    is. Jobs then go in the order in which they came. To prefer the one that has done least would let all of
    them end late, at about the same time.

    Args:
        fairness: p, as in Sia.
        waiting_cost: λ, as in Sia.
        order: to which power a job counts by the number of those that wait for it. At 0 all count alike.
        pause_seconds: how long a job stands still when its slots change, until pauses have been measured.
        minimum_share: a job that has had less than this part of its fair share of slots since it came gets a
            slot first.
        predictor: tells the passes that jobs still need.

    Source: the order and what depends on it are those of Berg, Vesilo and Harchol-Balter, heSRPT, 2020, for
    jobs of known lengths that speed up alike. The rest: Jayaram Subramanya et al., Sia, SOSP 2023.

    >>> from relaqs.sharing.gangs import Gang
    >>> speed = (0.01, 0.001, 0.05, 0.0, 0.1, 0.0, 1.0)
    >>> jobs = [Gang(name, rows_done=rows, speed=speed) for name, rows in (("short", 1e4), ("long", 1e6))]
    >>> view = SlotView(0.0, Nodes.equal(1, slots=1), Gangs.of(jobs, nodes=1))
    >>> CompletionRate(predictor=lambda gangs, finished: gangs.passes_done).plan(view).slots_by_id()
    {'short': 1, 'long': 0}
    """

    fairness: float = -0.5
    waiting_cost: float = 2.0
    order: float = 0.5
    pause_seconds: float = 1.0
    minimum_share: float = 0.1
    predictor: Predictor = by_ended_jobs
    name: ClassVar[str] = "completion_rate"

    def __post_init__(self) -> None:
        self._of_all_alike()
        if not 0 <= self.order <= 1:
            raise ValueError(f"order is {self.order}; give a number from 0 to 1")
        if not 0 <= self.minimum_share <= 1:
            raise ValueError(f"minimum_share is {self.minimum_share}; give a number from 0 to 1")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._planned)

    def _planned(self, view: SlotView) -> SlotPlan:
        gangs, options = view.gangs, SlotOptions.of(view)
        counts_as = weight_behind(1.0 / self._seconds_alone(view), gangs.weight) ** self.order
        worth = self._of_all_alike().worth(view, options) * counts_as[options.job]
        first = _is_starving(view, self.minimum_share)[options.job]
        most = worth.max(where=np.isfinite(worth), initial=0.0)
        return _plan_of_most_worth(view, options, np.where(first, worth + most * len(gangs), worth))

    def _of_all_alike(self) -> Sia:
        """Return the policy for which it makes no difference who waits for a job."""
        return Sia(self.fairness, self.waiting_cost, self.pause_seconds)

    def _seconds_alone(self, view: SlotView) -> FloatArray:
        """Return the time that each job would still need alone on one slot, over its weight, shape (E,).

        A job whose speed is unknown is as fast as the middle one of the others. Where too few jobs have ended
        to tell, all need the same.
        """
        gangs = replace(view.gangs, speed=known_speed(view.gangs.speed))
        progress = Progress.of(gangs, view.finished, self.predictor)
        if not progress.is_predicted.any():
            return 1.0 / gangs.weight
        done = np.maximum(gangs.rows_done, gangs.pass_rows)
        of_row = progress.alpha / ((np.maximum(progress.beta, LEAST_BETA) - 1.0) * done)
        one = np.ones(len(gangs), dtype=np.int64)
        useful, _ = best_batch(gangs, np.arange(len(gangs)), one, one)
        return np.asarray(1.0 / (gangs.weight * of_row * useful))


def _is_starving(view: SlotView, minimum_share: float) -> BoolArray:
    """Return which jobs have had less than their minimum of slot-seconds since they came, shape (E,)."""
    gangs = view.gangs
    fair = gangs.weight / gangs.weight.sum() * view.nodes.usable_slots.sum()
    due = minimum_share * fair * np.maximum(view.time_seconds - gangs.arrival_seconds, 0.0)
    return np.asarray(gangs.attained_slot_seconds < due)


def weight_behind(rate: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weight of each job and of those behind it, shape (E,). Of equal ones the first is before.

    rate: one over the time that a job still needs. The highest is the first to end.

    >>> weight_behind(np.array([0.1, 0.5, 0.1]), np.array([1.0, 1.0, 2.0])).tolist()
    [3.0, 4.0, 2.0]
    """
    last_first = len(rate) - 1 - np.argsort(rate[::-1], kind="stable")
    behind = np.empty(len(rate))
    behind[last_first] = np.cumsum(weight[last_first])
    return behind


def _plan_of_most_worth(view: SlotView, options: SlotOptions, worth: FloatArray) -> SlotPlan:
    """Return the plan of one option for each job that are worth most together. worth: shape (P,)."""
    gangs, nodes = view.gangs, view.nodes
    total = int(nodes.usable_slots.sum())
    counts = largest_sum(options.job, options.slots, worth, len(gangs), total)
    slots = packed_on_whole_nodes(counts, np.where(nodes.alive, gangs.held, 0), nodes)
    return SlotPlan.of(view, slots, options.batches(gangs, counts))
