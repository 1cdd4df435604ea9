"""The values of an Arrow column as Python's own, without what pyarrow imports for some of them."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

_SECONDS_OF_A_DAY = 86_400


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values as `to_pylist` does, but without pandas.

    pyarrow imports it for points in time with a zone or in nanoseconds. Python's own have microseconds: one
    with a rest is text, such as "2020-01-01 00:00:00.000000001". So is one after the year 9999 or before 1,
    which Python has no value for: "infinity", "-infinity", or Arrow's text of it. The end of a day is
    "24:00:00".
    """
    try:
        return _values(column)
    except (OverflowError, ValueError):
        return [_value_or_text(column.slice(row, 1)) for row in range(len(column))]


def _value_or_text(one: pa.ChunkedArray) -> Any:
    try:
        return _values(one)[0]
    except (OverflowError, ValueError):
        return _infinite(one) or one.combine_chunks().to_string(indent=0, skip_new_lines=True).strip("[]")


def _infinite(one: pa.ChunkedArray) -> str:
    """Return the text of one infinite moment, "" for others. Infinite is the largest number that fits."""
    if not (pa.types.is_date32(one.type) or pa.types.is_timestamp(one.type)):
        return ""
    kind = pa.int32() if pa.types.is_date32(one.type) else pa.int64()
    number = one.cast(kind)[0].as_py()
    most = 2 ** (kind.bit_width - 1) - 1
    return {most: "infinity", -most: "-infinity"}.get(number, "")


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_time64(kind):
        return _times(column)
    if not pa.types.is_timestamp(kind):
        return list(column.to_pylist())
    if kind.tz is not None:
        zone = pa.lib.string_to_tzinfo(kind.tz)
        moments = _values(column.cast(pa.timestamp(kind.unit)))
        return [None if moment is None else _in_zone(moment, zone) for moment in moments]
    if kind.unit == "ns":
        return [None if text is None else _of_nanoseconds(text) for text in column.cast("string").to_pylist()]
    return list(column.to_pylist())


def _times(column: pa.ChunkedArray) -> list[Any]:
    """Return times of day. The end of a day, which DuckDB has, would be midnight in Python."""
    end = _SECONDS_OF_A_DAY * {"us": 10**6, "ns": 10**9}[column.type.unit]
    counts = column.cast(pa.int64()).to_pylist()
    return [
        "24:00:00" if count == end else value for count, value in zip(counts, column.to_pylist(), strict=True)
    ]


def _in_zone(moment: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    return moment.replace(tzinfo=datetime.UTC).astimezone(zone)


def _of_nanoseconds(text: str) -> datetime.datetime | str:
    return datetime.datetime.fromisoformat(text[:-3]) if text.endswith("000") else text
