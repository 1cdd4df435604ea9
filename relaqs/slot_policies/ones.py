"""ONES as its paper describes it: an evolution of schedules that deploys the one with the least utilisation.

The paper leaves a few things open, and the text that we could read has lost its formulas. The record on
ONES in `docs/decisions` lists how each is read here, and what we hold to be weak about the method.

What ONES remembers from one plan to the next: its schedules and the batch limits, frozen.

**What a schedule costs**, by the paper, is slot-seconds until its running jobs end (equations 2 to 8).
Equation 3 sums T·c over the jobs that run, where T is the time that a job still needs and c its slots.
Jobs that wait count nothing, so the least sum is that of the schedule in which all wait.

Schedules are genomes: an array with the job on each slot, one row a schedule. What a job still needs
follows from how far it has come, as a distribution (equation 6). The largest batch that a job may have now
is R in the paper, section 3.3.2.

**One generation** is refresh, crossover, mutation, reorder and selection:

- Refresh brings schedules up to date with the jobs there are now. Idle slots go to jobs that wait or may
  grow.
- Uniform crossover: on each slot, the genes of two parents go to two children in random order.
- Uniform mutation: some jobs lose all their slots, which are then filled like any idle ones.
- Reorder puts the slots of a job side by side, jobs in the order in which they first occur.
- Selection: the schedules with the least utilisation in one draw live on, each once.

A policy draws no random numbers of its own, since equal views must give equal plans. A number here is a
hash of (seed, generation, stream, index). Two streams of a generation never share a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from relaqs_bootstrap.arrays import MASK, STEP, BoolArray, FloatArray, IntArray, mixed, mixed_word

from relaqs.prediction.passes_left import FEATURES, FEWEST_POINTS, MOST_POINTS, PassesLeft
from relaqs.sharing.gangs import (
    SPEED_NUMBERS,
    Gangs,
    Nodes,
    SlotPlan,
    SlotView,
    packed,
    rows_per_second,
    split_batch,
)
from relaqs.slot_policies import planned_by_arrival

IDLE = -1


def counts(genomes: IntArray, jobs: int) -> IntArray:
    """Return the slots of each job in each schedule, shape (K, J). genomes: shape (K, G)."""
    rows = np.arange(len(genomes))[:, None] * (jobs + 1)
    flat = np.bincount((genomes + 1 + rows).ravel(), minlength=len(genomes) * (jobs + 1))
    return flat.reshape(len(genomes), jobs + 1)[:, 1:]


def trimmed(genomes: IntArray, most: IntArray) -> IntArray:
    """Return schedules that lie in runs, without a job's slots beyond those it may have. most: shape (J,)."""
    place = np.arange(genomes.shape[1])
    starts = np.maximum.accumulate(np.where(starts_run(genomes), place, 0), axis=1)
    return np.where((genomes >= 0) & (place - starts >= most[genomes]), IDLE, genomes)


def starts_run(genomes: IntArray) -> BoolArray:
    """Return which slots have another gene than the slot before them, shape (K, G)."""
    starts = np.ones(genomes.shape, dtype=np.bool_)
    starts[:, 1:] = genomes[:, 1:] != genomes[:, :-1]
    return starts


def of_places(slots_by_node: IntArray, node_slots: IntArray) -> IntArray:
    """Return the schedule in which jobs hold these slots of each node, shape (G,). slots_by_node: (J, N)."""
    genes = np.full(int(node_slots.sum()), IDLE)
    start = 0
    for node, slots in enumerate(node_slots.tolist()):
        held = np.repeat(np.arange(len(slots_by_node)), slots_by_node[:, node])
        genes[start : start + len(held)] = held
        start += slots
    return genes


def to_places(genes: IntArray, jobs: int, node_slots: IntArray) -> IntArray:
    """Return the slots of each job on each node, shape (J, N). It undoes `of_places`."""
    node = np.repeat(np.arange(len(node_slots)), node_slots)
    has = genes >= 0
    places = np.zeros((jobs, len(node_slots)), dtype=np.int64)
    np.add.at(places, (genes[has], node[has]), 1)
    return places


