"""Delete-a-block jackknife for blocks of unequal size. It takes any estimate and any sampling unit."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import FloatArray, IntArray, beyond_rounding
from relaqs_bootstrap.blocks import TYPICAL_KURTOSIS, block_shares, block_weights
from relaqs_bootstrap.variance import Variance, check_fraction, variance_of_terms


def jackknife_variance(
    estimate: FloatArray,
    replicates: FloatArray,
    block_rows: IntArray,
    rows_matched: IntArray,
    fraction: float,
    kurtosis: float = TYPICAL_KURTOSIS,
) -> Variance:
    """Return the delete-a-block jackknife variance of each cell.

    Args:
        estimate: θ, shape (G, C).
        replicates: θ₍₋ⱼ₎, the same estimate without block j, shape (R, G, C), scaled by its own rows (see
            `leave_one_out`).
        block_rows: the rows scanned in each block, shape (R,). Empty blocks are ignored.
        rows_matched: the scanned rows in each group, shape (G,).
        fraction: f, the scanned share of the table, in (0, 1].
        kurtosis: of what a row adds, which sets the weights of the blocks (see `block_weights`).

    Let h = n / n_j. One block gives the pseudo-value h·θ − (h−1)·θ₍₋ⱼ₎. Its squared distance from the
    weighted mean of the pseudo-values, divided by h−1, estimates the variance without bias. `block_weights`
    averages these terms. For R equal blocks the result is (1−f)·(R−1)/R·Σ(θ₍₋ⱼ₎ − θ̄)². A replicate that is
    NaN or infinite makes its cell's variance NaN.

    Source: Busing, Meijer, van der Leeden 1999, Delete-m jackknife for unequal m.

    Three equal blocks sum to 10, 12 and 14 in half of a table, so the total is estimated as 72, and without
    each block as 78, 72 and 66. The variance is 1/2 · 2/3 · (6² + 0 + 6²):

    >>> replicates = np.array([78.0, 72.0, 66.0])[:, None, None]
    >>> rows = np.array([10, 10, 10])
    >>> found = jackknife_variance(np.array([[72.0]]), replicates, rows, np.array([30]), fraction=0.5)
    >>> round(found.variance.item(), 9), round(found.degrees_of_freedom.item(), 9)
    (24.0, 2.0)
    """
    check_fraction(fraction)
    _check_shapes(estimate, replicates, block_rows, rows_matched)
    occupied = block_rows > 0
    rows = block_rows[occupied]
    shares = block_shares(rows)[:, None, None]
    with np.errstate(invalid="ignore", over="ignore"):
        influence = beyond_rounding(estimate - replicates[occupied], np.abs(estimate))
        deviation = influence * ((1.0 - shares) / shares) - ((1.0 - shares) * influence).sum(axis=0)
        terms = deviation**2 * (shares / (1.0 - shares))
        return _combine(terms, block_weights(rows_matched, rows, kurtosis), fraction)


def _combine(terms: FloatArray, weights: FloatArray, fraction: float) -> Variance:
    """Return the variance from terms of shape (R, G, C) and weights of shape (G, R)."""
    weighted = terms * weights.T[:, :, None]
    finite = np.isfinite(weighted).all(axis=0)
    mean_term = np.where(finite, weighted.sum(axis=0), np.nan)
    effective_weights = 1.0 / (weights**2).sum(axis=1, keepdims=True)
    return variance_of_terms(mean_term, (weighted**2).sum(axis=0), effective_weights, fraction)


def _check_shapes(
    estimate: FloatArray, replicates: FloatArray, block_rows: IntArray, rows_matched: IntArray
) -> None:
    expected = (len(block_rows), *estimate.shape)
    if replicates.shape != expected or rows_matched.shape != estimate.shape[:1]:
        raise ValueError(
            f"estimate {estimate.shape}, replicates {replicates.shape}, block_rows {block_rows.shape} and "
            f"rows_matched {rows_matched.shape} do not fit: they must be (G, C), (R, G, C), (R,) and (G,)"
        )
