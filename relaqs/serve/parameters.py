"""Values of parameters as clients send them, text or binary, as Python's own."""

from __future__ import annotations

import math
import re
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from relaqs_engine.duck import LocalMoment
from relaqs_engine.postgres.formats import MOST_DIMENSIONS, array_items
from relaqs_engine.sql.binder import NullOf

from relaqs.arguments import ArgumentError
from relaqs.serve import column_types as types
from relaqs.serve.column_types import ARRAYS, ColumnType
from relaqs.serve.failures import BAD_BYTES, BAD_TEXT, RefusedError
from relaqs.serve.values import BINARY, TEXT

Decode: TypeAlias = Callable[[bytes], Any]

_EPOCH = datetime(2000, 1, 1)
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

    >>> parameter_value(b"12", 23, 0), parameter_value(b"\\0\\0\\0\\x0c", 23, 1)
    (12, 12)
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


def null_of(oid: int) -> NullOf | None:
    """Return NULL as a value of a type. One of a text is open, as a text that is written out."""
    kind = ARRAYS.get(oid) or _OF_OIDS.get(oid)
    if kind is None or (kind.oid == oid and oid in _OPEN):
        return None
    name = "VARCHAR" if kind.oid in _OPEN else "DECIMAL(2, 1)" if kind is types.NUMERIC else kind.name
    return NullOf(f"{name}[]" if oid in ARRAYS else name)


def written_value(text: str, oid: int) -> Any:
    """Return the value of a parameter that is written out in SQL, as EXECUTE has it.

    Raises:
        ArgumentError: it is no number, text or NULL.
        RefusedError: it is no value of the type.

    >>> written_value("-12", 23), written_value("'it''s'", 25), written_value("date '2024-01-01'", 1082)
    (-12, "it's", datetime.date(2024, 1, 1))
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
        if oid not in _BINARY:
            raise ArgumentError(
                f"a parameter has the type with the OID {oid} in binary; send it as text, or as one of "
                f"{', '.join(sorted(_NAMES.values()))}"
            )
        return _BINARY[oid]
    return _TEXT.get(oid, bytes.decode)


def _bool(raw: bytes) -> bool:
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


def _date(raw: bytes) -> date:
    """Return a date. Drivers that know no type send a time or a zone behind it, which Postgres leaves out."""
    text = raw.decode().strip()
    found = _DATE_AND_MORE.match(text)
    return date.fromisoformat(found[1] if found else text)


def _moment(raw: bytes) -> datetime:
    """Return a moment without a zone. One that is given is left out, as by Postgres."""
    return datetime.fromisoformat(raw.decode().strip()).replace(tzinfo=None)


def _moment_with_zone(raw: bytes) -> datetime | LocalMoment:
    value = datetime.fromisoformat(raw.decode().strip())
    return value if value.tzinfo else LocalMoment(value.isoformat(" "))


def _timestamp_binary(raw: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=struct.unpack("!q", raw)[0])


def _interval_binary(raw: bytes) -> timedelta:
    microseconds, days, months = struct.unpack("!qii", raw)
    if months:
        raise ValueError("an interval with months has no fixed length; write it in the SQL")
    return timedelta(days=days, microseconds=microseconds)


def _numeric_binary(raw: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", raw)
    if sign not in (0, 0x4000):
        raise ValueError("DuckDB's decimals are finite")
    digits = struct.unpack_from(f"!{count}h", raw, 8)
    whole = 0
    for digit in digits:
        whole = whole * 10_000 + digit
    value = Decimal(whole).scaleb(4 * (weight - count + 1)) if count else Decimal(0)
    value = value.quantize(Decimal(1).scaleb(-scale))
    return -value if sign else value


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
    decode = _TEXT.get(element.oid, bytes.decode)

    def decoded(each: Any) -> Any:
        if isinstance(each, list):
            return list(map(decoded, each))
        return None if each is None else decode(each.encode())

    return [decoded(each) for each in array_items(raw.decode())]


_TEXT: dict[int, Decode] = {
    types.BOOL.oid: _bool,
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

_BINARY: dict[int, Decode] = {
    types.BOOL.oid: _unpacker("!?"),
    types.BYTEA.oid: bytes,
    types.INT2.oid: _unpacker("!h"),
    types.INT4.oid: _unpacker("!i"),
    types.INT8.oid: _unpacker("!q"),
    types.OID.oid: _unpacker("!I"),
    types.FLOAT4.oid: _unpacker("!f"),
    types.FLOAT8.oid: _unpacker("!d"),
    types.NUMERIC.oid: _numeric_binary,
    types.DATE.oid: lambda raw: _EPOCH.date() + timedelta(days=struct.unpack("!i", raw)[0]),
    types.TIME.oid: lambda raw: _timestamp_binary(raw).time(),
    types.TIMESTAMP.oid: _timestamp_binary,
    types.TIMESTAMPTZ.oid: lambda raw: _timestamp_binary(raw).replace(tzinfo=UTC),
    types.INTERVAL.oid: _interval_binary,
    types.UUID.oid: lambda raw: uuid.UUID(bytes=raw),
    **{each.oid: bytes.decode for each in (types.TEXT, types.VARCHAR, types.BPCHAR, types.NAME)},
    **{each.oid: bytes.decode for each in (types.UNKNOWN, types.JSON)},
    0: bytes.decode,
}