Predictor = Callable[[Gangs, FloatArray], FloatArray]
"""(jobs, points of ended jobs) → the passes that each job still needs, shape (E,); NaN: nothing tells."""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Beta distributions of the share of its work that each job has done.

    Attributes:
        alpha: about the passes done, at least 1, shape (E,).
        beta: about the passes left, at least 1, shape (E,).
        is_predicted: whether something tells the passes left, shape (E,). Else a job counts as half done.
    """

    alpha: FloatArray
    beta: FloatArray
    is_predicted: BoolArray

    @classmethod
    def of(cls, gangs: Gangs, finished: FloatArray, predictor: Predictor) -> Progress:
        """Return the progress of jobs, from points of ended jobs (`SlotView.finished`)."""
        left = predictor(gangs, finished)
        is_predicted = ~np.isnan(left)
        done = np.maximum(gangs.passes_done, 1.0)
        return cls(done, np.where(is_predicted, np.maximum(left, 1.0), done), is_predicted)

    @property
    def mean(self) -> FloatArray:
        """The expected progress, shape (E,)."""
        return self.alpha / (self.alpha + self.beta)


def by_ended_jobs(gangs: Gangs, finished: FloatArray) -> FloatArray:
    """Return the passes that jobs still need, by regression on ended jobs; NaN for fewer than 5 points."""
    if len(finished) < FEWEST_POINTS:
        return np.full(len(gangs), np.nan)
    some = finished[np.linspace(0, len(finished) - 1, min(len(finished), MOST_POINTS)).astype(np.int64)]
    fallen = 1.0 - gangs.loss / gangs.first_loss
    known = (gangs.pass_rows, gangs.first_loss, gangs.rows_done, fallen, gangs.accuracy)
    return _fitted(np.ascontiguousarray(some).tobytes()).at(np.stack(known, axis=1))


@lru_cache(maxsize=4)
def _fitted(points: bytes) -> PassesLeft:
    """Return the regression on these points. It is fitted anew only when a job has ended."""
    return PassesLeft.fitted(np.frombuffer(points).reshape(-1, FEATURES + 1))


UNKNOWN_SPEED = np.array([0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # a tenth of a second a step, on any slots


def rows_left(rows_done: FloatArray, progress: FloatArray) -> FloatArray:
    """Return the rows that jobs still process at such a progress between 0 and 1. Equation 7."""
    return np.asarray(rows_done * (1.0 / np.maximum(progress, 1e-9) - 1.0))


def slot_rows(gangs: Gangs) -> FloatArray:
    """Return the rows that ONES gives each slot of a job, shape (E,): its start batch."""
    return np.asarray(np.minimum(np.maximum(gangs.start_rows, gangs.slot_rows_least), gangs.rows_most))


def known_speed(speed: FloatArray) -> FloatArray:
    """Return speeds in which what is not known of a job is as with the middle one of the others, (E, 7)."""
    known = speed[np.isfinite(speed).all(axis=1)]
    usual = np.median(known, axis=0) if len(known) else UNKNOWN_SPEED
    assert usual.shape == (SPEED_NUMBERS,)
    return np.where(np.isfinite(speed), speed, usual)


@dataclass(frozen=True, slots=True, eq=False)
class SlotSeconds:
    """Slot-seconds that a row takes, by job and slots, and where the slots are.

    Attributes:
        of_row: c / X(c) on one node and on several, shape (J, 2, C + 1); 0 for no slots.
        most: the slots that each job may have, shape (J,), from 1 to C.
        node_slots: the slots of each node, shape (N,).
    """

    of_row: FloatArray
    most: IntArray
    node_slots: IntArray

    @classmethod
    def of(cls, gangs: Gangs, most: IntArray, node_slots: IntArray) -> SlotSeconds:
        """Return them for jobs whose slots have `slot_rows` rows each."""
        slots = np.arange(1, int(most.max(initial=1)) + 1)[None, None, :]
        batch = slot_rows(gangs)[:, None, None] * slots
        split = split_batch(batch, slots, gangs.slot_rows_most[:, None, None])
        speed = known_speed(gangs.speed)[:, None, None, :]
        nodes = np.array([1, 2])[None, :, None]
        rate = rows_per_second(speed, slots, nodes, split.slot_rows, split.pieces)
        of_row = np.zeros((len(gangs), 2, slots.size + 1))
        of_row[:, :, 1:] = slots / rate
        return cls(of_row, most, node_slots)

    @property
    def packed(self) -> FloatArray:
        """The slot-seconds of a row where a job is on as few nodes as possible, shape (J, C + 1)."""
        largest = int(self.node_slots.max(initial=0))
        slots = np.arange(self.of_row.shape[2])
        return np.where(slots <= largest, self.of_row[:, 0], self.of_row[:, 1])


def scores(genomes: IntArray, rows: FloatArray, costs: SlotSeconds) -> FloatArray:
    """Return equation 8 for schedules that lie in runs, shape (K,). rows: those left, shape (J,)."""
    slots = genomes.shape[1]
    at = np.flatnonzero(starts_run(genomes).ravel())
    length = np.diff(at, append=genomes.size)
    job = genomes.ravel()[at]
    works = job >= 0
    at, length, job = at[works], length[works], job[works]
    node = np.repeat(np.arange(len(costs.node_slots)), costs.node_slots)
    is_spread = node[at % slots] != node[(at + length - 1) % slots]
    cost = rows[job] * costs.of_row[job, is_spread.astype(np.int64), length]
    return np.bincount(at // slots, weights=cost, minlength=len(genomes)).astype(np.float64)


MOST_DOUBLINGS = 60.0  # beyond all batches: so that a limit stays a number


@dataclass(frozen=True, slots=True, eq=False)
class BatchLimits:
    """Limits of jobs as columns.

    Attributes:
        start: the rows of the start batch, shape (E,).
        doublings: how often the limit is doubled, a whole number from 0 on, shape (E,).
        passes: the passes that are counted in it, shape (E,).
    """

    start: FloatArray
    doublings: FloatArray
    passes: FloatArray

    @classmethod
    def grown(
        cls, gangs: Gangs, before: Mapping[str, tuple[float, float]], warm_up_steps: int
    ) -> BatchLimits:
        """Return the limits now, from (doublings, passes) of the jobs that were there before, by their id.

        A job that was not there before has the batch it runs with. A job that waits has no more than the
        batch it ran with.
        """
        start = slot_rows(gangs)
        ran_with = np.floor(np.log2(np.maximum(gangs.batch_rows / start, 1.0)) + 1e-9)
        unknown = zip(ran_with, gangs.passes_done, strict=True)
        kept = [before.get(each, other) for each, other in zip(gangs.ids, unknown, strict=True)]
        doublings, passes = np.array(kept, dtype=np.float64).reshape(-1, 2).T
        is_warm = gangs.rows_done >= warm_up_steps * start
        doublings = doublings + np.where(is_warm, np.maximum(gangs.passes_done - passes, 0.0), 0.0)
        doublings = np.minimum(doublings, np.where(gangs.is_running, MOST_DOUBLINGS, ran_with))
        return cls(start, doublings, np.where(is_warm, gangs.passes_done, passes))

    def after_rejection(self, still_waits: BoolArray) -> BatchLimits:
        """Return the limits after a new schedule, which left some jobs waiting."""
        fewer = np.where(still_waits, np.maximum(self.doublings - 1.0, 0.0), self.doublings)
        return BatchLimits(self.start, fewer, self.passes)

    def rows(self, executed_seconds: FloatArray, per_second: float, rows_most: FloatArray) -> FloatArray:
        """Return the limits in rows, after the penalty for long runs and within the user's, shape (E,).

        The paper's formula is lost in the text that we have. This is a reading of what is said about it: a
        limit is divided by the number of mean times between arrivals (1 / per_second) that the job has run,
        rounded up. It is never below the start batch.
        """
        divisor = np.ceil(np.maximum(1.0, per_second * executed_seconds))
        left = self.doublings - np.ceil(np.log2(divisor) - 1e-9)
        allowed = np.floor(np.log2(rows_most / self.start) + 1e-9)
        return np.asarray(self.start * 2.0 ** np.clip(left, 0.0, np.maximum(allowed, 0.0)))

    def by_id(self, ids: tuple[str, ...]) -> dict[str, tuple[float, float]]:
        """Return (doublings, passes) of each job: what `grown` is handed next time."""
        columns = zip(self.doublings.tolist(), self.passes.tolist(), strict=True)
        return dict(zip(ids, columns, strict=True))


GRID_POINTS = 512
GRID_REACH = 8.0  # standard deviations of log odds on either side of the middle: e⁻⁸ of the mass lies beyond


@dataclass(frozen=True, slots=True)
class Draws:
    """The numbers of one generation.

    >>> Draws(seed=1, generation=0).uniform(0, 3).round(3).tolist()
    [0.885, 0.403, 0.838]
    """

    seed: int
    generation: int

    def uniform(self, stream: int, *shape: int) -> FloatArray:
        """Return numbers from 0 to below 1, evenly spread."""
        key = 0
        for part in (self.seed, self.generation, stream):
            key = mixed_word((key ^ (part & MASK)) + STEP & MASK)
        index = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
        words = mixed(np.uint64(key) + index * np.uint64(STEP))
        high = (words >> np.uint64(11)).astype(np.float64)
        return (high * 2.0**-53).reshape(shape)

    def integers(self, stream: int, below: int, *shape: int) -> IntArray:
        """Return whole numbers from 0 to below `below`, evenly spread."""
        return (self.uniform(stream, *shape) * below).astype(np.int64)


@dataclass(frozen=True, slots=True)
class BetaQuantiles:
    """Quantiles of Beta distributions, from their cumulative probabilities on a grid.

    Quantiles rise with the probability that is asked for, so equal probabilities compare jobs fairly. They
    are within 1e-3 of the exact ones for parameters from 1 to 200.

    Args:
        points: shape (J, 512), rising along a row.
        below: the probability below each point, shape (J, 512), from 0 to 1.
    """

    points: FloatArray
    below: FloatArray

    @classmethod
    def of(cls, alpha: FloatArray, beta: FloatArray) -> BetaQuantiles:
        """Return the quantiles for parameters of shape (J,).

        The grid is even in the log odds t = log(x / (1 − x)). There the density is x^α (1 − x)^β, which is
        smooth and falls off at both ends.
        """
        middle = np.log(alpha / beta)
        reach = GRID_REACH * np.sqrt(_trigamma(alpha) + _trigamma(beta))
        log_odds = middle[:, None] + reach[:, None] * np.linspace(-1.0, 1.0, GRID_POINTS)
        log_above = -np.logaddexp(0.0, log_odds)
        log_density = alpha[:, None] * (log_odds + log_above) + beta[:, None] * log_above
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        below = np.cumsum(density, axis=1) - (density + density[:, :1]) / 2.0
        return cls(np.exp(log_odds + log_above), below / below[:, -1:])

    def at(self, probability: FloatArray) -> FloatArray:
        """Return the quantiles at probabilities of shape (n, J), which need not be the same for each job."""
        found = np.empty(probability.shape)
        for job, (below, points) in enumerate(zip(self.below, self.points, strict=True)):
            found[:, job] = np.interp(probability[:, job], below, points)
        return found


def _trigamma(x: FloatArray) -> FloatArray:
    """Return the variance of the logarithm of Gamma(x), to 1e-4, by its asymptotic series from x + 3."""
    near = sum(1.0 / (x + step) ** 2 for step in range(3))
    x = x + 3.0
    return np.asarray(near + 1.0 / x + 1.0 / (2.0 * x**2) + 1.0 / (6.0 * x**3))


def filled(genomes: IntArray, rows: FloatArray, costs: SlotSeconds) -> IntArray:
    """Return schedules in which no slot is idle that a job could use.

    A job that waits asks for one slot, and a job that runs for twice its slots, up to its limit. Whose
    utilisation rises least by that is served, with as many slots as are there, and all are compared again. A
    job that runs well on more slots raises it by little, and a job that waits by all that it needs: so
    growing goes before starting. That is the paper's rule.

    Args:
        genomes: shape (K, G).
        rows: the rows that jobs still process, in the draw of each schedule, shape (K, J).
    """
    picks = _picks(counts(genomes, len(costs.most)), (genomes < 0).sum(axis=1), rows, costs)
    if not picks:
        return genomes
    job, taken = (np.stack(each, axis=1) for each in zip(*picks, strict=True))
    idle = genomes < 0
    is_filled = idle & (np.cumsum(idle, axis=1) <= taken.sum(axis=1)[:, None])
    full = genomes.copy()
    full[is_filled] = np.repeat(job.ravel(), taken.ravel())
    return full


def _picks(
    count: IntArray, idle: IntArray, rows: FloatArray, costs: SlotSeconds
) -> list[tuple[IntArray, IntArray]]:
    """Return which job is served in each schedule, shape (K,), and with how many slots, time after time."""
    packed, every = costs.packed, np.arange(count.shape[1])
    goal = _goal(count, costs.most)
    rise = np.where(goal > count, rows * (packed[every, goal] - packed[every, count]), np.inf)
    schedules, picks = np.flatnonzero(idle > 0), []
    while len(schedules):
        job = rise[schedules].argmin(axis=1)
        can = np.isfinite(rise[schedules, job])
        schedules, job = schedules[can], job[can]
        if not len(schedules):
            break
        taken = np.minimum(goal[schedules, job] - count[schedules, job], idle[schedules])
        all_jobs, all_taken = np.zeros(len(count), dtype=np.int64), np.zeros(len(count), dtype=np.int64)
        all_jobs[schedules], all_taken[schedules] = job, taken
        picks.append((all_jobs, all_taken))
        now = count[schedules, job] + taken
        then = _goal(now, costs.most[job])
        count[schedules, job], goal[schedules, job] = now, then
        more = rows[schedules, job] * (packed[job, then] - packed[job, now])
        rise[schedules, job] = np.where(then > now, more, np.inf)
        idle[schedules] -= taken
        schedules = schedules[idle[schedules] > 0]
    return picks


def _goal(count: IntArray, most: IntArray) -> IntArray:
    """Return the slots that jobs ask for next: one where they wait, else twice as many, up to their limit."""
    return np.minimum(np.maximum(2 * count, 1), most)


def reordered(genomes: IntArray, jobs: int) -> IntArray:
    """Return schedules with each job's slots in one run, from the left; idle slots come last."""
    slots = genomes.shape[1]
    place = np.arange(slots)
    first = np.full((len(genomes), jobs + 1), slots)  # the last column takes what idle slots write
    # From the right, so that the leftmost slot is written last, and stays.
    from_right = np.ascontiguousarray(genomes[:, ::-1])
    np.put_along_axis(first, from_right, np.tile(place[::-1], (len(genomes), 1)), axis=1)
    is_first = (genomes >= 0) & (np.take_along_axis(first, genomes, axis=1) == place)
    rows, columns = np.nonzero(is_first)
    job = genomes[rows, columns]
    count = counts(genomes, jobs)
    packed = np.full(genomes.shape, IDLE)
    packed[place < count.sum(axis=1)[:, None]] = np.repeat(job, count[rows, job])
    return packed


