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
(`bounds.py`). Wider costs a certificate that could have been given, and nothing else.

What is ugly. Rounding of floats is ignored. What these bounds decide, such as whether one row more could
move a sum, does not depend on the last digit.

The decision: docs/decisions/0016-heavy-tails.md, point 1. SQL functions are mapped to these steps in
`bounds.py`.

From the arithmetic upwards: by how much a cast may round (`cast_step`), what SQL takes from dates
(`day_bounds`, `microsecond_bounds`, `date_part`), and the bounds of any SQL expression (`value_bounds`).
These answer two questions. Can a SUM fall? If not, its interval may use that. And how much could a row add
that was not read?
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlglot import exp

from relaqs_engine.layouts.manifest import FLOATS, WHOLE_NUMBERS, Column

_DECIMAL = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")


def type_name(cast: exp.Expr) -> str:
    """Return the name of the type that is cast to, in capitals and without its parameters.

    >>> import sqlglot
    >>> type_name(sqlglot.parse_one("CAST(x AS decimal(10, 2))"))
    'DECIMAL'
    """
    return str(cast.args["to"].this.name).upper()


def cast_step(cast: exp.Expr, from_type: str = "") -> float | None:
    """Return the most that a cast to a number moves it, None where the cast is to something else.

    Args:
        cast: it.
        from_type: the type of what is cast, as DuckDB writes it. "" where that is not known.

    >>> import sqlglot
    >>> [cast_step(sqlglot.parse_one(f"CAST(x AS {to})")) for to in ("DECIMAL(10, 2)", "BIGINT", "DATE")]
    [0.005, 0.5, None]
    >>> cast_step(sqlglot.parse_one("CAST(x AS DECIMAL(10, 2))"), from_type="DECIMAL(38,2)")
    0.0
    """
    name = type_name(cast)
    if name in FLOATS:
        return 0.0
    if name not in WHOLE_NUMBERS and name != "DECIMAL":
        return None
    digits = [int(part.name) for part in cast.args["to"].expressions]
    decimals = 0 if name in WHOLE_NUMBERS else digits[1] if len(digits) > 1 else 0 if digits else 3
    given = _decimals(from_type)
    return 0.0 if given is not None and given <= decimals else 0.5 * 10.0**-decimals


def loses_large_numbers(cast: exp.Expr) -> bool:
    """Whether a cast gives NULL for a number that is too large for its type, as TRY_CAST does.

    >>> import sqlglot
    >>> [loses_large_numbers(sqlglot.parse_one(f"TRY_CAST(x AS {to})")) for to in ("TINYINT", "DOUBLE")]
    [True, False]
    """
    return isinstance(cast, exp.TryCast) and type_name(cast) not in FLOATS


def _decimals(type_text: str) -> int | None:
    """Return how many decimals the numbers of a type have, None where that is not known."""
    if type_text in WHOLE_NUMBERS:
        return 0
    found = _DECIMAL.match(type_text)
    return int(found[1]) if found else None


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

    def rising(self, function: Callable[[float], float]) -> Bounds:
        """Return the bounds of a function that never falls. An end at which it has no value becomes unknown.

        >>> import math
        >>> Bounds(0.0, 100.0).rising(math.log10)
        Bounds(lowest=None, highest=2.0)
        """
        return Bounds(_applied(function, self.lowest), _applied(function, self.highest))

    def clipped(self, lowest: float) -> Bounds:
        """Return the bounds of a value that is also known to be at least `lowest`."""
        return Bounds(lowest if self.lowest is None else max(self.lowest, lowest), self.highest)


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


def _date_difference(arguments: Sequence[exp.Expr], column_of: ColumnLookup) -> Bounds:
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
        return _date_difference(expression.expressions, column_of)
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
