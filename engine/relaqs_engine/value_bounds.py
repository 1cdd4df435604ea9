"""Provable bounds of a SQL expression, by interval arithmetic over the columns' stored minima and maxima.

They tell whether a SUM can fall (its interval may then use that it cannot) and how much a row that was not
read could add. None of a side means that nothing is known there, never "unbounded by luck". For example, with
`fare` between 2.5 and 80 the bounds of `CAST(fare / 2 AS INTEGER)` are 1 and 40.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime

from sqlglot import exp

from relaqs_engine.bounds import UNKNOWN, Bounds, hull, power, remainder
from relaqs_engine.layouts.manifest import Column

ColumnLookup = Callable[[exp.Column], Column | None]

_TRUTH = Bounds(0.0, 1.0)
_SECONDS_A_DAY = 86_400.0
_MOST_DECIMALS = 300
# A part of a date that has the same few values in any year. SECOND counts 59, MILLISECOND within the minute.
_DATE_PARTS = {
    "month": Bounds(1.0, 12.0),
    "quarter": Bounds(1.0, 4.0),
    "week": Bounds(1.0, 53.0),
    "weekofyear": Bounds(1.0, 53.0),
    "day": Bounds(1.0, 31.0),
    "dayofmonth": Bounds(1.0, 31.0),
    "dayofweek": Bounds(0.0, 7.0),
    "weekday": Bounds(0.0, 7.0),
    "dow": Bounds(0.0, 7.0),
    "dayofweekiso": Bounds(1.0, 7.0),
    "isodow": Bounds(1.0, 7.0),
    "dayofyear": Bounds(1.0, 366.0),
    "doy": Bounds(1.0, 366.0),
    "hour": Bounds(0.0, 23.0),
    "minute": Bounds(0.0, 59.0),
    "second": Bounds(0.0, 60.0),
}
_DAYS_OF = {"day": 1.0, "week": 7.0, "hour": 1 / 24, "minute": 1 / 1440, "second": 1 / 86_400}
_INTEGER_RANGES = {
    "TINYINT": Bounds(-(2.0**7), 2.0**7),
    "SMALLINT": Bounds(-(2.0**15), 2.0**15),
    "UTINYINT": Bounds(0.0, 2.0**8),
    "USMALLINT": Bounds(0.0, 2.0**16),
}
_INTEGERS = (*_INTEGER_RANGES, "INT", "INTEGER", "BIGINT", "INT128", "HUGEINT", "UINT", "UINTEGER", "UBIGINT")
_MOMENTS = ("DATE", "TIMESTAMP")
_FLOATS = ("FLOAT", "DOUBLE", "REAL")
_FALSE_OR_TRUE = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean)


def value_bounds(expression: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return bounds of the expression's non-NULL values; column_of gives a column's statistics or None."""
    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        return _column_bounds(column_of(expression))
    if isinstance(expression, exp.Literal):
        return UNKNOWN if expression.is_string else _exactly(float(expression.this))
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
    return _date_part(expression, column_of)


def _exactly(value: float) -> Bounds:
    return Bounds(value, value)


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
    if number is None or number <= 1.0:
        return UNKNOWN
    return value.rising(lambda x: math.log(x, number))


def _raised(base: Bounds, exponent: Bounds) -> Bounds:
    return UNKNOWN if exponent.only_value is None else power(base, exponent.only_value)


def _square_root(bounds: Bounds) -> Bounds:
    """Return the bounds of SQRT, which is no number below 0."""
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
    """Return the bounds of LEAST, which passes over NULLs: only a number written out is surely there."""
    found = _any_argument(call, column_of)
    numbers = [part.highest for part in _numbers_among(call) if part.highest is not None]
    if not numbers:
        return found
    return Bounds(
        found.lowest, min([*numbers, *([] if found.highest is None else [found.highest])], default=None)
    )


