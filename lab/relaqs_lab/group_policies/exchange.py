"""Swapping jobs between groups while both become better balanced."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray


def exchanged(lean: FloatArray, group: IntArray, count: int, most: int = 200) -> IntArray:
    """Return the group of each job after swaps, shape (n,).

    The imbalance of a group is |Σ lean| over its jobs. The most imbalanced group and the one that leans most
    to the other side swap the pair of jobs after which the sum of both imbalances is least. This goes on
    while the sum falls, so it ends; and it makes `most` swaps at most.

    Args:
        lean: T_cpu − T_net of each job on equal machines, shape (n,).
        group: the group of each job, shape (n,).
        count: of groups.
        most: the swaps.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B3.

    >>> exchanged(np.array([3.0, 2.0, -2.0, -3.0]), np.array([0, 0, 1, 1]), count=2).tolist()
    [1, 0, 0, 1]
    """
    group = group.copy()
    sums = np.bincount(group, lean, count)
    for _ in range(most):
        worst = int(np.argmax(np.abs(sums)))
        other = int(np.argmin(sums * np.sign(sums[worst])))
        if other == worst:
            break
        mine, theirs = np.flatnonzero(group == worst), np.flatnonzero(group == other)
        moved = lean[mine][:, None] - lean[theirs][None, :]
        left = np.abs(sums[worst] - moved) + np.abs(sums[other] + moved)
        best = int(np.argmin(left))
        present = abs(sums[worst]) + abs(sums[other])
        if left.flat[best] >= present * (1 - 1e-9):
            break
        row, column = divmod(best, len(theirs))
        group[mine[row]], group[theirs[column]] = other, worst
        sums[worst] -= moved[row, column]
        sums[other] += moved[row, column]
    return group
