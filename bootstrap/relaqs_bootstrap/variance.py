"""Variances of functions of sums over a sample: by leaving blocks out, by their tangent, or in closed form.

- `jackknife_variance`: leaves out one block of sampling units at a time. It takes any estimate and any
  sampling unit. Blocks are disjoint random sets of units, of unequal size, so they are weighted
  (`block_weights`).
- `linearised_variance`: its first-order form, for many groups that meet only few of the blocks.
- `closed_form_variance`: from sums, squares and cross products, for smooth functions of sums over rows.

Each returns a `Variance`: a number for each cell, and its degrees of freedom.

Three blocks of 10 rows each, out of 60, sum to 10, 12 and 14. The total is estimated as 36 · 60/30 = 72.
Without each block it is 78, 72 and 66. With the scanned share f = 1/2 the variance is 0.5 · 2/3 · (36 + 0
+ 36) = 24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Variance:
    """How uncertain each cell of an answer is. All arrays have shape (G, C).

    Attributes:
        variance: of the estimate, in its unit squared, with finite-population correction. NaN if unknown.
        degrees_of_freedom: of the variance itself, at least 1. It is infinite where the variance is as good
            as known.

    >>> Variance(np.array([4.0]), np.array([9.0]))
    Traceback (most recent call last):
    ValueError: variance has shape (1,); it must be (groups, columns)
    """

    variance: FloatArray
    degrees_of_freedom: FloatArray

    def __post_init__(self) -> None:
        shape = self.variance.shape
        if len(shape) != 2:
            raise ValueError(f"variance has shape {shape}; it must be (groups, columns)")
        if shape != self.degrees_of_freedom.shape:
            raise ValueError(
                f"variance {shape} and degrees_of_freedom {self.degrees_of_freedom.shape} must have one shape"
            )


def variance_of_terms(
    mean_term: FloatArray, mean_square: FloatArray, effective_weights: FloatArray, fraction: float
) -> Variance:
    """Return the variance that a weighted sum of unbiased terms gives, with its degrees of freedom.

    The terms are t_j, with weights w_j that sum to 1.

    Args:
        mean_term: Σ w t, shape (G, C), without finite-population correction.
        mean_square: Σ w² t², in the same shape.
        effective_weights: 1 / Σw², shape (G, 1).
        fraction: the scanned share of the table.

    (Σwt)²/Σ(wt)² is the number of equal terms that would vary as much. It is 0 where no variation was seen.
    The degrees of freedom are Satterthwaite's 2 / CV² of the weighted sum, with CV² = Σ(wt)²/(Σwt)² − Σw²
    from the terms themselves. They are at most those of normal blocks, 1/Σw² − 1. Reading the fourth moment
    in this way brought the flights' average delay (row kurtosis about 40) from 89.0 to 91.0 % coverage at 5 %
    scanned, and rare shares of 0.02 in 200 rows from 90 to 95 %. It cost nothing where blocks are near
    normal.

    Source: Satterthwaite 1946, An approximate distribution of estimates of variance components.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        effective_terms = np.where(mean_square > 0.0, mean_term**2 / mean_square, 0.0)
        variation = 1.0 / effective_terms - 1.0 / effective_weights
        satterthwaite = np.where(variation > 0.0, 2.0 / variation, np.inf)
    at_most = np.where(effective_terms > 0.0, satterthwaite, np.inf)
    freedom = np.maximum(np.minimum(effective_weights - 1.0, at_most), 1.0)
    return Variance((1.0 - fraction) * mean_term, freedom)