def _greatest(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    found = _any_argument(call, column_of)
    numbers = [part.lowest for part in _numbers_among(call) if part.lowest is not None]
    if not numbers:
        return found
    return Bounds(
        max([*numbers, *([] if found.lowest is None else [found.lowest])], default=None), found.highest
    )


def _numbers_among(call: exp.Expr) -> list[Bounds]:
    """Return the arguments of a call that are numbers written out."""
    written = [part for part in (call.this, *call.expressions) if not part.find(exp.Column)]
    return [value_bounds(part, lambda _: None) for part in written]


def _nullif(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of NULLIF(x, y). A whole number that is not negative and not 0 is at least 1."""
    found = value_bounds(call.this, column_of)
    without = call.expression.unnest()
    is_zero = isinstance(without, exp.Literal) and not without.is_string and float(without.this) == 0.0
    may_be_more = found.highest is None or found.highest >= 1.0
    if is_zero and found.lowest == 0.0 and may_be_more and _is_whole(call.this, column_of):
        return found.clipped(1.0)
    return found


def _is_whole(expression: exp.Expr, column_of: ColumnLookup) -> bool:
    """Whether the expression's type is one of whole numbers."""
    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        column = column_of(expression)
        return column is not None and column.type in _INTEGERS
    if isinstance(expression, exp.Cast):
        return _type_name(expression) in _INTEGERS
    return isinstance(expression, exp.Literal) and expression.is_int


def _type_name(cast: exp.Expr) -> str:
    return str(cast.args["to"].this.name).upper()


def _product(product: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a product; those of a square where both factors are the same."""
    left, right = value_bounds(product.this, column_of), value_bounds(product.expression, column_of)
    return power(left, 2.0) if product.this.unnest() == product.expression.unnest() else left * right


def _difference(difference: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a difference of numbers, or of two dates, which is a number of days."""
    found = value_bounds(difference.this, column_of) - value_bounds(difference.expression, column_of)
    if found == UNKNOWN:
        return _day_of(difference.this, column_of) - _day_of(difference.expression, column_of)
    return found


def _cast(cast: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a cast to a number: they change by rounding alone, or the cast fails."""
    name, inner = _type_name(cast), value_bounds(cast.this, column_of)
    if name == "BOOLEAN":
        return _TRUTH
    if name in _INTEGERS:
        rounded = Bounds(
            None if inner.lowest is None else math.floor(inner.lowest + 0.5 - 1e-9),
            None if inner.highest is None else math.ceil(inner.highest - 0.5 + 1e-9),
        )
        limits = _INTEGER_RANGES.get(name, UNKNOWN)
        return Bounds(
            limits.lowest if rounded.lowest is None else float(rounded.lowest),
            limits.highest if rounded.highest is None else float(rounded.highest),
        )
    if name in _FLOATS:
        return inner
    if name == "DECIMAL":
        return inner.widened(0.5 * 10.0 ** -_scale_of(cast.args["to"]))
    return UNKNOWN


def _scale_of(decimal: exp.Expr) -> int:
    """Return the digits after the point of a DECIMAL type; DuckDB's own default is DECIMAL(18, 3)."""
    parameters = [int(part.name) for part in decimal.expressions]
    return parameters[1] if len(parameters) > 1 else 0 if parameters else 3


def _round(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    decimals = call.args.get("decimals")
    number = value_bounds(decimals, column_of) if decimals is not None else _exactly(0.0)
    if number.only_value is None or abs(number.only_value) > _MOST_DECIMALS:
        return UNKNOWN
    return value_bounds(call.this, column_of).widened(0.5 * 10.0**-number.only_value)


def _integer_division(dividend: Bounds, divisor: Bounds) -> Bounds:
    """Return the bounds of a // b. Division by 0 is NULL there, so only a divisor near 0 is unknown."""
    return (dividend / divisor).widened(1.0)


def _day_of(expression: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a date or a time, in days since the year 1."""
    expression = expression.unnest()
    if isinstance(expression, exp.Cast):
        is_day = _type_name(expression).startswith(_MOMENTS)
        return _day_of(expression.this, column_of).widened(1.0) if is_day else UNKNOWN
    if isinstance(expression, exp.Literal) and expression.is_string:
        day = _days(expression.this)
        return Bounds(day, day)
    column = column_of(expression) if isinstance(expression, exp.Column) else None
    if column is None or not column.type.startswith(_MOMENTS):
        return UNKNOWN
    return Bounds(_days(column.minimum), _days(column.maximum))


def _days(text: object) -> float | None:
    try:
        moment = datetime.fromisoformat(str(text)).replace(tzinfo=None)
    except ValueError:
        return None
    return (moment - datetime.min).total_seconds() / _SECONDS_A_DAY


def _date_difference(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of DATE_DIFF, which counts the unit's borders between two moments."""
    days = _DAYS_OF.get(call.args["unit"].name.lower() if call.args.get("unit") else "day")
    if days is None:
        return UNKNOWN
    between = _day_of(call.this, column_of) - _day_of(call.expression, column_of)
    either = hull([between, -between])  # which argument comes first is the dialect's
    return (either * Bounds(1.0 / days, 1.0 / days)).widened(1.0)


def _date_part(expression: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of MONTH(d), EXTRACT(month FROM d), DATE_PART('month', d); unknown for all else."""
    name, argument = _named_part(expression)
    if name == "year" and argument is not None:
        return (
            _day_of(argument, column_of)
            .rising(lambda day: float(datetime.min.year + math.floor(day / 365.2425)))
            .widened(1.0)
        )
    if name == "epoch" and argument is not None:
        since_1970 = _day_of(argument, column_of) - _exactly(_days("1970-01-01") or 0.0)
        return since_1970.widened(1.0) * _exactly(_SECONDS_A_DAY)
    return _DATE_PARTS.get(name, UNKNOWN) if _is_moment(argument, column_of) else UNKNOWN


def _is_moment(expression: exp.Expr | None, column_of: ColumnLookup) -> bool:
    """Whether an expression is a date or a time: the days of an interval may be any number."""
    expression = expression.unnest() if expression is not None else None
    if isinstance(expression, exp.Cast):
        return _type_name(expression).startswith((*_MOMENTS, "TIME"))
    column = column_of(expression) if isinstance(expression, exp.Column) else None
    return column is not None and column.type.startswith((*_MOMENTS, "TIME"))


def _named_part(expression: exp.Expr) -> tuple[str, exp.Expr | None]:
    """Return the name of the part of a date that a call takes, and the date."""
    if isinstance(expression, exp.Extract):
        return expression.this.name.lower(), expression.expression
    if isinstance(expression, exp.Anonymous):
        arguments = expression.expressions
        if expression.name.lower() in ("date_part", "datepart") and len(arguments) == 2:
            return arguments[0].name.lower(), arguments[1]
        return expression.name.lower(), arguments[0] if arguments else None
    if isinstance(expression, exp.TimeToUnix):
        return "epoch", expression.this
    if isinstance(expression, exp.Func):
        return type(expression).__name__.lower(), expression.args.get("this")
    return "", None


_COMBINED: dict[type[exp.Expr], Callable[[Bounds, Bounds], Bounds]] = {
    exp.Add: Bounds.__add__,
    exp.Div: Bounds.__truediv__,
    exp.IntDiv: _integer_division,
    exp.Mod: remainder,
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
    exp.Ln: lambda bounds: bounds.rising(math.log),
    exp.Sign: lambda bounds: Bounds.within(1.0),
    exp.Sin: lambda bounds: Bounds.within(1.0),
    exp.Cos: lambda bounds: Bounds.within(1.0),
}


def _log(call: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of LOG(x), to the base 10, and of LOG(base, x)."""
    if call.args.get("expression") is None:
        return _logarithm(_exactly(10.0), value_bounds(call.this, column_of))
    return _logarithm(value_bounds(call.this, column_of), value_bounds(call.expression, column_of))


_SPECIAL: dict[type[exp.Expr], Callable[[exp.Expr, ColumnLookup], Bounds]] = {
    exp.Sub: _difference,
    exp.Mul: _product,
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
    exp.DateDiff: _date_difference,
}
