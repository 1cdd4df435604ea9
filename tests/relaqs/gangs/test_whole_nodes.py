"""Placing so that no job is on more nodes than it needs, and who moves for that."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_bootstrap.arrays import IntArray

from relaqs.sharing.gangs import Nodes, packed, packed_on_whole_nodes

SLOTS = 8
SIZES = [1, 2, 4, 8, 16, 24]


@st.composite
def counts_that_fit(draw: st.DrawFn, before: IntArray, nodes: int) -> IntArray:
    """Any numbers of slots, of which about half are as before."""
    counts, left = np.zeros_like(before), nodes * SLOTS
    for job in draw(st.permutations(range(len(before)))):
        same = [int(before[job])] * len(SIZES)
        counts[job] = draw(st.sampled_from([0, *(each for each in [*same, *SIZES] if each <= left)]))
        left -= int(counts[job])
    return counts


def nodes_needed(counts: IntArray) -> IntArray:
    return -(-counts // SLOTS)


@given(st.data(), st.integers(1, 5), st.integers(1, 16))
@settings(max_examples=150, deadline=None)
def test_no_job_is_on_more_nodes_than_it_needs(data: st.DataObject, nodes: int, jobs: int) -> None:
    """Jobs come, change and go in three plans, one after another."""
    machines, held = Nodes.equal(nodes, SLOTS), np.zeros((jobs, nodes), dtype=np.int64)
    for _ in range(3):
        counts = data.draw(counts_that_fit(held.sum(axis=1), nodes))
        placed = packed_on_whole_nodes(counts, held, machines)
        assert placed.sum(axis=1).tolist() == counts.tolist()
        assert (placed.sum(axis=0) <= SLOTS).all()
        assert ((placed > 0).sum(axis=1) == nodes_needed(counts)).all()
        as_held = packed(counts, held, machines, np.argsort(-counts, kind="stable"))
        if ((as_held > 0).sum(axis=1) == nodes_needed(counts)).all():
            assert placed.tolist() == as_held.tolist()
        held = placed


def test_the_fewest_slots_move_and_the_smallest_jobs() -> None:
    held = np.array([[1, 0], [2, 0], [0, 1], [0, 0]])
    placed = packed_on_whole_nodes(np.array([1, 2, 1, 4]), held, Nodes.equal(2, slots=4))
    assert placed.tolist() == [[1, 0], [2, 0], [1, 0], [0, 4]]
    held = np.array([[1, 0], [2, 0], [0, 3], [0, 0]])
    placed = packed_on_whole_nodes(np.array([1, 2, 3, 2]), held, Nodes.equal(2, slots=4))
    assert placed.tolist() == [[0, 1], [2, 0], [0, 3], [2, 0]]


def test_whole_nodes_are_made_free_where_least_must_move() -> None:
    held = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 4, 0], [0, 0, 0, 0]])
    placed = packed_on_whole_nodes(np.array([1, 1, 4, 8]), held, Nodes.equal(4, slots=4))
    assert placed.tolist() == [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 4, 0], [4, 0, 0, 4]]


def test_what_fits_nowhere_in_one_piece_is_spread() -> None:
    placed = packed_on_whole_nodes(np.array([2, 2, 2]), np.zeros((3, 2), dtype=np.int64), Nodes.equal(2, 3))
    assert placed.tolist() == [[2, 0], [0, 2], [1, 1]]


def test_slots_of_a_node_that_is_down_are_lost() -> None:
    nodes = Nodes(("a", "b"), np.array([4, 4]), np.array([False, True]))
    placed = packed_on_whole_nodes(np.array([2, 2]), np.array([[2, 0], [0, 2]]), nodes)
    assert placed.tolist() == [[0, 2], [0, 2]]
