"""Values of Arrow columns, as numpy arrays and as Python's own.

Both ways go by Arrow's buffers, without what pyarrow imports for some of them. Where pandas is installed,
pyarrow imports it for its own conversions, and for any number or list of Python's: `pc.fill_null(x, -1)`,
`pa.scalar(1)` and `pa.array([1.0])` all do. That would cost the first estimate of a process 0.3 to 0.7 s.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import BoolArray, FloatArray

_MICROSECONDS_A_DAY = 86_400_000_000
_DURATION = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
_DAYS_A_MONTH = 30  # as in DuckDB's comparisons of intervals
_MOST_MICROSECONDS = 9e18  # nearly the largest BIGINT: some 285,000 years


def doubles(column: pa.ChunkedArray | pa.Array, *, null: float = np.nan) -> FloatArray:
    """Return a numeric column as doubles, with `null` where it is NULL."""
    array = _in_one(column.cast(pa.float64(), safe=False))
    values = _buffer(array, np.float64)
    if not array.null_count:
        return values
    return np.where(_validity(array), values, null)


def microseconds(column: pa.ChunkedArray | pa.Array) -> FloatArray:
    """Return dates and timestamps as microseconds since 1970, times of day since midnight; NULL is NaN.

    Of an interval they are its length, where a month has 30 days.
    """
    if pa.types.is_interval(column.type):
        return _lengths(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    return doubles(column.cast(pa.int64()))


def integers(column: pa.ChunkedArray | pa.Array, *, null: int = 0) -> NDArray[np.int64]:
    """Return an integer column, with `null` where it is NULL."""
    array = _in_one(column.cast(pa.int64()))
    values = _buffer(array, np.int64)
    if not array.null_count:
        return values
    return np.where(_validity(array), values, null)


def _in_one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the column as one array. Arrow makes one of no chunks from a list, and imports pandas for it."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def arrow(values: FloatArray | NDArray[np.int64] | NDArray[np.int32]) -> pa.Array:
    """Return the numbers as an Arrow array of their type, unchanged (NaN stays NaN)."""
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_TYPES[plain.dtype], plain.size, [None, pa.py_buffer(plain)])


def arrow_or_null(values: FloatArray) -> pa.Array:
    """Return the doubles as an Arrow array, NULL where they are NaN."""
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.float64(), plain.size, [_bits(~np.isnan(plain)), pa.py_buffer(plain)])


def arrow_moments(values: FloatArray, origin: int, kind: pa.DataType) -> pa.Array:
    """Return microseconds from an origin as moments, NULL where they are NaN or no such moment is known.

    Args:
        values: the microseconds.
        origin: in microseconds since 1970, for times of day since midnight.
        kind: timestamp[us] with or without a zone, date32, or time64[us]. A date is the day of the moment.
            month_day_nano_interval for intervals, which get days and hours.
    """
    with np.errstate(invalid="ignore"):
        known = np.abs(values) < _MOST_MICROSECONDS
    whole = np.where(known, np.rint(values), 0.0).astype(np.int64) + origin
    if pa.types.is_interval(kind):
        return _durations(whole, known, kind)
    if pa.types.is_time(kind):
        known &= (whole >= 0) & (whole < _MICROSECONDS_A_DAY)
        whole = np.where(known, whole, 0)
    counted = whole
    if pa.types.is_date(kind):
        counted = (whole // _MICROSECONDS_A_DAY).astype(np.int32)
    plain = np.ascontiguousarray(counted)
    return pa.Array.from_buffers(kind, plain.size, [_bits(known), pa.py_buffer(plain)])


def _lengths(column: pa.Array) -> FloatArray:
    parts = _buffer(column, _DURATION)
    days = parts["months"].astype(np.float64) * _DAYS_A_MONTH + parts["days"]
    length = days * _MICROSECONDS_A_DAY + parts["nanoseconds"] / 1_000
    return np.where(_validity(column), length, np.nan) if column.null_count else length


def _durations(whole: NDArray[np.int64], known: BoolArray, kind: pa.DataType) -> pa.Array:
    days = np.fix(whole / _MICROSECONDS_A_DAY).astype(np.int64)
    known &= np.abs(days) < np.iinfo(np.int32).max
    parts = np.zeros(whole.size, dtype=_DURATION)
    parts["days"] = np.where(known, days, 0)
    parts["nanoseconds"] = np.where(known, (whole - days * _MICROSECONDS_A_DAY) * 1_000, 0)
    return pa.Array.from_buffers(kind, whole.size, [_bits(known), pa.py_buffer(parts)])


def arrow_booleans(values: BoolArray) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, _bits(values)])


_TYPES: dict[np.dtype[Any], pa.DataType] = {
    np.dtype(np.float64): pa.float64(),
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.int32): pa.int32(),
}


def _buffer(array: pa.Array, dtype: type[Any] | np.dtype[Any]) -> NDArray[Any]:
    if not len(array):
        return np.empty(0, dtype=dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=len(array), offset=array.offset * width)


def _validity(array: pa.Array) -> BoolArray:
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def _bits(values: BoolArray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


Reads = Callable[[pa.Array], list[Any]]
_SECONDS_OF_A_DAY = 86_400


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values as `to_pylist` does, but without pandas.

    pyarrow imports it for points in time with a zone or in nanoseconds. Python's own have microseconds: one
    with a rest is text, such as "2020-01-01 00:00:00.000000001". So is one after the year 9999 or before 1,
    which Python has no value for: "infinity", "-infinity", or Arrow's text of it. The end of a day is
    "24:00:00". So it is inside of lists, structs, maps and unions.
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
    if pa.types.is_nested(kind):
        return [value for chunk in column.chunks for value in nested_values(chunk, _leaves)]
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


def _leaves(column: pa.Array) -> list[Any]:
    if pa.types.is_nested(column.type):  # of a kind that `nested_values` does not take apart
        return list(column.to_pylist())
    return python_values(pa.chunked_array([column]))


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


def nested_values(column: pa.Array, leaves: Reads, keys: Reads | None = None) -> list[Any]:
    """Return the values of a column. Maps are told by the type: of an empty one pyarrow makes a list.

    Args:
        column: of any type.
        leaves: reads an array that is not nested.
        keys: reads the keys of maps, which become dictionaries. None: a map is a list of pairs.

    >>> nested_values(pa.array([[1, None], None, []]), lambda leaf: [str(v) for v in leaf.to_pylist()])
    [['1', 'None'], None, []]
    """
    kind = column.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [nested_values(field, leaves, keys) for field in column.flatten()]
        rows = zip(*fields, strict=True) if fields else [()] * len(column)
        return _unless_null(column, [dict(zip(names, row, strict=True)) for row in rows])
    if pa.types.is_map(kind):
        return _unless_null(column, _maps(column, leaves, keys))
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        values = nested_values(column.values.slice(column.offset * size, len(column) * size), leaves, keys)
        return _unless_null(column, [values[row * size : (row + 1) * size] for row in range(len(column))])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = nested_values(_inside(column, column.values), leaves, keys)
        return _unless_null(column, [values[first:last] for first, last in _bounds(column)])
    if pa.types.is_union(kind) and kind.mode == "sparse":
        members = [nested_values(column.field(i), leaves, keys) for i in range(kind.num_fields)]
        places = [kind.type_codes.index(code) for code in column.type_codes.to_pylist()]
        return [members[place][row] for row, place in enumerate(places)]
    return leaves(column)


def _maps(column: pa.Array, leaves: Reads, keys: Reads | None) -> list[Any]:
    items = nested_values(_inside(column, column.items), leaves, keys)
    own_keys = _inside(column, column.keys)
    if keys is not None:
        pairs = list(zip(keys(own_keys), items, strict=True))
        return [dict(pairs[first:last]) for first, last in _bounds(column)]
    pairs = list(zip(nested_values(own_keys, leaves), items, strict=True))
    return [pairs[first:last] for first, last in _bounds(column)]


def _inside(column: pa.Array, values: pa.Array) -> pa.Array:
    """Return the values of a part of lists, of those that pyarrow gives for all of them."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return values.slice(first, last - first)


def _bounds(column: pa.Array) -> list[tuple[int, int]]:
    """Return where each list begins and ends in what `_inside` returns."""
    offsets = column.offsets.to_pylist()
    return [(first - offsets[0], last - offsets[0]) for first, last in pairwise(offsets)]


def _unless_null(column: pa.Array, values: list[Any]) -> list[Any]:
    there = column.is_valid().to_pylist()
    return [value if is_there else None for value, is_there in zip(values, there, strict=True)]
