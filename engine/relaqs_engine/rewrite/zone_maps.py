"""Which row groups can hold rows that meet a query's conditions, by the ends in the footers.

A condition that is not understood leaves every row group in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from relaqs_engine.layouts.footers import End
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.number_types import FLOATS
from relaqs_engine.layouts.row_groups import RowGroup, is_sound, number
from relaqs_engine.sql.parse import DIALECT

FAR_OUT = 3.0
"""A row group is far out if its largest value is more than this many times that of the median one."""

_MOST_DIGITS = 15
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_UPWARD, _DOWNWARD = (exp.GT, exp.GTE), (exp.LT, exp.LTE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a condition asks of one column: a value between two ends.

    Attributes:
        column: the column's name.
        type: its type.
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

    def may_be_in(self, group: RowGroup) -> bool:
        """Whether a row group may hold such a value."""
        zone = group.zone(self.column)
        if zone.null_count == group.row_count:
            return False
        if not is_sound(self.type, zone):
            return True
        return self._is_above(zone.high, self.low) and self._is_above(self.high, zone.low)

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


def wanted_of(conditions: Iterable[exp.Expr], alias: str, layout: Layout) -> tuple[Wanted, ...]:
    """Return what the conditions on one table ask, those that are understood."""
    return tuple(each for condition in conditions if (each := wanted_by(condition, alias, layout)))


def matching(groups: Iterable[RowGroup], wanted: Sequence[Wanted]) -> tuple[RowGroup, ...]:
    """Return the row groups that may hold rows that meet all conditions."""
    return tuple(group for group in groups if all(each.may_be_in(group) for each in wanted))


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
    is_number = not any(literal.is_string for each in below for literal in each.find_all(exp.Literal))
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
    if column is None or column.type in FLOATS:  # a NaN is above all numbers, and footers leave it out
        return None
    ends = [None if each is None else _value(each.unnest(), column.type) for each in (low, high)]
    if any(end is None and given is not None for end, given in zip(ends, (low, high), strict=True)):
        return None
    return Wanted(column.name, column.type, ends[0], ends[1])


def _value(literal: exp.Expr, type_text: str) -> End | None:
    """Return a literal as a value of a column's type, None where it is none."""
    if isinstance(literal, exp.Cast):
        is_time = literal.to.sql(DIALECT) == type_text and type_text in ("DATE", "TIMESTAMP")
        return _value(literal.this, type_text) if is_time else None
    if isinstance(literal, exp.Neg):
        value = _value(literal.this, type_text)
        return -value if isinstance(value, Decimal) else None
    if not isinstance(literal, exp.Literal):
        return None
    try:
        match type_text:
            case "VARCHAR":
                return str(literal.this) if literal.is_string else None
            case "DATE":
                return date.fromisoformat(literal.this) if literal.is_string else None
            case "TIMESTAMP":
                return _without_zone(datetime.fromisoformat(literal.this)) if literal.is_string else None
            case "BOOLEAN":
                return None
        return None if literal.is_string else _exact(literal.this)
    except (ValueError, InvalidOperation):
        return None


def _exact(text: str) -> Decimal | None:
    """Return a number that DuckDB compares without rounding, None where it might round."""
    return Decimal(text) if len(text) <= _MOST_DIGITS and "e" not in text.lower() else None


def _without_zone(moment: datetime) -> datetime | None:
    return moment if moment.tzinfo is None else None
