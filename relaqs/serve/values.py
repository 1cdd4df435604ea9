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
from collections.abc import Callable, Iterable, Sequence
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
ROWS_AT_ONCE, VALUES_AT_ONCE, BYTES_AT_ONCE = 1024, 4096, 1 << 18  # that are encoded together

FEW_VALUES, FEW_BYTES = 200, 1 << 14  # plain ones, which are encoded in less time than it takes to wait

_LENGTH, _DATA_ROW = struct.Struct("!i"), struct.Struct("!ciH")
_NULL = _LENGTH.pack(-1)

_INFINITE_DAY, _INFINITE_MICROSECOND = 2**31 - 1, 2**63 - 1  # both DuckDB's and Postgres's
_DAYS_TO_2000 = 10957
_MICROSECONDS_TO_2000 = _DAYS_TO_2000 * 86_400_000_000

# Arrow makes a DECIMAL(38,0) of it, which the largest do not fit into.
_UNSENDABLE = re.compile(r"\bUHUGEINT\b")


class AnswerRows:
    """An answer's rows as messages of the protocol, some at a time.

    Args:
        table: the answer.
        kinds: the types that its columns were announced with.
        formats: TEXT or BINARY for each.
        timezone: in which moments are written as texts.
    """

    def __init__(
        self, table: pa.Table, kinds: Sequence[ColumnType], formats: Sequence[int], timezone: str
    ) -> None:
        self._table = table
        self._encode = [encoder(kind, format_) for kind, format_ in zip(kinds, formats, strict=True)]
        self._timezone = timezone
        self._is_nested = any(
            pa.types.is_nested(each) or pa.types.is_dictionary(each) for each in table.schema.types
        )
        self._most_rows = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(1, len(kinds))))

    @property
    def are_few(self) -> bool:
        """Whether the rows that are left take less than a millisecond to encode."""
        few = self._table.num_rows * self._table.num_columns <= FEW_VALUES
        return few and _content_bytes(self._table) <= FEW_BYTES and not self._is_nested

    def messages(self, first_row: int, most_rows: int | None = None) -> tuple[int, bytes]:
        """Return the number of the next rows, and their messages. They take some milliseconds to encode.

        first_row: where they begin.
        most_rows: how many are asked for, None for all.

        Raises:
            UnsupportedError: a value has no form in the type.
        """
        count = self._most_rows if most_rows is None else min(self._most_rows, most_rows)
        part = self._table.slice(first_row, count)
        while part.num_rows > 1 and _content_bytes(part) > BYTES_AT_ONCE:
            part = part.slice(0, part.num_rows // 2)
        columns = [
            self._fields(each, column) for each, column in zip(self._encode, part.columns, strict=True)
        ]
        rows: Iterable[Sequence[bytes]] = zip(*columns, strict=True) if columns else [()] * part.num_rows
        return part.num_rows, b"".join(map(self._row, rows))

    def forget(self) -> None:
        """Keep no row any more. Further messages are none."""
        self._table = pa.Table.from_batches([], self._table.schema)

    def _fields(self, encode: Encode, column: pa.ChunkedArray) -> list[bytes]:
        values: list[Any] = []
        for chunk in column.chunks:
            is_local = encode is _timestamptz_text
            values += _with_local_time(chunk, self._timezone) if is_local else _python_values(chunk)
        field = self._field
        return [field(None if value is None else encode(value)) for value in values]

    def _field(self, value: bytes | None) -> bytes:
        """Return a value as it stands in a row: after its length. NULL has none."""
        return _NULL if value is None else _LENGTH.pack(len(value)) + value

    def _row(self, fields: Sequence[bytes]) -> bytes:
        """Return the message DataRow of a row's fields."""
        row = b"".join(fields)
        return (
            _DATA_ROW.pack(b"D", len(row) + 6, len(fields)) + row
        )  # 6: the length and the number of columns


def _content_bytes(table: pa.Table) -> int:
    """Return about how large the rows are. Rows of a dictionary are not: it belongs to all."""
    return sum(column.nbytes for column in table.columns if not pa.types.is_dictionary(column.type))


def check_columns(names: Sequence[str], duckdb_types: Sequence[str]) -> None:
    """Raise UnsupportedError for a type that cannot be sent without losing a part of its values."""
    for name, type_ in zip(names, duckdb_types, strict=True):
        if _UNSENDABLE.search(type_):
            raise UnsupportedError(
                f"column {name} is a {type_}, which cannot be sent; send it as text: CAST({name} AS VARCHAR)"
            )


def encoder(kind: ColumnType, format_: int) -> Encode:
    """Return what encodes the values of a type."""
    if format_ == BINARY:
        return _BINARY.get(kind.oid, _text)
    return _TEXT.get(kind.oid, _text)


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
        return repr(value).encode()
    return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"


def _float4_text(value: float) -> bytes:
    return str(np.float32(value)).encode() if math.isfinite(value) else _float_text(value)


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
    return struct.pack("!i", day - _DAYS_TO_2000)


def _timestamp_binary(value: int) -> bytes:
    if abs(value) == _INFINITE_MICROSECOND:
        return struct.pack("!q", _INFINITE_MICROSECOND if value > 0 else -(2**63))
    return struct.pack("!q", value - _MICROSECONDS_TO_2000)


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
