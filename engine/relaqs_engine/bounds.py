"""Interval arithmetic: what can be proved about a value that lies between two ends.

A query that sums `price * (1 - discount)` must know two things that no sample shows. May a row make the
sum smaller? And how much can one row that was not read add? Both follow from the least and the greatest
value of each column, which the manifest has. If price is in [1, 100] and discount in [0, 0.1], the product
is in [0.9, 100]. Operations on intervals carry this through an expression:

    [a, b] + [c, d]  =  [a + c, b + d]
    [a, b] − [c, d]  =  [a − d, b − c]
    [a, b] · [c, d]  =  from the least to the greatest of ac, ad, bc, bd
    [a, b] / [c, d]  =  [a, b] · [1/d, 1/c], if 0 is not in [c, d]
    f([a, b])        =  [f(a), f(b)], if f never falls

>>> price, discount = Bounds(1.0, 100.0), Bounds(0.0, 0.1)
>>> price * (Bounds.exactly(1.0) - discount)
Bounds(lowest=0.9, highest=100.0)

A side that is None is *not known*, never "without bound by luck". It stays None through each step that
needs it:

>>> Bounds(0.0, None) + Bounds(1.0, 2.0)
Bounds(lowest=1.0, highest=None)

The result may be wider than what can really happen, never narrower. `x − x` with x in [0, 1] gives [−1,
1], because the two are not known to be the same x. A square is known, so `x * x` is treated as a power
(`sql/expressions.py`). Wider costs a certificate that could have been given, and nothing else.

What is ugly. Rounding of floats is ignored. What these bounds decide, such as whether one row more could
move a sum, does not depend on the last digit.

The decision: docs/decisions/0016-heavy-tails.md, point 1. SQL functions are mapped to these steps in
`sql/expressions.py`.

Below the arithmetic is what SQL takes from dates: `day_bounds`, `microsecond_bounds`, `date_part`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlglot import exp

from relaqs_engine.layouts.manifest import Column


def type_name(cast: exp.Expr) -> str:
    """Return the name of the type that is cast to, in capitals and without its parameters.

    >>> type_name(sqlglot.parse_one("CAST(x AS decimal(10, 2))"))
    'DECIMAL'
    """
    return str(cast.args["to"].this.name).upper()


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


def range_of(duckdb_type: str) -> tuple[float, float] | None:
    """Return the least and the greatest whole number of a type of up to 64 bits, None for other types.

    >>> range_of("SMALLINT"), range_of("UTINYINT"), range_of("DOUBLE")
    ((-32768.0, 32767.0), (0.0, 255.0), None)
    """
    if (bits := _BITS.get(duckdb_type)) is not None:
        return -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1
    bits = _BITS.get(duckdb_type.removeprefix("U"))
    return None if bits is None else (0.0, 2.0**bits - 1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The two ends of a value: lowest <= value <= highest. NaN is above all numbers, as in DuckDB.

    Attributes:
        lowest: the lower end, None where it is not known.
        highest: the upper end, None where it is not known. A value that may be NaN has none.

    >>> Bounds(0.0, 10.0) - Bounds(1.0, 2.0)
    Bounds(lowest=-2.0, highest=9.0)
    >>> Bounds(-1.0, 2.0) * Bounds(-3.0, 4.0)   # the least and the greatest of 3, -4, -6 and 8
    Bounds(lowest=-6.0, highest=8.0)
    """

    lowest: float | None
    highest: float | None

    @classmethod
    def exactly(cls, value: float) -> Bounds:
        return cls(value, value)

    @classmethod
    def within(cls, size: float) -> Bounds:
        """Return the bounds of a value that is at most this far from zero."""
        return cls(-size, size)

    def __neg__(self) -> Bounds:
        """Return the bounds of −x. Where x may be NaN, so may be −x, which then has no upper end."""
        if self.highest is None:
            return UNKNOWN
        return Bounds(-self.highest, None if self.lowest is None else -self.lowest)

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(_plus(self.lowest, other.lowest), _plus(self.highest, other.highest))

    def __sub__(self, other: Bounds) -> Bounds:
        return self + -other

    def __mul__(self, other: Bounds) -> Bounds:
        if (mine := self.ends) and (theirs := other.ends):
            return _hull_of([a * b for a in mine for b in theirs])
        if self.is_nonnegative and other.is_nonnegative:
            return Bounds(0.0, None)
        return UNKNOWN

    def __truediv__(self, other: Bounds) -> Bounds:
        """Return the bounds of a quotient: unknown where the divisor may be 0, which gives an infinity.

        A divisor without a known upper end may be NaN, and so the quotient.
        """
        if (ends := other.ends) and ends[0] * ends[1] > 0.0:
            return self * Bounds(1.0 / ends[1], 1.0 / ends[0])
        if self.is_nonnegative and other.lowest is not None and other.lowest > 0.0:
            return Bounds(0.0, None)
        return UNKNOWN

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return both ends, None unless both are known."""
        return None if self.lowest is None or self.highest is None else (self.lowest, self.highest)

    @property
    def only_value(self) -> float | None:
        """Return the value if it can have only one."""
        return self.lowest if self.lowest == self.highest else None

    @property
    def is_nonnegative(self) -> bool:
        return self.lowest is not None and self.lowest >= 0.0

    @property
    def size(self) -> float | None:
        """Return how far from zero the value can be, None where a side is not known."""
        return max(map(abs, self.ends)) if self.ends else None

    def widened(self, by: float) -> Bounds:
        return self + Bounds(-by, by)

    def absolute(self) -> Bounds:
        if self.is_nonnegative:
            return self
        if self.highest is not None and self.highest <= 0.0:
            return -self
        return Bounds(0.0, self.size)

    def and_also(self, other: Bounds) -> Bounds:
        """Return the bounds of a value that has these and others.

        >>> Bounds(None, 9.0).and_also(Bounds(1.0, 20.0))
        Bounds(lowest=1.0, highest=9.0)
        """
        lowest = [each for each in (self.lowest, other.lowest) if each is not None]
        highest = [each for each in (self.highest, other.highest) if each is not None]
        return Bounds(max(lowest, default=None), min(highest, default=None))

    def rising(self, function: Callable[[float], float]) -> Bounds:
        """Return the bounds of a function that never falls. An end at which it has no value becomes unknown.

        >>> Bounds(0.0, 100.0).rising(math.log10)
        Bounds(lowest=None, highest=2.0)
        """
        return Bounds(_applied(function, self.lowest), _applied(function, self.highest))

    def clipped(self, lowest: float | None, highest: float | None = None) -> Bounds:
        """Return the bounds of a value that is also known to lie between these."""
        return self.and_also(Bounds(lowest, highest))


UNKNOWN = Bounds(None, None)


def hull(parts: Sequence[Bounds]) -> Bounds:
    """Return the bounds of a value that is one of these. Of no parts nothing is known.

    >>> hull([Bounds(0.0, 1.0), Bounds(5.0, 9.0)])
    Bounds(lowest=0.0, highest=9.0)
    """
    if not parts:
        return UNKNOWN
    lows, highs = [part.lowest for part in parts], [part.highest for part in parts]
    return Bounds(
        None if None in lows else min(low for low in lows if low is not None),
        None if None in highs else max(high for high in highs if high is not None),
    )


def power(base: Bounds, exponent: float) -> Bounds:
    """Return the bounds of base ** exponent.

    >>> power(Bounds(-3.0, 2.0), 2.0)
    Bounds(lowest=0.0, highest=9.0)
    """
    if base.is_nonnegative and exponent >= 0.0:
        return base.rising(lambda value: value**exponent)
    if exponent < 0.0:
        return Bounds(1.0, 1.0) / power(base, -exponent)
    if not exponent.is_integer():
        return UNKNOWN
    if exponent % 2 == 0:
        return base.absolute().rising(lambda value: value**exponent)
    return base.rising(lambda value: value**exponent)


def remainder(dividend: Bounds, divisor: Bounds) -> Bounds:
    """Return the bounds of a % b, which has the sign of a and is no larger than either of them.

    They are unknown where b may be 0, or a NaN or an infinity, which gives no number.

    >>> remainder(Bounds(0.0, 100.0), Bounds.exactly(7.0))
    Bounds(lowest=0.0, highest=7.0)
    """
    if dividend.ends is None or divisor.ends is None or divisor.ends[0] * divisor.ends[1] <= 0.0:
        return UNKNOWN
    most = min(max(map(abs, dividend.ends)), max(map(abs, divisor.ends)))
    return Bounds(-most if dividend.ends[0] < 0.0 else 0.0, most if dividend.ends[1] > 0.0 else 0.0)


def _hull_of(values: Sequence[float]) -> Bounds:
    known = not any(map(math.isnan, values))
    return Bounds(min(values), max(values)) if known else UNKNOWN


def _applied(function: Callable[[float], float], value: float | None) -> float | None:
    if value is None:
        return None
    try:
        result = function(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return result if math.isfinite(result) else None


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


ColumnLookup = Callable[[exp.Column], Column | None]
_WRITTEN_OUT = (exp.Literal, exp.Identifier, exp.Neg, exp.Paren, exp.Add, exp.Sub, exp.Mul)


def is_never_null(value: exp.Expr, column_of: ColumnLookup) -> bool:
    """Whether a value is made of numbers and of columns without NULL, by what keeps them so."""

    def keeps(node: exp.Expr) -> bool:
        if not isinstance(node, exp.Column):
            return isinstance(node, _WRITTEN_OUT)
        column = column_of(node)
        return column is not None and column.null_count == 0

    return all(keeps(node) for node in value.walk(prune=lambda node: isinstance(node, exp.Column)))


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
DAYS_OF_ROUNDING = 1e-9  # of a moment as a number of days since the year 1


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


def counted_days(duration: exp.Expr) -> tuple[float | None, exp.Expr | None]:
    """Return the days of the unit of an INTERVAL, and how many it has. A month has 30, as in comparisons.

    >>> days, count = counted_days(sqlglot.parse_one("INTERVAL '3 weeks'", dialect="duckdb"))
    >>> days, count.sql()
    (7.0, '3')
    """
    unit, count = _counted(duration)
    return _DAYS_OF_UNITS.get(unit.removesuffix("s")), count


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


def has_zone(expression: exp.Expr, column_of: ColumnLookup) -> bool:
    """Whether a moment in an expression may have a zone: text may, and a cast to such a type."""
    return any(
        (isinstance(node, exp.Literal) and node.is_string)
        or (isinstance(node, exp.Cast) and type_name(node).endswith(("TZ", "TIME ZONE")))
        or (isinstance(node, exp.Column) and (found := column_of(node)) and found.type.endswith("TIME ZONE"))
        for node in expression.walk()
    )


def microsecond_bounds(expression: exp.Expr, duckdb_type: str, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of moments in microseconds since 1970, of times of day since midnight."""
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


