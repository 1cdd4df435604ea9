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
        slots = np.arange(slots_most + 1)[None, None, :]
        nodes = np.array([1, 2])[None, :, None]
        possible = (slots >= nodes) & (slots <= gangs.slots_most[:, None, None])
        batch = _batches(gangs, slots_most)[:, :, None, :]  # (E, batches, 1, C + 1)
        start, noise = gangs.start_rows[:, None, None, None], gangs.noise_rows[:, None, None, None]
        split = split_batch(
            batch,
            slots,
            gangs.slot_rows_most[:, None, None, None],
            gangs.rows_most[:, None, None, None],
            fewest_pieces(batch, slots, start),
        )
        speed = gangs.speed[:, None, None, None, :]
        rate = rows_per_second(speed, slots[:, None], nodes[:, None], split.slot_rows, split.pieces)
        worth = np.where(np.isnan(noise), 1.0, efficiency(np.maximum(split.batch_rows, start), start, noise))
        useful = rate * worth
        best = np.argmax(np.where(np.isnan(useful), -1.0, useful), axis=1)[:, None]
        chosen = np.take_along_axis(useful, best, axis=1)[:, 0]
        rows = np.take_along_axis(np.broadcast_to(split.batch_rows, useful.shape), best, axis=1)[:, 0]
        return cls(np.where(possible, chosen, 0.0), np.where(possible, rows, 0.0))

    def batch_of(self, slots_by_node: IntArray) -> FloatArray:
        """Return the best batch of each job in a placement, shape (E,), 0 without slots."""
        slots, across = slots_by_node.sum(axis=1), ((slots_by_node > 0).sum(axis=1) > 1).astype(np.int64)
        return np.asarray(self.batch_rows[np.arange(len(slots)), across, slots])


def unmeasured_batch(gangs: Gangs, slots: IntArray) -> FloatArray:
    """Return the batch of jobs whose speed is unknown: the first one, or the least for their slots, (E,)."""
    return np.asarray(np.maximum(gangs.start_rows, gangs.slot_rows_least * np.maximum(slots, 1)))


def _batches(gangs: Gangs, slots_most: int) -> FloatArray:
    """Return the batches that are tried, evenly spread by ratio, shape (E, batches, C + 1)."""
    slots = np.arange(slots_most + 1)[None, :]
    least = np.maximum(gangs.start_rows[:, None], gangs.slot_rows_least[:, None] * np.maximum(slots, 1))
    most = np.maximum(gangs.rows_most[:, None], 1.0)
    most = np.where(np.isinf(most), least * 1024.0, most)
    ratio = np.maximum(most / least, 1.0)
    return np.asarray(
        least[:, None, :] * ratio[:, None, :] ** np.linspace(0.0, 1.0, BATCHES_TRIED)[None, :, None]
    )
