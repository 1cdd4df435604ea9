"""Provable bounds of what SQL takes from dates: parts, differences, seconds since 1970 and of an INTERVAL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime

from sqlglot import exp

from relaqs_engine.bounds.casts import type_name
from relaqs_engine.bounds.interval_arithmetic import UNKNOWN, Bounds, hull
from relaqs_engine.layouts.manifest import Column

ColumnLookup = Callable[[exp.Column], Column | None]
NumberBounds = Callable[[exp.Expr], Bounds]

_MOMENTS = ("DATE", "TIMESTAMP")
_SECONDS_A_DAY = 86_400.0
# Parts of a date that have the same few values in any year.
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
# The units of an INTERVAL in days. A month has 30 of them, as in comparisons.
_DAYS_OF_UNITS = _DAYS_OF | {
    "microsecond": 1 / 86_400e6,
    "millisecond": 1 / 86_400e3,
    "month": 30.0,
    "quarter": 90.0,
    "year": 360.0,
}
_COUNTED = re.compile(r"(\d+) ([a-zA-Z]+)")
_DAYS_OF_ROUNDING = 1e-9  # of a moment as a number of days since the year 1


def day_bounds(expression: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of a date or a time, in days since the year 1."""
    expression = expression.unnest()
    if isinstance(expression, exp.Cast):
        is_day = type_name(expression).startswith(_MOMENTS)
        return day_bounds(expression.this, column_of).widened(1.0) if is_day else UNKNOWN
    if isinstance(expression, exp.Literal) and expression.is_string:
        day = _days(expression.this)
        return Bounds(day, day)
    column = column_of(expression) if isinstance(expression, exp.Column) else None
    if column is None or not column.type.startswith(_MOMENTS):
        return UNKNOWN
    return Bounds(_days(column.minimum), _days(column.maximum))


def duration_bounds(expression: exp.Expr, column_of: ColumnLookup, numbers: NumberBounds) -> Bounds:
    """Return the bounds of an INTERVAL in days, where a month has 30: of a - b, to_minutes(n), sums of such.

    Args:
        expression: the INTERVAL.
        column_of: gives a column's statistics.
        numbers: gives the bounds of a number.
    """
    expression = expression.unnest()
    if isinstance(expression, exp.Sub):
        earlier, later = day_bounds(expression.expression, column_of), day_bounds(expression.this, column_of)
        if UNKNOWN not in (earlier, later):  # one may have a zone, and the other the session's
            zones = 2.0 if _has_zone(expression, column_of) else _DAYS_OF_ROUNDING
            return (later - earlier).widened(zones)
    if isinstance(expression, exp.Add | exp.Sub):
        left = duration_bounds(expression.this, column_of, numbers)
        right = duration_bounds(expression.expression, column_of, numbers)
        return left + right if isinstance(expression, exp.Add) else left - right
    if isinstance(expression, exp.Case):
        branches = [branch.args["true"] for branch in expression.args["ifs"]]
        chosen = [*branches, expression.args.get("default") or exp.null()]
        given = [each for each in chosen if not isinstance(each.unnest(), exp.Null)]
        return hull([duration_bounds(each, column_of, numbers) for each in given])
    if isinstance(expression, exp.Mul):
        sides = expression.this.unnest(), expression.expression.unnest()
        length, times = sides if isinstance(sides[0], exp.Interval) else reversed(sides)
        return duration_bounds(length, column_of, numbers) * numbers(times)
    unit, count = _counted(expression)
    days = _DAYS_OF_UNITS.get(unit.removesuffix("s"))
    return UNKNOWN if days is None or count is None else numbers(count) * Bounds.exactly(days)


def _counted(duration: exp.Expr) -> tuple[str, exp.Expr | None]:
    """Return the unit of INTERVAL 3 MINUTES, INTERVAL '3 minutes' or TO_MINUTES(3), and how many it has."""
    if isinstance(duration, exp.Cast) and duration.this.is_string and type_name(duration) == "INTERVAL":
        counted = _COUNTED.fullmatch(duration.this.name)
        return (counted[2].lower(), exp.Literal.number(counted[1])) if counted else ("", None)
    if not isinstance(duration, exp.Interval):
        name, argument = _named_part(duration)
        return (name.removeprefix("to_"), argument) if name.startswith("to_") else ("", None)
    count, unit = duration.this, duration.args.get("unit")
    if isinstance(count, exp.Literal) and count.is_string:
        count = exp.Literal.number(count.this) if re.fullmatch(r"\d+(\.\d+)?", count.this) else None
    return ("" if unit is None else unit.name.lower()), count


