"""Which row groups of plain files are read, as their footers show, and whether a sample of them is sound.

- `wanted_of`, `matching`: those that can hold rows that meet a query's conditions, by the ends in the
  footers. A condition that is not understood leaves every row group in.
- `choosing_columns`: columns that decide about rows in a way that footers tell nothing of. `WHERE day <>
  3` keeps all rows of most row groups and none of a few, if a file is sorted by day. A sample that missed
  those few would be sure of itself, and wrong. Where each row group has about the same values of a column,
  none is unlike the others.
- `unlike`: those that a sample would miss too often.
- `is_ruled_out`: whether the zones of a layout tell that no row meets conditions.

A footer gives each row group *marks*, numbers of which one can say beforehand what their mean is:

- how many of its rows are known to meet a condition,
- how many values of a column are not NULL,
- how far both ends of a column that is summed or compared lie to one side of those of the median row
  group,
- whether an end lies apart from the ends of all others, as 174 does among 59, 60 and 61, or both ends do
  so together.

So the draw is *rehearsed*: of each mark, the mean is estimated from many draws, with an interval as the
answer's, and the intervals that hold the true mean are counted. Where too few do, the answer's own
intervals would hold too seldom as well, if its sums are like this mark. The row groups farthest from the
mean are then read for certain, as few as it takes. Where that would be too many, nothing is certified.

*Example.* Of 200 row groups one has values from 116 to 174, and all others from 40 to 60. Nine draws of
ten miss it, and their intervals miss the mean. Without it no mark differs, so it is read for certain.

The decision: docs/decisions/0025-row-groups.md.
"""

from __future__ import annotations

import math
import re
import sys
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.quantiles import student_quantile
from sqlglot import exp

from relaqs_engine.layouts.footers import End, Zone
from relaqs_engine.layouts.manifest import FLOATS, Layout, Zones
from relaqs_engine.layouts.row_groups import RowGroup, is_sound, kind_of, number
from relaqs_engine.plans.plan import spread_draws
from relaqs_engine.sql.dialect import find_all
from relaqs_engine.sql.parse import DIALECT

FAR_OUT = 3.0
"""A row group is far out if its largest value is more than this many times that of the median one."""

