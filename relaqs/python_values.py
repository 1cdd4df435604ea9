"""The values of an Arrow column as Python's own, without what pyarrow imports for some of them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa

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
        return [each and each.replace(tzinfo=datetime.UTC).astimezone(zone) for each in moments]
    if kind.unit == "ns":
        return [None if text is None else _of_nanoseconds(text) for text in column.cast("string").to_pylist()]
    return list(column.to_pylist())


def fetched_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows with the types of DuckDB's `fetchall`, where Python has them.

    A HUGEINT, as a sum of integers is, is an int and no Decimal. So is a DECIMAL(38, 0), which is the same to
    Arrow. An INTERVAL is a timedelta with months of 30 days, one that is too long MonthDayNano. A MAP is a
    dictionary, one with lists for keys pairs.
    """
    return list(zip(*map(_fetched, table.columns), strict=True))


def _fetched(column: pa.ChunkedArray) -> list[Any]:
    return [v for chunk in column.chunks for v in nested_values(chunk, _fetched_leaves, _fetched_leaves)]


def _fetched_leaves(column: pa.Array) -> list[Any]:
    values = _leaves(column)
    if column.type == pa.decimal128(38, 0):  # how Arrow has a HUGEINT
        return [None if value is None else int(value) for value in values]
    if column.type == pa.month_day_nano_interval():
        return [value and _span(value) for value in values]
    return values


def _span(value: pa.MonthDayNano) -> datetime.timedelta | pa.MonthDayNano:
    try:
        return datetime.timedelta(30 * value.months + value.days, microseconds=value.nanoseconds // 1000)
    except OverflowError:
        return value


def _dictionary(pairs: list[Any]) -> dict[Any, Any] | list[Any]:
    try:
        return dict(pairs)
    except TypeError:  # a list is no key
        return pairs


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
        return [_dictionary(pairs[first:last]) for first, last in _bounds(column)]
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
