"""Provable bounds of an expression, by interval arithmetic over the columns' stored minima and maxima.

They tell whether a SUM can fall (its interval may then use that it cannot) and how much an unseen row could
add. None of a side means: not known, never "unbounded by luck".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.layouts.manifest import Column


@dataclass(frozen=True, slots=True)
class Bounds:
    """lowest <= value <= highest for every row on which the value is not NULL."""

    lowest: float | None
    highest: float | None


_UNKNOWN = Bounds(None, None)

ColumnLookup = Callable[[exp.Column], Column | None]


def value_bounds(expression: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return bounds of the expression's non-NULL values; column_of gives a column's statistics or None."""
    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        return _column_bounds(column_of(expression))
    if isinstance(expression, exp.Literal) and not expression.is_string:
        return Bounds(float(expression.this), float(expression.this))
    if isinstance(expression, exp.Neg):
        inner = value_bounds(expression.this, column_of)
        return Bounds(_negated(inner.highest), _negated(inner.lowest))
    if isinstance(expression, exp.Case):
        return _case_bounds(expression, column_of)
    if isinstance(expression, exp.Add | exp.Sub | exp.Mul):
        left = value_bounds(expression.left, column_of)
        right = value_bounds(expression.right, column_of)
        return _COMBINE[type(expression)](left, right)
    return _UNKNOWN


def _column_bounds(column: Column | None) -> Bounds:
    if column is None:
        return _UNKNOWN

    def number(value: object) -> float | None:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    return Bounds(number(column.minimum), number(column.maximum))


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def _case_bounds(case: exp.Case, column_of: ColumnLookup) -> Bounds:
    branches = [branch.args["true"] for branch in case.args["ifs"]]
    if (default := case.args.get("default")) is not None:
        branches.append(default)
    bounds = [value_bounds(branch, column_of) for branch in branches if not isinstance(branch, exp.Null)]
    if not bounds:
        return _UNKNOWN
    lows, highs = [b.lowest for b in bounds], [b.highest for b in bounds]
    return Bounds(
        None if None in lows else min(low for low in lows if low is not None),
        None if None in highs else max(high for high in highs if high is not None),
    )


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _add(left: Bounds, right: Bounds) -> Bounds:
    return Bounds(_plus(left.lowest, right.lowest), _plus(left.highest, right.highest))


def _sub(left: Bounds, right: Bounds) -> Bounds:
    return _add(left, Bounds(_negated(right.highest), _negated(right.lowest)))


def _mul(left: Bounds, right: Bounds) -> Bounds:
    if None not in (left.lowest, left.highest, right.lowest, right.highest):
        corners = [
            a * b
            for a in (left.lowest, left.highest)
            for b in (right.lowest, right.highest)
            if a is not None and b is not None
        ]
        return Bounds(min(corners), max(corners))
    if _is_nonnegative(left) and _is_nonnegative(right):
        return Bounds(0.0, None)
    return _UNKNOWN


def _is_nonnegative(bounds: Bounds) -> bool:
    return bounds.lowest is not None and bounds.lowest >= 0.0


_COMBINE: dict[type[exp.Expr], Callable[[Bounds, Bounds], Bounds]] = {
    exp.Add: _add,
    exp.Sub: _sub,
    exp.Mul: _mul,
}
