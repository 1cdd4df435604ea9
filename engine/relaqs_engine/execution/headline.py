"""How far off a whole answer is, in one number: the error of its cells, weighted as the user wants.

The largest error of any cell would be that of the smallest group. Of 229 airports, one with three flights
would hide the others, and each new one would make the answer look worse. So the headline is the error that
the cells with most of the weight are within.

It is a statement at the confidence of the bars: in 95 of 100 samples, groups with 95 % of the rows are off
by at most this much, in every column. The half-widths alone do not say that. Of ten like groups with bars of
± 1 %, all are within ± 1 % in 0.95¹⁰ = 60 of 100 samples only. So the errors are drawn: an error is the
cell's half-width times a normal number that is within ±1 in 95 of 100 draws. Each draw gives the error that
cells with 95 % of the weight are within, and the headline is what 95 of 100 draws stay below. Ten like groups
with bars of ± 1 % have a headline of ± 1.4 %. One cell has its own half-width.

Bars that hold all together say it themselves, and nothing is drawn: the headline is the half-width that cells
with 95 % of the weight have at most. Ten like groups have bars of ± 1.4 % then, and that is the headline.

Cells are drawn as if they were independent. Columns that move together then have a headline that is a little
too large, and never one that is too small. Of many cells the heaviest are drawn one by one. Of the others a
share is within an error, and that share is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.quantiles import normal_quantile, normal_tail

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
        together: whether the bars hold all together, not just each for itself.
    """

    weight: Weighting = "rows"
    share: float = 0.95
    together: bool = False

    def error(self, widths: FloatArray, rows: FloatArray) -> float:
        """Return the error that cells with `share` of the weight are within, in 95 of 100 samples.

        They are within it in every column. It is inf where too little is certified. A column without a value
        is left out.

        Args:
            widths: shape (rows, columns), as `relative_widths` gives them.
            rows: behind each group, shape (rows,).
        """
        if self.weight == "max":
            known = widths[np.isfinite(widths)]
            return float(known.max(initial=0.0)) if self.together and len(known) else _largest_error(known)
        columns = widths.T[self.judges(widths)]
        weights = rows if self.weight == "rows" and rows.sum() > 0 else np.ones(len(rows))
        if self.together:
            return max((_width_of(each, weights, self.share) for each in columns), default=np.inf)
        cells = min(each for each in _TABLES if each >= min(len(rows), DRAWN_CELLS))
        draws = _FEW_DRAWS if len(rows) > DRAWN_CELLS else _DRAWS
        drawn = [_drawn(i, draws, cells) for i in range(len(columns))]
        errors = [_errors_of(*each, weights, self.share) for each in zip(columns, drawn, strict=True)]
        return _stayed_below(np.maximum.reduce(errors)) if errors else np.inf

    def judges(self, widths: FloatArray) -> BoolArray:
        """Return which columns have a say in the error, shape (columns,). The others are left out."""
        has_say = np.isfinite(widths) if self.weight == "max" else ~np.isnan(widths)
        return np.asarray(has_say.any(axis=0))


DRAWN_CELLS = 64
_TABLES = (1, 4, 16, DRAWN_CELLS)  # of numbers, for at most so many cells: smaller ones are made sooner
_DRAWS, _FEW_DRAWS = 600, 300
_CLASSES = 16  # of like widths, that many light cells are put into
_HALVINGS = 20  # of the range in which the error lies: to a millionth of it


def _stayed_below(errors: FloatArray) -> float:
    """Return the error that 95 of 100 draws stay below."""
    level = round(0.95 * len(errors))
    return float(np.partition(errors, level)[level])


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Numbers of which errors are made, the same in every process.

    Attributes:
        sizes: of errors in half-widths, |normal number| / 1.96, shape (draws, cells). Each cell has the
            same sizes, the quantiles of a normal number, in an order of its own. So the headline of a single
            cell is its half-width.
        luck: by how many standard errors a share of light cells differs from its mean, shape (draws,).
    """

    sizes: FloatArray
    luck: FloatArray


@cache
def _drawn(column: int, draws: int, cells: int) -> _Drawn:
    """Return the numbers that one column's errors are made of."""
    sizes, luck = (np.array(each) for each in _quantiles(draws))
    numbers = (column * (DRAWN_CELLS + 1) + np.arange(cells + 1)) * _DRAWS + np.arange(draws)[:, None]
    orders = np.argsort(_scrambled(numbers), axis=0)
    return _Drawn(sizes[orders[:, 1:]] / _stayed_below(sizes), luck[orders[:, 0]])


@cache
def _quantiles(draws: int) -> tuple[list[float], list[float]]:
    """Return the quantiles of |normal number|, and of a normal number, in the middle of equal chances."""
    chances = [(i + 0.5) / draws for i in range(draws)]
    return [normal_quantile((1.0 + each) / 2.0) for each in chances], [normal_quantile(c) for c in chances]


