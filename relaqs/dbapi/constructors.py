"""What PEP 249 makes values of parameters with. Python's own dates, times and bytes do as well."""

from __future__ import annotations

import datetime
import time

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802  # PEP 249 gives the name
    """Return the local day at so many seconds since 1970.

    >>> DateFromTicks(86400 * 365).year
    1971
    """
    return datetime.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """Return the local time of day at so many seconds since 1970.

    >>> TimeFromTicks(90).second
    30
    """
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """Return the local moment at so many seconds since 1970.

    >>> TimestampFromTicks(86400 * 365).year
    1971
    """
    return datetime.datetime(*time.localtime(ticks)[:6])
