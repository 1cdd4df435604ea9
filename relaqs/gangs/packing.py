"""Putting numbers of slots onto machines, so that what is held stays and a gang is on few machines."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray

from relaqs.gangs.nodes import Nodes


def packed(
    counts: IntArray, held: IntArray, nodes: Nodes, order: IntArray, *, tight: bool = True
) -> IntArray:
    """Return the slots of each job on each node, shape (E, N), for so many slots of each job.

    A job whose number of slots is as before keeps its places. Every other is placed anew, in the given order.
    It takes a node that can hold the rest of it, and else the node with most free slots, until it has all.

    Args:
        counts: the slots of each job, shape (E,); together at most what the living nodes have.
        held: the slots that each job holds now on each node, shape (E, N).
        nodes: the machines. What is held on one that is not alive is lost.
        order: the jobs' positions in the order in which they are placed.
        tight: of the nodes that can hold the rest of a job, take the fullest. This keeps whole nodes free
            for large jobs. If False, take the emptiest.

    >>> nodes = Nodes.equal(2, slots=4)
    >>> held = np.array([[3, 0], [0, 0], [0, 0]])
    >>> packed(np.array([3, 1, 4]), held, nodes, np.array([0, 1, 2])).tolist()
    [[3, 0], [1, 0], [0, 4]]
    >>> packed(np.array([3, 1, 4]), held, nodes, np.array([0, 1, 2]), tight=False).tolist()
    [[3, 0], [0, 1], [1, 3]]
    """
    usable = nodes.usable_slots
    assert counts.sum() <= usable.sum(), (counts, usable)
    stay = stays(counts, held, nodes)
    placed = np.where(stay[:, None], held, 0)
    free = usable - placed.sum(axis=0)
    for job in order[~stay[order]]:
        placed[job] = put(int(counts[job]), free, tight=tight)
        free -= placed[job]
    return placed


def stays(counts: IntArray, held: IntArray, nodes: Nodes) -> BoolArray:
    """Return which jobs keep their places, shape (E,): they have as many slots as before, on living nodes."""
    return np.asarray((held.sum(axis=1) == counts) & ~((held > 0) & ~nodes.alive).any(axis=1))


def put(count: int, free: IntArray, *, tight: bool = True) -> IntArray:
    """Return the slots of one job by node, shape (N,), on the free slots of the nodes, shape (N,)."""
    left, placed = count, np.zeros_like(free)
    while left:
        node = _node_for(left, free - placed, tight=tight)
        placed[node] += (taken := min(left, int(free[node] - placed[node])))
        left -= taken
    return placed


def _node_for(slots: int, free: IntArray, *, tight: bool) -> int:
    if tight and (fits := free >= slots).any():
        return int(np.argmin(np.where(fits, free, np.iinfo(np.int64).max)))
    return int(np.argmax(free))