def _date_difference(arguments: Sequence[exp.Expr], column_of: ColumnLookup) -> Bounds:
    """Return the bounds of DATE_DIFF, which counts how many borders of the unit lie between two moments."""
    unit, begin, end = arguments
    days = _DAYS_OF.get(unit.name.lower()) if unit.is_string else None
    if days is None:
        return UNKNOWN
    between = day_bounds(end, column_of) - day_bounds(begin, column_of)
    return (between * Bounds(1.0 / days, 1.0 / days)).widened(1.0)


def date_part(
    expression: exp.Expr, column_of: ColumnLookup, durations: Callable[[exp.Expr], Bounds]
) -> Bounds:
    """Return the bounds of MONTH(d), DATE_PART('month', d), DATE_DIFF('day', d, e) and the like.

    Those of others are unknown.

    Args:
        durations: gives the bounds of an INTERVAL in days.
    """
    if expression.name.lower() in ("date_diff", "datediff") and len(expression.expressions) == 3:
        return _date_difference(expression.expressions, column_of)
    name, argument = _named_part(expression)
    if name in ("epoch", "epoch_us") and argument is not None:
        days = durations(argument)
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


def dates_at_most(expression: exp.Expr, column_of: ColumnLookup) -> float:
    """Return about how many values MONTH(d) and DATE_TRUNC('month', d) have at most, infinity for others."""
    days, ends = 1.0, date_part(expression, column_of, lambda _: UNKNOWN).ends
    if expression.name.lower() == "date_trunc" and len(expression.expressions) == 2:
        unit, moment = expression.expressions
        days, ends = _DAYS_OF_UNITS.get(unit.name.lower(), 0.0), day_bounds(moment, column_of).ends
    return 1.0 + (ends[1] - ends[0]) / days if ends and days else math.inf


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
