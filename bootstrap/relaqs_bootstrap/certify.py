"""Which intervals can be trusted: those with enough rows, where no row, seen or unseen, could dominate."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.variance import Variance

MIN_ROWS = 10
MIN_ROWS_OF_SHARE = 30
"""Behind a value that compares groups: with fewer, a share of a total is too skewed for a Student interval.
For flights by carrier, intervals over 10 rows held 92 % of the time."""
MAX_UNSEEN_ERRORS = 2.0


class Doubt(IntEnum):
    """Why an interval is not certified, the first reason that applies. NONE: it is certified."""

    NONE = 0
    FEW_ROWS = 1  # fewer than MIN_ROWS matched
    NO_NUMBER = 2  # the estimate, its variance or an end is not finite
    ALIKE = 3  # nothing varies so far
    UNBOUNDED = 4  # it is not known how far an unseen row could move it
    LARGE_ROW = 5  # an unseen row could move it too far


def is_certified(
    variance: Variance,
    *,
    fraction: float,
    rows_matched: IntArray,
    possible_influence: FloatArray,
) -> BoolArray:
    """Return which cells have enough support, and near-normal variation, for their interval to hold.

    A cell is certified if its variance is finite and above zero, at least 10 rows matched, and no unseen row
    could move the answer by more than 2 standard errors (before finite-population correction). Where no bound
    is known, nothing is certified.

    Args:
        variance: of the cells, shape (G, C).
        fraction: the scanned share of the table.
        rows_matched: the scanned rows in each group, shape (G,).
        possible_influence: the most that one row *could* move each estimate, shape (G, C), by provable bounds
            of the columns (see `largest_influence`). NaN where it is not known.

    Totals that cannot fall may be certified with fewer rows (`intervals.bounded_interval`).

    The sample alone cannot tell. On skewed data a calm sample is one that missed the large rows, so choosing
    calm samples chooses misses. An earlier rule judged `stddev(n)` over the babynames by year by how many
    terms its variance had, and 31 % of the certified intervals held (docs/decisions/0016-heavy-tails.md).
    Beside a bound, few effective terms are no objection, because their few degrees of freedom widen the
    interval as much as it needs. A cell without variation is never certified: ten equal rows do not prove
    that all rows are equal.

    A standard error of 10, and a row that could move the first cell by 15 and the second by 25:

    >>> variance = Variance(np.array([[100.0, 100.0]]), np.array([[50.0, 50.0]]))
    >>> moved = np.array([[15.0, 25.0]])
    >>> is_certified(variance, fraction=1e-6, rows_matched=np.array([40]), possible_influence=moved).tolist()
    [[True, False]]
    """
    found = doubts(
        variance, fraction=fraction, rows_matched=rows_matched, possible_influence=possible_influence
    )
    return np.asarray(found == Doubt.NONE)


def doubts(
    variance: Variance,
    *,
    fraction: float,
    rows_matched: IntArray,
    possible_influence: FloatArray,
) -> IntArray:
    """Return for each cell why it is not certified, shape (G, C). The arguments are those of `is_certified`.

    A standard error of 10, and a row that could move the first cell by 15 and the second by 25:

    >>> variance = Variance(np.array([[100.0, 100.0]]), np.array([[50.0, 50.0]]))
    >>> moved = np.array([[15.0, 25.0]])
    >>> found = doubts(variance, fraction=1e-6, rows_matched=np.array([40]), possible_influence=moved)
    >>> [Doubt(each).name for each in found[0]]
    ['NONE', 'LARGE_ROW']
    """
    found = np.zeros(variance.variance.shape, dtype=np.int64)
    if fraction >= 1.0:
        return found
    with np.errstate(invalid="ignore"):
        spread = variance.variance / (1.0 - fraction)
        found[~(possible_influence**2 <= MAX_UNSEEN_ERRORS**2 * spread)] = Doubt.LARGE_ROW
        found[np.isnan(possible_influence)] = Doubt.UNBOUNDED
        found[~(variance.variance > 0.0)] = Doubt.ALIKE
    found[~np.isfinite(variance.variance)] = Doubt.NO_NUMBER
    found[rows_matched < MIN_ROWS] = Doubt.FEW_ROWS
    return found


def largest_influence(
    gradient: FloatArray, lowest: FloatArray, highest: FloatArray, counted_by: IntArray
) -> FloatArray:
    """Return the most that one row can move each estimate, in the estimate's unit, shape (G, C).

    This is interval arithmetic over the columns. It is exact for COUNT, SUM and AVG, and an upper bound
    otherwise. The result is NaN where a column that matters is unbounded.

    Args:
        gradient: the derivative of each estimate by its group's unscaled sums, shape (G, C, K).
        lowest: the least that a row adds to each sum, if it adds anything, shape (K,) or (G, K). NaN if
            unknown.
        highest: the most that it adds, in the same shape.
        counted_by: for each sum, the position of the COUNT to which the same rows add 1, shape (K,). It is −1
            where there is none.

    For example, AVG(x) is SUM(x) over COUNT(x), so a row adds (x, 1) or nothing. With a sum of 100 over 10
    rows the derivatives are 1/10 and −100/10². A row with x = 80, the most there is, moves the average by 8 −
    1 = 7:

    >>> gradient = np.array([[[0.1, -1.0]]])
    >>> largest_influence(gradient, np.array([0.0, 1.0]), np.array([80.0, 1.0]), np.array([1, -1])).tolist()
    [[7.0]]
    """
    down, up = _moved(gradient, lowest, highest)
    below, above = np.zeros(gradient.shape[:2]), np.zeros(gradient.shape[:2])
    for columns in _counted_together(counted_by):
        below += np.minimum(down[:, :, columns].sum(axis=2), 0.0)
        above += np.maximum(up[:, :, columns].sum(axis=2), 0.0)
    return np.maximum(-below, above)


def largest_influence_of_unit(
    gradient: FloatArray,
    middle: FloatArray,
    away: tuple[FloatArray, FloatArray],
    rows: FloatArray,
    counted_by: IntArray,
) -> FloatArray:
    """Return the most that one sampling unit can move each estimate, in the estimate's unit, shape (G, C).

    Any k of a unit's rows add `middle` · k + d to a sum, where d lies between the two numbers of `away`. So
    they move an estimate by (gradient · middle) · k, and by gradient · d. The result is NaN where a column
    that matters is unbounded.

    Args:
        gradient: the derivative of each estimate by its group's unscaled sums, shape (G, C, K).
        middle: about the mean of what a row adds to each sum, 1 of a COUNT, shape (G, K).
        away: the least and the most that a unit's rows add beside that, both in that shape.
        rows: the most rows of a unit, in that shape.
        counted_by: as `largest_influence` has it.

    For example, AVG(x) where 100 rows sum to 4,000. A unit of at most 10 rows has values near 40, which sum
    to 15 more or 12 less than that. Its rows move the average by 0.15 at most. Values of 0 to 200 alone would
    let it move by 16:

    >>> gradient, middle = np.array([[[0.01, -0.4]]]), np.array([[40.0, 1.0]])
    >>> away = np.array([[-12.0, 0.0]]), np.array([[15.0, 0.0]])
    >>> rows, counted_by = np.array([[10.0, 10.0]]), np.array([1, -1])
    >>> largest_influence_of_unit(gradient, middle, away, rows, counted_by).tolist()
    [[0.15]]
    """
    down, up = _moved(gradient, *away)
    slope = np.where(gradient == 0.0, 0.0, gradient * middle[:, None, :])
    below, above = np.zeros(gradient.shape[:2]), np.zeros(gradient.shape[:2])
    for columns in _counted_together(counted_by):
        by_rows = slope[:, :, columns].sum(axis=2) * rows[:, columns].max(axis=1)[:, None]
        below += down[:, :, columns].sum(axis=2) + np.minimum(by_rows, 0.0)
        above += up[:, :, columns].sum(axis=2) + np.maximum(by_rows, 0.0)
    return np.maximum(-below, above)


def _moved(gradient: FloatArray, lowest: FloatArray, highest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return by how much each sum may move each estimate, down and up, in the shape of the gradient."""
    ends = np.stack(np.broadcast_arrays(lowest, highest)).reshape(2, -1, 1, gradient.shape[2])
    with np.errstate(invalid="ignore"):
        moved = np.where(gradient == 0.0, 0.0, gradient * ends)
    return moved.min(axis=0), moved.max(axis=0)


def _counted_together(counted_by: IntArray) -> list[BoolArray]:
    """Return the sums to which the same rows add, as masks: each COUNT with those that it counts."""
    return [(counted_by == k) | (np.arange(len(counted_by)) == k) for k in np.flatnonzero(counted_by < 0)]
