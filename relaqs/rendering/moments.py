"""How dates, times and durations with an interval are written: 2020-05-16 ± 12 days, 02:30:00 ± 4.0 min.

The half-width has two significant digits, as that of a number has, and a unit of time. The moment is written
as finely as that. What SQL calls an INTERVAL is a duration here, and written as DuckDB writes it.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

Duration = tuple[int, int, int]
"""Months, days and nanoseconds, as pyarrow's MonthDayNano."""
Moment = datetime.datetime | datetime.date | datetime.time | Duration

_UNITS = (
    ("days", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("µs", 1),
)
_SAME_SIDES = 0.1  # sides that differ by less than this share of the half-width are shown as one
_DAY, _MINUTE, _SECOND, _MILLISECOND = 86_400_000_000, 60_000_000, 1_000_000, 1_000


def show_duration(months: int, days: int, nanoseconds: int) -> str:
    """Return a value of type INTERVAL as text, as DuckDB casts it to VARCHAR.

    >>> show_duration(14, 49, 43_200_500_000_000)
    '1 year 2 months 49 days 12:00:00.5'
    >>> show_duration(0, -1, -90_000_000_000), show_duration(0, 0, 0)
    ('-1 day -00:01:30', '00:00:00')
    """
    years = abs(months) // 12 * (1 if months > 0 else -1)
    counted = ((years, "year"), (months - 12 * years, "month"), (days, "day"))
    parts = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in counted if count]
    if nanoseconds or not parts:
        seconds, fraction = divmod(abs(nanoseconds) // 1_000, _SECOND)
        sign, rest = "-" if nanoseconds < 0 else "", f".{fraction:06}".rstrip("0").rstrip(".")
        parts.append(f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{rest}")
    return " ".join(parts)


def microseconds_between(earlier: Moment, later: Moment) -> int | None:
    """Return how many microseconds lie between two moments of one kind, None where they cannot be compared.

    >>> microseconds_between(datetime.date(2020, 1, 1), datetime.date(2020, 1, 3)) / 86_400e6
    2.0
    """
    if isinstance(earlier, tuple) or isinstance(later, tuple):
        if isinstance(earlier, tuple) and isinstance(later, tuple):
            return _length(later) - _length(earlier)
        return None
    if isinstance(earlier, datetime.time) and isinstance(later, datetime.time):
        return _of_day(later) - _of_day(earlier)
    if isinstance(earlier, datetime.time) or isinstance(later, datetime.time):
        return None
    start, end = _full(earlier), _full(later)
    if (start.tzinfo is None) != (end.tzinfo is None):
        return None
    return (_since_year_one(end) - _since_year_one(start)) // datetime.timedelta(microseconds=1)


def seconds_of(moment: Moment) -> float:
    """Return a moment as seconds from a beginning that all moments of its kind have.

    >>> seconds_of(datetime.time(0, 1)), seconds_of(datetime.date(1, 1, 2))
    (60.0, 86400.0)
    """
    if isinstance(moment, tuple):
        return _length(moment) / _SECOND
    if isinstance(moment, datetime.time):
        return _of_day(moment) / _SECOND
    return _since_year_one(_full(moment)).total_seconds()


def show_moment(value: Moment, low: Moment, high: Moment) -> tuple[str, str] | None:
    """Return a moment and its margin as text, None where its interval does not hold it or has no length.

    >>> day = datetime.datetime(2020, 5, 16, 12, 4, 9)
    >>> show_moment(day, day - datetime.timedelta(days=12), day + datetime.timedelta(days=12))
    ('2020-05-16', '± 12 days')
    >>> show_moment(day, day - datetime.timedelta(seconds=90), day + datetime.timedelta(seconds=60))
    ('2020-05-16 12:04:09', '+1.0/−1.5 min')
    >>> show_moment((0, 1, 7_384 * 10**9), (0, 1, 7_000 * 10**9), (0, 1, 7_768 * 10**9))
    ('1 day 02:03:04', '± 6.4 min')
    """
    below, above = microseconds_between(low, value), microseconds_between(value, high)
    if below is None or above is None or below < 0 or above < 0 or not below + above:
        return None
    half = (below + above) / 2
    unit, size = next((each for each in _UNITS if each[1] <= half), _UNITS[-1])
    if abs(above - below) < half * _SAME_SIDES:
        margin = f"± {_two_digits(half / size)}"
    else:
        margin = f"+{_two_digits(above / size)}/−{_two_digits(below / size)}"
    return _as_fine(value, half), f"{margin} {unit}"


def _two_digits(number: float) -> str:
    """Return a number with two significant digits, as a half-width is written, and none of a small part."""
    return f"{number:,.1f}" if number < 9.95 else f"{Decimal(round(number)):,}"


def _as_fine(value: Moment, half: float) -> str:
    """Return the moment as finely as a half-width in microseconds tells it."""
    if isinstance(value, tuple):
        return _rounded_duration(value, half)
    if isinstance(value, datetime.datetime):
        if half >= 10 * _DAY:
            return value.date().isoformat()
        return value.isoformat(sep=" ", timespec=_timespec(half))
    if isinstance(value, datetime.time):
        return value.isoformat(timespec=_timespec(half))
    return value.isoformat()


def _rounded_duration(value: Duration, half: float) -> str:
    """Return a duration in days and hours, without what is far below its half-width."""
    step = next((size for _, size in _UNITS if size * 10 <= half), 1)
    length = _length(value)
    steps = (abs(length) + step // 2) // step * step
    days, rest = divmod(steps, _DAY)
    sign = -1 if length < 0 else 1
    return show_duration(0, sign * days, sign * rest * 1_000)


def _timespec(half: float) -> str:
    if half >= 10 * _MINUTE:
        return "minutes"
    if half >= 10 * _SECOND:
        return "seconds"
    return "milliseconds" if half >= 10 * _MILLISECOND else "microseconds"


def _full(moment: datetime.datetime | datetime.date) -> datetime.datetime:
    if isinstance(moment, datetime.datetime):
        return moment
    return datetime.datetime.combine(moment, datetime.time())


def _since_year_one(moment: datetime.datetime) -> datetime.timedelta:
    """Return the time since the year 1. In one zone, Python's own difference is that of what clocks show."""
    offset = moment.utcoffset() or datetime.timedelta()
    return moment.replace(tzinfo=None) - datetime.datetime.min - offset


def _length(duration: Duration) -> int:
    """Return the microseconds of a duration, where a month has 30 days."""
    months, days, nanoseconds = duration
    return (30 * months + days) * _DAY + nanoseconds // 1_000


def _of_day(time: datetime.time) -> int:
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond
