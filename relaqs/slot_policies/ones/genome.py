"""Schedules as genomes: an array with the job on each slot, one row a schedule.

Slots are numbered node by node. A gene is a job's position in the view, or IDLE. Equations 1, 2 and 4 of the
paper: a slot has one gene, so it never has two jobs, and the slots of a job are counted.
"""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray

IDLE = -1


def counts(genomes: IntArray, jobs: int) -> IntArray:
    """Return the slots of each job in each schedule, shape (K, J). genomes: shape (K, G).

    >>> counts(np.array([[0, 0, 1, IDLE]]), jobs=2).tolist()
    [[2, 1]]
    """
    rows = np.arange(len(genomes))[:, None] * (jobs + 1)
    flat = np.bincount((genomes + 1 + rows).ravel(), minlength=len(genomes) * (jobs + 1))
    return flat.reshape(len(genomes), jobs + 1)[:, 1:]


def trimmed(genomes: IntArray, most: IntArray) -> IntArray:
    """Return schedules that lie in runs, without a job's slots beyond those it may have. most: shape (J,).

    >>> trimmed(np.array([[0, 0, 0, 1]]), np.array([2, 1])).tolist()
    [[0, 0, -1, 1]]
    """
    place = np.arange(genomes.shape[1])
    starts = np.maximum.accumulate(np.where(starts_run(genomes), place, 0), axis=1)
    return np.where((genomes >= 0) & (place - starts >= most[genomes]), IDLE, genomes)


def starts_run(genomes: IntArray) -> BoolArray:
    """Return which slots have another gene than the slot before them, shape (K, G)."""
    starts = np.ones(genomes.shape, dtype=np.bool_)
    starts[:, 1:] = genomes[:, 1:] != genomes[:, :-1]
    return starts


def of_places(slots_by_node: IntArray, node_slots: IntArray) -> IntArray:
    """Return the schedule in which jobs hold so many slots of each node, shape (G,). slots_by_node: (J, N).

    >>> of_places(np.array([[2, 0], [1, 1]]), np.array([4, 2])).tolist()
    [0, 0, 1, -1, 1, -1]
    """
    genes = np.full(int(node_slots.sum()), IDLE)
    start = 0
    for node, slots in enumerate(node_slots.tolist()):
        held = np.repeat(np.arange(len(slots_by_node)), slots_by_node[:, node])
        genes[start : start + len(held)] = held
        start += slots
    return genes


def to_places(genes: IntArray, jobs: int, node_slots: IntArray) -> IntArray:
    """Return the slots of each job on each node, shape (J, N). It undoes `of_places`."""
    node = np.repeat(np.arange(len(node_slots)), node_slots)
    has = genes >= 0
    places = np.zeros((jobs, len(node_slots)), dtype=np.int64)
    np.add.at(places, (genes[has], node[has]), 1)
    return places
