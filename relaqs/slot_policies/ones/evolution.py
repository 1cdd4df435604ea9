"""One generation of ONES: refresh, crossover, mutation, reorder, selection.

- Refresh brings schedules up to date with the jobs there are now. Idle slots go to jobs that wait or may
  grow.
- Uniform crossover: on each slot, the genes of two parents go to two children in random order.
- Uniform mutation: some jobs lose all their slots, which are then filled like any idle ones.
- Reorder puts the slots of a job side by side, jobs in the order in which they first occur.
- Selection: the schedules with the least utilisation in one draw live on, each once.

Numbers that look random and follow from a seed alone, and quantiles of Beta distributions.

A policy draws no random numbers of its own, since equal views must give equal plans. A number here is a
hash of (seed, generation, stream, index). Two streams of a generation never share a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.split_mix import MASK, STEP, mixed, mixed_word

from relaqs.slot_policies.ones.utilisation import IDLE, SlotSeconds, counts, scores, trimmed

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
    """Return schedules with each job's slots in one run, from the left; idle slots come last.

    >>> reordered(np.array([[1, 0, IDLE, 1, 0]]), jobs=2).tolist()
    [[1, 1, 0, 0, -1]]
    """
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
    genomes: IntArray,
    rows: FloatArray,
    costs: SlotSeconds,
    is_new: BoolArray,
    executed_seconds: FloatArray,
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
    """Return the children of pairs of parents, shape (2K, G). All arguments have shape (K, G).

    >>> crossed(np.array([[0, 0]]), np.array([[1, 2]]), np.array([[True, False]])).tolist()
    [[0, 2], [1, 0]]
    """
    return np.concatenate([np.where(first_to_first, one, other), np.where(first_to_first, other, one)])


def preempted(genomes: IntArray, loses: BoolArray) -> IntArray:
    """Return schedules without the slots of the jobs that lose them. loses: shape (K, J).

    >>> preempted(np.array([[0, 1, 1]]), np.array([[False, True]])).tolist()
    [[0, -1, -1]]
    """
    padded = np.concatenate([loses, np.zeros((len(loses), 1), dtype=np.bool_)], axis=1)  # for idle slots
    return np.where(np.take_along_axis(padded, genomes, axis=1), IDLE, genomes)


def best(genomes: IntArray, score: FloatArray, most: int) -> IntArray:
    """Return the positions of the schedules with the least scores, best first, at most so many.

    Of equal schedules one is kept. Else the best would fill the population, and nothing new would come.

    >>> best(np.array([[0, 1], [1, 1], [0, 1]]), np.array([2.0, 3.0, 2.0]), most=2).tolist()
    [0, 1]
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
