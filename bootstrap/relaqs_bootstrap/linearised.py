"""The jackknife's first-order form, for many groups that meet only few of the blocks."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray, beyond_rounding, product
from relaqs_bootstrap.blocks import TYPICAL_KURTOSIS, block_shares, block_weights
from relaqs_bootstrap.variance import Variance, check_fraction, variance_of_terms


def linearised_variance(
    gradient: FloatArray,
    group_index: IntArray,
    block_index: IntArray,
    sums: FloatArray,
    block_rows: IntArray,
    rows_matched: IntArray,
    fraction: float,
    kurtosis: float = TYPICAL_KURTOSIS,
) -> Variance:
    """Return the infinitesimal-jackknife variance of each cell from sparse (group, block) sums.

    Args:
        gradient: the derivative of each estimate by its group's K unscaled sums, with the scale N/n held
            fixed, shape (G, C, K).
        group_index: the group of each pair, shape (P,). Each pair occurs at most once.
        block_index: the block of each pair, shape (P,). An absent pair means sums of zero.
        sums: of each pair, shape (P, K).
        block_rows: the rows scanned in each block, shape (R,).
        rows_matched: the scanned rows in each group, shape (G,).
        fraction: the scanned share of the table, in (0, 1].
        kurtosis: of what a row adds, which sets the weights of the blocks (see `block_weights`).

    Block j contributes u_j = gradient · sums, and U = Σu_j. To first order its pseudo-value is θ + u_j·n/n_j
    − U. So its term is (n_j/(n−n_j))·(u_j·n/n_j − U)², and U²·n_j/(n−n_j) for an absent pair. For totals that
    is the jackknife itself. An estimate that no scale changes has U = 0. The cost is O(P·C·K), whatever G·R
    is.

    Source: Jaeckel 1972, The infinitesimal jackknife; Busing et al. 1999 for unequal blocks.

    The example of `jackknife_variance` again: three blocks with the sums 10, 12 and 14, each counted twice:

    >>> found = linearised_variance(
    ...     np.array([[[2.0]]]),
    ...     np.array([0, 0, 0]),
    ...     np.array([0, 1, 2]),
    ...     np.array([[10.0], [12.0], [14.0]]),
    ...     np.array([10, 10, 10]),
    ...     np.array([30]),
    ...     0.5,
    ... )
    >>> round(found.variance.item(), 9)
    24.0
    """
    check_fraction(fraction)
    if (block_rows[block_index] == 0).any():
        raise ValueError("a (group, block) pair has sums, but block_rows says that its block holds no rows")
    groups = len(gradient)
    shares = block_shares(block_rows)
    odds = shares / (1.0 - shares)
    # Weights depend on a group through its row count alone: one row of the table per distinct count.
    support, of_support = np.unique(rows_matched, return_inverse=True)
    weights = block_weights(support, block_rows, kurtosis)
    contributions = _contributions(gradient, group_index, sums)
    totals = _per_group(contributions, group_index, groups)
    weight = (weights * odds)[of_support[group_index], block_index]
    with np.errstate(invalid="ignore"):
        deviation = beyond_rounding(
            contributions / shares[block_index, None] - totals[group_index], np.abs(totals[group_index])
        )
    terms = weight[:, None] * deviation**2
    complete = np.bincount(group_index, minlength=groups) == np.count_nonzero(block_rows)
    absent = _absent(weights * odds, of_support, weight, group_index, complete)
    absent_square = _absent((weights * odds) ** 2, of_support, weight**2, group_index, complete)
    return variance_of_terms(
        _per_group(terms, group_index, groups) + absent * totals**2,
        _per_group(terms**2, group_index, groups) + absent_square * totals**4,
        (1.0 / (weights**2).sum(axis=1))[of_support, None],
        fraction,
    )


def _contributions(gradient: FloatArray, group_index: IntArray, sums: FloatArray) -> FloatArray:
    """Return what each (group, block) pair adds to each estimate, shape (P, C)."""
    contributions: FloatArray = np.zeros((len(sums), gradient.shape[1]))
    magnitude = np.zeros_like(contributions)
    with np.errstate(invalid="ignore"):
        for k in range(gradient.shape[2]):
            part = product(gradient[group_index, :, k], sums[:, k, None])
            contributions += part
            magnitude += np.abs(part)
    return beyond_rounding(contributions, magnitude)


def _per_group(values: FloatArray, group_index: IntArray, groups: int) -> FloatArray:
    """Return the values of shape (P, C) summed within each group, shape (G, C)."""
    columns = [np.bincount(group_index, weights=column, minlength=groups) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((groups, 0))


def _absent(
    table: FloatArray,
    of_support: IntArray,
    present: FloatArray,
    group_index: IntArray,
    complete: BoolArray,
) -> FloatArray:
    """Return the weight of each group's absent blocks, shape (G, 1): exactly 0 where none is absent."""
    groups = len(of_support)
    rest = table.sum(axis=1)[of_support] - np.bincount(group_index, weights=present, minlength=groups)
    return np.where(complete, 0.0, np.maximum(rest, 0.0))[:, None]
