"""Numbers of slots that leave nodes whole, and the best choice of one for each job."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.nodes import Nodes


def configurations(nodes: Nodes) -> IntArray:
    """Return the numbers of slots that a job may have, rising: powers of two within a node, then whole nodes.

    Where nodes differ, whole nodes are the largest ones. Jobs with such numbers fit side by side without
    leaving pieces that no job can use, if the nodes are alike and have a power of two of slots.

    Source: Jayaram Subramanya et al., Sia, SOSP 2023: the valid configurations of one kind of GPU.

    >>> configurations(Nodes.equal(3, slots=8)).tolist()
    [1, 2, 4, 8, 16, 24]
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
    """Return the slots of each job. taken: by job, of so many slots for it and those before, (J, C + 1)."""
    chosen = np.zeros(len(taken), dtype=np.int64)
    for own in range(len(taken) - 1, -1, -1):
        chosen[own] = taken[own, total]
        total -= int(chosen[own])
    return chosen
