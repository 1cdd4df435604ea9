"""The sparse first-order form says what the dense jackknife says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from relaqs_bootstrap import Variance, jackknife_variance, leave_one_out, linearised_variance

Array = NDArray[np.float64]
POPULATION = 1_000_000


def sparse_blocks(seed: int, blocks: int, groups: int, mean_rows: float) -> tuple[Array, NDArray[np.int64]]:
    """Return sums (R, G, 2) of ones and values, most of them zero, and the blocks' rows."""
    rng = np.random.default_rng(seed)
    rows = rng.choice([50, 60, 3000], blocks)
    counts = rng.poisson(mean_rows * rows[:, None] / rows.sum(), (blocks, groups))
    counts[rng.integers(blocks, size=groups), np.arange(groups)] += 1
    return np.stack([counts, counts * rng.lognormal(0.0, 0.5, counts.shape)], axis=-1), rows


def gradient_of(sums: Array, scale: float) -> Array:
    """Return the derivative of COUNT, SUM and AVG by the sums of ones and values, shape (G, 3, 2)."""
    ones, values = sums[:, 0], sums[:, 1]
    zero, scales = np.zeros_like(ones), np.full_like(ones, scale)
    average = np.stack([-values / ones**2, 1.0 / ones], axis=-1)
    return np.stack([np.stack([scales, zero], -1), np.stack([zero, scales], -1), average], axis=1)


def linearised(block_sums: Array, rows: NDArray[np.int64], fraction: float) -> Variance:
    block, group = np.nonzero(block_sums[..., 0])
    sums = block_sums.sum(axis=0)
    return linearised_variance(
        gradient_of(sums, POPULATION / rows.sum()),
        group,
        block,
        block_sums[block, group],
        rows,
        sums[:, 0].astype(np.int64),
        fraction,
    )


def jackknife(block_sums: Array, rows: NDArray[np.int64], fraction: float) -> Variance:
    left, left_rows = leave_one_out(block_sums, rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        replicates = np.stack(
            [
                *np.moveaxis(left * (POPULATION / left_rows)[:, None, None], -1, 0),
                left[..., 1] / left[..., 0],
            ],
            axis=-1,
        )
    sums = block_sums.sum(axis=0)
    estimate = np.column_stack([sums * POPULATION / rows.sum(), sums[:, 1] / sums[:, 0]])
    return jackknife_variance(estimate, replicates, rows, sums[:, 0].astype(np.int64), fraction)


@settings(max_examples=60, deadline=None)
@example(seed=18, blocks=2, groups=18, mean_rows=100.0, fraction=1.0)  # equal counts of two equal blocks
@given(
    seed=st.integers(0, 2**32),
    blocks=st.integers(2, 90),
    groups=st.integers(1, 20),
    mean_rows=st.sampled_from([0.5, 5.0, 100.0, 5000.0]),
    fraction=st.floats(0.01, 1.0),
)
def test_totals_agree_exactly(seed: int, blocks: int, groups: int, mean_rows: float, fraction: float) -> None:
    block_sums, rows = sparse_blocks(seed, blocks, groups, mean_rows)
    sparse, dense = linearised(block_sums, rows, fraction), jackknife(block_sums, rows, fraction)
    np.testing.assert_allclose(sparse.variance[:, :2], dense.variance[:, :2], rtol=1e-7)
    np.testing.assert_allclose(sparse.degrees_of_freedom[:, :2], dense.degrees_of_freedom[:, :2], rtol=1e-6)


def test_ratios_agree_to_first_order() -> None:
    """What is neglected is of second order: it goes away as groups grow."""
    gaps = []
    for mean_rows in (1_000.0, 100_000.0):
        block_sums, rows = sparse_blocks(3, 64, 50, mean_rows)
        sparse, dense = linearised(block_sums, rows, 0.1), jackknife(block_sums, rows, 0.1)
        gaps.append(np.median(np.abs(sparse.variance[:, 2] / dense.variance[:, 2] - 1.0)))
    assert gaps[0] < 0.02
    assert gaps[1] < 0.2 * gaps[0]


def test_the_order_of_the_pairs_does_not_matter() -> None:
    block_sums, rows = sparse_blocks(9, 30, 12, 20.0)
    block, group = np.nonzero(block_sums[..., 0])
    order = np.random.default_rng(0).permutation(len(block))
    sums = block_sums.sum(axis=0)
    gradient, matched = gradient_of(sums, 10.0), sums[:, 0].astype(np.int64)
    shuffled = linearised_variance(
        gradient, group[order], block[order], block_sums[block, group][order], rows, matched, 0.2
    )
    ordered = linearised_variance(gradient, group, block, block_sums[block, group], rows, matched, 0.2)
    np.testing.assert_allclose(shuffled.variance, ordered.variance, rtol=1e-10)


def test_nothing_is_uncertain_once_everything_is_scanned() -> None:
    block_sums, rows = sparse_blocks(1, 30, 12, 20.0)
    assert (linearised(block_sums, rows, 1.0).variance == 0.0).all()


def test_equal_values_do_not_vary_despite_rounding() -> None:
    block_sums, rows = sparse_blocks(5, 40, 9, 300.0)
    block_sums[..., 1] = 0.1 * block_sums[..., 0]
    assert (linearised(block_sums, rows, 0.1).variance[:, 2] == 0.0).all()


def test_sums_of_a_block_without_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="holds no rows"):
        linearised_variance(
            np.ones((1, 1, 1)),
            np.array([0]),
            np.array([2]),
            np.ones((1, 1)),
            np.array([5, 5, 0]),
            np.array([1]),
            0.5,
        )


def test_a_sum_that_is_no_number_leaves_estimates_of_others_alone() -> None:
    block_sums, rows = sparse_blocks(5, 40, 9, 300.0)
    clean = linearised(block_sums, rows, 0.1).variance
    block_sums[:, 4, 1] = np.nan
    block_sums[:, 7, 1] = np.inf
    spoilt = linearised(block_sums, rows, 0.1).variance
    np.testing.assert_array_equal(spoilt[:, 0], clean[:, 0])
    assert not np.isfinite(spoilt[[4, 7], 1:]).any()
