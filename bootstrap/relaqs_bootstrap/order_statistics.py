"""Between which values of a sample a quantile of the whole table lies, by their ranks."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, IntArray
from relaqs_bootstrap.intervals import confidence_intervals
from relaqs_bootstrap.linearised import linearised_variance
from relaqs_bootstrap.variance import Variance, check_fraction


def share_variance_of_rows(values: IntArray, share: float, fraction: float) -> Variance:
    """Return the variance of the share of sampled values below a quantile, where rows are the sampling units.

    Args:
        values: how many values each group has, shape (G,).
        share: p of the quantile.
        fraction: f, the scanned share of the table.

    Returns shape (G, 1): p(1 − p)(1 − f)/n.
    Source: Cochran 1977, Sampling Techniques, §3.2.

    The median of 100 values, half of the table read: 0.5 · 0.5 · 0.5 / 100:

    >>> share_variance_of_rows(np.array([100]), share=0.5, fraction=0.5).variance.tolist()
    [[0.00125]]
    """
    check_fraction(fraction)
    count = values.astype(np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(count > 0.0, share * (1.0 - share) * (1.0 - fraction) / count, np.nan)
    return Variance(variance, np.maximum(count - 1.0, 1.0))


def share_variance_of_blocks(
    below: IntArray,
    up_to: IntArray,
    values: IntArray,
    group_index: IntArray,
    block_index: IntArray,
    block_rows: IntArray,
    group_count: int,
    fraction: float,
) -> Variance:
    """Return the variance of the share of values below a quantile, by leaving out one block at a time.

    Args:
        below: for each (group, block), how many values are less than the group's quantile so far, shape (P,).
        up_to: how many are at most the quantile, shape (P,).
        values: how many values there are, shape (P,).
        group_index, block_index, block_rows, fraction: as for `linearised_variance`.
        group_count: G.

    Returns shape (G, 1). Where many values equal the quantile, the two shares differ, and the larger variance
    is taken: the quantile may be next to its true place on either side.

    Source: Woodruff 1952, Confidence intervals for medians and other position measures; Särndal, Swensson,
    Wretman 1992, Model Assisted Survey Sampling, §5.11.

    Three blocks of ten values have 4, 6 and 5 values below the median. The shares 0.4, 0.6 and 0.5 have the
    variance 0.01, their mean a third of it, and half of the table is read:

    >>> below, ten = np.array([4, 6, 5]), np.array([10, 10, 10])
    >>> group, block = np.array([0, 0, 0]), np.array([0, 1, 2])
    >>> found = share_variance_of_blocks(below, below, ten, group, block, ten, 1, 0.5)
    >>> round(found.variance.item(), 6), round(0.01 / 3 / 2, 6)
    (0.001667, 0.001667)
    """
    sums = np.stack([below, up_to, values], axis=1).astype(np.float64)
    less, at_most, count = (np.bincount(group_index, column, group_count) for column in sums.T)
    gradient = np.zeros((group_count, 2, 3))
    with np.errstate(divide="ignore", invalid="ignore"):
        gradient[:, 0, 0] = gradient[:, 1, 1] = 1.0 / count
        gradient[:, 0, 2], gradient[:, 1, 2] = -less / count**2, -at_most / count**2
    rows = count.astype(np.int64)
    both = linearised_variance(gradient, group_index, block_index, sums, block_rows, rows, fraction)
    larger = np.argmax(both.variance, axis=1)[:, None]
    return Variance(
        np.take_along_axis(both.variance, larger, axis=1),
        np.take_along_axis(both.degrees_of_freedom, larger, axis=1),
    )


def quantile_ranks(
    values: IntArray, share: float, variance: Variance, *, fraction: float, confidence: float, anytime: bool
) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the ranks, from 1, of the values on both sides of each quantile, and if they are certified.

    Args:
        values: how many values each group has, shape (G,).
        share: p of the quantile.
        variance: of the share of values below the quantile, shape (G, 1).
        fraction: the scanned share of the table.
        confidence: of both sides together.
        anytime: whether the ranks have to hold at all looks together.

    A rank is 0 on a side where no value of the sample is low, or high, enough.

    The share below the median of 100 values has a standard error of 0.05, so the median lies between the 40th
    and the 61st value:

    >>> variance = share_variance_of_rows(np.array([100]), 0.5, fraction=0.01)
    >>> low, high, certified = quantile_ranks(
    ...     np.array([100]), 0.5, variance, fraction=0.01, confidence=0.95, anytime=False
    ... )
    >>> low.item(), high.item(), certified.item()
    (40, 61, True)
    """
    shares = np.full((len(values), 1), share)
    with np.errstate(divide="ignore"):
        one_value = max(share, 1.0 - share) / values.astype(np.float64)[:, None]
    found = confidence_intervals(
        shares,
        variance,
        fraction=fraction,
        confidence=confidence,
        anytime=anytime,
        rows_matched=values,
        nonnegative_total=np.array([False]),
        observed_total=np.full_like(shares, np.nan),
        unit_ceiling=np.array([np.nan]),
        possible_influence=one_value,
    )
    low = np.floor(found.low[:, 0] * values)
    high = np.ceil(found.high[:, 0] * values) + 1.0
    low_rank = np.where(low >= 1.0, low, 0.0).astype(np.int64)
    high_rank = np.where(high <= values, high, 0.0).astype(np.int64)
    return low_rank, high_rank, found.certified[:, 0] & (low_rank > 0) & (high_rank > 0)
