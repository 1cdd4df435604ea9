"""Putting numbers of slots onto machines so that no job is on more of them than it needs."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray

from relaqs.gangs.nodes import Nodes
from relaqs.gangs.packing import put, stays


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
