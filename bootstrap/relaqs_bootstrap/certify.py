"""Which intervals can be trusted: enough rows, and no row, seen or still unseen, that could dominate."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.variance import Variance

MIN_ROWS = 10
MAX_UNSEEN_ERRORS = 2.0


def is_certified(
    variance: Variance,
    *,
    fraction: float,
    rows_matched: IntArray,
    possible_influence: FloatArray,
) -> BoolArray:
    """Return which cells have enough support, and near-normal variation, for their interval to hold.

    rows_matched: shape (G,). possible_influence: the most one row *could* move each estimate, shape (G, C),
    from provable bounds of the columns (see `largest_influence`); NaN where unknown.

    Certified means a finite variance above zero, at least 10 matched rows, and that no unseen row could move
    the answer by more than 2 standard errors (before finite-population correction). Where no bound is known,
    nothing is certified.

    The sample alone cannot tell. On skewed data a calm sample is one that missed the large rows, so choosing
    calm samples chooses misses: of `stddev(n)` over the babynames by year, judged by how many terms its
    variance has, 31 % of the certified intervals held (docs/decisions/0016-heavy-tails.md). Few effective
    terms are no objection beside a bound: their few degrees of freedom widen the interval as much as it
    needs. A cell without variation is never certified: ten equal rows do not prove that all are equal.
    """
    if fraction >= 1.0:
        return np.ones(variance.variance.shape, dtype=np.bool_)
    supported = (variance.variance > 0.0) & np.isfinite(variance.variance)
    supported &= (rows_matched >= MIN_ROWS)[:, None]
    with np.errstate(invalid="ignore"):
        spread = variance.variance / (1.0 - fraction)
        certified: BoolArray = supported & (possible_influence**2 <= MAX_UNSEEN_ERRORS**2 * spread)
    return certified


def largest_influence(
    gradient: FloatArray, lowest: FloatArray, highest: FloatArray, counted_by: IntArray
) -> FloatArray:
    """Return the most that one row can move each estimate, in the estimate's unit, shape (G, C).

    gradient: derivative of each estimate by its group's unscaled sums, shape (G, C, K). lowest, highest:
    bounds of what a row adds to each of the K sums, where it adds anything: shape (K,) or (G, K), NaN where
    unknown. counted_by: of each sum, the position of the COUNT that the same rows add 1 to, −1 where there is
    none, shape (K,). For example, AVG(x) is SUM(x) over COUNT(x): a row adds (x, 1) or nothing.

    Interval arithmetic over the columns: exact for COUNT, SUM and AVG, an upper bound otherwise. NaN where a
    column that matters is unbounded.
    """
    ends = np.stack(np.broadcast_arrays(lowest, highest)).reshape(2, -1, 1, gradient.shape[2])
    with np.errstate(invalid="ignore"):
        moved = np.where(gradient == 0.0, 0.0, gradient * ends)
    down, up = moved.min(axis=0), moved.max(axis=0)
    together = [(counted_by == k) | (np.arange(len(counted_by)) == k) for k in np.flatnonzero(counted_by < 0)]
    below, above = np.zeros(gradient.shape[:2]), np.zeros(gradient.shape[:2])
    for columns in together:
        below += np.minimum(down[:, :, columns].sum(axis=2), 0.0)
        above += np.maximum(up[:, :, columns].sum(axis=2), 0.0)
    return np.maximum(-below, above)
