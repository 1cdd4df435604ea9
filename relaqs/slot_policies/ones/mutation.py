"""Uniform mutation: some jobs lose all their slots, which are then filled like any idle ones."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray

from relaqs.slot_policies.ones.genome import IDLE


def preempted(genomes: IntArray, loses: BoolArray) -> IntArray:
    """Return schedules without the slots of the jobs that lose them. loses: shape (K, J).

    >>> preempted(np.array([[0, 1, 1]]), np.array([[False, True]])).tolist()
    [[0, -1, -1]]
    """
    padded = np.concatenate([loses, np.zeros((len(loses), 1), dtype=np.bool_)], axis=1)  # for idle slots
    return np.where(np.take_along_axis(padded, genomes, axis=1), IDLE, genomes)
