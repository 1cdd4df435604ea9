"""Laws of the order: every row once a pass, whatever is taken, and shares that are subtrees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relaqs.training.elastic.course as order_module
from relaqs.training.elastic.course import (
    Order,
    hash_of,
    hashes,
    piece_rows_of,
    pieces_of_step,
    subtrees,
)
from relaqs.training.passes import in_pairs

PARTITIONS = st.lists(st.integers(0, 50), min_size=1, max_size=8).map(tuple)


@given(PARTITIONS, st.integers(1, 20), st.integers(0, 2**64 - 1), st.integers(0, 3))
def test_every_row_comes_once_a_pass(rows: tuple[int, ...], piece_rows: int, seed: int, index: int) -> None:
    order = Order(rows, piece_rows, seed)
    seen = []
    for piece in order.of_pass(index):
        partition, first, end = order.place(int(piece))
        assert 0 < end - first <= piece_rows
        seen += [(partition, int(row)) for row in order.rows_of(partition)[first:end]]
    assert sorted(seen) == [(i, row) for i, count in enumerate(rows) for row in range(count)]
    assert order.row_count_of(order.of_pass(index)) == order.row_count == sum(rows)


@given(PARTITIONS, st.integers(1, 20), st.integers(0, 100))
def test_sizes_of_pieces_are_those_of_their_places(rows: tuple[int, ...], piece_rows: int, seed: int) -> None:
    order = Order(rows, piece_rows, seed)
    for piece in range(order.piece_count):
        _, first, end = order.place(piece)
        assert order.row_count_of(np.array([piece])) == end - first


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    order = Order((1000,), 10, 0)
    orders = [order.of_pass(0), order.of_pass(1), Order((1000,), 10, 1).of_pass(0)]
    assert len({tuple(each) for each in orders}) == 3
    # In a random permutation of 100 each rank correlation is 0 ± 0.1 (one standard error).
    for each in orders:
        assert abs(np.corrcoef(each, np.arange(100))[0, 1]) < 0.4


def test_a_pass_reads_large_tables_some_whole_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "WINDOW_ROWS", 200)
    order = Order((100,) * 8, 10, seed=5)
    partitions = [order.place(int(piece))[0] for piece in order.of_pass(0)]
    windows = [set(partitions[first : first + 20]) for first in range(0, 80, 20)]
    assert [len(window) for window in windows] == [2, 2, 2, 2]
    assert partitions[:20] != sorted(partitions[:20])  # mixed within


@given(st.integers(1, 200), st.integers(0, 6))
def test_shares_of_ranks_are_subtrees(pieces: int, doublings: int) -> None:
    """Brackets say in which order values were added."""
    values = [str(i) for i in range(pieces)]
    shares = [values[share] for share in subtrees(pieces, 1 << doublings)]

    def added(one: str, other: str) -> str:
        return f"({one}{other})"

    assert [value for share in shares for value in share] == values
    together = in_pairs([in_pairs(share, added) for share in shares if share], added)
    assert together == in_pairs(values, added)


@given(st.integers(1, 10_000))
def test_first_steps_are_a_power_of_two_of_pieces(start_rows: int) -> None:
    rows = piece_rows_of(start_rows)
    pieces = pieces_of_step(start_rows, rows)
    assert rows <= 256
    assert pieces & (pieces - 1) == 0
    assert 0 <= pieces * rows - start_rows < pieces


def test_arrays_of_hashes_are_hashes() -> None:
    assert len(set(hashes(1000, 1, 2).tolist())) == 1000
    assert hashes(3, 1, 2).tolist() != hashes(3, 2, 1).tolist()
    assert 0 <= hash_of(0, 0) < 2**64


def test_draws_differ_by_step_and_piece() -> None:
    order = Order((100,), 10, seed=3)
    draws = {order.draw(step, piece) for step in range(50) for piece in range(10)}
    assert len(draws) == 500
    assert max(draws) < 2**63
