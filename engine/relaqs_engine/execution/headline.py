"""How far off a whole answer is, in one number: the error of its cells, weighted as the user wants.

The largest error of any cell would be that of the smallest group. Of 229 airports, one with three flights
would hide the others, and each new one would make the answer look worse. So the headline is the error that
the cells with most of the weight are within.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

Weighting = Literal["rows", "cells", "max"]
SCALE_SHARE = 0.95  # of the rows, because the largest values are those of the smallest groups
_ROUNDING = 1e-9  # of the weight, by which a sum of shares may fall short


@dataclass(frozen=True, slots=True)
class Judge:
    """How the cells' errors become one.

    Attributes:
        weight: with "rows", a cell weighs as much as there are rows behind its group. With "cells", all weigh
            the same. With "max", the answer's error is the largest one of any certified cell.
        share: the share of the weight in each column that must be within the error, in (0, 1].
    """

    weight: Weighting = "rows"
    share: float = 0.95

    def error(self, widths: FloatArray, rows: FloatArray) -> float:
        """Return the least error that cells with `share` of the weight in every column are within.

        It is inf where nothing is certified. A column without a value is left out.

        Args:
            widths: shape (rows, columns), as `relative_widths` gives them.
            rows: behind each group, shape (rows,).
        """
        columns = widths.T[~np.isnan(widths).all(axis=0)] if widths.size else ()
        if self.weight == "max":
            finite = [column[np.isfinite(column)] for column in columns]
            return max((float(column.max()) for column in finite if len(column)), default=np.inf)
        weights = rows if self.weight == "rows" and rows.sum() > 0 else np.ones(len(rows))
        return max((self._error_of(column, weights) for column in columns), default=np.inf)

    def _error_of(self, widths: FloatArray, weights: FloatArray) -> float:
        has_value = ~np.isnan(widths)
        widths, weights = widths[has_value], weights[has_value]
        order = np.argsort(widths)
        reached = np.cumsum(weights[order])
        enough = self.share * reached[-1] * (1 - _ROUNDING)
        return float(widths[order[np.searchsorted(reached, enough)]])


DEFAULT_JUDGE = Judge()


def relative_widths(
    values: FloatArray,
    half_widths: FloatArray,
    certified: BoolArray,
    either_sign: BoolArray,
    rows: FloatArray,
    sizes: FloatArray | None = None,
) -> FloatArray:
    """Return each cell's half-width relative to its size: inf if it is not certified, NaN without a value.

    Args:
        values: shape (rows, columns).
        half_widths: in the same shape.
        certified: in the same shape.
        either_sign: for each column, whether its values may lie on both sides of zero. A cell near zero would
            then be far off, whatever is known of it. So its size is at least the column's scale: the |value|
            that groups with 95 % of the rows are within.
        rows: behind each group, shape (rows,).
        sizes: shape (rows, columns): the size of cells that are not measured by their own value, such as
            dates, and NaN for all others. None: all are.
    """
    size = np.abs(values)
    for column in np.flatnonzero(either_sign):
        size[:, column] = np.fmax(size[:, column], _scale(size[:, column], rows))
    if sizes is not None:
        size = np.where(np.isnan(sizes), size, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(half_widths == 0.0, 0.0, half_widths / size)
    relative[~certified | np.isnan(relative)] = np.inf
    relative[np.isnan(values)] = np.nan
    return np.asarray(relative)


def _scale(size: FloatArray, rows: FloatArray) -> float:
    """Return the size that values behind SCALE_SHARE of the rows are within, between those of two groups.

    `size` has the sizes of one column's values. The scale changes smoothly, so that two groups with equally
    many rows do not swap it when one of them gets one more.
    """
    known = np.isfinite(size)
    order = np.argsort(size[known])
    weights = (rows if rows[known].sum() > 0 else np.ones(len(rows)))[known][order]
    if not len(weights):
        return 0.0
    below = np.cumsum(weights) - weights / 2
    return float(np.interp(SCALE_SHARE * weights.sum(), below, size[known][order]))
