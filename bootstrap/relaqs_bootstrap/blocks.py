"""Blocks: disjoint random sets of sampling units, of unequal size; how they are left out and weighed."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import FloatArray, IntArray

TYPICAL_KURTOSIS = 4.0
"""E y⁴ / (E y²)² of one row's contribution, which sets the weights: 1 for counts, 1.8 uniform, 6 exponential.

Any value gives an unbiased variance; 4 measured best over counts, skewed sums and rare shares."""


def scale_factor(rows: int, population_rows: int) -> float:
    """Return what a total over the scanned rows is multiplied by to estimate it over the whole table.

    Scaling by rows, not by sampling units, makes a total a ratio estimator: unequal clusters cost nothing.
    Raises ValueError unless 0 < rows <= population_rows.
    """
    if not 0 < rows <= population_rows:
        raise ValueError(
            f"{rows} scanned rows of {population_rows}; a scale needs 0 < rows <= population_rows"
        )
    return population_rows / rows


def leave_one_out(block_sums: FloatArray, block_rows: IntArray) -> tuple[FloatArray, IntArray]:
    """Return each group's sums, and the rows they come from, leaving one block out at a time.

    block_sums: shape (R, G, K). block_rows: rows scanned in each block, matching or not, shape (R,). Both
    results have the shapes of the arguments. Scale each replicate by its own rows.
    """
    sums = np.asarray(block_sums, dtype=np.float64)
    return sums.sum(axis=0) - sums, block_rows.sum() - block_rows


def block_shares(block_rows: IntArray) -> FloatArray:
    """Return each block's share of the scanned rows, shape (R,).

    Raises ValueError if fewer than two blocks hold rows: nothing varies then.
    """
    if np.count_nonzero(block_rows) < 2:
        raise ValueError(f"block_rows is {block_rows.tolist()}; at least two blocks must hold rows")
    shares: FloatArray = block_rows / block_rows.sum()
    return shares


def block_weights(rows_matched: IntArray, block_rows: IntArray) -> FloatArray:
    """Return the weights with which blocks' terms make one variance: shape (G, R), each row summing to 1.

    rows_matched: rows scanned that fell in each group, shape (G,). block_rows: shape (R,).

    A block of n_j rows is expected to hold μ = m·n_j/n of a group's m rows. Its term estimates the variance
    without bias whatever its size, with variance proportional to 2 + κ/μ (the excess kurtosis of a sum of μ
    contributions is κ/μ), so it is weighted by 1/(2 + κ/μ). Dense groups weigh all blocks alike; of a sparse
    group the small blocks say almost nothing. For a COUNT over 12 rows at 50 % scanned the relative error of
    the variance is 0.78 with equal weights and 0.38 with these (docs/decisions/0002-unequal-blocks.md).
    """
    expected = np.maximum(rows_matched, 1)[:, None] * block_shares(block_rows)
    weights = expected / (2.0 * expected + TYPICAL_KURTOSIS)
    normalised: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return normalised
