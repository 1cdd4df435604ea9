"""What a schedule costs by the paper: slot-seconds until its running jobs end, equations 2 to 8.

Equation 3 sums T·c over the jobs that run, where T is the time that a job still needs and c its slots.
Jobs that wait count nothing, so the least sum is that of the schedule in which all wait.

Schedules are genomes: an array with the job on each slot, one row a schedule. What a job still needs
follows from how far it has come, as a distribution (equation 6). The largest batch that a job may have now
is R in the paper, section 3.3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.gangs.speed import SPEED_NUMBERS, rows_per_second, split_batch
from relaqs.gangs.view import Gangs
from relaqs.prediction.passes_left import FEATURES, FEWEST_POINTS, MOST_POINTS, PassesLeft

IDLE = -1


def counts(genomes: IntArray, jobs: int) -> IntArray:
    """Return the slots of each job in each schedule, shape (K, J). genomes: shape (K, G).

    >>> counts(np.array([[0, 0, 1, IDLE]]), jobs=2).tolist()
    [[2, 1]]
    """
    rows = np.arange(len(genomes))[:, None] * (jobs + 1)
    flat = np.bincount((genomes + 1 + rows).ravel(), minlength=len(genomes) * (jobs + 1))
    return flat.reshape(len(genomes), jobs + 1)[:, 1:]


def trimmed(genomes: IntArray, most: IntArray) -> IntArray:
    """Return schedules that lie in runs, without a job's slots beyond those it may have. most: shape (J,).

    >>> trimmed(np.array([[0, 0, 0, 1]]), np.array([2, 1])).tolist()
    [[0, 0, -1, 1]]
    """
    place = np.arange(genomes.shape[1])
    starts = np.maximum.accumulate(np.where(starts_run(genomes), place, 0), axis=1)
    return np.where((genomes >= 0) & (place - starts >= most[genomes]), IDLE, genomes)


def starts_run(genomes: IntArray) -> BoolArray:
    """Return which slots have another gene than the slot before them, shape (K, G)."""
    starts = np.ones(genomes.shape, dtype=np.bool_)
    starts[:, 1:] = genomes[:, 1:] != genomes[:, :-1]
    return starts


def of_places(slots_by_node: IntArray, node_slots: IntArray) -> IntArray:
    """Return the schedule in which jobs hold so many slots of each node, shape (G,). slots_by_node: (J, N).

    >>> of_places(np.array([[2, 0], [1, 1]]), np.array([4, 2])).tolist()
    [0, 0, 1, -1, 1, -1]
    """
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
    """Return the rows that jobs still process at such a progress between 0 and 1. Equation 7.

    >>> rows_left(np.array([10_000.0]), np.array([0.25])).tolist()
    [30000.0]
    """
    return np.asarray(rows_done * (1.0 / np.maximum(progress, 1e-9) - 1.0))


def seconds_left(rows: FloatArray, speed: FloatArray) -> FloatArray:
    """Return the time that jobs still need for so many rows at so many rows a second. Equation 5.

    >>> seconds_left(np.array([30_000.0]), np.array([500.0])).tolist()
    [60.0]
    """
    return np.asarray(rows / speed)


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