def refreshed(
    genomes: IntArray, rows: FloatArray, costs: SlotSeconds, is_new: BoolArray, executed_seconds: FloatArray
) -> IntArray:
    """Return schedules with no job above its limit, every new job in, and no slot idle that could work.

    The genes of jobs that ended must be IDLE already. Each new job has one slot: an idle one, else one of the
    job that ran longest so far. Where new jobs are more than slots, the first ones of the view are in.

    Args:
        genomes: shape (K, G).
        rows: the rows that jobs still process, in the draw of each schedule, shape (K, J).
        is_new: which jobs have never run, shape (J,).
        executed_seconds: how long each job has run, shape (J,).
    """
    jobs = len(costs.most)
    found = trimmed(reordered(genomes, jobs), costs.most)
    for row in found if is_new.any() else ():
        _let_in(row, is_new, executed_seconds)
    return reordered(filled(found, rows, costs), jobs)


def _let_in(genes: IntArray, is_new: BoolArray, executed_seconds: FloatArray) -> None:
    """Put new jobs that a schedule lacks onto slots, in place."""
    lacks = is_new.copy()
    lacks[genes[genes >= 0]] = False
    waiting = np.flatnonzero(lacks)
    if not len(waiting):
        return
    goes_first = np.append(np.where(is_new, -np.inf, executed_seconds), np.inf)[genes]  # idle slots: the last
    order = np.argsort(-goes_first, kind="stable")
    order = order[np.isfinite(goes_first[order]) | (genes[order] == IDLE)][: len(waiting)]
    genes[order] = waiting[: len(order)]


