"""What slots are worth to jobs that choose their own batch: useful rows a second, by slots and by nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.batches import efficiency, fewest_pieces, split_batch
from relaqs.gangs.gangs import Gangs
from relaqs.gangs.speed import rows_per_second

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
    """Return the most useful rows a second that jobs make on so many slots, and the batch with which they do.

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
