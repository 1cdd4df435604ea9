"""Selection: the schedules with the least utilisation in one draw live on, each once."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_bootstrap.split_mix import STEP, mixed


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
