"""Values of an answer as bytes of the protocol: each column as text or in binary, as the client asks.

A column is read from Arrow once, as plain integers where Python's own dates and times would not hold all
values: DuckDB has years beyond 9999, years before the first, and infinity.
"""

from __future__ import annotations

import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from relaqs_engine.duck import in_zone
from relaqs_engine.errors import UnsupportedError

from relaqs.python_values import nested_values, python_values
from relaqs.serve import column_types as types
from relaqs.serve.column_types import ColumnType

Encode: TypeAlias = Callable[[Any], bytes]

TEXT, BINARY = 0, 1
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)

_INFINITE_DAY, _INFINITE_MICROSECOND = 2**31 - 1, 2**63 - 1  # both DuckDB's and Postgres's
DAYS_TO_2000 = 10957
MICROSECONDS_TO_2000 = DAYS_TO_2000 * 86_400_000_000

_SCIENTIFIC_FROM, _SCIENTIFIC_FROM_4 = 1e15, 1e6  # float8 and float4 are written as 1e+15 and 1e+06
_TO_QUOTE_IN_ARRAYS = re.compile(rb'[\s{}",\\]')

# Arrow makes a DECIMAL(38,0) of it, which the largest do not fit into.
_UNSENDABLE = re.compile(r"\bUHUGEINT\b")


def check_columns(names: Sequence[str], duckdb_types: Sequence[str]) -> None:
    """Raise UnsupportedError for a type that cannot be sent without losing a part of its values."""
    for name, type_ in zip(names, duckdb_types, strict=True):
        if _UNSENDABLE.search(type_):
            raise UnsupportedError(
                f"column {name} is a {type_}, which cannot be sent; send it as text: CAST({name} AS VARCHAR)"
            )


def encoded_values(column: pa.Array, kind: ColumnType, format_: int, timezone: str) -> list[bytes | None]:
    """Return the bytes of a column's values, without their lengths."""
    if kind.element is not None:
        return _encoded_arrays(column, kind.element, format_, timezone)
    encode = (_BINARY if format_ == BINARY else _TEXT).get(kind.oid, _text)
    is_local = encode is _timestamptz_text
    values = _with_local_time(column, timezone) if is_local else _python_values(column)
    return [None if value is None else encode(value) for value in values]


def _encoded_arrays(column: pa.Array, element: ColumnType, format_: int, timezone: str) -> list[bytes | None]:
    values = nested_values(column, lambda leaves: encoded_values(leaves, element, format_, timezone))
    for value in values:
        if value is not None:
            _dimensions(value)
    if format_ == BINARY:
        return [None if value is None else _array_binary(value, element) for value in values]
    return [None if value is None else _array_text(value) for value in values]


def _dimensions(value: Any) -> tuple[int, ...]:
    """Return the lengths of an array of arrays, none where it has no element.

    Raises:
        UnsupportedError: they are not the same for all.
    """
    if not isinstance(value, list):
        return ()
    inner, has_lists = {_dimensions(each) for each in value}, any(isinstance(each, list) for each in value)
    if len(inner) > 1 or (None in value and has_lists):
        raise UnsupportedError("a list of lists of several lengths is no array; send it as JSON: to_json(…)")
    (deeper,) = inner or {()}
    return (len(value), *deeper) if value and 0 not in deeper and (deeper or not has_lists) else ()


def _leaves_of(value: Any) -> Iterator[bytes | None]:
    if isinstance(value, list):
        for each in value:
            yield from _leaves_of(each)
    else:
        yield value


def _array_text(value: list[Any]) -> bytes:
    if not _dimensions(value):
        return b"{}"
    parts = (_array_text(each) if isinstance(each, list) else _element_text(each) for each in value)
    return b"{" + b",".join(parts) + b"}"


def _element_text(value: bytes | None) -> bytes:
    """Return a value as it stands between the commas of an array: in quotes where it would read otherwise."""
    if value is None:
        return b"NULL"
    if value and value.upper() != b"NULL" and _TO_QUOTE_IN_ARRAYS.search(value) is None:
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _array_binary(value: list[Any], element: ColumnType) -> bytes:
    """Return the number of dimensions, their lengths, and the elements after theirs."""
    lengths = _dimensions(value)
    leaves = list(_leaves_of(value)) if lengths else []
    head = struct.pack("!iiI", len(lengths), int(None in leaves), element.oid)
    sizes = b"".join(struct.pack("!ii", length, 1) for length in lengths)
    return head + sizes + b"".join(_NULL if v is None else _LENGTH.pack(len(v)) + v for v in leaves)


