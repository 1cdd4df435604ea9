"""Putting numbers of slots onto machines.

`packed` lets what is held stay, and a gang be on few machines. `whole_nodes` puts no job on more machines
than it needs.
"""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray

from relaqs.gangs.view import Nodes


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


def packed_on_whole_nodes(counts: IntArray, held: IntArray, nodes: Nodes) -> IntArray:
    """Return the slots of each job on each node, shape (E, N), for so many slots of each job.

    As `packed`, the largest first: a job whose number of slots is as before keeps its places. But where a job
    would be on more nodes than it needs, smaller jobs that kept their places move. It is the fewest slots
    that must move, by node, and the smallest jobs of the node. Where the nodes are alike and have a power of
    two of slots, and jobs have powers of two or whole nodes, no job is ever on more nodes than it needs.

    Args:
        counts: the slots of each job, shape (E,); together at most what the living nodes have.
        held: the slots that each job holds now on each node, shape (E, N).
        nodes: the machines. What is held on one that is not alive is lost.

    Source: Jayaram Subramanya et al., Sia, SOSP 2023: how a placement follows from the configurations.

    >>> nodes, held = Nodes.equal(2, slots=4), np.array([[2, 0], [0, 1], [0, 0]])
    >>> packed_on_whole_nodes(np.array([2, 1, 4]), held, nodes).tolist()
    [[2, 0], [1, 0], [0, 4]]
    """
    assert counts.sum() <= nodes.usable_slots.sum(), (counts, nodes.usable_slots)
    stay = stays(counts, held, nodes)
    placed = np.where(stay[:, None], held, 0)
    free = nodes.usable_slots - placed.sum(axis=0)
    reach = np.cumsum(np.sort(nodes.usable_slots)[::-1])
    for size in np.unique(counts[counts > 0])[::-1].tolist():
        needed = int(np.searchsorted(reach, size)) + 1
        for job in np.flatnonzero((counts == size) & ~placed.any(axis=1)).tolist():
            if np.sort(free)[::-1][:needed].sum() < size:
                moved = _in_the_way(size, needed, counts, placed, free)
                free += placed[moved].sum(axis=0)
                placed[moved] = 0
            placed[job] = put(size, free)
            free -= placed[job]
    return placed


def _in_the_way(size: int, needed: int, counts: IntArray, placed: IntArray, free: IntArray) -> BoolArray:
    """Return which smaller jobs move so that some `needed` nodes have `size` free slots; none if none can."""
    smaller = (counts < size) & placed.any(axis=1)
    movable = placed[smaller].sum(axis=0)
    room = free + movable
    order = np.lexsort([movable, -room]) if needed > 1 else np.lexsort([movable, room < size])
    chosen, moved = order[:needed], np.zeros(len(counts), dtype=np.bool_)
    if room[chosen].sum() < size:
        return moved
    free = free.copy()
    there = np.flatnonzero(smaller & placed[:, chosen].any(axis=1))
    for job in there[np.argsort(counts[there], kind="stable")].tolist():
        if free[chosen].sum() >= size:
            break
        moved[job] = True
        free += placed[job]
    return moved
