"""Provable bounds of a SQL expression, from the least and greatest values of the columns in it.

They answer two questions. Can a SUM fall? If not, its interval may use that. And how much could a row add
that was not read? A side that is None is not known, never "without bound by luck". The arithmetic, and why it
is needed, is in `bounds/interval_arithmetic.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sqlglot import exp

from relaqs_engine.bounds.casts import cast_step, type_name
from relaqs_engine.bounds.dates import ColumnLookup, date_part, day_bounds
from relaqs_engine.bounds.interval_arithmetic import UNKNOWN, Bounds, hull, power, remainder
from relaqs_engine.layouts.manifest import Column
from relaqs_engine.layouts.number_types import WHOLE_NUMBERS

_TRUTH = Bounds(0.0, 1.0)
_INTEGER_RANGES = {
    "TINYINT": Bounds(-(2.0**7), 2.0**7),
    "SMALLINT": Bounds(-(2.0**15), 2.0**15),
    "UTINYINT": Bounds(0.0, 2.0**8),
    "USMALLINT": Bounds(0.0, 2.0**16),
}
_MOST_DECIMALS = 300
_ROUNDING = 1e-9
_WRITTEN_OUT = (exp.Literal, exp.Neg, exp.Paren, exp.Add, exp.Sub, exp.Mul)
_FALSE_OR_TRUE = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)


def value_bounds(expression: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return bounds of the expression's values that are not NULL.

    Args:
        expression: an expression over columns.
        column_of: gives a column's statistics, or None where they are not known.

    >>> import sqlglot
    >>> from relaqs_engine.planning.example import CATALOG
    >>> trips = CATALOG.table("trips")
    >>> def bounds(sql):
    ...     found = value_bounds(sqlglot.parse_one(sql), lambda column: trips.column(column.name))
    ...     return found.lowest, found.highest
    >>> bounds("fare")
    (2.5, 950.0)
    >>> bounds("CASE WHEN km > 1 THEN fare / 2 ELSE 0 END")
    (0.0, 475.0)
    >>> bounds("CAST(fare AS INTEGER)")
    (2.0, 950.0)
    >>> bounds("length(comment)")
    (None, None)
    """
    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        return _column_bounds(column_of(expression))
    if isinstance(expression, exp.Literal):
        return UNKNOWN if expression.is_string else Bounds.exactly(float(expression.this))
    if isinstance(expression, _FALSE_OR_TRUE):
        return _TRUTH
    if (combine := _COMBINED.get(type(expression))) is not None:
        return combine(
            value_bounds(expression.this, column_of), value_bounds(expression.expression, column_of)
        )
    if (change := _CHANGED.get(type(expression))) is not None:
        return change(value_bounds(expression.this, column_of))
    if (special := _SPECIAL.get(type(expression))) is not None:
        return special(expression, column_of)
    return date_part(expression, column_of, lambda number: value_bounds(number, column_of))


def _column_bounds(column: Column | None) -> Bounds:
    if column is None:
        return UNKNOWN
    if column.type == "BOOLEAN":
        return _TRUTH
    return Bounds(_number(column.minimum), _number(column.maximum))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _logarithm(base: Bounds, value: Bounds) -> Bounds:
    """Return the bounds of log_base(value), for a base that is one number above 1."""
    number = base.only_value
    if number is None or number <= 1.0 or not value.is_nonnegative:  # of minus infinity it is NaN
        return UNKNOWN
    return value.rising(lambda x: math.log(x, number))


def _raised(base: Bounds, exponent: Bounds) -> Bounds:
    return UNKNOWN if exponent.only_value is None else power(base, exponent.only_value)


def _square_root(bounds: Bounds) -> Bounds:
    """Return the bounds of SQRT, which is not a number below 0."""
    return bounds.rising(math.sqrt) if bounds.is_nonnegative else UNKNOWN


