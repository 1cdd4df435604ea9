"""Rows of an answer as messages of the protocol: many values at once, without an object for each.

Arrow writes the texts, and numpy the binary forms. What neither has a way for is encoded value by value, as
`values.py` does it for few rows. Both give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_engine.duck import in_zone
from relaqs_engine.sql.dialect import pause

from relaqs.serve import column_types as types
from relaqs.serve.column_types import ColumnType
from relaqs.serve.values import BINARY, DAYS_TO_2000, MICROSECONDS_TO_2000, encoded_values, offset_text

FEW_VALUES, FEW_BYTES = 200, 1 << 14  # plain ones, which are encoded in less time than it takes to wait
_ROWS_BY_VALUES = 32  # that are encoded value by value: calls of Arrow take longer than so few values
_ROWS_AT_ONCE, _VALUES_AT_ONCE, _BYTES_AT_ONCE = 1 << 14, 1 << 16, 1 << 21  # encoded in some milliseconds
_SLOW_ROWS, _SLOW_VALUES = 1024, 4096  # the same where values of a column are encoded one by one
_DATA_ROW = struct.Struct("!ciH")
_NULL = struct.pack("!i", -1)

_Bytes: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"
RowPart: TypeAlias = "pa.Array | bytes"
"""A value for each row, or bytes that all rows have."""
_Numbers: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.integer[Any]]]"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, which Arrow writes as Postgres does
_DAY = 86_400_000_000  # in microseconds
_MOST_DIGITS_BEHIND, _MOST_PLAIN_SCALE = 15, 6
_GROUP = 10_000  # of digits of a numeric
_PLAIN_FLOATS = {pa.float64(): (1e-4, 1e14), pa.float32(): (1e-4, 1e6)}  # that Arrow writes as Postgres does


class AnswerRows:
    """An answer's rows as messages of the protocol, some at a time.

    Args:
        kinds: the types that its columns were announced with.
        formats: TEXT or BINARY for each.
        timezone: in which moments are written as texts.
    """

    def __init__(
        self, table: pa.Table, kinds: Sequence[ColumnType], formats: Sequence[int], timezone: str
    ) -> None:
        self._table = table
        self._kinds, self._formats = kinds, formats
        self._timezone = timezone
        self._is_plain = not any(
            pa.types.is_nested(each) or pa.types.is_dictionary(each) for each in table.schema.types
        )
        tables = [_BINARY if each == BINARY else _TEXT for each in formats]
        is_quick = all(kind.oid in each for kind, each in zip(kinds, tables, strict=False))
        rows, values = (
            (_ROWS_AT_ONCE, _VALUES_AT_ONCE) if self._is_plain and is_quick else (_SLOW_ROWS, _SLOW_VALUES)
        )
        self._most_rows = max(1, min(rows, values // max(1, len(kinds))))

    @property
    def row_count(self) -> int:
        return int(self._table.num_rows)

    @property
    def are_few(self) -> bool:
        """Whether the rows that are left take less than a millisecond to encode."""
        few = self._table.num_rows * self._table.num_columns <= FEW_VALUES
        return few and _content_bytes(self._table) <= FEW_BYTES and self._is_plain

    def messages(self, first_row: int, most_rows: int | None = None) -> tuple[int, bytes]:
        """Return the number of the next rows, and their messages. They take some milliseconds to encode.

        first_row: where they begin. most_rows: how many are asked for, None for all.

        Raises:
            UnsupportedError: a value has no form in the type.
        """
        count = self._most_rows if most_rows is None else min(self._most_rows, most_rows)
        part = self._table.slice(first_row, count)
        while part.num_rows > 1 and _content_bytes(part) > _BYTES_AT_ONCE:
            part = part.slice(0, part.num_rows // 2)
        if part.num_rows <= _ROWS_BY_VALUES or not self._kinds:
            return part.num_rows, self._one_by_one(part)
        return part.num_rows, self._joined([self._column(*each) for each in self._columns(part)])

    def forget(self) -> None:
        """Keep no row any more. Further messages are none."""
        self._table = pa.Table.from_batches([], self._table.schema)

    def _columns(self, part: pa.Table) -> Iterator[tuple[ColumnType, int, pa.ChunkedArray]]:
        return zip(self._kinds, self._formats, part.columns, strict=True)

    def _one_by_one(self, part: pa.Table) -> bytes:
        """Return the messages of few rows."""
        columns = [list(map(self._field, self._values(*each))) for each in self._columns(part)]
        rows: Iterable[Sequence[bytes]] = zip(*columns, strict=True) if columns else [()] * part.num_rows
        return b"".join(map(self._row, rows))

    def _values(self, kind: ColumnType, format_: int, column: pa.ChunkedArray) -> Iterator[bytes | None]:
        for chunk in column.chunks:
            yield from encoded_values(chunk, kind, format_, self._timezone)

    def _column(self, kind: ColumnType, format_: int, column: pa.ChunkedArray) -> pa.Array:
        pause()
        chunks = [column_bytes(chunk, kind, format_, self._timezone) for chunk in column.chunks]
        return pa.concat_arrays(chunks) if len(chunks) > 1 else chunks[0]

    def _joined(self, columns: Sequence[pa.Array]) -> bytes:
        """Return the messages of rows whose values these are."""
        sizes = [lengths_of(column) for column in columns]
        size = total(sizes) + 6 + 4 * len(columns)
        parts = [
            part
            for column, each in zip(columns, sizes, strict=True)
            for part in (prefix(each), without_nulls(column))
        ]
        return joined(b"D", prefix(size), struct.pack("!H", len(columns)), *parts)

    def _field(self, value: bytes | None) -> bytes:
        """Return a value as it stands in a row: after its length. NULL has none."""
        return _NULL if value is None else struct.pack("!i", len(value)) + value

    def _row(self, fields: Sequence[bytes]) -> bytes:
        """Return the message DataRow of a row's fields."""
        row = b"".join(fields)
        return (
            _DATA_ROW.pack(b"D", len(row) + 6, len(fields)) + row
        )  # 6: the length and the number of columns


