"""Which rows of a ranking by an estimate are certain to stay, where the query is computed from other answers.

A row stays if fewer others than LIMIT lets through may be before it. Another is surely behind if its whole
interval is, at STRICT_CONFIDENCE. Such intervals say so whether or not the two estimates move together, as
shares of one total do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.plans.around import Ranking
from relaqs_engine.plans.names import RIVALS


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The rows that LIMIT lets through so far.

    Attributes:
        certain: whether each of them stays.
        slack: how far each is from a place where too many may be before it, in its own half-widths.
    """

    certain: BoolArray
    slack: FloatArray


@np.errstate(invalid="ignore", divide="ignore")
def ranked_rows(ranking: Ranking, usual: CellIntervals, strict: CellIntervals, column: int) -> RankedRows:
    """Return which of the first rows stay.

    Args:
        ranking: how many rows are let through, and from which side.
        usual: the intervals of these rows and of their rivals, best first, at the confidence asked for.
        strict: the same at STRICT_CONFIDENCE.
        column: the estimate that ranks them, among these intervals.
    """
    sign = 1.0 if ranking.descends else -1.0
    value, ends = (
        sign * strict.value[:, column],
        (sign * strict.low[:, column], sign * strict.high[:, column]),
    )
    known = strict.certified[:, column] & np.isfinite(ends[0]) & np.isfinite(ends[1])
    low = np.where(known, np.minimum(*ends), -np.inf)
    high = np.where(known, np.maximum(*ends), np.inf)
    first = np.arange(min(len(value), ranking.shown))
    gap = np.full(len(first), np.inf)
    if len(value) > ranking.shown:
        last, next_one = np.sort(high)[::-1][ranking.shown - 1 : ranking.shown + 1]
        gap = low[first] - np.where(high[first] >= last, next_one, last)  # a row is no rival of its own
    if len(value) >= ranking.shown + RIVALS:  # others are behind the last rival, by their estimates
        behind = value[-1] + np.max(high - value)
        gap = np.minimum(gap, low[first] - (np.inf if np.isnan(behind) else behind))
    half = (usual.high[first, column] - usual.low[first, column]) / 2
    certain = (gap > 0) & known[first]
    return RankedRows(certain, np.where(certain, gap / half, -np.inf))
