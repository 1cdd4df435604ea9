"""One answer so far: its cells with their intervals, the words about them, its one error, and its table.

**Why a number is not certified** is decided cell by cell, as a code (`Reason`), and said in a sentence
(`text_of`). A code is set where the decision is made: by the statistics of a cell
(`relaqs_bootstrap.Doubt`), where the row of a cell may leave the answer, where totals are not scaled.
What the plan knows beforehand of a column is in `OutputColumn.never_certified`.

**The one error of an answer**, the headline, weights the errors of its cells as the user wants (`Judge`).
The largest error of any cell would be that of the smallest group. Of 229 airports, one with three flights
would hide the others, and each new one would make the answer look worse. So the headline is the error
that the cells with most of the weight are within.

It is a statement at the confidence of the bars: in 95 of 100 samples, groups with 95 % of the rows are
off by at most this much, in every column. The half-widths alone do not say that. Of ten like groups with
bars of ± 1 %, all are within ± 1 % in 0.95¹⁰ = 60 of 100 samples only. So the errors are drawn: an error
is the cell's half-width times a normal number that is within ±1 in 95 of 100 draws. Each draw gives the
error that cells with 95 % of the weight are within, and the headline is what 95 of 100 draws stay below.
Ten like groups with bars of ± 1 % have a headline of ± 1.4 %. One cell has its own half-width.

Bars that hold all together say it themselves, and nothing is drawn: the headline is the half-width that cells
with 95 % of the weight have at most. Ten like groups have bars of ± 1.4 % then, and that is the headline.

Where few blocks were read, each half-width has luck of its own, and the largest of several is mostly lucky.
Of six like cells from 8 row groups the truth would be above the headline in 1 of 100 samples. So the
half-widths are first pooled, as far as luck surely explains that they differ (`pooled_half_widths`).

Cells are drawn as if they were independent. Columns that move together then have a headline that is a
little too large, and never one that is too small. Of many cells the heaviest are drawn one by one. Of the
others a share is within an error, and that share is drawn.

**The table**: column x gets x_low, x_high and x_certified. Where the query has a column of such a name
already, underscores are added until the name is free, so a user's own x_low is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import STEP, BoolArray, FloatArray, IntArray, mixed
from relaqs_bootstrap.certify import MIN_ROWS, MIN_ROWS_OF_SHARE, Doubt
from relaqs_bootstrap.intervals import pooled_half_widths
from relaqs_bootstrap.quantiles import normal_quantile, normal_tail

from relaqs_engine.arrow_arrays import arrow_booleans, arrow_moments, arrow_or_null, doubles, microseconds
from relaqs_engine.plans.plan import OnlinePlan, OutputColumn, OutputKind, TimeScale
from relaqs_engine.sql.expressions import Sign


class Reason(IntEnum):
    """Why a cell is not certified. NONE: it is. The first ones are those of `Doubt`."""

    NONE = Doubt.NONE
    FEW_ROWS = Doubt.FEW_ROWS
    NO_NUMBER = Doubt.NO_NUMBER
    ALIKE = Doubt.ALIKE
    UNBOUNDED = Doubt.UNBOUNDED
    LARGE_ROW = Doubt.LARGE_ROW
    NEVER = 10  # the plan says why
    SO_FAR = 11
    MAY_LEAVE = 12
    BARELY_STAYS = 13
    AS_SEEN = 14
    FEW_PARTS = 15
    FEW_ROW_GROUPS = 16
    TOO_WIDE = 17
    UNDECIDED = 18
    FAR_OUT = 19
    MANY_GROUPS = 20
    FEW_UNITS = 21
    LARGE_ROW_APPENDED = 22
    BOUND = 23  # a MIN or MAX so far: it is shown as the bound that it is
    LARGE_UNIT = 24
    UNLIKE_ROW_GROUPS = 25
    GROUPS_MISSING = 26
    FEW_ROWS_OF_SHARE = 27
    LARGE_UNIT_APPENDED = 28


_MORE = "reading on helps"
_LARGE = "one large value that was not read yet could move it beyond its error"
_LARGE_UNIT = (
    "a value of the cluster key that was not read yet may have many rows, and move it beyond its error"
)
_TEXTS = {
    Reason.FEW_ROWS: f"fewer than {MIN_ROWS} of its rows were read so far; {_MORE}",
    Reason.FEW_ROWS_OF_SHARE: f"fewer than {MIN_ROWS_OF_SHARE} of its rows were read so far, and it is "
    f"compared with other groups; {_MORE}",
    Reason.NO_NUMBER: "it or its error is no finite number so far, as where there is NaN, infinity or no "
    "value; isfinite() in WHERE leaves such rows out",
    Reason.ALIKE: f"all that was read so far agrees, and what was not read may differ; {_MORE}",
    Reason.UNBOUNDED: "nothing bounds what a row that was not read may add to it",
    Reason.LARGE_ROW: f"{_LARGE}; {_MORE}",
    Reason.LARGE_ROW_APPENDED: f"{_LARGE}; {_MORE}, and so may `relaqs compact`: rows were appended, and "
    "large values have no index of their own",
    Reason.LARGE_UNIT: f"{_LARGE_UNIT}; {_MORE}",
    Reason.LARGE_UNIT_APPENDED: f"{_LARGE_UNIT}; {_MORE}, and so may `relaqs compact`: rows were appended, "
    "and the largest of these values are not counted apart",
    Reason.SO_FAR: "it is the value of the rows read so far, and has no interval",
    Reason.MAY_LEAVE: f"its row may still leave the answer; {_MORE}",
    Reason.BARELY_STAYS: f"its row only just stays in the answer, which may be luck; {_MORE}",
    Reason.AS_SEEN: f"totals are as seen, not scaled, as long as a group has few rows; {_MORE}",
    Reason.FEW_PARTS: f"one part of the table was read so far, and parts are compared; {_MORE}",
    Reason.FEW_ROW_GROUPS: f"it was met in few row groups of the files so far; {_MORE}, and so does laying "
    "the table out (`relaqs shuffle`)",
    Reason.UNLIKE_ROW_GROUPS: "by their footers the row groups of the files are unlike, and too few were "
    f"read to tell of all; {_MORE}, and so does laying the table out (`relaqs shuffle`)",
    Reason.TOO_WIDE: f"its error is still too large for a function that multiplies errors; {_MORE}",
    Reason.UNDECIDED: f"it depends on a comparison of estimates that are still too close; {_MORE}",
    Reason.FAR_OUT: f"too few values on one side of it were read so far; {_MORE}",
    Reason.MANY_GROUPS: "quantiles of so many groups have no intervals; those of fewer groups have",
    Reason.GROUPS_MISSING: f"a group that was not met yet, or has few rows so far, could change it; {_MORE}",
    Reason.FEW_UNITS: f"the rows of one cluster key could have all of these values; {_MORE}",
}


def text_of(code: int) -> str:
    """Return why a cell is not certified, by its code."""
    return _TEXTS.get(Reason(code), "it is not certified so far")


# The largest factor on a half-width that luck in the selection may cause. To certify no wider ones selects
# once more: of groups nearly alike, certified cells hold 85 to 88 % by a factor of 2, and 94 to 97 % by 4.
MOST_WIDENED = 4.0


@dataclass(frozen=True, slots=True)
class CellIntervals:
    """Values and intervals of the estimated outputs, shape (groups, outputs). NaN where not known.

    `doubt` is why a cell is not certified, a `Reason`. `influence` is the most that a sampling unit that was
    not read can move each value. None: not known. `freedom` has the degrees of freedom of Student intervals
    whose variance comes from few blocks, as of row groups. None: they are many.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    doubt: IntArray
    standard_error: FloatArray
    influence: FloatArray | None = None
    freedom: FloatArray | None = None

    @property
    def certified(self) -> BoolArray:
        """Whether each interval is certified."""
        return np.asarray(self.doubt == Reason.NONE)

    @classmethod
    def unknown(cls, value: FloatArray, why: Reason = Reason.SO_FAR) -> CellIntervals:
        def nothing() -> FloatArray:
            return np.full_like(value, np.nan)

        return cls(value, nothing(), nothing(), np.full(value.shape, int(why)), nothing())

    def doubt_where(self, unsure: BoolArray, why: Reason) -> None:
        """Take the certificate from cells that have one, for a reason. unsure: of a shape that fits."""
        self.doubt[self.certified & unsure] = why

    def of_rows(self, certain: BoolArray, factor: FloatArray) -> CellIntervals:
        """Return the first groups' cells. Those of uncertain rows are not certified.

        `factor` multiplies the half-widths of each row, shape (rows,). A row that only just stays would get
        bars that say nothing. It keeps its own bars instead, and they are not certified.
        """
        count = len(certain)
        value, low, high = self.value[:count], self.low[:count], self.high[:count]
        is_wide = certain & ~(factor <= MOST_WIDENED)
        times = np.where(certain & ~is_wide, factor, 1.0)[:, None]
        low = np.where(times > 1.0, value - (value - low) * times, low)
        high = np.where(times > 1.0, value + (high - value) * times, high)
        influence, freedom = (None if x is None else x[:count] for x in (self.influence, self.freedom))
        doubt, error = self.doubt[:count].copy(), self.standard_error[:count]
        found = CellIntervals(value, low, high, doubt, error, influence, freedom)
        found.doubt_where(~certain[:, None], Reason.MAY_LEAVE)
        found.doubt_where(is_wide[:, None], Reason.BARELY_STAYS)
        return found

    def of_columns(self, count: int) -> CellIntervals:
        """Return the first columns."""
        arrays = (getattr(self, each.name) for each in fields(self))
        cut: list[Any] = [None if array is None else array[:, :count] for array in arrays]
        return CellIntervals(*cut)

    def within(self, column: int, least: FloatArray, most: FloatArray) -> None:
        """Cut the intervals of a column at the known ends of its values, each of shape (rows,)."""
        self.low[:, column] = np.maximum(self.low[:, column], np.minimum(least, self.value[:, column]))
        self.high[:, column] = np.minimum(self.high[:, column], np.maximum(most, self.value[:, column]))

    def or_known(self, known: BoolArray) -> CellIntervals:
        """Return the intervals with the named cells as final values."""
        return CellIntervals(
            self.value,
            np.where(known, self.value, self.low),
            np.where(known, self.value, self.high),
            np.where(known & np.isfinite(self.value), Reason.NONE, self.doubt),
            np.where(known, 0.0, self.standard_error),
        )

    def or_fixed(self, fixed: BoolArray) -> CellIntervals:
        """Return the intervals with the named cells as values that are certain, be it that they are NULL."""
        found = self.or_known(fixed)
        return replace(found, doubt=np.where(fixed & np.isnan(self.value), Reason.NONE, found.doubt))

    @classmethod
    def known(cls, value: FloatArray) -> CellIntervals:
        """Return values that are final, because every row of their groups has been seen."""
        doubt = np.where(np.isfinite(value), Reason.NONE, Reason.NO_NUMBER)
        return cls(value, value, value, doubt, np.zeros_like(value))


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

    def error(self, widths: FloatArray, rows: FloatArray, freedom: FloatArray | None = None) -> float:
        """Return the error that cells with `share` of the weight are within, in 95 of 100 samples.

        They are within it in every column. It is inf where too little is certified. A column without a value
        is left out.

        Args:
            widths: shape (rows, columns), as `relative_widths` gives them.
            rows: behind each group, shape (rows,).
            freedom: the degrees of freedom of each cell's half-width, as `widths`. None: infinitely many.
        """
        if self.weight == "max":
            known = widths[np.isfinite(widths)]
            return float(known.max(initial=0.0)) if self.together and len(known) else _largest_error(known)
        judged = self.judges(widths)
        columns = list(widths.T[judged])
        weights = rows if self.weight == "rows" and rows.sum() > 0 else np.ones(len(rows))
        if self.together:
            return max((_width_of(each, weights, self.share) for each in columns), default=np.inf)
        if freedom is not None:
            of_columns = zip(columns, freedom.T[judged], strict=True)
            columns = [pooled_half_widths(each, weights, its) for each, its in of_columns]
        if not columns or len(rows) > DRAWN_CELLS:
            return _error_of_many(columns, weights, self.share) if columns else np.inf
        cells = min(each for each in _TABLES if each >= len(rows))
        drawn = [_drawn(i, _DRAWS, cells) for i in range(len(columns))]
        errors = [_errors_of(*each, weights, self.share) for each in zip(columns, drawn, strict=True)]
        return _stayed_below(np.maximum.reduce(errors))

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
    words = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(STEP)
    orders = np.argsort(mixed(words), axis=0)
    return _Drawn(sizes[orders[:, 1:]] / _stayed_below(sizes), luck[orders[:, 0]])