_MOST_DIGITS = 15
_LARGEST = sys.float_info.max  # above all constants that are read
_MOST_NODES = 400  # of a condition that zones are asked about
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", re.ASCII)
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_DAY_LENGTH = len("2000-01-01")
_UPWARD, _DOWNWARD = (exp.GT, exp.GTE), (exp.LT, exp.LTE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a condition asks of one column: a value between two ends.

    Attributes:
        low: the lower end, None for no end.
        high: the upper end, None for no end.
        is_open: whether the one end that there is fails the condition itself, as in `x < 5`.
        is_whole: whether each value between the ends meets the condition. Of `x IN (1, 9)` it is False.
    """

    column: str
    type: str
    low: End | None
    high: End | None
    is_open: bool = False
    is_whole: bool = True

    def may_be_in(self, zone: Zone, row_count: int) -> bool:
        """Whether there may be such a value among so many rows."""
        if zone.null_count == row_count:
            return False
        if not is_sound(self.type, zone):
            return True
        return self._is_above(zone.high, self.low) and self._is_above(self.high, zone.low)

    @property
    def others(self) -> list[Wanted]:
        """Return what is asked of values that are not NULL, and do not meet the condition."""
        below = replace(self, low=None, high=self.low, is_open=not self.is_open)
        above = replace(self, low=self.high, high=None, is_open=not self.is_open)
        return [each for each, end in ((below, self.low), (above, self.high)) if end is not None]

    def is_all_of(self, group: RowGroup) -> bool:
        """Whether each row of a row group has such a value."""
        zone = group.zone(self.column)
        if not self.is_whole or zone.null_count != 0 or not is_sound(self.type, zone):
            return False
        return self._is_above(zone.low, self.low) and self._is_above(self.high, zone.high)

    def _is_above(self, upper: End | None, lower: End | None) -> bool:
        if upper is None or lower is None:
            return True
        return bool(upper > lower if self.is_open else upper >= lower)  # type: ignore[operator]


_Chance: TypeAlias = Callable[[Callable[[Wanted], bool]], bool]


def wanted_of(conditions: Iterable[exp.Expr], alias: str, layout: Layout) -> tuple[Wanted, ...]:
    """Return what the conditions on one table ask, those that are understood."""
    return tuple(each for condition in conditions if (each := wanted_by(condition, alias, layout)))


def matching(groups: Iterable[RowGroup], wanted: Sequence[Wanted]) -> tuple[RowGroup, ...]:
    """Return the row groups that may hold rows that meet all conditions."""
    return tuple(
        group
        for group in groups
        if all(each.may_be_in(group.zone(each.column), group.row_count) for each in wanted)
    )


def is_ruled_out(layout: Layout, condition: exp.Expr, names: Sequence[str]) -> bool:
    """Whether no row of a layout meets a condition: none does in each range of one column's values.

    names: by which the condition has the table's columns.
    """
    condition = condition.unnest()
    if sum(1 for _ in find_all(condition, exp.Condition)) > _MOST_NODES:
        return False
    sides = list(condition.flatten()) if isinstance(condition, exp.Or) else []
    if sides and all(is_ruled_out(layout, each, names) for each in sides):
        return True
    may_be = _chance(condition, True, names, layout)

    def may_hold(zones: Zones, ends: Sequence[str | None], each: Wanted) -> bool:
        if each.column not in zones.columns:
            return True
        at = 2 * zones.columns.index(each.column)
        return each.may_be_in(_zone_of(each.type, *ends[at : at + 2]), 1)

    return any(
        not any(may_be(partial(may_hold, zones, ends)) for ends in zones.ends) for zones in layout.zones
    )


def _chance(condition: exp.Expr, truth: bool, names: Sequence[str], layout: Layout) -> _Chance:
    """Return what says whether a condition may be true, or false, by which values columns may have.

    It is neither where a column is NULL. What is not understood may be both.
    """
    condition = condition.unnest()
    if isinstance(condition, exp.Not | exp.NEQ):
        inner = condition.this if isinstance(condition, exp.Not) else exp.EQ(**condition.copy().args)
        return _chance(inner, not truth, names, layout)
    if isinstance(condition, exp.And | exp.Or):
        chances = [_chance(each, truth, names, layout) for each in condition.flatten()]
        how = all if isinstance(condition, exp.And) is truth else any
        return lambda may_hold: how(each(may_hold) for each in chances)
    asked = next(filter(None, (wanted_by(condition, name, layout) for name in names)), None)
    if asked is None or not (truth or asked.is_whole):
        return lambda _: True
    wanted = [asked] if truth else asked.others
    return lambda may_hold: any(map(may_hold, wanted))


@lru_cache(maxsize=8192)
def _zone_of(type_text: str, low: str | None, high: str | None) -> Zone:
    """Return the zone of values between two texts, as if of one row."""
    if low is None or high is None:
        return Zone(0, None, None, 1)
    kind, least = kind_of(type_text), 2.0**-21 if type_text == "FLOAT" else 0.0
    try:
        ends = [_read(low, kind), _read(high, kind)]
    except ValueError:  # as of infinity
        return Zone(0, None, None, 0)
    if kind is float:
        ends = [_passed(end, way * least) for end, way in zip(ends, (-1, 1), strict=True)]
    return Zone(0, ends[0], ends[1], 0)


def _passed(end: Any, share: float) -> float:
    """Return an end of floats, which NaN is above, beyond what DuckDB may round a FLOAT's constant to."""
    if math.isfinite(end):
        end += share * (abs(end) + 1e-37)
    return float(max(-_LARGEST, min(_LARGEST if math.isnan(end) else end, _LARGEST)))


def far_out(groups: Sequence[RowGroup], columns: Iterable[str], most: int) -> tuple[RowGroup, ...]:
    """Return the row groups with values of these columns far out, at most so many, the farthest first."""
    ratios: dict[RowGroup, float] = {}
    for column in columns:
        sizes = [_size(group, column) for group in groups]
        median = sorted(sizes)[len(sizes) // 2] if sizes else 0.0
        for group, size in zip(groups, sizes, strict=True):
            if size > FAR_OUT * median > 0.0:
                ratios[group] = max(ratios.get(group, 0.0), size / median)
    return tuple(sorted(ratios, key=lambda group: (-ratios[group], group.state, group.position))[:most])


def _size(group: RowGroup, column: str) -> float:
    zone = group.zone(column)
    return max((abs(end) for end in (number(zone.low), number(zone.high)) if end is not None), default=0.0)


def wanted_by(condition: exp.Expr, alias: str, layout: Layout) -> Wanted | None:
    """Return what a condition asks of one column of the table, None where that is not understood."""
    if isinstance(condition, exp.Between):
        return _wanted(condition.this, condition.args["low"], condition.args["high"], alias, layout)
    if isinstance(condition, exp.In) and condition.expressions:
        found = [_wanted(condition.this, each, each, alias, layout) for each in condition.expressions]
        return _hull([each for each in found if each is not None]) if None not in found else None
    if type(condition) not in _TURNED:
        return None
    left, right, kind = condition.this.unnest(), condition.expression.unnest(), type(condition)
    if not isinstance(left, exp.Column):
        left, right, kind = right, left, _TURNED[kind]
    low = None if kind in _DOWNWARD else right
    high = None if kind in _UPWARD else right
    asked = _wanted(left, low, high, alias, layout)
    return None if asked is None else replace(asked, is_open=kind in (exp.LT, exp.GT))


def without_nan(conditions: Iterable[exp.Expr], alias: str, layout: Layout) -> frozenset[str]:
    """Return the floats of a table of which no row that meets all conditions has NaN.

    NaN is above all numbers, so `x < 5` and `x BETWEEN 1 AND 5` leave it out, and `x > 5` does not.
    """
    floats = {column.name.lower(): column.name for column in layout.columns if column.type in FLOATS}
    found = (_is_no_nan(condition.unnest()) for condition in conditions)
    named = {column.name.lower() for column in found if column is not None and column.table == alias}
    return frozenset(name for lower, name in floats.items() if lower in named)


def _is_no_nan(condition: exp.Expr) -> exp.Column | None:
    """Return the column that is a number, and not NaN, where a condition is met."""
    of: exp.Expr = condition.this if isinstance(condition.this, exp.Expr) else condition
    below: Sequence[exp.Expr] = ()
    match condition:
        case exp.Between():
            below = [condition.args["low"], condition.args["high"]]
        case exp.In():
            below = condition.expressions
        case exp.LT() | exp.LTE() | exp.EQ():
            below = [condition.expression]
        case exp.GT() | exp.GTE():
            of, below = condition.expression, [condition.this]
        case exp.Not() if isinstance(inner := of.unnest(), exp.IsNan):
            return inner.this if isinstance(inner.this, exp.Column) else None
        case exp.Anonymous() if condition.name.lower() == "isfinite" and len(condition.expressions) == 1:
            (argument,) = condition.expressions
            return argument if isinstance(argument, exp.Column) else None
    is_below = bool(below) and all(isinstance(each.unnest(), exp.Literal | exp.Neg) for each in below)
    is_number = not any(literal.is_string for each in below for literal in find_all(each, exp.Literal))
    of = of.unnest()
    return of if is_below and is_number and isinstance(of, exp.Column) else None


def _hull(found: Sequence[Wanted]) -> Wanted:
    low = min(each.low for each in found)  # type: ignore[type-var]
    high = max(each.high for each in found)  # type: ignore[type-var]
    return Wanted(found[0].column, found[0].type, low, high, is_whole=len(found) == 1)


def _wanted(
    of: exp.Expr, low: exp.Expr | None, high: exp.Expr | None, alias: str, layout: Layout
) -> Wanted | None:
    of = of.unnest()
    if not isinstance(of, exp.Column) or of.table != alias:
        return None
    column = next((each for each in layout.columns if each.name.lower() == of.name.lower()), None)
    if column is None or (column.type in FLOATS and not layout.zones):
        return None  # a NaN is above all numbers, and footers leave it out
    ends = [None if each is None else _value(each.unnest(), column.type) for each in (low, high)]
    if any(end is None and given is not None for end, given in zip(ends, (low, high), strict=True)):
        return None
    return Wanted(column.name, column.type, ends[0], ends[1])


def _value(literal: exp.Expr, type_text: str) -> End | None:
    """Return a literal as a value of a column's type, None where it is none."""
    if isinstance(literal, exp.Cast):
        to = literal.to.sql(DIALECT)
        is_midnight = to == "DATE" and type_text == "TIMESTAMP" and len(literal.this.name) == _DAY_LENGTH
        is_time = to == type_text and type_text in ("DATE", "TIMESTAMP")
        return _value(literal.this, type_text) if is_time or is_midnight else None
    if isinstance(literal, exp.Neg):
        value = _value(literal.this, type_text)
        return -value if isinstance(value, Decimal) else None
    if isinstance(literal, exp.Add | exp.Sub):
        moment, step = literal.this.unnest(), literal.expression.unnest()
        start = None if isinstance(moment, exp.Literal) else _value(moment, type_text)
        is_step = isinstance(start, date) and isinstance(step, exp.Interval)
        try:
            return _moved(start, step, -1 if isinstance(literal, exp.Sub) else 1) if is_step else None
        except (ValueError, OverflowError):  # Python has fewer years
            return None
    kind = kind_of(type_text)
    if not isinstance(literal, exp.Literal) or literal.is_string != (kind in (str, date, datetime)):
        return None
    try:
        if literal.is_string:
            return _without_zone(_read(literal.this, kind))
        found = _exact(literal.this)
        return float(found) if found is not None and type_text == "DOUBLE" else found
    except (ValueError, InvalidOperation):
        return None


def _moved(start: Any, step: exp.Expr, times: int) -> End | None:
    """Return a moment some days, weeks, months or years later, the last of a month that is shorter."""
    if not isinstance(step.this, exp.Literal) or not re.fullmatch(r"\d{1,4}", step.name, re.ASCII):
        return None
    unit, moved = step.text("unit").upper().removesuffix("S"), times * int(step.name)
    if unit in ("DAY", "WEEK"):
        return start + timedelta(moved * (7 if unit == "WEEK" else 1))  # type: ignore[no-any-return]
    if unit not in ("MONTH", "YEAR"):
        return None
    year, month = divmod(12 * start.year + start.month - 1 + moved * (12 if unit == "YEAR" else 1), 12)
    return start.replace(year, month + 1, min(start.day, monthrange(year, month + 1)[1]))  # type: ignore[no-any-return]


def _read(text: str, kind: Any) -> End:
    """Return the value of a type in Python that a text is. Raises ValueError where it is none.

    Python reads more forms of moments than DuckDB does, which refuses a query with them.
    """
    if kind in (date, datetime) and not _MOMENT.fullmatch(text):
        raise ValueError(text)
    value: End = (kind.fromisoformat if kind in (date, datetime) else kind)(text)
    return value


def _exact(text: str) -> Decimal | None:
    """Return a number that DuckDB compares without rounding, None where it might round."""
    return Decimal(text) if len(text) <= _MOST_DIGITS and "e" not in text.lower() else None


def _without_zone(value: End) -> End | None:
    return None if isinstance(value, datetime) and value.tzinfo is not None else value


_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast)


def choosing_columns(
    select: exp.Select, conditions: Iterable[exp.Expr], alias: str, layout: Layout
) -> frozenset[str]:
    """Return the columns of one table that choose rows, groups or terms, but for ranges that footers know.

    Args:
        conditions: those that all rows must meet.
        alias: the table's name in the query.
    """
    of_table = {column.name.lower(): column.name for column in layout.columns}
    found = (*_in_conditions(conditions, alias, layout), *_elsewhere(select))
    return frozenset(
        of_table[column.name.lower()]
        for column in found
        if column.table == alias and column.name.lower() in of_table
    )


def are_mixed(groups: Sequence[RowGroup], column: str, type_text: str) -> bool:
    """Return whether the row groups have about the same values of a column, as far as footers tell.

    Where a footer has no ends, it tells nothing, and the answer is True.
    """
    filled = _filled(groups, column)
    if len(filled) < len(groups):
        return not filled
    if not has_ends(groups, column, type_text):
        return True
    low, high = max(zone.low for zone in filled), min(zone.high for zone in filled)  # type: ignore[type-var]
    return bool(low < high) or all(zone.low == zone.high == low for zone in filled)  # type: ignore[operator]


def has_ends(groups: Sequence[RowGroup], column: str, type_text: str) -> bool:
    """Return whether the footers have both ends of a column in each row group that has values of it."""
    return all(is_sound(type_text, zone) for zone in _filled(groups, column))


def _filled(groups: Sequence[RowGroup], column: str) -> list[Zone]:
    """Return the zones that are not all NULL."""
    zones = ((group.zone(column), group.row_count) for group in groups)
    return [zone for zone, row_count in zones if zone.null_count != row_count]


def _in_conditions(conditions: Iterable[exp.Expr], alias: str, layout: Layout) -> Iterator[exp.Column]:
    for condition in conditions:
        wanted = wanted_by(condition, alias, layout)
        if wanted is None or not wanted.is_whole:
            yield from find_all(condition, exp.Column)


def _elsewhere(select: exp.Select) -> Iterator[exp.Column]:
    """Yield the columns of keys and outer joins, and those in aggregates that do more than arithmetic."""
    grouped = select.args.get("group")
    joins = [join.args["on"] for join in select.args.get("joins") or () if join.side and join.args.get("on")]
    for each in (*select.expressions, *joins, *([grouped] if grouped else [])):
        yield from (column for column in find_all(each, exp.Column) if not _is_term(column))


def _is_term(column: exp.Column) -> bool:
    """Whether an aggregate of arithmetic is all that a column is in."""
    parent = column.parent
    while isinstance(parent, _ARITHMETIC):
        parent = parent.parent
    return isinstance(parent, exp.AggFunc)


REHEARSALS = 4000
LEAST_HELD = 0.93
"""This share of the intervals must hold the mean of a mark; 95 % would be right, and 4000 tell to 0.35 %."""

APART, APART_SPREADS = 1 / 3, 16.0
"""An end is apart if it is farther from the median one than a third of the typical row group's range, and
than so many times what three of four ends are. The largest of many normal or exponential values is not."""

SHIFTED_SPREADS = 5.0
"""A row group is apart as well if both ends are moved to one side, together by so many of these spreads. Of
200 row groups of normal, exponential or log-normal values none is."""

NULLS_OF_CHANCE = 2.0
"""Numbers of NULLs are of chance if they vary no more than so many times what they would in shuffled rows."""

_OF_THOSE_LEFT_OUT = 8  # a draw is rehearsed again for each eighth more that is left out
_SHIFT_OF_CHANCE = 0.1  # a shift counts beyond this share of a range, divided by the root of the rows


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of each row group beforehand: an amount, and what it is a share of, as NULLs of rows.

    Both have the shape (row groups,). The amount is in rows, or in the column's unit times rows.
    """

    amount: FloatArray
    of: FloatArray

    def away(self, kept: BoolArray) -> FloatArray:
        """Return how far each row group is from the mean of those kept."""
        mean = self.amount[kept].sum() / max(self.of[kept].sum(), 1.0)
        found: FloatArray = self.amount - mean * self.of
        return found


@dataclass(frozen=True, slots=True)
class Unlike:
    """What is unlike the others.

    Attributes:
        certain: the row groups to read for certain, in the order of the file.
        least_drawn: how many of the others must be drawn until they tell of all; None: more than are drawn.
    """

    certain: tuple[RowGroup, ...]
    least_drawn: int | None


def unlike(groups: Sequence[RowGroup], marks: Iterable[Mark], sizes: Sequence[int], most: int) -> Unlike:
    """Return which row groups must be read for certain.

    Args:
        groups: all that can match.
        marks: of each of them.
        sizes: how many are drawn up to the end of each mini-batch.
        most: how many may be read for certain.
    """
    kept = np.ones(len(groups), dtype=bool)
    varied = [mark for mark in marks if _varies(mark.away(kept))]
    for mark in varied:
        _leave_out_the_farthest(mark, kept, sizes[0], most - int((~kept).sum()))
    certain = tuple(group for group, is_kept in zip(groups, kept, strict=True) if not is_kept)
    for size in sizes:
        if all(_is_told(mark.away(kept)[kept], size) for mark in varied):
            return Unlike(certain, size)
    return Unlike(certain, None)


def _leave_out_the_farthest(mark: Mark, kept: BoolArray, size: int, most: int) -> None:
    """Leave out as few as it takes for a draw to tell of the rest; none where more would have to go."""
    left_out, rest = 0, kept.copy()
    while not _is_told(mark.away(rest)[rest], size):
        for _ in range(1 + left_out // _OF_THOSE_LEFT_OUT):
            rest[int(np.argmax(np.where(rest, np.abs(mark.away(rest)), -1.0)))] = False
            left_out += 1
        if left_out > most:
            return
    kept &= rest


def _is_told(away: FloatArray, size: int) -> bool:
    """Whether intervals from draws of so many hold the mean, 0, often enough. away: shape (row groups,)."""
    if not _varies(away) or size >= len(away):
        return True
    draws = away[_draws(len(away), size)]
    quantile = student_quantile(np.array([size - 1.0]), 0.975)
    left = 1.0 - size / len(away)
    reach = quantile * np.sqrt(left * draws.var(axis=1, ddof=1) / size)
    return bool(np.mean(np.abs(draws.mean(axis=1)) <= reach) >= LEAST_HELD)


def _draws(count: int, size: int) -> IntArray:
    return spread_draws(count, size, np.random.default_rng(0), REHEARSALS)


def _varies(away: FloatArray) -> bool:
    return bool(np.ptp(away) > 1e-9 * max(1.0, float(np.abs(away).max()))) if len(away) else False


def marks_of(
    groups: Sequence[RowGroup], wanted: Iterable[Wanted], read: Iterable[str], used: Iterable[str]
) -> Iterator[Mark]:
    """Yield the marks of row groups.

    Args:
        wanted: what conditions ask of columns.
        read: the columns that are read.
        used: those inside of aggregates and conditions.
    """
    rows = np.array([group.row_count for group in groups], dtype=np.float64)
    for each in wanted:
        yield Mark(rows * [each.is_all_of(group) for group in groups], rows)
    for column in read:
        filled = rows - [group.zone(column).null_count or 0 for group in groups]
        if not _is_chance(filled, rows):
            yield Mark(filled, rows)
    for column in used:
        yield from _marks_of_ends(groups, column, rows)


def _is_chance(filled: FloatArray, rows: FloatArray) -> bool:
    share = filled.sum() / rows.sum()
    return bool(
        ((filled - share * rows) ** 2).sum() <= NULLS_OF_CHANCE**2 * share * (1.0 - share) * rows.sum()
    )


def _marks_of_ends(groups: Sequence[RowGroup], column: str, rows: FloatArray) -> Iterator[Mark]:
    found = [(number(zone.low), number(zone.high)) for zone in (group.zone(column) for group in groups)]
    ends = np.array([(np.nan, np.nan) if None in each else each for each in found], dtype=np.float64)
    known = np.isfinite(ends[:, 0])
    if not known.any():
        return
    low, high = np.where(known[:, None], ends - np.median(ends[known], axis=0), 0.0).T
    width = float(np.median(ends[known, 1] - ends[known, 0]))
    same_side = np.sign(low) == np.sign(high)
    shift = np.where(same_side, np.sign(low) * np.minimum(np.abs(low), np.abs(high)), 0.0)
    of_chance = _SHIFT_OF_CHANCE * width / np.sqrt(rows.mean())
    if shift.std() > of_chance:
        yield Mark(shift * rows, rows)
    is_shifted = (np.abs(shift) > of_chance) & (
        _spreads(low, width) + _spreads(high, width) > SHIFTED_SPREADS
    )
    is_apart = _is_apart(low, width) | _is_apart(high, width)
    yield Mark((is_apart | is_shifted) * rows, rows)


def _spreads(away: FloatArray, width: float) -> FloatArray:
    """Return how many times as far away each end is as three of four ends are at most."""
    size = np.abs(away)
    found: FloatArray = size / max(float(np.quantile(size, 0.75)), 1e-9 * width, 1e-300)
    return found


def _is_apart(away: FloatArray, width: float) -> BoolArray:
    found: BoolArray = (np.abs(away) > APART * width) & (_spreads(away, width) > APART_SPREADS)
    return found
