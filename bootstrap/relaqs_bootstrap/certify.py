"""Which intervals can be trusted, and what is known of groups and values that were not met.

- `doubts`: an interval is certified with enough rows, where no row, seen or unseen, could dominate.
- `selection_factor`: intervals for what is shown because it was found large enough, as some of it passed
  the bar by luck alone.
- `unseen_groups`: how many groups have not been met yet, and how many rows hardly met groups may have.
- `distinct_interval`: between which ends the number of distinct values lies, judged by those seen in a
  sample.
"""

from __future__ import annotations

from enum import IntEnum
from math import log, log1p

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.quantiles import gamma_upper, log_normal_below, misses_exceeded, normal_quantile
from relaqs_bootstrap.variance import Variance, check_fraction

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


def doubts(
    variance: Variance, *, fraction: float, rows_matched: IntArray, possible_influence: FloatArray
) -> IntArray:
    """Return for each cell why it is not certified, shape (G, C).

    A cell is certified if its variance is finite and above zero, at least 10 rows matched, and no unseen row
    could move the answer by more than 2 standard errors (before finite-population correction).

    Args:
        variance: of the cells, shape (G, C).
        fraction: the scanned share of the table.
        rows_matched: the scanned rows of each group, shape (G,), or behind each cell, shape (G, C).
        possible_influence: the most that one row *could* move each estimate, shape (G, C), by provable bounds
            of the columns (see `largest_influence`). NaN where it is not known.

    Totals that cannot fall, and averages between known ends, may be certified otherwise
    (`intervals.bounded_interval`, `intervals.bounded_average`).

    The sample alone cannot tell. On skewed data a calm sample is one that missed the large rows, so choosing
    calm samples chooses misses. An earlier rule judged `stddev(n)` over the babynames by year by how many
    terms its variance had, and 31 % of the certified intervals held (docs/decisions/0016-heavy-tails.md).
    Beside a bound, few effective terms are no objection, because their few degrees of freedom widen the
    interval as much as it needs. A cell without variation is never certified: ten equal rows do not prove
    that all rows are equal.

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
    none = np.zeros(gradient[:, 0].shape)
    return largest_influence_of_unit(gradient, none, (lowest, highest), none, counted_by)


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
        below += np.minimum(down[:, :, columns].sum(axis=2) + np.minimum(by_rows, 0.0), 0.0)
        above += np.maximum(up[:, :, columns].sum(axis=2) + np.maximum(by_rows, 0.0), 0.0)
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


_STEPS = 40  # of bisection, which leave 1e-8 of the bracket
_LEAST_SLACK = 1e-3  # in half-widths: a factor of about a thousand
_FAR_SLACK = 8.0  # beyond it the factor is 1 to the last digit


def selection_factor(slack: FloatArray, confidence: float) -> FloatArray:
    """Return the factor on half-widths where an estimate is shown only above a bar, at least 1.

    Args:
        slack: how far each estimate is above its bar, in half-widths at this confidence. It is inf where
            there is no bar.
        confidence: of the interval.

    The interval is that of a normal estimate that is known to lie above the bar. Its lower end is the value
    for which an estimate so large, given that it passed, has just the probability left on one side. Only the
    side towards the bar needs the factor. Another number of the same row needs less of it, the less it varies
    with the number that has to pass.

    Source: Lee, Sun, Sun, Taylor 2016, Exact post-selection inference, with application to the lasso, section
    5 (the truncated normal).

    >>> selection_factor(np.array([2.0, 1.0, 0.5, np.inf]), 0.95).round(2).tolist()
    [1.01, 1.22, 2.04, 1.0]
    """
    factor: FloatArray = np.ones(slack.shape)
    near = ~(slack >= _FAR_SLACK)  # most answers have no bar at all: they cost nothing
    if near.any():
        factor[near] = _factor_near(slack[near], confidence)
    return factor


def _factor_near(slack: FloatArray, confidence: float) -> FloatArray:
    """Return the factor of estimates that are near a bar, by bisection."""
    usual = normal_quantile((1.0 + confidence) / 2.0)
    tail = np.log((1.0 - confidence) / 2.0)
    bar = np.maximum(slack, _LEAST_SLACK) * usual  # standard errors below the estimate
    low, high = np.full(bar.shape, usual), usual + 1.2 * (-tail) / bar
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        unlikely = log_normal_below(-middle) - log_normal_below(bar - middle) <= tail
        low, high = np.where(unlikely, low, middle), np.where(unlikely, middle, high)
    return np.asarray(high / usual)


_ROUNDING = 1e-9


def unseen_groups(singletons: int, doubletons: int, rows: int, fraction: float) -> float:
    """Return an estimate of the groups that no scanned row belongs to. In expectation it is a lower bound.

    Args:
        singletons: f₁, the groups seen in exactly one row.
        doubletons: f₂, the groups seen in exactly two rows.
        rows: n, the scanned rows that fell in any group.
        fraction: q, the scanned share of the table, in (0, 1]. At 1 the result is 0.

    Source: Chao and Lin 2012, Nonparametric lower bounds for species richness and shared species richness
    under sampling without replacement (Biometrics 68): f₁² / (2·f₂·n/(n−1) + f₁·q/(1−q)).

    Six groups met once and three met twice, with a tenth read: 36 / (2·3·100/99 + 6/9):

    >>> round(unseen_groups(singletons=6, doubletons=3, rows=100, fraction=0.1), 2)
    5.35
    """
    check_fraction(fraction)
    if min(singletons, doubletons) < 0 or rows < singletons + 2 * doubletons:
        raise ValueError(
            f"{singletons} groups of one row and {doubletons} of two do not fit into {rows} rows"
        )
    if singletons == 0 or fraction == 1.0:
        return 0.0
    replacement = 2.0 * doubletons * rows / max(rows - 1, 1)
    return singletons**2 / (replacement + singletons * fraction / (1.0 - fraction))


def most_unseen_groups(singletons: IntArray, fraction: float, tail: float) -> FloatArray:
    """Return the most groups that no scanned unit belongs to, given those met in exactly one, elementwise.

    Args:
        singletons: the groups seen in exactly one unit.
        fraction: f, the scanned share of the table.
        tail: the probability that there are more.

    Nothing is assumed of the groups' sizes. A group of N units is met once with probability N·f·(1−f)ᴺ⁻¹ and
    missed with (1−f)ᴺ. So of the groups that are missed or met once, each was met once with probability f or
    more, independently of the others. With too many of them, more would have been met.

    An eighth was read and no group was met only once. Of 28 such groups, all are missed in 0.875²⁸ = 2.4 % of
    the cases. So there are at most 27:

    >>> import numpy as np
    >>> most_unseen_groups(np.array([0, 4]), fraction=0.125, tail=0.025).tolist()
    [27.0, 74.0]
    """
    check_fraction(fraction)
    if fraction == 1.0:
        return np.zeros(len(singletons))
    distinct, place = np.unique(singletons, return_inverse=True)
    most = np.ceil([misses_exceeded(int(each) + 1, fraction, tail) - _ROUNDING for each in distinct])
    found: FloatArray = np.maximum(most, 0.0)[place]
    return found


def enough_to_be_met(fraction: float, tail: float) -> float:
    """Return how many scanned units the smallest group must have, for a group of its size not to be missed.

    Args:
        fraction: f, the scanned share of the table.
        tail: how often such a group is missed.

    A group with n scanned units has about n/f, which are all missed with probability (1−f)ⁿᐟᶠ. At most 14
    units are needed for one in a million, and fewer the more was read:

    >>> round(enough_to_be_met(0.001, 1e-6), 2), round(enough_to_be_met(0.125, 1e-6), 2)
    (13.81, 12.93)
    """
    check_fraction(fraction)
    return 0.0 if fraction == 1.0 else fraction * log(tail) / log1p(-fraction)


def most_in_all(seen: FloatArray, fraction: float, tail: float) -> FloatArray:
    """Return the most units that groups may have in the whole table, given those scanned, elementwise.

    Args:
        seen: the units scanned of each group.
        fraction: the scanned share of the table.
        tail: the probability that a group has more.

    It is the upper Poisson limit of what was seen, scaled. Of nothing seen that is −ln(tail) / fraction: at
    one in a million and a tenth of the table, 13.8 / 0.1:

    >>> import numpy as np
    >>> most_in_all(np.array([0.0, 10.0]), fraction=0.1, tail=1e-6).round().tolist()
    [138.0, 344.0]
    """
    check_fraction(fraction)
    return gamma_upper(seen + 1.0, tail) / fraction


def distinct_interval(
    seen: FloatArray, once: FloatArray, fraction: float, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends between which the number of distinct values lies. The lower end is those seen.

    Args:
        seen: the distinct values seen, in each group.
        once: f₁, those of them that were met in exactly one sampling unit.
        fraction: f, the scanned share of the table.
        confidence: both sides together. The lower end is certain, the upper one is at (1 + confidence)/2.

    A value that a sample of share f missed is, on average, no more common than those met once. So at most
    f₁·(1−f)/f values are still missing, in expectation (Good and Toulmin 1956, first term). f₁ itself is
    uncertain. Its upper Poisson limit stands in its place, with finite-population correction, so that a
    sample without any value met once still allows for three or four. At f = 1 the width is zero.

    Measured over 200 samples each of uniform, zipf(1.1), all-unique, few-valued and two-part columns, at f =
    0.5 to 90 %: the truth lies inside in 95 to 100 %.

    No value was met once. The Poisson limit of nothing is −ln(0.025) = 3.69, and 3.69 · √0.5 / 0.5 = 5.2:

    >>> low, high = distinct_interval(np.array([100.0]), np.array([0.0]), fraction=0.5, confidence=0.95)
    >>> low.item(), round(high.item(), 1)
    (100.0, 105.2)
    """
    check_fraction(fraction)
    limit = gamma_upper(once + 1.0, (1.0 - confidence) / 2.0)
    chance = (limit - once) * np.sqrt(1.0 - fraction)
    return seen, seen + (once * (1.0 - fraction) + chance) / fraction


def counted_interval(
    least: FloatArray, most: FloatArray, relative_error: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends between which numbers of distinct values lie, by a share of them that was counted.

    Args:
        least: the numbers, or what they are at least.
        most: the numbers, or what they are at most.
        relative_error: the standard error of both, relative to them. 0 where all values were counted.
        confidence: both sides together. Half of the risk is left to another interval that cuts this one.

    >>> low, high = counted_interval(*np.array([[1000.0], [1000.0], [0.007]]), confidence=0.95)
    >>> round(low.item()), round(high.item())
    (984, 1016)
    """
    deviations = normal_quantile((3.0 + confidence) / 4.0) * relative_error
    return least * (1.0 - deviations), most * (1.0 + deviations)
