"""Averages of intervals, such as avg(dropoff - pickup), as averages of numbers.

An INTERVAL has months, days and microseconds. DuckDB adds up each of the three, divides each sum by the
count, and passes what is left of the months on to the days, and of the days on to the microseconds. What is
left of the microseconds is then added as it is, not divided. So DuckDB's average may be too large by a
microsecond for each row, a second in a million rows.

    exact      DuckDB's own steps, over three sums
    estimate   the sum of lengths / count, where a month has 30 days, as in comparisons

Its error bars are those of the estimate, wider by those microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from relaqs_engine.plans.times import INTERVAL_SCALE
from relaqs_engine.rewrite.averaged_times import AveragedTime
from relaqs_engine.sql.parse import DIALECT

_MICROSECONDS_A_DAY = 86_400_000_000
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
        from_days = f"{_MICROSECONDS_A_DAY} * ({days} % {divisor} + ({from_months}) % {divisor})"
        exact = (
            f"to_months(CAST({months} // {divisor} AS INTEGER)) "
            f"+ to_days(CAST({days} // {divisor} + ({from_months}) // {divisor} AS INTEGER)) "
            f"+ to_microseconds(CAST({microseconds} // {divisor} + ({from_days}) // {divisor} "
            f"+ {microseconds} % {divisor} AS BIGINT))"
        )
        number = f"CAST({length} AS DOUBLE) / nullif(CAST({count} AS DOUBLE), 0)"
        whole = f"CAST({number} AS BIGINT)"
        estimate = (
            f"to_days(CAST({whole} // {_MICROSECONDS_A_DAY} AS INTEGER)) "
            f"+ to_microseconds({whole} % {_MICROSECONDS_A_DAY})"
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


def _parsed(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect=DIALECT)