def crossed(one: IntArray, other: IntArray, first_to_first: BoolArray) -> IntArray:
    """Return the children of pairs of parents, shape (2K, G). All arguments have shape (K, G)."""
    return np.concatenate([np.where(first_to_first, one, other), np.where(first_to_first, other, one)])


def preempted(genomes: IntArray, loses: BoolArray) -> IntArray:
    """Return schedules without the slots of the jobs that lose them. loses: shape (K, J)."""
    padded = np.concatenate([loses, np.zeros((len(loses), 1), dtype=np.bool_)], axis=1)  # for idle slots
    return np.where(np.take_along_axis(padded, genomes, axis=1), IDLE, genomes)


def best(genomes: IntArray, score: FloatArray, most: int) -> IntArray:
    """Return the positions of the schedules with the least scores, best first. most: how many at most.

    Of equal schedules one is kept. Else the best would fill the population, and nothing new would come.
    """
    order = np.argsort(score, kind="stable")
    _, once = np.unique(_fingerprints(genomes)[order], return_index=True)
    return order[np.sort(once)[:most]]


def _fingerprints(genomes: IntArray) -> IntArray:
    """Return a hash of each schedule, shape (K,)."""
    weight = mixed(np.arange(1, genomes.shape[1] + 1, dtype=np.uint64) * np.uint64(STEP))
    return np.asarray((genomes.astype(np.uint64) * weight).sum(axis=1, dtype=np.uint64).astype(np.int64))