def _python_values(column: pa.Array) -> list[Any]:
    type_ = column.type
    if pa.types.is_nested(type_):
        return _plain_values(column)
    if pa.types.is_dictionary(type_):
        column = column.dictionary_decode()
    elif pa.types.is_date32(type_):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(type_):
        column = _microseconds(column)
    elif pa.types.is_time(type_):
        column = column.cast(pa.time64("us")).view(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _microseconds(column: pa.Array) -> pa.Array:
    """Return moments as microseconds since 1970. Nanoseconds are cut off, because Postgres has none."""
    if column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column.view(pa.int64())


def _with_local_time(column: pa.Array, timezone: str) -> list[tuple[int, int] | None]:
    """Return moments as microseconds since 1970, and what the clocks of the time zone show then."""
    moments = column.cast(pa.timestamp("us", "UTC"), safe=False)
    shown = in_zone(moments, timezone).view(pa.int64()).to_pylist()
    pairs = zip(moments.view(pa.int64()).to_pylist(), shown, strict=True)
    return [None if moment is None else (moment, local) for moment, local in pairs]


def _text(value: Any) -> bytes:
    return str(value).encode()


def _bool(value: bool) -> bytes:
    return b"t" if value else b"f"


def _float_text(value: float) -> bytes:
    if math.isfinite(value):
        text = repr(value)
        if abs(value) >= _SCIENTIFIC_FROM and "e" not in text:
            return np.format_float_scientific(value, trim="-", exp_digits=2).encode()
        return text.removesuffix(".0").encode()
    return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"


def _float4_text(value: float) -> bytes:
    if not math.isfinite(value):
        return _float_text(value)
    number = np.float32(value)
    if abs(value) >= _SCIENTIFIC_FROM_4:
        return np.format_float_scientific(number, trim="-", exp_digits=2).encode()
    return str(number).removesuffix(".0").encode()


def _numeric_text(value: Decimal | int) -> bytes:
    return (f"{value:f}" if isinstance(value, Decimal) else str(value)).encode()


def _bytea_text(value: bytes) -> bytes:
    return b"\\x" + value.hex().encode()


def _calendar(day: int) -> tuple[str, str]:
    """Return a day since 1970 as a date, and " BC" where it is before the year 1."""
    text = str(np.datetime64(day, "D"))
    year, month_day = text[:-6], text[-6:]
    if int(year) > 0:
        return text, ""
    return f"{1 - int(year):04}{month_day}", " BC"


def _date_text(day: int) -> bytes:
    if abs(day) == _INFINITE_DAY:
        return b"infinity" if day > 0 else b"-infinity"
    return "".join(_calendar(day)).encode()


def _clock(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}".rstrip("0") if rest else text


def _timestamp_text(value: int, zone: str = "") -> bytes:
    if abs(value) == _INFINITE_MICROSECOND:
        return b"infinity" if value > 0 else b"-infinity"
    day, time = divmod(value, 86_400_000_000)
    date_, era = _calendar(day)
    return f"{date_} {_clock(time)}{zone}{era}".encode()


def _timestamptz_text(value: tuple[int, int]) -> bytes:
    moment, local = value
    return _timestamp_text(local, _offset((local - moment) // 1_000_000))


def _offset(seconds: int) -> str:
    """Return how far a zone is ahead of UTC, as Postgres writes it: +00, +05:30, -04:56:02."""
    sign, seconds = "-" if seconds < 0 else "+", abs(seconds)
    parts = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return sign + ":".join(f"{part:02}" for part in parts)


def _interval_text(value: Any) -> bytes:
    """Return an interval as Postgres writes it: 1 year 2 mons 3 days -04:05:06."""
    months, days, nanoseconds = value
    microseconds = nanoseconds // 1000
    years, months = divmod(abs(months), 12) if months >= 0 else (-(-months // 12), -(-months % 12))
    parts = [(years, "year"), (months, "mon"), (days, "day")]
    words: list[str] = []
    is_below = False
    for count, unit in parts:
        if count:
            sign = "+" if is_below and count > 0 else ""
            words.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
            is_below = count < 0
    if microseconds or not words:
        sign = "-" if microseconds < 0 else "+" if is_below else ""
        words.append(f"{sign}{_clock(abs(microseconds))}")
    return " ".join(words).encode()


def _json_text(value: Any) -> bytes:
    """Return JSON. A text is that of DuckDB's type JSON, which is JSON already."""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _plain_values(column: pa.Array) -> list[Any]:
    """Return values as JSON has them."""
    return nested_values(column, _plain_leaves, _key_values)


def _plain_leaves(column: pa.Array) -> list[Any]:
    return [_plain(value) for value in python_values(pa.chunked_array([column]))]


def _key_values(column: pa.Array) -> list[str]:
    """Return the keys of maps as texts, which is what JSON has. A decimal keeps all its digits."""
    if pa.types.is_nested(column.type):
        return [json.dumps(value) for value in _plain_values(column)]
    values = python_values(pa.chunked_array([column]))
    return [
        _numeric_text(value).decode() if isinstance(value, Decimal) else _key(_plain(value))
        for value in values
    ]


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: what JSON has no form for is a text.

    So is a decimal that a double does not hold: clients read JSON's numbers as doubles.
    """
    match value:
        case Decimal():
            if value == value.to_integral_value():
                return int(value)
            return float(value) if Decimal(repr(float(value))) == value else f"{value:f}"
        case float() if not math.isfinite(value):
            return _float_text(value).decode()
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return _bytea_text(value).decode()
        case date() | datetime():
            return value.isoformat()
        case pa.MonthDayNano():
            return _interval_text(value).decode()
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return str(value)


def _numeric_binary(value: Decimal | int) -> bytes:
    """Return base-10,000 digits, as Postgres has them: count, weight of the first, sign, scale, digits."""
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int), "DuckDB's decimals are finite"
    scale = max(0, -exponent)
    whole = "".join(map(str, digits)) + "0" * max(0, exponent)
    before, after = (whole[:-scale], whole[-scale:]) if scale else (whole, "")
    after = after.rjust(scale, "0")
    before = before.rjust(-(-len(before) // 4) * 4, "0")
    after_padded = after.ljust(-(-len(after) // 4) * 4, "0")
    groups = [int((before + after_padded)[i : i + 4]) for i in range(0, len(before) + len(after_padded), 4)]
    weight = len(before) // 4 - 1
    while groups and groups[0] == 0:
        groups, weight = groups[1:], weight - 1
    while groups and groups[-1] == 0:
        groups = groups[:-1]
    header = (len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return struct.pack(f"!hhHh{len(groups)}h", *header, *groups)


def _date_binary(day: int) -> bytes:
    if abs(day) == _INFINITE_DAY:
        return struct.pack("!i", _INFINITE_DAY if day > 0 else -(2**31))
    return struct.pack("!i", day - DAYS_TO_2000)


def _timestamp_binary(value: int) -> bytes:
    if abs(value) == _INFINITE_MICROSECOND:
        return struct.pack("!q", _INFINITE_MICROSECOND if value > 0 else -(2**63))
    return struct.pack("!q", value - MICROSECONDS_TO_2000)


def _interval_binary(value: Any) -> bytes:
    months, days, nanoseconds = value
    return struct.pack("!qii", nanoseconds // 1000, days, months)


def _packer(layout: str) -> Encode:
    return struct.Struct(layout).pack


_TEXT: dict[int, Encode] = {
    types.BOOL.oid: _bool,
    types.BYTEA.oid: _bytea_text,
    types.FLOAT4.oid: _float4_text,
    types.FLOAT8.oid: _float_text,
    types.NUMERIC.oid: _numeric_text,
    types.DATE.oid: _date_text,
    types.TIME.oid: lambda value: _clock(value).encode(),
    types.TIMESTAMP.oid: _timestamp_text,
    types.TIMESTAMPTZ.oid: _timestamptz_text,
    types.INTERVAL.oid: _interval_text,
    types.JSON.oid: _json_text,
}

_BINARY: dict[int, Encode] = {
    types.BOOL.oid: _packer("!?"),
    types.BYTEA.oid: bytes,
    types.INT2.oid: _packer("!h"),
    types.INT4.oid: _packer("!i"),
    types.INT8.oid: _packer("!q"),
    types.OID.oid: _packer("!I"),
    types.FLOAT4.oid: _packer("!f"),
    types.FLOAT8.oid: _packer("!d"),
    types.NUMERIC.oid: _numeric_binary,
    types.DATE.oid: _date_binary,
    types.TIME.oid: _packer("!q"),
    types.TIMESTAMP.oid: _timestamp_binary,
    types.TIMESTAMPTZ.oid: _timestamp_binary,
    types.INTERVAL.oid: _interval_binary,
    types.UUID.oid: lambda value: uuid.UUID(str(value)).bytes,
    types.JSON.oid: _json_text,
}
