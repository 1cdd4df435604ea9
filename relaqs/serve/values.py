"""Values as bytes of the protocol: those of an answer, and of parameters that clients send; text or binary.

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
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_engine.duck import LocalMoment, in_zone
from relaqs_engine.errors import UnsupportedError
from relaqs_engine.postgres.formats import MOST_DIMENSIONS, array_items, written_moment
from relaqs_engine.sql.binder import Constant

from relaqs.arguments import ArgumentError
from relaqs.python_values import nested_values, python_values
from relaqs.serve import column_types as types
from relaqs.serve.column_types import ARRAYS, ColumnType
from relaqs.serve.failures import BAD_BYTES, BAD_TEXT, OUT_OF_RANGE, RefusedError

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

_WHOLE = {types.INT2.oid: pa.int16(), types.INT4.oid: pa.int32(), types.INT8.oid: pa.int64()}
_OF_WHOLE = {**_WHOLE, types.FLOAT8.oid: pa.float64(), types.NUMERIC.oid: pa.decimal128(38)}
_TEXTS = dict.fromkeys((types.TEXT.oid, types.JSON.oid), pa.string())


def check_columns(names: Sequence[str], duckdb_types: Sequence[str]) -> None:
    """Raise UnsupportedError for a type that cannot be sent without losing a part of its values."""
    for name, type_ in zip(names, duckdb_types, strict=True):
        if _UNSENDABLE.search(type_):
            raise UnsupportedError(
                f"column {name} is a {type_}, which cannot be sent; send it as text: CAST({name} AS VARCHAR)"
            )


def as_kind(column: pa.ChunkedArray, kind: ColumnType, wanted: ColumnType) -> pa.ChunkedArray:
    """Return the values of a column as those of another type. Raises ArrowInvalid where one would change."""
    if kind.oid == wanted.oid:
        return column
    has = (kind.element or kind).oid
    leaf = (_OF_WHOLE if has in _WHOLE else _TEXTS if has in _TEXTS else {}).get(
        (wanted.element or wanted).oid
    )
    if leaf is None or (kind.element is None) != (wanted.element is None):
        raise pa.ArrowInvalid(f"{kind.name} is not {wanted.name}")
    return column.cast(_with_leaves(column.type, leaf))


def as_announced(column: pa.ChunkedArray, kind: ColumnType) -> pa.ChunkedArray:
    """Return the numbers of a column in the form of the type that was announced.

    Raises:
        RefusedError: one is too large for it.
    """
    if kind is types.FLOAT8 and not pa.types.is_nested(column.type):
        return column.cast(pa.float64(), safe=False)
    if kind is types.FLOAT4 and column.type == pa.float64():
        return column.cast(pa.float32(), safe=False)
    wanted = _WHOLE.get(kind.oid)
    if wanted is None or (pa.types.is_integer(column.type) and column.type.bit_width <= wanted.bit_width):
        return column
    try:
        return (pc.round(column) if pa.types.is_floating(column.type) else column).cast(wanted)
    except pa.ArrowInvalid as error:
        said = f"{kind.sql_name} out of range; cast what is summed, as in sum(x::bigint)"
        raise RefusedError(OUT_OF_RANGE, said) from error


def _with_leaves(type_: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    return pa.list_(_with_leaves(type_.value_type, leaf)) if pa.types.is_list(type_) else leaf


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
    return _timestamp_text(local, offset_text((local - moment) // 1_000_000))


def offset_text(seconds: int) -> str:
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


Decode: TypeAlias = Callable[[bytes], Any]

_EPOCH = datetime(2000, 1, 1)
_WIDE = Context(prec=1_000)  # the usual one has 28 digits
_DATE_AND_MORE = re.compile(r"(\d{4}-\d\d-\d\d)[ T+Z-]")
_WRITTEN = re.compile(
    r"(?:[a-z]\w*(?:\s[a-z]\w*)*\s*)?'((?:[^']|'')*)'(?:::.*)?|([+-]?[\d.]+(?:e[+-]?\d+)?|true|false|null)(?:::.*)?",
    re.I | re.S,
)
_OF_OIDS = {each.oid: each for each in types.TYPES}
_OPEN = {each.oid for each in (types.TEXT, types.VARCHAR, types.BPCHAR, types.NAME, types.UNKNOWN)}
_NAMES = {oid: each.name for oid, each in _OF_OIDS.items()}
_TRUE, _FALSE = {"t", "true", "y", "yes", "on", "1"}, {"f", "false", "n", "no", "off", "0"}


def parameter_value(raw: bytes | None, oid: int, format_: int) -> Any:
    """Return the value of one parameter.

    Args:
        raw: its bytes; None for NULL.
        oid: of its type; 0 where the client leaves it open, which makes it a text.
        format_: TEXT or BINARY.

    Raises:
        ArgumentError: the type has no binary form here.
        RefusedError: the bytes are no value of the type.
    """
    if raw is None:
        return null_of(oid)
    try:
        if oid in ARRAYS:
            read_array = _binary_array if format_ == BINARY else _text_array
            return read_array(raw, ARRAYS[oid])
        return _decoder(oid, format_)(raw)
    except (ValueError, ArithmeticError, InvalidOperation, struct.error, IndexError, KeyError) as error:
        shown = raw[:40] + (b"..." if len(raw) > 40 else b"")
        raise RefusedError(
            BAD_BYTES if format_ == BINARY else BAD_TEXT,
            f"a parameter is {shown!r}, which is no value of the type {_NAMES.get(oid, oid)}",
        ) from error


def null_of(oid: int) -> Constant | None:
    """Return NULL as a value of a type. One of a text is open, as a text that is written out."""
    kind = ARRAYS.get(oid) or _OF_OIDS.get(oid)
    if kind is None or (kind.oid == oid and oid in _OPEN):
        return None
    name = "VARCHAR" if kind.oid in _OPEN else "DECIMAL(2, 1)" if kind is types.NUMERIC else kind.name
    return Constant(f"{name}[]" if oid in ARRAYS else name)


def written_value(text: str, oid: int) -> Any:
    """Return the value of a parameter that is written out in SQL, as EXECUTE has it.

    Raises:
        ArgumentError: it is no number, text or NULL.
        RefusedError: it is no value of the type.
    """
    if (found := _WRITTEN.fullmatch(text.strip())) is None:
        raise ArgumentError(
            f"{text[:60]!r} is no value that is written out; EXECUTE takes 12, 'a text', NULL and the like"
        )
    quoted, plain = found.groups()
    if quoted is None and plain.lower() == "null":
        return None
    return parameter_value((plain if quoted is None else quoted.replace("''", "'")).encode(), oid, TEXT)


def _decoder(oid: int, format_: int) -> Decode:
    if format_ == BINARY:
        if oid not in _OF_BINARY:
            raise ArgumentError(
                f"a parameter has the type with the OID {oid} in binary; send it as text, or as one of "
                f"{', '.join(sorted(_NAMES.values()))}"
            )
        return _OF_BINARY[oid]
    return _OF_TEXT.get(oid, bytes.decode)


def _read_bool(raw: bytes) -> bool:
    word = raw.decode().strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(word)
    return word in _TRUE


def _bytea(raw: bytes) -> bytes:
    if not raw.startswith(b"\\x"):
        raise ValueError("a blob is written in hexadecimal digits after \\x")
    return bytes.fromhex(raw[2:].decode())


def _number(raw: bytes) -> Decimal:
    value = Decimal(raw.decode().strip())
    if not value.is_finite():
        raise ValueError("DuckDB's decimals are finite")
    return value


def _date(raw: bytes) -> date | Constant:
    """Return a date. Drivers that know no type send a time or a zone behind it, which Postgres leaves out."""
    text = _as_iso(raw, is_day=True)
    found = _DATE_AND_MORE.match(text)
    return _infinite(text, "DATE") or date.fromisoformat(found[1] if found else text)


def _moment(raw: bytes) -> datetime | Constant:
    """Return a moment without a zone. One that is given is left out, as by Postgres."""
    text = _as_iso(raw)
    return _infinite(text, "TIMESTAMP") or datetime.fromisoformat(text).replace(tzinfo=None)


def _moment_with_zone(raw: bytes) -> datetime | LocalMoment | Constant:
    text = _as_iso(raw)
    if (infinite := _infinite(text, "TIMESTAMP WITH TIME ZONE")) is not None:
        return infinite
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else LocalMoment(value.isoformat(" "))


def _as_iso(raw: bytes, *, is_day: bool = False) -> str:
    text = raw.decode().strip()
    return written_moment(text, is_day=is_day) or text


def _infinite(text: str, type_: str) -> Constant | None:
    """Return the end of all time as a value of a type, which Python has not."""
    word = text.lower().removeprefix("+")
    return Constant(type_, word) if word in ("infinity", "-infinity") else None


def _read_date(raw: bytes) -> date | Constant:
    (days,) = struct.unpack("!i", raw)
    if days in (_INFINITE_DAY, -(2**31)):
        return Constant("DATE", "infinity" if days > 0 else "-infinity")
    return _EPOCH.date() + timedelta(days=days)


def _read_moment(type_: str, zone: tzinfo | None) -> Decode:
    def read(raw: bytes) -> datetime | Constant:
        (microseconds,) = struct.unpack("!q", raw)
        if microseconds in (_INFINITE_MICROSECOND, -(2**63)):
            return Constant(type_, "infinity" if microseconds > 0 else "-infinity")
        return (_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=zone)

    return read


def _read_interval(raw: bytes) -> timedelta:
    microseconds, days, months = struct.unpack("!qii", raw)
    if months:
        raise ValueError("an interval with months has no fixed length; write it in the SQL")
    return timedelta(days=days, microseconds=microseconds)


def _read_numeric(raw: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", raw)
    if sign not in (0, 0x4000):
        raise ValueError("DuckDB's decimals are finite")
    digits = struct.unpack_from(f"!{count}h", raw, 8)
    whole = 0
    for digit in digits:
        whole = whole * 10_000 + digit
    value = _WIDE.scaleb(Decimal(whole), 4 * (weight - count + 1)) if count else Decimal(0)
    value = value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    return value.copy_negate() if sign else value


def _unpacker(layout: str) -> Decode:
    whole = struct.Struct(layout)
    return lambda raw: whole.unpack(raw)[0]


def _binary_array(raw: bytes, element: ColumnType) -> list[Any]:
    dimensions, _, oid = struct.unpack_from("!iiI", raw)
    if not 0 <= dimensions <= MOST_DIMENSIONS or oid in ARRAYS:
        raise ValueError(f"an array has up to {MOST_DIMENSIONS} dimensions")
    lengths = struct.unpack_from("!" + "ii" * dimensions, raw, 12)[::2]
    if not dimensions or lengths == (0,):
        return []
    if min(lengths) < 1 or math.prod(lengths) > len(raw) // 4:
        raise ValueError("an array has fewer elements than its lengths say")
    values: list[Any] = []
    offset = 12 + 8 * dimensions
    for _ in range(math.prod(lengths)):
        (size,) = struct.unpack_from("!i", raw, offset)
        offset += 4
        value = raw[offset : offset + size]
        values.append(None if size < 0 else parameter_value(value, oid, BINARY))
        offset += max(0, size)
    for length in lengths[:0:-1]:
        values = [values[at : at + length] for at in range(0, len(values), length)]
    return values


def _text_array(raw: bytes, element: ColumnType) -> list[Any]:
    decode = _OF_TEXT.get(element.oid, bytes.decode)

    def decoded(each: Any) -> Any:
        if isinstance(each, list):
            return list(map(decoded, each))
        return None if each is None else decode(each.encode())

    return [decoded(each) for each in array_items(raw.decode())]


_OF_TEXT: dict[int, Decode] = {
    types.BOOL.oid: _read_bool,
    types.BYTEA.oid: _bytea,
    types.INT2.oid: int,
    types.INT4.oid: int,
    types.INT8.oid: int,
    types.OID.oid: int,
    types.FLOAT4.oid: float,
    types.FLOAT8.oid: float,
    types.NUMERIC.oid: _number,
    types.DATE.oid: _date,
    types.TIME.oid: lambda raw: time.fromisoformat(raw.decode().strip()),
    types.TIMESTAMP.oid: _moment,
    types.TIMESTAMPTZ.oid: _moment_with_zone,
    types.UUID.oid: lambda raw: uuid.UUID(raw.decode()),
}

_OF_BINARY: dict[int, Decode] = {
    types.BOOL.oid: _unpacker("!?"),
    types.BYTEA.oid: bytes,
    types.INT2.oid: _unpacker("!h"),
    types.INT4.oid: _unpacker("!i"),
    types.INT8.oid: _unpacker("!q"),
    types.OID.oid: _unpacker("!I"),
    types.FLOAT4.oid: _unpacker("!f"),
    types.FLOAT8.oid: _unpacker("!d"),
    types.NUMERIC.oid: _read_numeric,
    types.DATE.oid: _read_date,
    types.TIME.oid: lambda raw: (_EPOCH + timedelta(microseconds=struct.unpack("!q", raw)[0])).time(),
    types.TIMESTAMP.oid: _read_moment("TIMESTAMP", None),
    types.TIMESTAMPTZ.oid: _read_moment("TIMESTAMP WITH TIME ZONE", UTC),
    types.INTERVAL.oid: _read_interval,
    types.UUID.oid: lambda raw: uuid.UUID(bytes=raw),
    **{each.oid: bytes.decode for each in (types.TEXT, types.VARCHAR, types.BPCHAR, types.NAME)},
    **{each.oid: bytes.decode for each in (types.UNKNOWN, types.JSON)},
    0: bytes.decode,
}
