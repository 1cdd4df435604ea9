"""Leaving blocks out and weighing them."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap import block_weights, leave_one_out


def test_leaving_a_block_out_leaves_the_sums_and_rows_of_the_others() -> None:
    sums = np.arange(12.0).reshape(3, 2, 2)
    rows = np.array([5, 7, 11])
    left_sums, left_rows = leave_one_out(sums, rows)
    np.testing.assert_array_equal(left_sums[1], sums[0] + sums[2])
    np.testing.assert_array_equal(left_rows, [18, 16, 12])


def test_blocks_of_equal_size_weigh_the_same() -> None:
    np.testing.assert_allclose(block_weights(np.array([3, 5000]), np.full(8, 40)), 1 / 8)


def test_small_blocks_count_in_dense_groups_and_hardly_in_sparse_ones() -> None:
    rows = np.array([10] * 64 + [1000] * 8)
    sparse, dense = block_weights(np.array([10, 10_000_000]), rows)
    np.testing.assert_allclose(dense, 1 / 72, rtol=1e-2)
    assert sparse[0] < 0.02 * sparse[-1]
    assert sparse.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rows", [[0, 0, 9], [4], [0, 0]])
def test_a_single_block_says_nothing(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="at least two blocks"):
        block_weights(np.array([4]), np.array(rows))