RowsLeft = Callable[[FloatArray], FloatArray]
"""Even numbers from 0 to 1, (n, J) → the rows that jobs still process in n draws, (n, J)."""

# The streams of one generation's draws.
REFRESH, FILL, PARENTS, GENES, MUTANTS, LOSES, SCORE, START = range(8)


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """What stays the same from one generation to the next.

    Attributes:
        costs: what slots cost.
        rows_left: what is drawn of the jobs' remaining work.
        is_new: which jobs have never run, shape (J,).
        executed_seconds: how long each job has run, shape (J,).
        population: how many schedules live on.
        mutation: the rate at which a job of a mutant loses its slots.
        crossover: whether genes of pairs are mixed. If not, children are as their parents.
    """

    costs: SlotSeconds
    rows_left: RowsLeft
    is_new: BoolArray
    executed_seconds: FloatArray
    population: int
    mutation: float
    crossover: bool = True

    def after(self, genomes: IntArray, draws: Draws) -> IntArray:
        """Return the next generation, the best schedule first. genomes: at least one, shape (K, G)."""
        jobs, size = len(self.costs.most), self.population
        rows = self.rows_left(draws.uniform(REFRESH, len(genomes), jobs))
        parents = refreshed(genomes, rows, self.costs, self.is_new, self.executed_seconds)
        children = np.concatenate([self._children(parents, draws), self._mutants(parents, draws)])
        rows = self.rows_left(draws.uniform(FILL, size, jobs))
        children = filled(children, np.concatenate([rows] * 3), self.costs)
        every = np.concatenate([parents, reordered(children, jobs)])
        rows = self.rows_left(draws.uniform(SCORE, 1, jobs))[0]
        return every[best(every, scores(every, rows, self.costs), size)]

    def _children(self, parents: IntArray, draws: Draws) -> IntArray:
        size, slots = self.population, parents.shape[1]
        pairs = draws.integers(PARENTS, len(parents), 2, size)
        to_first = draws.uniform(GENES, size, slots) < (0.5 if self.crossover else 1.0)
        children = crossed(parents[pairs[0]], parents[pairs[1]], to_first)
        return trimmed(reordered(children, len(self.costs.most)), self.costs.most)

    def _mutants(self, parents: IntArray, draws: Draws) -> IntArray:
        chosen = parents[draws.integers(MUTANTS, len(parents), self.population)]
        loses = draws.uniform(LOSES, self.population, len(self.costs.most)) < self.mutation
        return preempted(chosen, loses)


