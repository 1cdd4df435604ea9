"""Averages of dates, timestamps and times of day, as averages of numbers.

DuckDB's average of moments is a whole number of microseconds, since 1970 or since midnight. What is behind
the point is cut off, and one is added if that was positive and more than a half. The state has the sum of
microseconds from an origin in the middle of what the column can hold:

    exact      total // count + (2 · (total % count) > count), of the total = sum + origin · count
    estimate   origin + sum / count

Its error bars are those of sum / count. Near the origin these numbers are small, so that averages of moments
that differ by milliseconds keep all their digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from relaqs_engine.bounds.dates import ColumnLookup, microsecond_bounds
from relaqs_engine.plans.times import TIME_TYPES, TimeScale, microseconds_sql, time_sql
from relaqs_engine.sql.parse import DIALECT

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

    def merged(self, total: str, count: str) -> AveragedTime:
        """Return the average over the names of a merged sum of `microseconds` and of a merged count."""
        origin = _whole(self.scale.origin_microseconds)
        since_zero = f"(CAST({total} AS HUGEINT) + {origin} * CAST({count} AS HUGEINT))"
        exact = (
            f"{since_zero} // nullif({count}, 0) "
            f"+ CASE WHEN 2 * ({since_zero} % nullif({count}, 0)) > {count} THEN 1 ELSE 0 END"
        )
        number = f"CAST({total} AS DOUBLE) / nullif(CAST({count} AS DOUBLE), 0)"
        so_far = f"{origin} + CAST({number} AS BIGINT)"
        return AveragedTime(
            _parsed(time_sql(self.duckdb_type, f"CAST({exact} AS BIGINT)")),
            _parsed(time_sql(self.duckdb_type, so_far)),
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

    >>> from relaqs_engine.layouts.manifest import Column
    >>> day = Column("day", "DATE", "2020-01-01", "2020-01-03", 0, 3, 12)
    >>> found = time_to_average(sqlglot.parse_one("day"), "DATE", lambda column: day)
    >>> print(found.microseconds.sql("duckdb"))
    EPOCH_US(CAST(day AS TIMESTAMP)) - 1577923200000000
    >>> found.scale.span_microseconds / 86_400e6
    2.0
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
