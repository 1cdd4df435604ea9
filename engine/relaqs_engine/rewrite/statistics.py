"""Aggregates of several sums: variances and the like, and averages of times and intervals.

**Central moments.** Variances, covariances, regressions, skewness and kurtosis are functions of moments.

The state has moments of one value, or of pairs (y, x) without a NULL in either:

    n               how many there are
    mx, my          their means
    sxx, syy, sxy   the sums of products of their deviations from these means

They are merged as Chan, Golub and LeVeque (1979) do it, so large values that differ little lose no digits.

Higher moments need no columns of another kind. With y = (x − c)², for a constant c, and d = mx − c:

    Σ (x − mx)³ = sxy − 2·d·sxx
    Σ (x − mx)⁴ = syy − 4·d·Σ (x − mx)³ − 4·d²·sxx + sxx² / n

The sums stay accurate while d is not many standard deviations, so c is the middle of what bounds x.

**Averages of dates, timestamps and times of day.** DuckDB's average is a whole number of microseconds,
since 1970 or since midnight. What is behind the point is cut off, and one is added if that was positive
and more than a half. The state has the sum of microseconds from an origin in the middle of what the column
can hold:

    exact      total // count + (2 · (total % count) > count), of the total = sum + origin · count
    estimate   origin + sum / count

From 2.0.1 on DuckDB's average of dates, and of timestamps of seconds and milliseconds, is a whole number of
nanoseconds. The total of microseconds times 1,000 is theirs. A timestamp of nanoseconds has an estimate
only where its average has microseconds.

Its error bars are those of sum / count. Near the origin these numbers are small, so that averages of times
that differ by milliseconds keep all their digits.

**Averages of intervals**, such as avg(dropoff - pickup). An INTERVAL has months, days and microseconds.
DuckDB adds up each of the three, divides each sum by the count, and passes what is left of the months on
to the days, and of the days on to the microseconds. What is left of the microseconds is then added as it
is, not divided. So DuckDB's average may be too large by a microsecond for each row, a second in a million
rows.

    exact      DuckDB's own steps, over three sums
    estimate   the sum of lengths / count, where a month has 30 days, as in comparisons

Its error bars are those of the estimate, wider by those microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import sqlglot
from sqlglot import exp

from relaqs_engine.bounds import Bounds, ColumnLookup, microsecond_bounds
from relaqs_engine.plans.aggregate import SCALE, Basis
from relaqs_engine.plans.plan import INTERVAL_SCALE, TIME_TYPES, TimeScale, microseconds_sql, time_sql
from relaqs_engine.sql.aggregate_laws import Call
from relaqs_engine.sql.parse import DIALECT

_THIRD = "(sxy - 2 * (mx - c) * sxx)"
_FOURTH = f"(syy - 4 * (mx - c) * {_THIRD} - 4 * (mx - c) * (mx - c) * sxx + sxx * sxx / NULLIF(n, 0))"
_PEAKED = f"(n * {_FOURTH} / NULLIF(sxx * sxx, 0))"
_SKEWED = f"SQRT(n) * {_THIRD} / NULLIF(sxx * SQRT(sxx), 0)"
_ALL = f"(n * {SCALE})"
_NAN = "CAST('nan' AS DOUBLE)"
# A single value has no deviation, not even where it is infinite.
_SXX, _SYY = ("(CASE WHEN n = 1 THEN 0 ELSE sxx END)", "(CASE WHEN n = 1 THEN 0 ELSE syy END)")


@dataclass(frozen=True, slots=True)
class Formula:
    """The value of an aggregate over its moments, as SQL.

    Attributes:
        estimate: the value of the whole table, estimated.
        exact: the value at the end; "" where it is the same.
    """

    estimate: str
    exact: str = ""


_OF_ONE = {
    "var_samp": Formula("sxx / NULLIF(n - 1, 0)"),
    "var_pop": Formula("sxx / NULLIF(n, 0)", exact=f"{_SXX} / NULLIF(n, 0)"),
    "stddev": Formula("SQRT(sxx / NULLIF(n - 1, 0))"),
    "stddev_samp": Formula("SQRT(sxx / NULLIF(n - 1, 0))"),
    "stddev_pop": Formula("SQRT(sxx / NULLIF(n, 0))", exact=f"SQRT({_SXX} / NULLIF(n, 0))"),
    "sem": Formula(
        f"SQRT(sxx / NULLIF(n, 0)) / NULLIF(SQRT(n * {SCALE}), 0)",
        exact="SQRT(sxx / NULLIF(n, 0)) / NULLIF(SQRT(n), 0)",
    ),
}
# Their y is (x - c)².
_OF_ONE_AND_ITS_SQUARE = {
    "skewness": Formula(
        f"SQRT({_ALL} * ({_ALL} - 1)) / NULLIF({_ALL} - 2, 0) * {_SKEWED}",
        exact=f"SQRT(n * (n - 1)) / NULLIF(n - 2, 0) * {_SKEWED}",
    ),
    "kurtosis_pop": Formula(f"{_PEAKED} - 3"),
    "kurtosis": Formula(
        f"({_ALL} - 1) * (({_ALL} + 1) * {_PEAKED} - 3 * ({_ALL} - 1)) "
        f"/ NULLIF(({_ALL} - 2) * ({_ALL} - 3), 0)",
        exact=f"(n - 1) * ((n + 1) * {_PEAKED} - 3 * (n - 1)) / NULLIF((n - 2) * (n - 3), 0)",
    ),
}
_OF_PAIRS = {
    "covar_pop": Formula("sxy / NULLIF(n, 0)"),
    "covar_samp": Formula("sxy / NULLIF(n - 1, 0)"),
    "corr": Formula(
        "sxy / NULLIF(SQRT(sxx) * SQRT(syy), 0)",
        exact=f"CASE WHEN sxx = 0 OR syy = 0 THEN {_NAN} ELSE sxy / (SQRT(sxx) * SQRT(syy)) END",
    ),
    "regr_slope": Formula("sxy / NULLIF(sxx, 0)", exact=f"CASE WHEN sxx = 0 THEN {_NAN} ELSE sxy / sxx END"),
    "regr_intercept": Formula(
        "my - mx * sxy / NULLIF(sxx, 0)",
        exact="CASE WHEN sxx <> 0 AND NOT ISNAN(sxy / sxx) THEN my - mx * sxy / sxx END",
    ),
    "regr_r2": Formula(
        "sxy * sxy / NULLIF(sxx * syy, 0)",
        exact=f"CASE WHEN {_SXX} <> 0 THEN CASE WHEN syy = 0 THEN 1 ELSE sxy * sxy / (sxx * syy) END END",
    ),
    "regr_count": Formula(f"n * {SCALE}", exact="CAST(n AS UINTEGER)"),
    "regr_avgx": Formula("mx"),
    "regr_avgy": Formula("my"),
    "regr_sxx": Formula(f"{SCALE} * sxx", exact=_SXX),
    "regr_syy": Formula(f"{SCALE} * syy", exact=_SYY),
    "regr_sxy": Formula(f"{SCALE} * sxy", exact="sxy"),
}


class AddMoment(Protocol):
    """Adds a basis column, and returns its name."""

    def __call__(
        self, kind: Basis, aggregate: exp.Expr, /, *, count_of: str | None = None, means: tuple[str, ...] = ()
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class _Values:
    """What the moments are of. `counted` is not NULL where a row counts, and `centre` is the constant c."""

    counted: exp.Expr
    x: exp.Expr
    y: exp.Expr
    centre: float = 0.0


def value_of_moments(
    call: Call, add: AddMoment, bounds_of: Callable[[exp.Expr], Bounds]
) -> tuple[exp.Expr, exp.Expr]:
    """Return the call's exact value over merged moments, and its estimate.

    Args:
        call: of a function of moments.
        add: adds a basis column, and returns its name.
        bounds_of: gives what is known of the values of an expression.

    >>> from relaqs_engine.bounds import UNKNOWN
    >>> from relaqs_engine.sql.aggregate_laws import call_of
    >>> added = []
    >>> def add(kind, each, /, *, count_of=None, means=()):
    ...     added.append(each.sql("duckdb"))
    ...     return f"b{len(added) - 1}"
    >>> spread = call_of(sqlglot.parse_one("var_pop(fare)", dialect="duckdb"))
    >>> exact, estimate = value_of_moments(spread, add, lambda _: UNKNOWN)
    >>> estimate.sql()
    'b2 / NULLIF(CAST(b0 AS DOUBLE), 0)'
    >>> print(*added, sep="; ")
    COUNT(fare); AVG(CAST(fare AS DOUBLE)); VAR_POP(CAST(fare AS DOUBLE))
    """
    name = call.law.name
    if (formula := _OF_PAIRS.get(name)) is not None:
        values = _pair(*call.arguments)
    elif (formula := _OF_ONE.get(name)) is not None:
        (value,) = call.arguments
        x = exp.cast(value.copy(), exp.DType.DOUBLE)
        values = _Values(value, x, x)
    else:
        formula = _OF_ONE_AND_ITS_SQUARE[name]
        values = _with_square(call.arguments[0], bounds_of)
    columns = _Columns(values, add)
    estimate = columns.written(formula.estimate)
    return columns.written(formula.exact) if formula.exact else estimate.copy(), estimate


def _pair(y: exp.Expr, x: exp.Expr) -> _Values:
    """Return both values as they are where neither is NULL, and else NULL."""

    def beside(value: exp.Expr, other: exp.Expr) -> exp.Expr:
        there = exp.paren(other.copy()).is_(exp.null()).not_()
        return exp.case().when(there, exp.cast(value.copy(), exp.DType.DOUBLE))

    return _Values(beside(x, y), beside(x, y), beside(y, x))


def _with_square(value: exp.Expr, bounds_of: Callable[[exp.Expr], Bounds]) -> _Values:
    x = exp.cast(value.copy(), exp.DType.DOUBLE)
    bounds = bounds_of(value)
    centre = 0.0
    if bounds.lowest is not None and bounds.highest is not None:
        centre = bounds.lowest / 2 + bounds.highest / 2
    away = exp.paren(exp.Sub(this=x.copy(), expression=exp.convert(centre)))
    return _Values(value, x, exp.Mul(this=away, expression=away.copy()), centre)


class _Columns:
    """Writes formulas over basis columns. It adds the columns that they name."""

    def __init__(self, values: _Values, add: AddMoment) -> None:
        self._values = values
        self._add = add
        self._names: dict[str, str] = {}

    def written(self, formula: str) -> exp.Expr:
        """Return the formula over the names of basis columns."""

        def named(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or node.name == SCALE:
                return node
            if node.name == "c":
                return exp.convert(self._values.centre)
            found = exp.column(self._named(node.name))
            return exp.cast(found, exp.DType.DOUBLE) if node.name == "n" else found

        return sqlglot.parse_one(formula, dialect=DIALECT).transform(named)

    def _named(self, symbol: str) -> str:
        """Return the name of the column that a symbol of a formula stands for."""
        if symbol not in self._names:
            self._names[symbol] = self._added(symbol)
        return self._names[symbol]

    def _added(self, symbol: str) -> str:
        if symbol == "n":
            return self._add(Basis.COUNT, exp.Count(this=self._values.counted.copy()))
        count = self._named("n")
        if symbol[0] == "m":
            return self._add(Basis.MEAN, exp.Avg(this=self._value(symbol[1])), count_of=count)
        means = tuple(self._named(f"m{letter}") for letter in symbol[1:])
        return self._add(Basis.M2, self._spread(symbol), count_of=count, means=means)

    def _spread(self, symbol: str) -> exp.Expr:
        one, other = (self._value(letter) for letter in symbol[1:])
        if one == other:
            return exp.VariancePop(this=one)
        return exp.CovarPop(this=one, expression=other)

    def _value(self, letter: str) -> exp.Expr:
        return (self._values.x if letter == "x" else self._values.y).copy()


_MICROSECONDS_A_DAY = 86_400e6


@dataclass(frozen=True, slots=True)
class AveragedTime:
    """The average of moments or intervals over the columns of merged state.

    Attributes:
        exact: the moment at the end.
        estimate: the moment so far.
        number: the estimate in microseconds from the origin of `scale`, a DOUBLE.
        scale: what these numbers mean.
        rounding_a_row: how many microseconds the end may be off for each row, as DuckDB's is.
    """

    exact: exp.Expr
    estimate: exp.Expr
    number: exp.Expr
    scale: TimeScale
    rounding_a_row: float = 0.0


@dataclass(frozen=True, slots=True)
class TimeToAverage:
    """Moments that are to be averaged.

    Attributes:
        microseconds: of one row, from the origin, as SQL over its columns.
        duckdb_type: of the moments.
        scale: the origin, and how far apart moments can be.
    """

    microseconds: exp.Expr
    duckdb_type: str
    scale: TimeScale

    def merged(self, total: str, count: str, average_type: str) -> AveragedTime:
        """Return the average, of that type, over the names of a merged sum and of a merged count."""
        origin, has_nanoseconds = _whole(self.scale.origin_microseconds), average_type == "TIMESTAMP_NS"
        since_zero = f"(CAST({total} AS HUGEINT) + {origin} * CAST({count} AS HUGEINT))"
        if has_nanoseconds:
            since_zero = f"(1000 * {since_zero})"
        exact = (
            f"{since_zero} // nullif({count}, 0) "
            f"+ CASE WHEN 2 * ({since_zero} % nullif({count}, 0)) > {count} THEN 1 ELSE 0 END"
        )
        number = f"CAST({total} AS DOUBLE) / nullif(CAST({count} AS DOUBLE), 0)"
        so_far = f"{origin} + CAST({number} AS BIGINT)"
        moment = "make_timestamp_ns({})".format if has_nanoseconds else partial(time_sql, average_type)
        return AveragedTime(
            _parsed(moment(f"CAST({exact} AS BIGINT)")),
            _parsed(moment(f"1000 * ({so_far})" if has_nanoseconds else so_far)),
            _parsed(number),
            self.scale,
        )


def time_to_average(value: exp.Expr, duckdb_type: str, column_of: ColumnLookup) -> TimeToAverage | None:
    """Return how moments are averaged as numbers, None where the values are none, or nothing bounds them.

    Infinite moments have no bounds: they are no number of microseconds.

    Args:
        value: the moments.
        duckdb_type: their type.
        column_of: gives a column's statistics.
    """
    if duckdb_type not in TIME_TYPES:
        return None
    ends = microsecond_bounds(value, duckdb_type, column_of).ends
    if ends is None:
        return None
    origin = round((ends[0] + ends[1]) / 2)
    since = f"{microseconds_sql(duckdb_type, value.sql(DIALECT))} - {_whole(origin)}"
    return TimeToAverage(_parsed(since), duckdb_type, TimeScale(origin, ends[1] - ends[0]))


def averaged_time_in(value: exp.Expr, known: Mapping[str, AveragedTime]) -> tuple[AveragedTime, float] | None:
    """Return the average of moments that an output is, and by how many microseconds it is rounded.

    None where the output is something else. A cast to DATE rounds by up to a day.

    Args:
        value: the output over merged state.
        known: the averages by the SQL of their estimates.
    """
    value, rounding = value.unnest(), 1.0
    if isinstance(value, exp.Cast) and value.to.this is exp.DataType.Type.DATE:
        value, rounding = value.this.unnest(), _MICROSECONDS_A_DAY
    found = known.get(value.sql(DIALECT))
    return None if found is None else (found, rounding)


def _parsed(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect=DIALECT)


def _whole(number: int) -> str:
    return f"({number})" if number < 0 else str(number)


_DAY_LENGTH = 86_400_000_000
_PARTS = (
    "12 * datepart('year', {x}) + datepart('month', {x})",
    "datepart('day', {x})",
    "3600000000 * datepart('hour', {x}) + 60000000 * datepart('minute', {x}) + datepart('microsecond', {x})",
)


@dataclass(frozen=True, slots=True)
class IntervalToAverage:
    """Intervals that are to be averaged, as SQL over the columns of one row.

    Attributes:
        parts: the months, the days and the microseconds.
        length: the microseconds of the whole.
    """

    parts: tuple[exp.Expr, exp.Expr, exp.Expr]
    length: exp.Expr

    def merged(self, parts: tuple[str, str, str], length: str, count: str) -> AveragedTime:
        """Return the average over the names of the merged sums of these, and of a merged count."""
        months, days, microseconds = (f"CAST({part} AS HUGEINT)" for part in parts)
        divisor = f"nullif(CAST({count} AS HUGEINT), 0)"
        from_months = f"30 * ({months} % {divisor})"
        from_days = f"{_DAY_LENGTH} * ({days} % {divisor} + ({from_months}) % {divisor})"
        exact = (
            f"to_months(CAST({months} // {divisor} AS INTEGER)) "
            f"+ to_days(CAST({days} // {divisor} + ({from_months}) // {divisor} AS INTEGER)) "
            f"+ to_microseconds(CAST({microseconds} // {divisor} + ({from_days}) // {divisor} "
            f"+ {microseconds} % {divisor} AS BIGINT))"
        )
        number = f"CAST({length} AS DOUBLE) / nullif(CAST({count} AS DOUBLE), 0)"
        whole = f"CAST({number} AS BIGINT)"
        estimate = (
            f"to_days(CAST({whole} // {_DAY_LENGTH} AS INTEGER)) + to_microseconds({whole} % {_DAY_LENGTH})"
        )
        return AveragedTime(
            _parsed(exact), _parsed(estimate), _parsed(number), INTERVAL_SCALE, rounding_a_row=1.0
        )


def interval_to_average(value: exp.Expr) -> IntervalToAverage:
    """Return how intervals are averaged as numbers.

    >>> print(interval_to_average(sqlglot.parse_one("b - a")).length.sql("duckdb"))
    EPOCH_US((b - a))
    """
    sql = f"({value.sql(DIALECT)})"
    months, days, microseconds = (_parsed(part.format(x=sql)) for part in _PARTS)
    return IntervalToAverage((months, days, microseconds), _parsed(f"epoch_us({sql})"))