def random_schedules(count: int, slots: int, jobs: int, draws: Draws) -> IntArray:
    """Return schedules with a random job on each slot, shape (count, slots): the paper's first population."""
    return draws.integers(START, jobs, count, slots)


@dataclass(frozen=True, slots=True)
class Population:
    """Schedules by the names of jobs and nodes, so that they outlive both.

    Two populations are equal if all their schedules are. They can be pickled.

    Attributes:
        generation: how many generations there have been.
        jobs: the jobs' ids; a gene is a position here.
        nodes: the ids of the nodes, and the slots of each.
        genes: the schedules as bytes of 32-bit numbers.
        limits: the doublings of each job's batch limit and the passes counted in it, in the order of jobs.
    """

    generation: int
    jobs: tuple[str, ...]
    nodes: tuple[tuple[str, int], ...]
    genes: bytes
    limits: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls,
        generation: int,
        ids: tuple[str, ...],
        nodes: Nodes,
        genomes: IntArray,
        limits: dict[str, tuple[float, float]],
    ) -> Population:
        """Return the population of some schedules, shape (K, G)."""
        slots = tuple(zip(nodes.ids, nodes.usable_slots.tolist(), strict=True))
        return cls(
            generation, ids, slots, genomes.astype(np.int32).tobytes(), tuple(limits[each] for each in ids)
        )

    def limits_by_id(self) -> dict[str, tuple[float, float]]:
        """Return the doublings and the passes counted of each job."""
        return dict(zip(self.jobs, self.limits, strict=True))

    def on(self, ids: tuple[str, ...], nodes: Nodes) -> IntArray:
        """Return the schedules for the jobs and nodes there are now, shape (K, G).

        Slots of jobs that ended and slots that are new are IDLE.
        """
        row = {name: position for position, name in enumerate(ids)}
        now = np.array([*(row.get(name, IDLE) for name in self.jobs), IDLE])
        width = sum(slots for _, slots in self.nodes)
        before = now[np.frombuffer(self.genes, dtype=np.int32).reshape(-1, width)]
        starts = dict(zip((name for name, _ in self.nodes), _starts([s for _, s in self.nodes]), strict=True))
        had = dict(self.nodes)
        usable = nodes.usable_slots.tolist()
        genomes = np.full((len(before), sum(usable)), IDLE)
        for name, slots, start in zip(nodes.ids, usable, _starts(usable), strict=True):
            kept = min(slots, had.get(name, 0))
            old = starts.get(name, 0)
            genomes[:, start : start + kept] = before[:, old : old + kept]
        return genomes


