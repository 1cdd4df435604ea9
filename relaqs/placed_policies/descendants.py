"""Sums over the descendants of parts, discounted by distance: over all paths, or each descendant once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.parts import Parts

PATHS = ("all", "once")


def with_descendants(parts: Parts, own: FloatArray, discount: float, paths: str = "all") -> FloatArray:
    """Return what each part has with its descendants, shape (P,).

    Over all paths it is x = own + discount · the sum of x over the children. A descendant that is reached by
    several paths counts once for each, so that it grows exponentially with layers that are fully connected.
    Once: own + the sum of discount^d · own over the descendants, d being the least number of edges to each.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, equations 3 and 5, are the sum over all paths.

    Args:
        own: what each part has by itself, shape (P,).
        discount: for each edge, from 0 to below 1.
        paths: one of PATHS.
    """
    if paths == "once":
        return _each_once(parts, own, discount)
    total = own.copy()
    for parent, child in _edges_from_below(parts):
        total += discount * np.bincount(parent, weights=total[child], minlength=len(total))
    return total


def longest_path_below(parts: Parts) -> FloatArray:
    """Return the longest sum of alone_seconds over the parts below each part, itself left out; shape (P,)."""
    below = np.zeros(len(parts))
    for parent, child in _edges_from_below(parts):
        np.maximum.at(below, parent, below[child] + parts.alone_seconds[child])
    return below


def _edges_from_below(parts: Parts) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield parents and children, level by level of the parents, the deepest first."""
    parent_level = parts.level[parts.edges[:, 0]]
    small = np.min_scalar_type(-1 - int(parent_level.max(initial=0)))  # small integers are sorted faster
    order = np.argsort(-parent_level.astype(small), kind="stable")
    starts = np.flatnonzero(np.diff(parent_level[order], prepend=-1))
    for chosen in np.split(order, starts[1:]) if len(order) else ():
        yield parts.edges[chosen, 0], parts.edges[chosen, 1]


def _each_once(parts: Parts, own: FloatArray, discount: float) -> FloatArray:
    total = own.copy()
    edge_job = parts.job[parts.edges[:, 0]]
    for job in np.unique(edge_job):
        members = np.flatnonzero(parts.job == job)
        place = np.searchsorted(members, parts.edges[edge_job == job])
        distance = _distances(len(members), tuple(map(tuple, place.tolist())))
        total[members] = np.where(np.isfinite(distance), discount**distance, 0.0) @ own[members]
    return total


@lru_cache(maxsize=256)
def _distances(count: int, edges: tuple[tuple[int, int], ...]) -> FloatArray:
    """Return the least number of edges from each part of a job to each other, (n, n); infinity: no path."""
    distance = np.full((count, count), np.inf)
    np.fill_diagonal(distance, 0.0)
    for parent, child in edges:
        distance[parent, child] = 1.0
    for middle in range(count):
        distance = np.minimum(distance, distance[:, middle, None] + distance[middle])
    return distance
