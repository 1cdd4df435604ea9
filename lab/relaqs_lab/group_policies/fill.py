"""Which jobs are together at first: those with similar iterations, and in each group a balance."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray


def filled(comp: FloatArray, comm: FloatArray, count: int, band: int = 8) -> IntArray:
    """Return the group of each job, shape (n,): `count` groups whose numbers of jobs differ by two at most.

    Jobs are sorted by their iteration, the longest first, so that long ones are together and none of a group
    waits for one. Groups are filled in bands of at most `band`. The jobs of a band are dealt to its groups to
    and fro, in the order of T_cpu − T_net, so that each group has some that compute and some that send.

    Args:
        comp, comm: T_cpu and T_net of each of n jobs, on equal machines. Ties go by position.
        count: of groups; at most n.
        band: how many groups are filled together.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B3; how the greedy filling balances is our reading.

    >>> filled(np.array([9.0, 1.0, 8.0, 2.0]), np.array([1.0, 9.0, 2.0, 8.0]), count=2).tolist()
    [0, 0, 1, 1]
    """
    total = len(comp)
    assert 1 <= count <= total, (count, total)
    longest_first = np.argsort(-(comp + comm), kind="stable")
    bands = -(-count // band)
    first_group = np.arange(bands + 1) * count // bands
    first_job = first_group * total // count
    in_band = np.repeat(np.arange(bands), np.diff(first_job))
    order = longest_first[np.lexsort(((comm - comp)[longest_first], in_band))]
    width = np.diff(first_group)[in_band]
    place = np.arange(total) - first_job[in_band]
    row, column = place // width, place % width
    column = np.where(row % 2 == 1, width - 1 - column, column)
    group = np.empty(total, dtype=np.int64)
    group[order] = first_group[in_band] + column
    return group