def _has_zone(expression: exp.Expr, column_of: ColumnLookup) -> bool:
    """Whether a moment in an expression may have a zone: text may, and a cast to such a type."""
    return any(
        (isinstance(node, exp.Literal) and node.is_string)
        or (isinstance(node, exp.Cast) and type_name(node).endswith(("TZ", "TIME ZONE")))
        or (isinstance(node, exp.Column) and (found := column_of(node)) and found.type.endswith("TIME ZONE"))
        for node in expression.walk()
    )


def microsecond_bounds(expression: exp.Expr, duckdb_type: str, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of moments in microseconds since 1970, of times of day since midnight.

    Args:
        expression: the moments.
        duckdb_type: their type.
        column_of: gives a column's statistics.
    """
    if duckdb_type == "TIME":
        return Bounds(0.0, _SECONDS_A_DAY * 1e6)
    days = day_bounds(expression, column_of)
    if duckdb_type.endswith("TIME ZONE"):  # whose offset the statistics may have left out
        days = days.widened(1.0)
    return (days - Bounds.exactly(_days("1970-01-01") or 0.0)) * Bounds.exactly(_SECONDS_A_DAY * 1e6)


def _days(text: object) -> float | None:
    try:
        moment = datetime.fromisoformat(str(text)).replace(tzinfo=None)
    except ValueError:
        return None
    return (moment - datetime.min).total_seconds() / _SECONDS_A_DAY


def _difference(arguments: Sequence[exp.Expr], column_of: ColumnLookup) -> Bounds:
    """Return the bounds of DATE_DIFF, which counts how many borders of the unit lie between two moments."""
    unit, begin, end = arguments
    days = _DAYS_OF.get(unit.name.lower()) if unit.is_string else None
    if days is None:
        return UNKNOWN
    between = day_bounds(end, column_of) - day_bounds(begin, column_of)
    return (between * Bounds(1.0 / days, 1.0 / days)).widened(1.0)


def date_part(expression: exp.Expr, column_of: ColumnLookup, numbers: NumberBounds) -> Bounds:
    """Return the bounds of MONTH(d), DATE_PART('month', d), DATE_DIFF('day', d, e) and the like.

    Those of others are unknown.

    Args:
        expression: a call.
        column_of: gives a column's statistics.
        numbers: gives the bounds of a number.
    """
    if expression.name.lower() in ("date_diff", "datediff") and len(expression.expressions) == 3:
        return _difference(expression.expressions, column_of)
    name, argument = _named_part(expression)
    if name in ("epoch", "epoch_us") and argument is not None:
        days = duration_bounds(argument, column_of, numbers)
        if days != UNKNOWN:
            return days * Bounds.exactly(_SECONDS_A_DAY * (1e6 if name == "epoch_us" else 1.0))
    if name == "year" and argument is not None:
        return (
            day_bounds(argument, column_of)
            .rising(lambda day: float(datetime.min.year + math.floor(day / 365.2425)))
            .widened(1.0)
        )
    if name == "epoch" and argument is not None:
        since_1970 = day_bounds(argument, column_of) - Bounds.exactly(_days("1970-01-01") or 0.0)
        return since_1970.widened(1.0) * Bounds.exactly(_SECONDS_A_DAY)
    if name == "epoch_us" and argument is not None:
        return _epoch_microseconds(argument.unnest(), column_of)
    return _DATE_PARTS.get(name, UNKNOWN) if _is_moment(argument, column_of) else UNKNOWN


def _epoch_microseconds(argument: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of EPOCH_US(x) and EPOCH_US(CAST(x AS TIMESTAMP)), for an x of whatever precision."""
    moment = argument.this if isinstance(argument, exp.Cast) else argument
    column = column_of(moment) if isinstance(moment, exp.Column) else None
    return microsecond_bounds(moment, "" if column is None else column.type, column_of)


def _is_moment(expression: exp.Expr | None, column_of: ColumnLookup) -> bool:
    """Whether an expression is a date or a time. The days of an interval may be any number."""
    expression = expression.unnest() if expression is not None else None
    if isinstance(expression, exp.Cast):
        return type_name(expression).startswith((*_MOMENTS, "TIME"))
    column = column_of(expression) if isinstance(expression, exp.Column) else None
    return column is not None and column.type.startswith((*_MOMENTS, "TIME"))


def _named_part(expression: exp.Expr) -> tuple[str, exp.Expr | None]:
    """Return the name of the part that a call takes of a date, and the date."""
    if isinstance(expression, exp.Extract):
        return expression.this.name.lower(), expression.expression
    if isinstance(expression, exp.Anonymous):
        arguments = expression.expressions
        if expression.name.lower() in ("date_part", "datepart") and len(arguments) == 2:
            return arguments[0].name.lower() if arguments[0].is_string else "", arguments[1]
        return expression.name.lower(), arguments[0] if arguments else None
    if isinstance(expression, exp.Func):
        return type(expression).__name__.lower(), expression.args.get("this")
    return "", None
