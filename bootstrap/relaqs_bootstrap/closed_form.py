"""Variances from sums, squares and cross products, for smooth functions of sums over rows."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import FloatArray, IntArray, product
from relaqs_bootstrap.variance import Variance, check_fraction


def closed_form_variance(
    gradient: FloatArray,
    sums: FloatArray,
    cross_products: FloatArray,
    rows_matched: IntArray,
    rows_scanned: int,
    fraction: float,
) -> Variance:
    """Return the linearised variance of each cell under simple random sampling of rows.

    Args:
        gradient: the derivative of each estimate by its group's K unscaled sums, with the scale N/n held
            fixed, shape (G, C, K).
        sums: shape (G, K).
        cross_products: Σ x_k·x_l over the rows, the upper triangle row by row as `np.triu_indices(K)` orders
            it, shape (G, K(K+1)/2).
        rows_matched: m, the scanned rows in each group, shape (G,).
        rows_scanned: n, all scanned rows.
        fraction: f, the scanned share of the table.

    A row contributes z = gradient · x. With U = Σz over the m rows of a group, the squares split into a part
    within the group, Σz² − U²/m, and a part for its size, U²/m − U²/n. The variance is (1−f)·(m/(m−1)·within
    + n/(n−1)·size). For COUNT, and for totals over all rows, this is the textbook N²(1−f)/n·s². For ratios,
    where U = 0, it is (1−f)·m/(m−1)·Σ(y−Rx)²/X². Only `within` is estimated, on m−1 degrees of freedom. So a
    COUNT has infinitely many (its variance follows from m), a ratio has m−1, and a SUM something between.

    Source: Cochran 1977, Sampling Techniques, §2.9 and §5.2 (domains); measured in
    docs/decisions/0002-unequal-blocks.md.

    The values 1, 2, 3 and 6, four of eight rows: s² is 14/3, and the total's variance 8² · (1 − 1/2)/4 ·
    14/3:

    >>> squares = 1.0 + 4.0 + 9.0 + 36.0
    >>> found = closed_form_variance(
    ...     np.array([[[2.0]]]), np.array([[12.0]]), np.array([[squares]]), np.array([4]), 4, 0.5
    ... )
    >>> round(found.variance.item(), 3), round(8**2 * 0.5 / 4 * 14 / 3, 3)
    (37.333, 37.333)
    """
    check_fraction(fraction)
    matched = rows_matched.astype(np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        total = product(gradient, sums[:, None, :]).sum(axis=2)
        by_group = np.where(matched > 0.0, total**2 / matched, 0.0)
        squares, magnitude = _quadratic(gradient, cross_products)
        # Below a relative 1e-13 the difference is the rounding of equal rows, which do not vary.
        within = np.where(squares - by_group > 1e-13 * magnitude, squares - by_group, 0.0) * _bessel(matched)
        size = np.maximum(by_group - total**2 / rows_scanned, 0.0) * _bessel(np.float64(rows_scanned))
        spread = within + size
        freedom = np.where(within > 0.0, (matched - 1.0) * (spread / within) ** 2, np.inf)
    return Variance((1.0 - fraction) * spread, np.maximum(freedom, 1.0))


def _quadratic(gradient: FloatArray, cross_products: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return gradient · Q · gradient for the packed symmetric Q, and the sum of its terms' sizes: (G, C)."""
    result, magnitude = np.zeros(gradient.shape[:2]), np.zeros(gradient.shape[:2])
    for packed, (i, j) in enumerate(zip(*np.triu_indices(gradient.shape[2]), strict=True)):
        twice = 1.0 if i == j else 2.0
        part = product(twice * gradient[:, :, i] * gradient[:, :, j], cross_products[:, packed, None])
        result += part
        magnitude += np.abs(part)
    return result, magnitude


def _bessel(count: FloatArray | np.float64) -> FloatArray:
    """Return count/(count−1), and 1 where a single row leaves nothing to correct."""
    return np.where(count > 1.0, count / np.maximum(count - 1.0, 1.0), 1.0)