def _starts(slots: list[int]) -> list[int]:
    return [sum(slots[:node]) for node in range(len(slots))]


LARGEST_POPULATION = 64


@dataclass(frozen=True, slots=True)
class Ones:
    """Online evolutionary batch size orchestration (Bian, Li, Wang, You, SC 2021).

    A schedule says which job has which slot. A slot of a job always has its start batch, so a job's batch
    grows with its slots. A population of schedules goes through a few generations at each plan. The score of
    a schedule is the sum of the slot-seconds that its running jobs still need, in one draw of how far each
    has come. The schedule with the least score is deployed once every running job has made a whole pass since
    its last change. Until then each job keeps what it has.

    The user's weights do not count: the paper knows none.

    Args:
        population: how many schedules live on; None: as many as there are slots, at most 64.
        generations: how many there are in one plan.
        mutation: the rate at which a job of a mutant loses its slots. The paper's value is not known.
        crossover: whether genes of pairs are mixed. False shows what the search does without.
        warm_up_steps: a job keeps its start batch for this number of steps.
        sigma: the rate by which long runs lower a batch limit, each second: a number, or the rate of
            arrivals.
        deploy: "all_passes" deploys as above. With "own_pass" a job may change as soon as it has made a whole
            pass itself, and free slots are filled at once.
        places: "genome" puts a job where its genes are. With "held" a job with as many slots as before keeps
            its places.
        predictor: tells the passes that jobs still need.
        seed: of all draws.

    >>> from relaqs.sharing.gangs import Gang
    >>> gangs = Gangs.of([Gang("a"), Gang("b")], nodes=1)
    >>> Ones().plan(SlotView(0.0, Nodes.equal(1, slots=4), gangs)).slots_by_id()
    {'a': 1, 'b': 1}
    """

    population: int | None = None
    generations: int = 4
    mutation: float = 0.2
    crossover: bool = True
    warm_up_steps: int = 10
    sigma: float | Literal["arrival rate"] = "arrival rate"
    deploy: Literal["all_passes", "own_pass"] = "all_passes"
    places: Literal["genome", "held"] = "genome"
    predictor: Predictor = by_ended_jobs
    seed: int = 0
    name: ClassVar[str] = "ones"

    def __post_init__(self) -> None:
        _check(self.population is None or self.population >= 1, "population", self.population, "1 or more")
        _check(self.generations >= 1, "generations", self.generations, "1 or more")
        _check(0 <= self.mutation <= 1, "mutation", self.mutation, "a number from 0 to 1")
        _check(self.warm_up_steps >= 0, "warm_up_steps", self.warm_up_steps, "0 or more")
        is_rate = self.sigma == "arrival rate" or (not isinstance(self.sigma, str) and self.sigma >= 0)
        _check(is_rate, "sigma", self.sigma, "a number from 0 on, or 'arrival rate'")
        _check(self.deploy in ("all_passes", "own_pass"), "deploy", self.deploy, "'all_passes' or 'own_pass'")
        _check(self.places in ("genome", "held"), "places", self.places, "'genome' or 'held'")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._plan)

    def _plan(self, view: SlotView) -> SlotPlan:
        before = view.memory if isinstance(view.memory, Population) else None
        limits = BatchLimits.grown(
            view.gangs, {} if before is None else before.limits_by_id(), self.warm_up_steps
        )
        costs = SlotSeconds.of(view.gangs, self._slots_most(view, limits), view.nodes.usable_slots)
        evolution = self._evolution(view, costs)
        genomes, generation = self._evolved(view, evolution, before)
        places = self._deployed(view, genomes[0], evolution)
        batch = self._batches(view, places)
        if (places != view.gangs.held).any():
            limits = limits.after_rejection((view.gangs.slots == 0) & (places.sum(axis=1) == 0))
        ids = view.gangs.ids
        memory = Population.of(generation, ids, view.nodes, genomes, limits.by_id(ids))
        return SlotPlan.of(view, places, batch, memory)

    def _slots_most(self, view: SlotView, limits: BatchLimits) -> IntArray:
        """Return the slots that each job may have, shape (E,): its limit, and at most twice what runs now."""
        gangs, slots = view.gangs, int(view.nodes.usable_slots.sum())
        known = 0.0 if np.isnan(view.arrivals_per_second) else view.arrivals_per_second
        per_second = known if isinstance(self.sigma, str) else self.sigma
        rows = limits.rows(gangs.executed_seconds, per_second, gangs.rows_most)
        rows = np.where(gangs.is_running, np.minimum(rows, 2.0 * gangs.batch_rows), rows)
        most = np.floor(rows / slot_rows(gangs) + 1e-9)
        return np.asarray(np.clip(most, 1, slots).astype(np.int64))

    def _evolution(self, view: SlotView, costs: SlotSeconds) -> Evolution:
        gangs = view.gangs
        return Evolution(
            costs=costs,
            rows_left=_sampled(gangs, Progress.of(gangs, view.finished, self.predictor)),
            is_new=(gangs.executed_seconds <= 0) & ~gangs.is_running,
            executed_seconds=gangs.executed_seconds,
            population=self.population or min(int(costs.node_slots.sum()), LARGEST_POPULATION),
            mutation=self.mutation,
            crossover=self.crossover,
        )

    def _evolved(
        self, view: SlotView, evolution: Evolution, before: Population | None
    ) -> tuple[IntArray, int]:
        """Return the schedules after this plan's generations, best first, and how many there were in all."""
        generation = 0 if before is None else before.generation
        if before is None:
            held = of_places(np.where(view.nodes.alive, view.gangs.held, 0), view.nodes.usable_slots)
            draws = Draws(self.seed, generation)
            others = random_schedules(evolution.population - 1, len(held), len(view.gangs), draws)
            genomes = np.concatenate([held[None, :], others])
        else:
            genomes = before.on(view.gangs.ids, view.nodes)
        for _ in range(self.generations):
            generation += 1
            genomes = evolution.after(genomes, Draws(self.seed, generation))
        return genomes, generation

    def _deployed(self, view: SlotView, genes: IntArray, evolution: Evolution) -> IntArray:
        """Return the slots of each job on each node, shape (E, N): of the best schedule, or as they are."""
        held = np.where(view.nodes.alive, view.gangs.held, 0)
        keeps = (held.sum(axis=1) > 0) & (view.gangs.passes_since_change < 1)
        if keeps.any() and self.deploy == "all_passes":
            return held
        if not keeps.any() and self.places == "genome":
            return to_places(genes, len(view.gangs), view.nodes.usable_slots)
        count = counts(genes[None, :], len(view.gangs))[0]
        if keeps.any():
            count = _beside(keeps, held, count, view, evolution)
        return packed(count, held, view.nodes, np.argsort(-count, kind="stable"))

    def _batches(self, view: SlotView, places: IntArray) -> FloatArray:
        """Return the batch of each job: its start batch on each slot, unless nothing changes for it."""
        gangs, slots = view.gangs, places.sum(axis=1)
        is_as_before = (slots == gangs.slots) & (gangs.batch_rows >= 1)
        return np.asarray(np.where(is_as_before, gangs.batch_rows, slot_rows(gangs) * slots))


