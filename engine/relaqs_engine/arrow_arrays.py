"""Conversion between Arrow columns and numpy arrays, by their buffers.

Where pandas is installed, pyarrow imports it for its own conversions, and for any number or list of Python's:
`pc.fill_null(x, -1)`, `pa.scalar(1)` and `pa.array([1.0])` all do. That would cost the first estimate of a
process 0.3 to 0.7 s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import BoolArray, FloatArray

_MICROSECONDS_A_DAY = 86_400_000_000
_DURATION = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
_DAYS_A_MONTH = 30  # as in DuckDB's comparisons of intervals
_MOST_MICROSECONDS = 9e18  # nearly the largest BIGINT: some 285,000 years
_UNITS_A_MICROSECOND = {"s": 1e-6, "ms": 1e-3, "us": 1.0, "ns": 1e3}  # of Arrow's moments


def doubles(column: pa.ChunkedArray | pa.Array, *, null: float = np.nan) -> FloatArray:
    """Return a numeric column as doubles, with `null` where it is NULL."""
    array = _in_one(column.cast(pa.float64(), safe=False))
    values = _buffer(array, np.float64)
    return np.where(_validity(array), values, null) if array.null_count else values


def microseconds(column: pa.ChunkedArray | pa.Array) -> FloatArray:
    """Return dates and timestamps as microseconds since 1970, times of day since midnight; NULL is NaN.

    Of an interval they are its length, where a month has 30 days.
    """
    if pa.types.is_interval(column.type):
        return _lengths(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    return doubles(column.cast(pa.int64())) / _UNITS_A_MICROSECOND[column.type.unit]


def integers(column: pa.ChunkedArray | pa.Array, *, null: int = 0) -> NDArray[np.int64]:
    """Return an integer column, with `null` where it is NULL."""
    array = _in_one(column.cast(pa.int64()))
    values = _buffer(array, np.int64)
    return np.where(_validity(array), values, null) if array.null_count else values


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
        origin: in microseconds since 1970, for times of day since midnight.
        kind: a timestamp with or without a zone, date32, or a time. A date is the day of the moment.
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
    elif kind.unit == "ns":
        known &= np.abs(whole) < _MOST_MICROSECONDS // 1_000
        counted = np.where(known, whole, 0) * 1_000
    elif kind.unit != "us":
        counted = whole // round(1.0 / _UNITS_A_MICROSECOND[kind.unit])
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