def sum_of_variances(variances: Sequence[Variance]) -> Variance:
    """Return the variance of a sum of independent estimates, with its degrees of freedom.

    These are Satterthwaite's, (Σ v)² / Σ (v² / degrees of freedom).

    Source: Satterthwaite 1946, An approximate distribution of estimates of variance components.

    Two equal variances on 10 degrees of freedom each make twice the variance, on 20 of them:

    >>> one = Variance(np.array([[4.0]]), np.array([[10.0]]))
    >>> both = sum_of_variances([one, one])
    >>> both.variance.item(), both.degrees_of_freedom.item()
    (8.0, 20.0)
    """
    total = np.sum([each.variance for each in variances], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_terms = np.sum([each.variance**2 / each.degrees_of_freedom for each in variances], axis=0)
        freedom = np.where(of_terms > 0.0, total**2 / of_terms, np.inf)
    return Variance(total, np.maximum(freedom, 1.0))


def check_fraction(fraction: float) -> None:
    """Raise ValueError unless the fraction can be the scanned share of a table."""
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction is {fraction}; it is the scanned share of the table, in (0, 1]")


TYPICAL_KURTOSIS = 4.0
"""The kurtosis E y⁴ / (E y²)² of one row's contribution, which sets the weights.

It is 1 for counts, 1.8 for uniform values and 6 for exponential ones. Any value gives an unbiased variance; 4
measured best over counts, skewed sums and rare shares.
"""


def leave_one_out(block_sums: FloatArray, block_rows: IntArray) -> tuple[FloatArray, IntArray]:
    """Return each group's sums, and the rows they come from, with one block left out at a time.

    Scale each replicate by its own rows.

    Args:
        block_sums: the sums of each block, shape (R, G, K).
        block_rows: the rows scanned in each block, whether they match or not, shape (R,).

    Both results have the shapes of the arguments.

    >>> sums, rows = leave_one_out(np.array([[[10.0]], [[12.0]], [[14.0]]]), np.array([5, 5, 6]))
    >>> sums.ravel().tolist(), rows.tolist()
    ([26.0, 24.0, 22.0], [11, 11, 10])
    """
    sums = np.asarray(block_sums, dtype=np.float64)
    return sums.sum(axis=0) - sums, block_rows.sum() - block_rows


def block_shares(block_rows: IntArray) -> FloatArray:
    """Return each block's share of the scanned rows, shape (R,).

    Raises ValueError if fewer than two blocks hold rows, because nothing varies then.

    >>> block_shares(np.array([10, 30])).tolist()
    [0.25, 0.75]
    """
    if np.count_nonzero(block_rows) < 2:
        raise ValueError(f"block_rows is {block_rows.tolist()}; at least two blocks must hold rows")
    shares: FloatArray = block_rows / block_rows.sum()
    return shares


def block_weights(
    rows_matched: IntArray, block_rows: IntArray, kurtosis: float = TYPICAL_KURTOSIS
) -> FloatArray:
    """Return the weights with which blocks' terms make one variance: shape (G, R), each row summing to 1.

    Args:
        rows_matched: the scanned rows that fell in each group, shape (G,).
        block_rows: the rows scanned in each block, shape (R,).
        kurtosis: κ, of what a row adds. Where units of m rows come together it is κ·m, and more where their
            sizes are unlike.

    A block of n_j rows is expected to hold μ = m·n_j/n of a group's m rows. Its term estimates the variance
    without bias, whatever the block's size. The variance of the term itself is proportional to 2 + κ/μ,
    because the excess kurtosis of a sum of μ contributions is κ/μ. So the term gets the weight 1/(2 + κ/μ).
    Dense groups weigh all blocks alike. For a sparse group, small blocks say almost nothing. For a COUNT over
    12 rows at 50 % scanned, the relative error of the variance is 0.78 with equal weights and 0.38 with these
    (docs/decisions/0002-unequal-blocks.md).

    A group of 100,000 rows and one of 4, over blocks of 10 and 30 rows. The group of 4 expects 1 and 3 rows,
    so the weights are as 1/(2 + 4/1) to 1/(2 + 4/3), which is 5 to 9:

    >>> block_weights(np.array([100_000, 4]), np.array([10, 30])).round(3).tolist()
    [[0.5, 0.5], [0.357, 0.643]]
    """
    expected = np.maximum(rows_matched, 1)[:, None] * block_shares(block_rows)
    weights = expected / (2.0 * expected + kurtosis)
    normalised: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return normalised


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
    table: FloatArray, of_support: IntArray, present: FloatArray, group_index: IntArray, complete: BoolArray
) -> FloatArray:
    """Return the weight of each group's absent blocks, shape (G, 1): exactly 0 where none is absent."""
    groups = len(of_support)
    rest = table.sum(axis=1)[of_support] - np.bincount(group_index, weights=present, minlength=groups)
    return np.where(complete, 0.0, np.maximum(rest, 0.0))[:, None]


def product(derivative: FloatArray, sums: FloatArray) -> FloatArray:
    """Return derivative · sums, elementwise, with 0 where the derivative is 0, even if the sum is NaN.

    An estimate that does not depend on a sum must not lose its interval to it.

    >>> product(np.array([0.0, 2.0]), np.array([np.nan, 3.0])).tolist()
    [0.0, 6.0]
    """
    with np.errstate(invalid="ignore"):
        return np.where(derivative == 0.0, 0.0, derivative * sums)


def beyond_rounding(difference: FloatArray, magnitude: FloatArray) -> FloatArray:
    """Return the difference, elementwise, with 0 where it is only the rounding of what cancelled.

    A difference counts as rounding if it is below 1e-12 of the magnitude. No real block moves an estimate by
    so little. The average of equal values does not vary, nor does a count that all blocks share equally.
    An infinite difference stays infinite.

    >>> beyond_rounding(np.array([1e-15, 0.5]), np.array([1.0, 1.0])).tolist()
    [0.0, 0.5]
    """
    return np.where(np.abs(difference) < 1e-12 * magnitude, 0.0, difference)
