"""Reorder: the slots of a job are put side by side, jobs in the order in which they first occur."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.slot_policies.ones.genome import IDLE, counts


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
