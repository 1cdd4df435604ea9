"""Which rows lie on disk: those whose reading costs least, as many as memory lacks."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet


def spilled_shares(jobs: Subtasks, group: IntArray, machines: IntArray, fleet: Fleet) -> FloatArray:
    """Return α of each job, shape (n,): the share of its rows on disk, so that each group fits into memory.

    A byte on disk is read and decoded once an iteration, and the jobs of a group make equally many. So it
    costs 1/disk + decode seconds, and a fractional knapsack, cheapest byte first, has the least cost exactly.
    Of equal costs the job with the most rows goes first, so that few jobs read from the disk. Where a group
    does not fit even without rows, all its α are 1.

    Args:
        jobs: n jobs.
        group: the group of each, shape (n,).
        machines: of each group, shape (G,).
        fleet: the machines' memory and disks.

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
    >>> slow = SubtaskTimes("slow", input_bytes=4e9, decode_seconds_per_byte=1e-9)
    >>> jobs = Subtasks.of([slow, SubtaskTimes("fast", input_bytes=4e9)])
    >>> spilled_shares(jobs, np.array([0, 0]), np.array([2]), Fleet(2, memory_bytes=3e9)).tolist()
    [0.0, 0.5]
    """
    lacking = np.bincount(group, jobs.input_bytes + jobs.model_bytes, len(machines))
    lacking = lacking - machines * fleet.memory_bytes
    shares = np.zeros(len(jobs))
    if (lacking <= 0).all():
        return shares
    order = np.lexsort((-jobs.input_bytes, jobs.decode_seconds_per_byte, group))
    own, sizes = group[order], jobs.input_bytes[order]
    before = np.cumsum(sizes) - sizes
    first = np.flatnonzero(np.r_[True, own[1:] != own[:-1]])
    before -= np.repeat(before[first], np.diff(np.r_[first, len(own)]))
    taken = np.clip(lacking[own] - before, 0.0, sizes)
    shares[order] = np.divide(taken, sizes, out=np.zeros(len(jobs)), where=sizes > 0)
    return shares


def least_machines(jobs: Subtasks, group: IntArray, count: int, fleet: Fleet, *, spills: bool) -> IntArray:
    """Return how many machines each of `count` groups needs for its memory, shape (count,), at least 1.

    spills: all rows may lie on disk; if not, all are kept in memory.
    """
    kept = jobs.model_bytes if spills else jobs.model_bytes + jobs.input_bytes
    needed = np.bincount(group, kept, count) / fleet.memory_bytes
    return np.asarray(np.maximum(np.ceil(needed * (1 - 1e-12)), 1), dtype=np.int64)