def _beside(
    keeps: BoolArray, held: IntArray, wanted: IntArray, view: SlotView, evolution: Evolution
) -> IntArray:
    """Return the slots of each job where some keep what they hold and the others share the rest, (E,).

    The others get what the schedule gives them, in the order of arrival, as far as it goes; what is then idle
    is filled as in a schedule.
    """
    kept = np.where(keeps, held.sum(axis=1), 0)
    free = int(view.nodes.usable_slots.sum()) - int(kept.sum())
    asked = np.where(keeps, 0, wanted)
    given = np.clip(free - (np.cumsum(asked) - asked), 0, asked)
    genes = np.full((1, free), IDLE)
    genes[0, : given.sum()] = np.repeat(np.arange(len(given)), given)
    rows = evolution.rows_left(np.full((1, len(given)), 0.5))
    others = replace(evolution.costs, most=np.where(keeps, 0, evolution.costs.most))
    return np.asarray(kept + counts(filled(genes, rows, others), len(given))[0])


def _sampled(gangs: Gangs, progress: Progress) -> RowsLeft:
    """Return what draws the rows that jobs still process, from even numbers: Algorithm 1 of the paper.

    The schedules of one selection are compared by one draw, which is a reading of ours.
    """
    quantiles = BetaQuantiles.of(progress.alpha, progress.beta)
    return lambda even: rows_left(gangs.rows_done, quantiles.at(even))


def _check(is_right: bool, name: str, value: object, accepted: str) -> None:
    if not is_right:
        raise ValueError(f"{name} is {value!r}; give {accepted}")
