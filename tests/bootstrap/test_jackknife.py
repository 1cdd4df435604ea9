"""The delete-a-block jackknife: its laws, and that it is unbiased when blocks differ a hundredfold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from relaqs_bootstrap import Variance, jackknife_variance, leave_one_out

Array = NDArray[np.float64]


def totals_and_means(sums: Array, rows: NDArray[np.int64], population: int) -> Array:
    """Return COUNT, SUM and AVG from sums (..., G, 2) of ones and values over these rows (...)."""
    scale = population / np.asarray(rows, dtype=np.float64)[..., None]
    return np.stack([sums[..., 0] * scale, sums[..., 1] * scale, sums[..., 1] / sums[..., 0]], axis=-1)


def jackknife(block_sums: Array, block_rows: NDArray[np.int64], fraction: float) -> Variance:
    population = round(block_rows.sum() / fraction)
    sums, rows = leave_one_out(block_sums, block_rows)
    return jackknife_variance(
        totals_and_means(block_sums.sum(axis=0), block_rows.sum(), population),
        totals_and_means(sums, rows, population),
        block_rows,
        block_sums[..., 0].sum(axis=0).astype(np.int64),
        fraction,
    )


def random_blocks(seed: int, blocks: int, equal: bool) -> tuple[Array, NDArray[np.int64]]:
    """Return sums of ones and values of shape (blocks, 3, 2), every block meeting every group, and rows."""
    rng = np.random.default_rng(seed)
    rows = np.full(blocks, 60) if equal else rng.integers(20, 900, blocks)
    counts = rng.binomial(rows[:, None], [0.2, 0.5, 0.9]) + 1
    return np.stack([counts, counts * rng.lognormal(0.0, 0.3, counts.shape)], axis=-1), rows + 3


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), blocks=st.integers(2, 70), fraction=st.floats(0.01, 0.99))
def test_equal_blocks_give_the_textbook_jackknife(seed: int, blocks: int, fraction: float) -> None:
    block_sums, rows = random_blocks(seed, blocks, equal=True)
    left, left_rows = leave_one_out(block_sums, rows)
    replicates = totals_and_means(left, left_rows, round(rows.sum() / fraction))
    textbook = (
        (1 - fraction) * (blocks - 1) / blocks * ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0)
    )
    np.testing.assert_allclose(jackknife(block_sums, rows, fraction).variance, textbook, rtol=1e-6)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), blocks=st.integers(2, 70))
def test_the_order_of_blocks_does_not_matter(seed: int, blocks: int) -> None:
    block_sums, rows = random_blocks(seed, blocks, equal=False)
    order = np.random.default_rng(seed).permutation(blocks)
    first, second = jackknife(block_sums, rows, 0.3), jackknife(block_sums[order], rows[order], 0.3)
    np.testing.assert_allclose(second.variance, first.variance, rtol=1e-9)
    np.testing.assert_allclose(second.degrees_of_freedom, first.degrees_of_freedom, rtol=1e-6)


def test_empty_blocks_change_nothing() -> None:
    block_sums, rows = random_blocks(4, 12, equal=False)
    padded = np.concatenate([block_sums, np.zeros((3, 3, 2))])
    with_empty = jackknife(padded, np.append(rows, [0, 0, 0]), 0.2)
    np.testing.assert_allclose(with_empty.variance, jackknife(block_sums, rows, 0.2).variance, rtol=1e-12)


def test_nothing_is_uncertain_once_everything_is_scanned() -> None:
    block_sums, rows = random_blocks(1, 20, equal=False)
    assert (jackknife(block_sums, rows, 1.0).variance == 0.0).all()


def test_equal_values_do_not_vary_despite_rounding() -> None:
    block_sums, rows = random_blocks(2, 30, equal=False)
    block_sums[..., 1] = block_sums[..., 0] * 0.1
    assert (jackknife(block_sums, rows, 0.1).variance[:, 2] == 0.0).all()


def test_a_replicate_without_rows_makes_the_cell_unknown_and_spares_the_others() -> None:
    block_sums, rows = random_blocks(3, 10, equal=False)
    block_sums[1:, 0] = 0.0
    with np.errstate(invalid="ignore"):
        variance = jackknife(block_sums, rows, 0.1)
    assert np.isnan(variance.variance[0, 2])
    assert np.isfinite(variance.variance[0, :2]).all()
    assert np.isfinite(variance.variance[1:]).all()


def test_degrees_of_freedom_follow_the_blocks_that_say_something() -> None:
    block_sums, rows = random_blocks(5, 40, equal=True)
    freedom = jackknife(block_sums, rows, 0.1).degrees_of_freedom
    assert ((freedom > 15.0) & (freedom < 39.001)).all()
    block_sums[7, :, 1] *= 50.0
    outlier = jackknife(block_sums, rows, 0.1)
    assert (outlier.degrees_of_freedom[:, 1] < 3.0).all()


def test_it_is_unbiased_for_blocks_that_differ_a_hundredfold() -> None:
    rng = np.random.default_rng(11)
    rows = np.array([20] * 64 + [2000] * 6)
    replications, mean, deviation, fraction = 4000, 3.0, 2.0, 0.25
    sums = rng.normal(mean * rows[:, None], deviation * np.sqrt(rows)[:, None], (len(rows), replications))
    ones = np.repeat(rows[:, None].astype(np.float64), replications, axis=1)
    variance = jackknife(np.stack([ones, sums], axis=-1), rows, fraction).variance
    # The true variance of AVG is (1−f)σ²/n. One variance has a relative error of √(2/69) ≈ 0.17, the mean of
    # 4000 has 0.0027: the band is four of these.
    truth = (1 - fraction) * deviation**2 / rows.sum()
    assert variance[:, 2].mean() == pytest.approx(truth, rel=0.011)
    assert (variance[:, 0] == 0.0).all()


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"replicates \(3, 2, 1\)"):
        jackknife_variance(np.ones((1, 2)), np.ones((3, 2, 1)), np.ones(3, int), np.ones(1, int), 0.5)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, float("nan")])
def test_an_impossible_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction is"):
        jackknife_variance(np.ones((1, 1)), np.ones((3, 1, 1)), np.ones(3, int), np.ones(1, int), fraction)