@cache
def _quantiles(draws: int) -> tuple[list[float], list[float]]:
    """Return the quantiles of |normal number|, and of a normal number, in the middle of equal chances."""
    chances = [(i + 0.5) / draws for i in range(draws)]
    return [normal_quantile((1.0 + each) / 2.0) for each in chances], [normal_quantile(c) for c in chances]


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
    errors = drawn.sizes[:, : len(widths)] * widths[np.argsort(-weights, kind="stable")]
    weights = -np.sort(-weights)
    enough = share * weights.sum() * (1 - _ROUNDING)
    order = np.argsort(errors, axis=1)
    reached = np.cumsum(weights[order], axis=1)
    at = np.take_along_axis(order, (reached < enough).sum(axis=1)[:, None], axis=1)
    return np.asarray(np.take_along_axis(errors, at, axis=1)[:, 0])


def _error_of_many(columns: Sequence[FloatArray], weights: FloatArray, share: float) -> float:
    """Return the error that cells with `share` of each column's weight are within, in 95 of 100 draws.

    The heaviest cells are drawn one by one. Of the others, in classes of like widths, a share p is within an
    error. It differs from draw to draw by a normal number with the variance of independent cells. The error
    is found by halving the range in which its logarithm lies.
    """
    parts = []
    for i, widths in enumerate(columns):
        heaviest = np.argsort(np.where(np.isnan(widths), np.inf, -weights), kind="stable")
        heaviest = heaviest[: np.count_nonzero(~np.isnan(widths))]
        heavy, light = heaviest[:DRAWN_CELLS], heaviest[DRAWN_CELLS:]
        drawn = _drawn(i, _FEW_DRAWS, DRAWN_CELLS)
        errors = drawn.sizes[:, : len(heavy)] * widths[heavy]
        parted = [c for c in np.array_split(light[np.argsort(widths[light])], _CLASSES) if len(c)]
        alike = [(widths[c[len(c) // 2]], weights[c].sum(), (weights[c] ** 2).sum()) for c in parted]
        enough = share * weights[heaviest].sum() * (1 - _ROUNDING)
        parts.append((errors, weights[heavy], np.array(alike).reshape(-1, 3).T, drawn.luck, enough))

    def is_enough(error: float) -> bool:
        within = np.ones(_FEW_DRAWS, dtype=bool)
        for errors, counted, (width, weight, squares), luck, enough in parts:
            beyond = np.where(width > 0.0, _beyond(error / np.maximum(width, 1e-300)), 0.0)
            likely = (1.0 - beyond) @ weight + luck * np.sqrt((beyond * (1.0 - beyond)) @ squares)
            within &= (errors <= error) @ counted + np.minimum(likely, weight.sum()) >= enough
        return bool(np.count_nonzero(within) > round(0.95 * _FEW_DRAWS))

    sizes = np.concatenate([each for errors, _, classes, *_ in parts for each in (*errors, classes[0])])
    sizes = sizes[np.isfinite(sizes) & (sizes > 0.0)]
    low, high = sizes.min(initial=np.inf) / 8.0, 4.0 * sizes.max(initial=0.0)
    if not is_enough(high) or is_enough(0.0):
        return 0.0 if is_enough(high) else np.inf
    while is_enough(low):
        low /= 64.0
    for _ in range(_HALVINGS):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return float(high)


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


@dataclass(frozen=True, slots=True)
class ApproximateColumn:
    """The place of one approximate column in `Estimate.table`: its own name, and the names of its interval.

    Attributes:
        low: the name of the column of lower ends.
        high: the name of the column of upper ends.
        certified: the name of the column that says which intervals are certified.
        position: its position among the query's own columns, from 0. A query may give two columns one name.
    """

    name: str
    low: str
    high: str
    certified: str
    position: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """One answer so far.

    Attributes:
        table: the query's columns in order (DuckDB's own types), then low, high and certified of each
            approximate column. Where nothing bounds a value, low or high is null.
        columns: the names of the query's own columns.
        approximate: the approximate columns among them.
        fraction: the share of the streamed rows that was folded, in (0, 1].
        is_exact: whether this is the final answer.
        values: shape (rows, approximate columns), for progress metrics. NaN where a column is not a number.
            A moment is its microseconds from an origin of the column.
        half_widths: of the intervals, in the same shape. NaN where nothing is known.
        doubts: why each cell is not certified, a `Reason`, in the same shape.
        unseen_groups: an estimate of the groups not seen yet, None where it is unknown.
        certain_rows: for each row, whether it is certain to be in the answer, at the confidence asked for. No
            cell of another row is certified. None where every row is certain.
        rows_are_settled: False while unread rows may still change which rows the answer has. Then no cell's
            interval speaks for the answer.
        warnings: sentences for the reader.
        group_rows: the joined rows seen behind each row, all alike where they are not known.
        either_sign: for each approximate column, whether its values may lie on both sides of zero, as in
            `OutputColumn`. If left out, no column's may.
        never: for each approximate column why it has no say in the error, as it is never certified before
            the end, "" where it may be. If left out, each may be.
        sizes: what the errors of cells are relative to that are not measured by their own value, in the shape
            of `values`, and NaN for all others. None where there are no such cells.
        calls: rows that costly functions were asked about, and paid for.
        cost: of these calls.
        freedom: the degrees of freedom of the half-widths, in the shape of `values`, infinity where they are
            as good as known. None where all are.
        widths: how far off each cell may be, by `relative_widths`.
    """

    table: pa.Table
    columns: tuple[str, ...]
    approximate: tuple[ApproximateColumn, ...]
    fraction: float
    is_exact: bool
    values: FloatArray
    half_widths: FloatArray
    doubts: IntArray
    unseen_groups: int | None = None
    warnings: tuple[str, ...] = ()
    rows_are_settled: bool = True
    certain_rows: BoolArray | None = None
    group_rows: FloatArray | None = None
    either_sign: tuple[bool, ...] = ()
    sizes: FloatArray | None = None
    never: tuple[str, ...] = ()
    calls: int = 0
    cost: float = 0.0
    freedom: FloatArray | None = None
    widths: FloatArray = field(init=False)
    _errors: dict[object, float] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"fraction is {self.fraction}; it must be in (0, 1]")
        count = len(self.approximate)
        either_sign = np.array(self.either_sign or [False] * count, dtype=bool)
        widths = relative_widths(
            self.values, self.half_widths, self.certified, either_sign, self._rows, self.sizes
        )
        widths[:, np.array(list(map(bool, self.never)) or [False] * count, dtype=bool)] = np.nan
        object.__setattr__(self, "widths", widths)

    @property
    def certified(self) -> BoolArray:
        """Return which cells are certified, in the shape of `values`."""
        return np.asarray(self.doubts == Reason.NONE)

    @property
    def _rows(self) -> FloatArray:
        return np.ones(len(self.values)) if self.group_rows is None else self.group_rows

    def watched_widths(self, watch: tuple[str, ...] | None = None) -> FloatArray:
        """Return how far off the cells of the watched columns may be, shape (rows, watched columns).

        Every approximate column is watched where `watch` is None.
        """
        return self.widths[:, self._are_watched(watch)]

    def _are_watched(self, watch: tuple[str, ...] | None) -> list[bool]:
        return [watch is None or column.name in watch for column in self.approximate]

    def reasons(self) -> tuple[tuple[str, ...], IntArray]:
        """Return why cells are not certified in words, and for each cell which of these texts it has.

        The second has the shape of `values`: 0 for certified cells and bounds, else i for the text i - 1.
        """
        found: dict[str, int] = {}
        which = np.zeros(self.values.shape, dtype=np.int64)
        for i, codes in enumerate(self.doubts.T):
            for code in np.unique(codes[(codes != Reason.NONE) & (codes != Reason.BOUND)]):
                text = self.never[i] if code == Reason.NEVER else text_of(code)
                which[codes == code, i] = found.setdefault(text, len(found) + 1)
        return tuple(found), which

    def not_judged(
        self, watch: tuple[str, ...] | None = None, judge: Judge = DEFAULT_JUDGE
    ) -> tuple[str, ...]:
        """Return the approximate columns that `relative_error` says nothing of.

        They are not watched, or no number of them has an error before the end, as that of a MAX. A column
        whose numbers are all final is not among them.
        """
        if self.is_exact or not self.table.num_rows:
            return ()
        never = self.never or ("",) * len(self.approximate)
        certified = list(np.asarray(self.certified.all(axis=0)))
        final = [sure and not why for why, sure in zip(never, certified, strict=True)]
        return tuple(
            column.name
            for column, *is_known in zip(self.approximate, judge.judges(self.widths), final, strict=True)
            if not any(is_known) or (watch is not None and column.name not in watch)
        )

    def relative_error(self, watch: tuple[str, ...] | None = None, judge: Judge = DEFAULT_JUDGE) -> float:
        """Return the error that most of the answer is within, as the judge weighs its watched cells.

        0.0 when exact, infinity while too little is certified or the answer's rows are not settled.
        """
        if self.is_exact or not self.rows_are_settled:
            return 0.0 if self.is_exact else np.inf
        if (watch, judge) not in self._errors:  # a report and a snapshot ask for the same one
            freedom = None if self.freedom is None else self.freedom[:, self._are_watched(watch)]
            self._errors[watch, judge] = judge.error(self.watched_widths(watch), self._rows, freedom)
        return self._errors[watch, judge]


_NUMBERS = (OutputKind.ESTIMATE, OutputKind.DISTINCT, OutputKind.OF_DISTINCT, OutputKind.QUANTILE)


@dataclass(frozen=True, slots=True)
class CellBounds:
    """The ends of one column's cells where they do not come from a variance, each of shape (groups,).

    `doubt` is why a cell is not certified, a `Reason`.
    """

    low: FloatArray
    high: FloatArray
    doubt: IntArray

    @classmethod
    def unknown(cls, count: int, why: Reason = Reason.SO_FAR) -> CellBounds:
        return cls(np.full(count, np.nan), np.full(count, np.nan), np.full(count, int(why)))

    def doubt_where(self, unsure: BoolArray, why: Reason) -> CellBounds:
        """Return the same without a certificate where a cell has one and should not."""
        return replace(self, doubt=np.where((self.doubt == Reason.NONE) & unsure, why, self.doubt))


# Of outputs that are COUNT(DISTINCT) or quantiles, by position.
BoundsByColumn = Mapping[int, CellBounds]


def approximate_columns(names: Sequence[str], positions: Sequence[int]) -> tuple[ApproximateColumn, ...]:
    """Return the names of the interval columns, without clashes. `positions` are the approximate columns'."""
    taken = {name.lower() for name in names}

    def free(name: str) -> str:
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        return name

    return tuple(
        ApproximateColumn(
            names[i], free(f"{names[i]}_low"), free(f"{names[i]}_high"), free(f"{names[i]}_certified"), i
        )
        for i in positions
    )


def present_exact(plan: OnlinePlan, answer: pa.Table) -> Estimate:
    """Return the final Estimate. `answer` has the query's columns in order, under any names."""
    outputs = _approximate(plan)
    columns = [answer.column(i) for i, _ in outputs]
    true = arrow_booleans(np.ones(answer.num_rows, dtype=bool))
    ends = [_as_side(output, column) for (_, output), column in zip(outputs, columns, strict=True)]
    sides = [(end, end, true) for end in ends]
    shape = (answer.num_rows, len(outputs))
    return _assemble(
        plan,
        answer,
        sides,
        fraction=1.0,
        is_exact=True,
        values=_stack(
            [numbers_of(output, column) for (_, output), column in zip(outputs, columns, strict=True)], shape
        ),
        half_widths=np.broadcast_to(0.0, shape),
        doubts=np.zeros(shape, dtype=np.int64),
        certain_rows=np.ones(answer.num_rows, dtype=bool),
        unseen_groups=0,
    )


def present_estimate(
    plan: OnlinePlan,
    point: pa.Table,
    found: CellIntervals,
    bounds: BoundsByColumn,
    *,
    fraction: float,
    unseen_groups: int | None,
    certain_rows: BoolArray,
    rows_are_settled: bool,
    warnings: tuple[str, ...],
    group_rows: FloatArray | None = None,
    chosen: Mapping[int, BoolArray] | None = None,
) -> Estimate:
    """Return an Estimate. Whatever was found, no cell of an uncertain row is certified.

    Args:
        point: the result of the plan's estimate query.
        found: the intervals, one column for each ESTIMATE output.
        bounds: the ends of each row's COUNT(DISTINCT) and quantiles, by the output's position.
        fraction: the scanned share of the table.
        unseen_groups: an estimate of the groups not seen yet, None where it is unknown.
        certain_rows: whether each row is certain to be in the answer.
        rows_are_settled: whether unread rows can no longer change which rows the answer has.
        group_rows: the joined rows seen behind each row of the answer, None where they are not known.
        chosen: where comparisons of estimates are decided, of outputs that they choose, by position.
    """
    chosen = chosen or {}
    sides, values, halves, doubts = [], [], [], []
    freedom = None if found.freedom is None else np.full((point.num_rows, len(_approximate(plan))), np.inf)
    estimated = 0
    for place, (i, output) in enumerate(_approximate(plan)):
        if output.kind is OutputKind.ESTIMATE:
            low, high = found.low[:, estimated], found.high[:, estimated]
            value, doubt = found.value[:, estimated], found.doubt[:, estimated]
            if freedom is not None and found.freedom is not None:
                freedom[:, place] = found.freedom[:, estimated]
            estimated += 1
        elif i in bounds:
            value = numbers_of(output, point.column(i))
            low, high, doubt = bounds[i].low, bounds[i].high, bounds[i].doubt
        else:
            values.append(np.full(point.num_rows, np.nan))
            halves.append(np.full(point.num_rows, np.nan))
            if i in chosen:
                sure = arrow_booleans(chosen[i] & certain_rows)
                import pyarrow.compute as pc  # a question that runs as a whole needs none of it

                end = pc.if_else(sure, point.column(i), pa.scalar(None, point.column(i).type))
                sides.append((end, end, sure))
                doubt = np.where(chosen[i], Reason.MAY_LEAVE, Reason.UNDECIDED)
                doubts.append(np.where(chosen[i] & certain_rows, Reason.NONE, doubt))
                continue
            ends = _bound_sides(output, point.column(i), complete=plan.groups_are_final)
            sides.append((*ends, arrow_booleans(certain_rows & plan.groups_are_final)))
            so_far = Reason.SO_FAR if output.certifiable else Reason.NEVER
            doubts.append(np.full(point.num_rows, int(Reason.BOUND if output.side else so_far)))
            continue
        doubt = np.where((doubt == Reason.NONE) & ~certain_rows, Reason.MAY_LEAVE, doubt)
        doubt[(doubt != Reason.NONE) & (not output.certifiable)] = Reason.NEVER
        kind, sure = point.column(i).type, arrow_booleans(doubt == Reason.NONE)
        sides.append((_end(output, low, kind), _end(output, high, kind), sure))
        values.append(value)
        with np.errstate(invalid="ignore"):  # between infinities
            halves.append(np.maximum(high - value, value - low))
        doubts.append(doubt)
    shape = (point.num_rows, len(sides))
    return _assemble(
        plan,
        point,
        sides,
        fraction=fraction,
        is_exact=False,
        values=_stack(values, shape),
        half_widths=_stack(halves, shape),
        doubts=np.stack(doubts, axis=1) if doubts else np.empty(shape, dtype=np.int64),
        certain_rows=certain_rows,
        unseen_groups=unseen_groups,
        rows_are_settled=rows_are_settled,
        warnings=warnings,
        group_rows=group_rows,
        freedom=freedom,
    )


def _assemble(
    plan: OnlinePlan,
    answer: pa.Table,
    sides: Sequence[tuple[pa.Array, pa.Array, pa.Array]],
    *,
    is_exact: bool,
    warnings: tuple[str, ...] = (),
    group_rows: FloatArray | None = None,
    **facts: Any,
) -> Estimate:
    """Return an Estimate with what its plan and its sides say, beside these facts of it."""
    names = [output.name for output in plan.outputs]
    outputs = _approximate(plan)
    approximate = approximate_columns(names, [i for i, _ in outputs])
    arrays = [answer.column(i) for i in range(len(names))]
    for column, triple in zip(approximate, sides, strict=True):
        names += [column.low, column.high, column.certified]
        arrays += list(triple)
    return Estimate(
        table=pa.Table.from_arrays(arrays, names=names),
        columns=tuple(output.name for output in plan.outputs),
        approximate=approximate,
        is_exact=is_exact,
        warnings=plan.warnings + warnings + (() if is_exact else remarks_of(outputs)),
        group_rows=np.ones(answer.num_rows) if group_rows is None else group_rows,
        either_sign=tuple(output.sign is Sign.EITHER for _, output in outputs),
        never=tuple(output.remark for _, output in outputs),
        sizes=_sizes([output for _, output in outputs], answer.num_rows),
        **facts,
    )


def remarks_of(outputs: Sequence[tuple[int, OutputColumn]]) -> tuple[str, ...]:
    """Return what every answer before the end says of columns that can never be certified."""
    names: dict[str, list[str]] = {}
    for _, output in outputs:
        if output.remark:
            names.setdefault(output.remark, []).append(output.name)
    return tuple(f"{', '.join(named)}: {remark}" for remark, named in names.items())


def _approximate(plan: OnlinePlan) -> list[tuple[int, OutputColumn]]:
    return [(i, output) for i, output in enumerate(plan.outputs) if output.kind is not OutputKind.KEY]


def _sizes(outputs: Sequence[OutputColumn], count: int) -> FloatArray | None:
    """Return what the errors of moments are relative to, NaN in all other columns; None without moments."""
    if all(output.time is None for output in outputs):
        return None
    spans = [np.nan if output.time is None else output.time.span_microseconds for output in outputs]
    return np.tile(spans, (count, 1))


def _end(output: OutputColumn, ends: FloatArray, kind: pa.DataType) -> pa.Array:
    """Return the ends of intervals, moments as moments of that kind."""
    if output.time is None:
        return arrow_or_null(ends)
    return arrow_moments(ends, output.time.origin_microseconds, kind)


def _as_side(output: OutputColumn, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if output.kind not in _NUMBERS or not _is_number(column.type):
        return column
    if pa.types.is_decimal(column.type):  # Arrow's own cast divides, and may miss the nearest double
        column = column.cast(pa.string())
    return column.cast(pa.float64(), safe=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _bound_sides(
    output: OutputColumn, column: pa.ChunkedArray, *, complete: bool
) -> tuple[pa.Array, pa.Array]:
    """Return the ends of a bound: MAX so far is "at least", MIN "at most".

    Nothing is known of an opaque value, unless its group is complete.
    """
    unknown = pa.nulls(len(column), column.type)
    low = column if complete or output.side == "least" else unknown
    high = column if complete or output.side == "most" else unknown
    return low, high


def numbers_of(output: OutputColumn, column: pa.ChunkedArray) -> FloatArray:
    """Return a column's values as numbers, NaN where the output has no interval."""
    if output.kind not in _NUMBERS or pa.types.is_string(column.type):
        return np.full(len(column), np.nan)
    if output.time is not None:
        return microseconds_from(output.time, column)
    return doubles(column)


def microseconds_from(time: TimeScale, column: pa.ChunkedArray | pa.Array) -> FloatArray:
    """Return moments or intervals as microseconds from the scale's origin."""
    return microseconds(column) - time.origin_microseconds


def _stack(columns: Sequence[FloatArray], shape: tuple[int, int]) -> FloatArray:
    return np.stack(columns, axis=1) if columns else np.empty(shape)