def _content_bytes(table: pa.Table) -> int:
    """Return about how large the rows are. Rows of a dictionary are not: it belongs to all."""
    return sum(column.nbytes for column in table.columns if not pa.types.is_dictionary(column.type))


def column_bytes(column: pa.Array, kind: ColumnType, format_: int, timezone: str) -> pa.Array:
    """Return the bytes of a column's values, without their lengths. NULL stays NULL."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    encode = (_BINARY if format_ == BINARY else _TEXT).get(kind.oid)
    if encode is not None and (found := encode(column, timezone)) is not None:
        return found
    return pa.array(encoded_values(column, kind, format_, timezone), pa.binary())


def fixed(content: _Bytes) -> pa.Array:
    """Return a value for each row of a table of bytes."""
    row_count, width = content.shape
    offsets = np.arange(row_count + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(
        pa.binary(), row_count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    )


def lengths_of(column: pa.Array) -> _Numbers:
    """Return the lengths of values, -1 for NULL."""
    found: _Numbers = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
    return found


def total(sizes: Sequence[_Numbers]) -> _Numbers:
    """Return the lengths of rows whose values have these; NULL has none."""
    found: _Numbers = np.sum([np.maximum(each, 0) for each in sizes], axis=0)
    return found


def prefix(numbers: _Numbers) -> pa.Array:
    """Return numbers as the protocol has them, four bytes each."""
    return fixed(numbers.astype(">i4").view(np.uint8).reshape(-1, 4))


def without_nulls(column: pa.Array, null: bytes = b"") -> pa.Array:
    return pc.fill_null(column, pa.scalar(null, pa.binary())) if column.null_count else column


def joined(*parts: RowPart) -> bytes:
    """Return the parts of each row after each other, and the rows after each other. No part has NULLs."""
    whole = row_bytes(*parts)
    offsets = np.frombuffer(whole.buffers()[1], dtype=np.int32)
    content = whole.buffers()[2]
    return b"" if content is None else content[: int(offsets[len(whole)])].to_pybytes()


def row_bytes(*parts: RowPart) -> pa.Array:
    """Return the parts of each row after each other."""
    given = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", pa.binary()))


def _as_bytes(texts: pa.Array) -> pa.Array:
    return pc.cast(texts, pa.binary())


def _plain(column: pa.Array, timezone: str) -> pa.Array | None:
    """Return texts, whole numbers and bytes as they stand."""
    kind = column.type
    if pa.types.is_integer(kind):
        return _as_bytes(pc.cast(column, pa.string()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _as_bytes(column)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pc.cast(column, pa.binary())
    return None


def _bool_text(column: pa.Array, timezone: str) -> pa.Array | None:
    return pc.if_else(column, pa.scalar(b"t", pa.binary()), pa.scalar(b"f", pa.binary()))


def _float_text(column: pa.Array, timezone: str) -> pa.Array | None:
    """Return floats as texts. Those with an exponent are few, and written one by one."""
    if column.type not in _PLAIN_FLOATS:
        return None
    smallest, largest = _PLAIN_FLOATS[column.type]
    texts = _as_bytes(pc.cast(column, pa.string()))
    size = pc.abs(column)
    is_plain = pc.or_(pc.and_(pc.greater_equal(size, smallest), pc.less(size, largest)), pc.equal(size, 0))
    others = pc.invert(pc.fill_null(is_plain, True))
    if not pc.any(others).as_py():
        return texts
    kind = types.FLOAT8 if column.type == pa.float64() else types.FLOAT4
    written = encoded_values(column.filter(others), kind, 0, timezone)
    return pc.replace_with_mask(texts, others, pa.array(written, pa.binary()))


def _numeric_text(column: pa.Array, timezone: str) -> pa.Array | None:
    if pa.types.is_integer(column.type):
        return _as_bytes(pc.cast(column, pa.string()))
    if not pa.types.is_decimal(column.type) or column.type.scale > _MOST_PLAIN_SCALE:
        return None  # Arrow writes some of them as 1E-7
    return _as_bytes(pc.cast(column, pa.string()))


def _date_text(column: pa.Array, timezone: str) -> pa.Array | None:
    if not pa.types.is_date32(column.type) or not _is_within(column.view(pa.int32()), _FIRST_DAY, _LAST_DAY):
        return None
    return _as_bytes(pc.cast(column, pa.string()))


def _is_within(numbers: pa.Array, first: int, last: int) -> bool:
    """Whether all that are not NULL are from the first to the last."""
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (least >= first and most <= last)


def _microseconds(column: pa.Array) -> pa.Array | None:
    """Return moments as microseconds since 1970; None where some are in years that Arrow does not write."""
    if not pa.types.is_timestamp(column.type):
        return None
    if column.type.unit != "us":
        column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)
    numbers = column.view(pa.int64())
    is_usual = _is_within(numbers, _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
    return numbers if is_usual else None


def _moment_text(numbers: pa.Array) -> pa.Array:
    """Return moments as texts, fractions of seconds without the zeros at their ends."""
    moments = numbers.view(pa.timestamp("us"))
    whole = pc.cast(pc.floor_temporal(moments, unit="second"), pa.timestamp("s"), safe=False)
    texts = pc.cast(whole, pa.string())
    has_fraction = pc.not_equal(pc.cast(whole, pa.timestamp("us")), moments)
    if pc.any(has_fraction).as_py():
        with_fraction = pc.replace_substring_regex(pc.cast(moments, pa.string()), r"\.?0+$", "")
        texts = pc.if_else(has_fraction, with_fraction, texts)
    return texts


def _timestamp_text(column: pa.Array, timezone: str) -> pa.Array | None:
    numbers = _microseconds(column)
    return None if numbers is None else _as_bytes(_moment_text(numbers))


def _timestamptz_text(column: pa.Array, timezone: str) -> pa.Array | None:
    if _microseconds(column) is None:
        return None
    moments = pc.cast(column, pa.timestamp("us", "UTC"), safe=False)
    shown = in_zone(moments, timezone)
    local = _microseconds(shown)
    if local is None:
        return None
    ahead = pc.divide(pc.subtract(local, moments.view(pa.int64())), 1_000_000)
    zones = pc.dictionary_encode(ahead)
    names = [offset_text(seconds) for seconds in zones.dictionary.to_pylist()]
    suffixes = pa.DictionaryArray.from_arrays(zones.indices, pa.array(names, pa.string())).dictionary_decode()
    return _as_bytes(pc.binary_join_element_wise(_moment_text(local), suffixes, ""))


def _bytea_text(column: pa.Array, timezone: str) -> pa.Array | None:
    """Return bytes as hexadecimal digits after a backslash and an x."""
    if not pa.types.is_binary(column.type):
        return None
    begin, end = column.offset, column.offset + len(column)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[begin : end + 1]
    content = np.frombuffer(column.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    pairs = np.stack([digits[content >> 4], digits[content & 15]], axis=1)
    doubled = ((offsets - offsets[0]) * 2).astype(np.int32)
    texts = pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(doubled), pa.py_buffer(pairs.tobytes())]
    )
    return _unless_null(column, row_bytes(b"\\x", texts))


def _packed(layout: str) -> Callable[[pa.Array, str], pa.Array | None]:
    """Return what writes numbers in the layout of numpy."""
    width = np.dtype(layout).itemsize

    def encode(column: pa.Array, timezone: str) -> pa.Array | None:
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            return None
        return _of_numbers(column, _numbers(column).astype(layout).view(np.uint8).reshape(-1, width))

    return encode


def _numbers(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """Return numbers, 0 for NULL."""
    filled = column.fill_null(0) if column.null_count else column
    found: np.ndarray[tuple[int], np.dtype[np.generic]] = filled.to_numpy(zero_copy_only=False)
    return found


def _of_numbers(column: pa.Array, content: _Bytes) -> pa.Array:
    """Return a value for each row, NULL where the column has it."""
    return _unless_null(column, fixed(content))


def _unless_null(column: pa.Array, found: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary())) if column.null_count else found


def _bool_binary(column: pa.Array, timezone: str) -> pa.Array | None:
    return _of_numbers(column, _numbers(column.cast(pa.uint8())).astype(np.uint8).reshape(-1, 1))


def _date_binary(column: pa.Array, timezone: str) -> pa.Array | None:
    if not pa.types.is_date32(column.type):
        return None
    days = column.view(pa.int32())
    if not _is_within(days, _FIRST_DAY, _LAST_DAY):
        return None
    since_2000 = _numbers(days).astype(np.int64) - DAYS_TO_2000
    return _of_numbers(column, since_2000.astype(">i4").view(np.uint8).reshape(-1, 4))


def _moment_binary(column: pa.Array, timezone: str) -> pa.Array | None:
    if (numbers := _microseconds(column)) is None:
        return None
    since_2000 = _numbers(numbers).astype(np.int64) - MICROSECONDS_TO_2000
    return _of_numbers(column, since_2000.astype(">i8").view(np.uint8).reshape(-1, 8))


def _numeric_binary(column: pa.Array, timezone: str) -> pa.Array | None:
    """Return digits to the base of 10,000, without zeros at either end.

    Before them stand their count, the weight of the first, the sign, and the number of decimals.
    """
    if pa.types.is_integer(column.type):
        scale, whole_numbers = 0, column
        if not _is_within(column, -(2**62), 2**62):
            return None
    elif pa.types.is_decimal128(column.type) and 0 <= column.type.scale <= _MOST_DIGITS_BEHIND:
        scale = column.type.scale
        words = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
        words = words[column.offset : column.offset + len(column)]
        whole_numbers = pa.array(words[:, 0], mask=column.is_null().to_numpy(zero_copy_only=False))
        is_there = column.is_valid().to_numpy(zero_copy_only=False)
        if not ((words[:, 1] == words[:, 0] >> 63) | ~is_there).all():
            return None  # more digits than a number of 64 bits has
        if not _is_within(whole_numbers, -(2**62), 2**62):
            return None
    else:
        return None
    signed = _numbers(whole_numbers).astype(np.int64)
    size = np.abs(signed)
    before, behind = np.divmod(size, 10**scale)
    behind_groups = -(-scale // 4)
    behind = behind * 10 ** (behind_groups * 4 - scale)
    before_groups = max(1, -(-len(str(int(before.max(initial=0)))) // 4))
    groups = np.empty((len(size), before_groups + behind_groups), dtype=np.int64)
    for place in reversed(range(before_groups)):
        before, groups[:, place] = np.divmod(before, _GROUP)
    for place in reversed(range(before_groups, before_groups + behind_groups)):
        behind, groups[:, place] = np.divmod(behind, _GROUP)
    return _of_groups(column, groups, before_groups, signed < 0, scale)


def _of_groups(
    column: pa.Array,
    groups: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    before_groups: int,
    is_below: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    scale: int,
) -> pa.Array:
    row_count, most = groups.shape
    is_digit = groups != 0
    has_digits = is_digit.any(axis=1)
    first = np.where(has_digits, is_digit.argmax(axis=1), 0)
    last = np.where(has_digits, most - 1 - is_digit[:, ::-1].argmax(axis=1), -1)
    places = np.arange(most)
    kept = np.ones((row_count, 4 + most), dtype=bool)
    kept[:, 4:] = (places >= first[:, None]) & (places <= last[:, None])
    numbers = np.empty((row_count, 4 + most), dtype=">i2")
    numbers[:, 0] = last - first + 1
    numbers[:, 1] = np.where(has_digits, before_groups - 1 - first, 0)
    numbers[:, 2] = np.where(is_below & has_digits, 0x4000, 0)
    numbers[:, 3] = scale
    numbers[:, 4:] = groups
    offsets = np.zeros(row_count + 1, dtype=np.int32)
    np.cumsum(2 * kept.sum(axis=1), out=offsets[1:])
    found = pa.Array.from_buffers(
        pa.binary(), row_count, [None, pa.py_buffer(offsets), pa.py_buffer(numbers[kept].tobytes())]
    )
    return _unless_null(column, found)


_TEXT: dict[int, Callable[[pa.Array, str], pa.Array | None]] = {
    **dict.fromkeys((kind.oid for kind in (types.INT2, types.INT4, types.INT8, types.OID)), _plain),
    **dict.fromkeys((kind.oid for kind in (types.TEXT, types.VARCHAR, types.NAME, types.JSON)), _plain),
    types.BOOL.oid: _bool_text,
    types.BYTEA.oid: _bytea_text,
    types.FLOAT4.oid: _float_text,
    types.FLOAT8.oid: _float_text,
    types.NUMERIC.oid: _numeric_text,
    types.DATE.oid: _date_text,
    types.TIMESTAMP.oid: _timestamp_text,
    types.TIMESTAMPTZ.oid: _timestamptz_text,
}
_BINARY: dict[int, Callable[[pa.Array, str], pa.Array | None]] = {
    **dict.fromkeys((kind.oid for kind in (types.TEXT, types.VARCHAR, types.NAME, types.JSON)), _plain),
    types.BYTEA.oid: _plain,
    types.BOOL.oid: _bool_binary,
    types.INT2.oid: _packed(">i2"),
    types.INT4.oid: _packed(">i4"),
    types.INT8.oid: _packed(">i8"),
    types.OID.oid: _packed(">u4"),
    types.FLOAT4.oid: _packed(">f4"),
    types.FLOAT8.oid: _packed(">f8"),
    types.NUMERIC.oid: _numeric_binary,
    types.DATE.oid: _date_binary,
    types.TIMESTAMP.oid: _moment_binary,
    types.TIMESTAMPTZ.oid: _moment_binary,
}
