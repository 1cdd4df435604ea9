"""How dates, times and intervals are counted as numbers: in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

_ZERO = {
    "DATE": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP_S": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP_MS": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP_NS": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP WITH TIME ZONE": ("TIMESTAMPTZ", "1970-01-01 00:00:00+00"),
    "TIME": ("TIME", "00:00:00"),
}
TIME_TYPES = frozenset(_ZERO)
"""DuckDB's types of moments that have a number of microseconds of their own."""
MICROSECOND_TYPES = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIME"))
"""Those of them that Arrow keeps as microseconds or days."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """How the moments or intervals of an output are counted as numbers: in microseconds from an origin.

    Attributes:
        origin_microseconds: the origin, in microseconds since 1970, of times of day since midnight. Intervals
            are counted from zero.
        span_microseconds: how far apart two moments of the column can be. An error is relative to it, as no
            moment is zero. NaN for intervals: theirs are relative to the value, as those of numbers are.
    """

    origin_microseconds: int
    span_microseconds: float


INTERVAL_SCALE = TimeScale(0, nan)


def microseconds_sql(time_type: str, value: str) -> str:
    """Return SQL for the microseconds of a moment, since 1970 or since midnight. An infinite one has none.

    >>> microseconds_sql("DATE", "day"), microseconds_sql("TIME", "at")
    ('epoch_us(CAST(day AS TIMESTAMP))', 'epoch_us(at)')
    """
    has_microseconds = time_type in ("TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
    return f"epoch_us({value})" if has_microseconds else f"epoch_us(CAST({value} AS TIMESTAMP))"


def time_sql(time_type: str, microseconds: str) -> str:
    """Return SQL for the moment of so many microseconds, a BIGINT. It has the type of the moments' average.

    >>> time_sql("DATE", "x")
    "CAST('1970-01-01' AS TIMESTAMP) + to_microseconds(x)"
    """
    type_, zero = _ZERO[time_type]
    return f"CAST('{zero}' AS {type_}) + to_microseconds({microseconds})"