def _scrambled(numbers: IntArray) -> NDArray[np.uint64]:
    """Return a hash of each number, the same in every process.

    Source: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, the mix of SplitMix64.
    """
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _width_of(widths: FloatArray, weights: FloatArray, share: float) -> float:
    """Return the half-width that cells with `share` of one column's weight have at most."""
    has_value = ~np.isnan(widths)
    order = np.argsort(widths[has_value], kind="stable")
    reached = np.cumsum(weights[has_value][order])
    enough = share * reached[-1] * (1 - _ROUNDING)
    return float(widths[has_value][order][np.searchsorted(reached, enough)])


def _errors_of(widths: FloatArray, drawn: _Drawn, weights: FloatArray, share: float) -> FloatArray:
    """Return, for each draw, the error that cells with `share` of one column's weight are within."""
    has_value = ~np.isnan(widths)
    widths, weights = widths[has_value], weights[has_value]
    heaviest = np.argsort(-weights, kind="stable")
    heavy, light = heaviest[:DRAWN_CELLS], heaviest[DRAWN_CELLS:]
    errors = drawn.sizes[:, : len(heavy)] * widths[heavy]
    enough = share * weights.sum() * (1 - _ROUNDING)
    if len(light):
        classes = _classes_of(widths[light], weights[light])
        return _errors_beside(errors, weights[heavy], classes, enough, drawn)
    order = np.argsort(errors, axis=1)
    reached = np.cumsum(weights[heavy][order], axis=1)
    at = np.take_along_axis(order, (reached < enough).sum(axis=1)[:, None], axis=1)
    return np.asarray(np.take_along_axis(errors, at, axis=1)[:, 0])


def _classes_of(widths: FloatArray, weights: FloatArray) -> FloatArray:
    """Return many light cells as a few of like widths: width, weight, and sum of squared weights of each."""
    classes = np.array_split(np.argsort(widths), min(_CLASSES, len(widths)))
    return np.array([(widths[c[len(c) // 2]], weights[c].sum(), (weights[c] ** 2).sum()) for c in classes]).T


def _errors_beside(
    errors: FloatArray, counted: FloatArray, classes: FloatArray, enough: float, drawn: _Drawn
) -> FloatArray:
    """Return, for each draw, the error that enough weight is within, where there are light cells as well.

    Of light cells a share p is within an error. It differs from draw to draw by a normal number with the
    variance of independent cells. The error is found by halving the range in which it lies.

    Args:
        errors: of the cells that are drawn one by one, shape (draws, cells).
        counted: their weights.
        classes: as `_classes_of` returns them.
        enough: the weight that must be within.
        drawn: the numbers that errors are made of.
    """
    width, weight, squares = classes
    most = 4.0 * max(float(errors.max()), float(width.max()))
    if not np.isfinite(most):
        finite = np.concatenate([errors[np.isfinite(errors)], width[np.isfinite(width)]])
        most = 4.0 * float(finite.max(initial=0.0))

    def reached(error: FloatArray) -> FloatArray:
        share = 1.0 - _beyond(error[:, None] / np.maximum(width, 1e-300))
        spread = np.sqrt((share * (1.0 - share)) @ squares)
        within = ((errors <= error[:, None]) * counted).sum(axis=1)
        return np.asarray(within + np.minimum(share @ weight + drawn.luck * spread, weight.sum()))

    low, high = np.zeros(len(errors)), np.full(len(errors), most)
    never = reached(high) < enough
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_enough = reached(middle) >= enough
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return np.where(never, np.inf, high)


def _largest_error(widths: FloatArray) -> float:
    """Return what the largest error of any cell is below in 95 of 100 samples, infinity without cells.

    Errors beyond it have a probability of 0.05 in all, summed over the cells.
    """
    if not len(widths):
        return np.inf
    low, high = float(widths.max()), 8.0 * float(widths.max())
    for _ in range(_HALVINGS if len(widths) > 1 and low > 0.0 else 0):
        middle = (low + high) / 2
        is_enough = _beyond(middle / np.maximum(widths, 1e-300)).sum() <= 0.05
        low, high = (low, middle) if is_enough else (middle, high)
    return low


@cache
def _tail() -> tuple[FloatArray, FloatArray]:
    """Return numbers of half-widths, and the logarithm of the probability of an error beyond each."""
    half_widths = np.linspace(0.0, 10.0, 401)
    deviate = normal_quantile(0.975)
    return half_widths, np.array([math.log(2.0 * normal_tail(deviate * each)) for each in half_widths])


def _beyond(half_widths: FloatArray) -> FloatArray:
    """Return the probability that an error is more than so many half-widths."""
    return np.asarray(np.exp(np.interp(half_widths, *_tail())))


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