def _truncated(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    if call.args.get("decimals") is not None:
        return UNKNOWN
    return value_bounds(call.this, column_of).rising(lambda value: float(math.trunc(value)))


def _choices(parts: Sequence[exp.Expr], column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a value that is one of these expressions, or NULL."""
    return hull([value_bounds(part, column_of) for part in parts if not isinstance(part.unnest(), exp.Null)])


def _case(case: exp.Expr, column_of: ColumnLookup) -> Bounds:
    branches = [branch.args["true"] for branch in case.args["ifs"]]
    default = case.args.get("default")
    return _choices([*branches, *([] if default is None else [default])], column_of)


def _if(choice: exp.Expr, column_of: ColumnLookup) -> Bounds:
    branches = [choice.args.get("true"), choice.args.get("false")]
    return _choices([branch for branch in branches if branch is not None], column_of)


def _any_argument(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    return _choices([call.this, *call.expressions], column_of)


def _least(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of LEAST. It ignores NULLs, so only a number that is written out surely counts."""
    found, written = _any_argument(call, column_of), _numbers_among(call)
    known = [end for end in (found.highest, *written) if end is not None]
    return Bounds(found.lowest, min(known)) if written else found


def _greatest(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    found, written = _any_argument(call, column_of), _numbers_among(call)
    known = [end for end in (found.lowest, *written) if end is not None]
    return Bounds(max(known), found.highest) if written else found


def _numbers_among(call: exp.Expr) -> list[float]:
    """Return the arguments of a call that are written out as numbers, and are never NULL."""
    arguments = (call.this, *call.expressions)
    written = [part for part in arguments if all(isinstance(node, _WRITTEN_OUT) for node in part.walk())]
    values = (value_bounds(part, lambda _: None).only_value for part in written)
    return [value for value in values if value is not None]


def _nullif(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of NULLIF(x, y). A whole number that is at least 0, and is not 0, is at least 1."""
    found = value_bounds(call.this, column_of)
    without = call.expression.unnest()
    is_zero = isinstance(without, exp.Literal) and not without.is_string and float(without.this) == 0.0
    may_be_more = found.highest is None or found.highest >= 1.0
    if is_zero and found.lowest == 0.0 and may_be_more and _is_whole(call.this, column_of):
        return found.clipped(1.0)
    return found


def _is_whole(expression: exp.Expr, column_of: ColumnLookup) -> bool:
    """Whether the expression has a type of whole numbers."""
    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        column = column_of(expression)
        return column is not None and column.type in WHOLE_NUMBERS
    if isinstance(expression, exp.Cast):
        return type_name(expression) in WHOLE_NUMBERS
    return isinstance(expression, exp.Literal) and expression.is_int


def _product(product: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a product. If both factors are the same, they are those of a square."""
    left, right = value_bounds(product.this, column_of), value_bounds(product.expression, column_of)
    return power(left, 2.0) if product.this.unnest() == product.expression.unnest() else left * right


def _difference(difference: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a difference of numbers, or of two dates, whose difference is a number of days."""
    found = value_bounds(difference.this, column_of) - value_bounds(difference.expression, column_of)
    if found == UNKNOWN:
        return day_bounds(difference.this, column_of) - day_bounds(difference.expression, column_of)
    return found


def _cast(cast: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a cast to a number. A cast only rounds the value, or fails."""
    name, inner, step = type_name(cast), value_bounds(cast.this, column_of), cast_step(cast)
    if name == "BOOLEAN":
        return _TRUTH
    if step is None:
        return UNKNOWN
    if name not in WHOLE_NUMBERS:
        return inner.widened(step)
    limits = _INTEGER_RANGES.get(name, UNKNOWN)
    low, high = inner.lowest, inner.highest
    return Bounds(
        limits.lowest if low is None else float(math.floor(low + step - _ROUNDING)),
        limits.highest if high is None else float(math.ceil(high - step + _ROUNDING)),
    )


def _round(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    decimals = call.args.get("decimals")
    number = value_bounds(decimals, column_of) if decimals is not None else Bounds.exactly(0.0)
    if number.only_value is None or abs(number.only_value) > _MOST_DECIMALS:
        return UNKNOWN
    return value_bounds(call.this, column_of).widened(0.5 * 10.0**-number.only_value)


def _remainder(remainder_of: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a % b. A whole number of which nothing is known is a number all the same."""
    dividend = value_bounds(remainder_of.this, column_of)
    divisor = value_bounds(remainder_of.expression, column_of)
    if dividend.ends is None and divisor.size is not None and _is_whole(remainder_of.this, column_of):
        low = 0.0 if dividend.is_nonnegative else -divisor.size
        dividend = Bounds(low, divisor.size)
    return remainder(dividend, divisor)


def _wave(bounds: Bounds) -> Bounds:
    """Return the bounds of SIN and COS. Of NaN they are NaN."""
    return UNKNOWN if bounds.ends is None else Bounds.within(1.0)


def _integer_division(dividend: Bounds, divisor: Bounds) -> Bounds:
    """Return the bounds of a // b. Dividing by 0 gives NULL, so only a divisor near 0 makes them unknown."""
    return (dividend / divisor).widened(1.0)


_COMBINED: dict[type[exp.Expr], Callable[[Bounds, Bounds], Bounds]] = {
    exp.Add: Bounds.__add__,
    exp.Div: Bounds.__truediv__,
    exp.IntDiv: _integer_division,
    exp.Pow: _raised,
}
_CHANGED: dict[type[exp.Expr], Callable[[Bounds], Bounds]] = {
    exp.Neg: Bounds.__neg__,
    exp.Abs: Bounds.absolute,
    exp.Ceil: lambda bounds: bounds.rising(lambda value: float(math.ceil(value))),
    exp.Floor: lambda bounds: bounds.rising(lambda value: float(math.floor(value))),
    exp.Sqrt: _square_root,
    exp.Cbrt: lambda bounds: bounds.rising(math.cbrt),
    exp.Exp: lambda bounds: bounds.rising(math.exp).clipped(0.0),
    exp.Ln: lambda bounds: _logarithm(Bounds.exactly(math.e), bounds),
    exp.Sign: lambda bounds: Bounds.within(1.0),
    exp.Sin: _wave,
    exp.Cos: _wave,
}


def _log(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of LOG(x), to the base 10, and of LOG(base, x)."""
    if call.args.get("expression") is None:
        return _logarithm(Bounds.exactly(10.0), value_bounds(call.this, column_of))
    return _logarithm(value_bounds(call.this, column_of), value_bounds(call.expression, column_of))


_SPECIAL: dict[type[exp.Expr], Callable[[exp.Expr, ColumnLookup], Bounds]] = {
    exp.Sub: _difference,
    exp.Mul: _product,
    exp.Mod: _remainder,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _any_argument,
    exp.Least: _least,
    exp.Greatest: _greatest,
    exp.Nullif: _nullif,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Round: _round,
    exp.Trunc: _truncated,
    exp.Log: _log,
}
