"""What a schedule costs by the paper: slot-seconds until its running jobs end, equations 2 to 8.

Equation 3 sums T·c over the jobs that run, where T is the time that a job still needs and c its slots. Jobs
that wait count nothing, so the least sum is that of the schedule in which all wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.batches import split_batch
from relaqs.gangs.gangs import Gangs
from relaqs.gangs.speed import SPEED_NUMBERS, rows_per_second
from relaqs.slot_policies.ones.genome import starts_run

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
