"""Footers of Parquet files: what they say, and a footer of our own around one row group of a user's file.

A footer says rows, bytes and ends of each row group. Each is read once. It belongs to one state of its
file. Whoever reads the file afterwards checks that state.

**One row group as a file of its own.** One row group of a Parquet file as a Parquet file of its own, of
which only the footer is new.

DuckDB looks at each row group that a file's footer names, for each statement. That costs more than reading
a few of them. So each is read through a name that stands for the user's file with another end:

    bytes of the user's file ……………… | a footer of this row group and the columns that are read

Offsets in that footer are those of the user's file, and no byte of data is copied.

**The bits of Thrift's compact protocol** that a footer is written in. A number is a varint: seven bits a
byte, the lowest first. A signed one is zigzag: 0, −1, 1, −2 become 0, 1, 2, 3. A struct is a row of fields
and a 0. Before each field stands a byte: by how much its number is larger than that of the field before,
and its type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from relaqs_engine.duck import ROW_GROUP_PROTOCOL, FileState, file_state
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.file_kinds import is_duckdb

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
_TRUE_FALSE, _BYTE, _I16, _DOUBLE, _SET = (1, 2), 3, 4, 7, 10
_SHORT = 15  # lists of fewer items have their length in the first byte

Field = tuple[int, int, bytes]
"""The number of a field, its type, and its bytes."""


def varint(number: int) -> bytes:
    """Return a number that is not negative, seven bits a byte.

    >>> varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def whole(number: int) -> bytes:
    """Return the bytes of a signed number.

    >>> whole(-1).hex(), whole(1).hex()
    ('01', '02')
    """
    return varint((number << 1) ^ (number >> 63))


def binary(data: bytes) -> bytes:
    """Return bytes with their length before them."""
    return varint(len(data)) + data


def listed(kind: int, items: list[bytes]) -> bytes:
    """Return a list of items of one type."""
    count = len(items)
    head = bytes([count << 4 | kind]) if count < _SHORT else bytes([0xF0 | kind]) + varint(count)
    return head + b"".join(items)


def struct(fields: Iterable[Field]) -> bytes:
    """Return a struct. The numbers of its fields must rise, by at most 15."""
    found, last = bytearray(), 0
    for number, kind, data in fields:
        found.append((number - last) << 4 | kind)
        found += data
        last = number
    found.append(0)
    return bytes(found)


class Reader:
    """Reads a struct's bytes from a position on.

    Attributes:
        at: the position of the next one.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        """Return the next number that is not negative."""
        shift = number = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def whole(self) -> int:
        """Return the next signed number."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def binary(self) -> bytes:
        """Return the next bytes that have their length before them."""
        count = self.varint()
        self.at += count
        return self.data[self.at - count : self.at]

    def fields(self) -> Iterable[tuple[int, int]]:
        """Yield the number and type of each field of a struct. The caller reads or skips its value."""
        last = 0
        while head := self.data[self.at]:
            self.at += 1
            last = last + (head >> 4) if head >> 4 else self.whole()
            yield last, head & 0xF
        self.at += 1

    def length(self) -> tuple[int, int]:
        """Return how many items the next list has, and their type."""
        head = self.data[self.at]
        self.at += 1
        return (self.varint() if head >> 4 == _SHORT else head >> 4), head & 0xF

    def skip(self, kind: int) -> None:
        """Go past a field's value. Raises ValueError for a type that no footer has."""
        if kind in _TRUE_FALSE:
            return
        if kind in (_BYTE, _DOUBLE):
            self.at += 1 if kind == _BYTE else 8
        elif kind in (_I16, I32, I64):
            self.varint()
        elif kind == BINARY:
            self.binary()
        elif kind in (LIST, _SET):
            count, of = self.length()
            for _ in range(count):
                self.at += 1 if of in _TRUE_FALSE else 0
                self.skip(of)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise ValueError(f"{kind} is no type of a field in a Parquet footer")


_FILES_KEPT = 1024
_COLUMNS_KEPT = 4096
_MAGIC_BYTES = 8  # at the end of a file: four of the footer's length, then PAR1
_SCHEMA, _NAME, _CHILDREN = 2, 4, 5  # numbers of fields in Parquet's Thrift definition

End = int | float | Decimal | str | date | datetime


@dataclass(frozen=True, slots=True)
class Zone:
    """What a footer says of one column in one row group.

    Attributes:
        byte_count: its compressed bytes.
        low: a value that none is below; None where that is not known.
        high: a value that none is above, likewise.
        null_count: how many values are NULL, None where that is not known.
        hides_nan: whether there may be NaN, which is above all numbers, beside values between the ends.
    """

    byte_count: int
    low: End | None
    high: End | None
    null_count: int | None
    hides_nan: bool = False


@lru_cache(maxsize=_FILES_KEPT)
def footer(state: FileState) -> pq.FileMetaData:
    """Return the footer of a file. Raises DataError where it is not there, or not in that state any more."""
    path = state[0]
    try:
        found = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read as Parquet ({error}); write it again or leave it out"
        ) from error
    if file_state(path) != state:
        raise DataError(f"{path} changed since this session was opened; open a new session")
    return found


@lru_cache(maxsize=_FILES_KEPT)
def flat_columns(state: FileState) -> dict[str, int]:
    """Return the columns of a file that are neither nested nor repeated: position by name."""
    schema = footer(state).schema
    leaves = ((i, schema.column(i)) for i in range(len(schema)))
    return {
        leaf.path: i
        for i, leaf in leaves
        if "." not in leaf.path and leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1
    }


@lru_cache(maxsize=_COLUMNS_KEPT)
def zones(state: FileState, position: int) -> tuple[Zone, ...]:
    """Return what the footer says of a column, row group by row group."""
    found = footer(state)
    by_duckdb = is_duckdb(found.created_by)
    chunks = (found.row_group(i).column(position) for i in range(found.num_row_groups))
    return tuple(_zone(chunk, by_duckdb) for chunk in chunks)


def _zone(chunk: Any, by_duckdb: bool) -> Zone:
    known = chunk.statistics
    if known is None:
        return Zone(chunk.total_compressed_size, None, None, None)
    nulls = known.null_count if known.has_null_count else None
    low, high = _ends(known) if known.has_min_max else (None, None)
    return Zone(chunk.total_compressed_size, low, high, nulls, isinstance(low, float) and not by_duckdb)


def _ends(known: Any) -> tuple[End | None, End | None]:
    """Return both ends, None where Python has no such value: a date that is infinite, or a broken text."""
    try:
        return known.min, known.max
    except (OverflowError, ValueError):
        return None, None


@lru_cache(maxsize=_FILES_KEPT)
def schema_elements(state: FileState) -> dict[str, bytes]:
    """Return the bytes that describe each flat column in the footer, by its name."""
    reader = Reader(_footer_bytes(state))
    for number, kind in reader.fields():
        if number == _SCHEMA and kind == LIST:
            count, _ = reader.length()
            _element(reader)  # the root
            return _leaves(reader, count - 1)
        reader.skip(kind)
    raise DataError(f"the footer of {state[0]} has no schema; write the file again, or leave it out")


def _footer_bytes(state: FileState) -> bytes:
    path, byte_count, _ = state
    with open(path, "rb") as file:
        file.seek(byte_count - _MAGIC_BYTES)
        length = int.from_bytes(file.read(4), "little")
        file.seek(byte_count - _MAGIC_BYTES - length)
        return file.read(length)


def _leaves(reader: Reader, count: int) -> dict[str, bytes]:
    found = {}
    while count > 0:
        name, children, data = _element(reader)
        count -= 1
        if not children:
            found[name] = data
        while children:
            _, more, _ = _element(reader)
            children += more - 1
            count -= 1
    return found


def _element(reader: Reader) -> tuple[str, int, bytes]:
    """Return an element's name, how many children it has, and its bytes."""
    begun, name, children = reader.at, "", 0
    for number, kind in reader.fields():
        if number == _NAME:
            name = reader.binary().decode()
        elif number == _CHILDREN:
            children = reader.whole()
        else:
            reader.skip(kind)
    return name, children, reader.data[begun : reader.at]


_FILE_NAME = re.compile(
    rf"(?:{ROW_GROUP_PROTOCOL}://)?/?(([0-9a-f]+)/(\d+)/([\d-]+))-([0-9a-f]{{8}})\.parquet"
)
_MAGIC = b"PAR1"
_FOOTERS_KEPT = 1024
# The numbers of Parquet's Thrift definition.
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}


@dataclass(frozen=True, slots=True)
class RowGroupFile:
    """What a name stands for.

    Attributes:
        state_digest: of the file's state, see `state_digest`.
        group: the position of the row group.
        columns: the positions of the columns that are read.
    """

    state_digest: str
    group: int
    columns: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the name by which a statement reads it. It ends with a checksum of itself.

        >>> RowGroupFile("0a", 5, (0, 3)).name
        'rowgroup://0a/5/0-3-11d52a51.parquet'
        """
        said = f"{self.state_digest}/{self.group}/{'-'.join(map(str, self.columns))}"
        return f"{ROW_GROUP_PROTOCOL}://{said}-{_checksum(said)}.parquet"

    @classmethod
    def named(cls, name: str) -> RowGroupFile | None:
        """Return what a name stands for, None where it is no such name, or none that was given out.

        >>> RowGroupFile.named("rowgroup://0a/5/0-3-11d52a51.parquet")
        RowGroupFile(state_digest='0a', group=5, columns=(0, 3))
        >>> RowGroupFile.named("rowgroup://0a/4/0-3-11d52a51.parquet")
        """
        found = _FILE_NAME.fullmatch(name)
        if found is None or found[5] != _checksum(found[1]):
            return None
        return cls(found[2], int(found[3]), tuple(map(int, found[4].split("-"))))


def _checksum(text: str) -> str:
    return f"{crc32(text.encode()):08x}"


def is_understood(chunk: Any) -> bool:
    """Whether a footer can be written for a column of a row group: its codec and encodings are known."""
    known = chunk.physical_type in _TYPES and chunk.compression in _CODECS
    return known and _ENCODINGS.keys() >= set(chunk.encodings)


@lru_cache(maxsize=_FOOTERS_KEPT)
def end_of_file(state: FileState, group: int, columns: tuple[int, ...]) -> bytes:
    """Return the footer of one row group, with what a Parquet file ends with."""
    found = footer(state)
    schema, row_group = found.schema, found.row_group(group)
    elements = [schema_elements(state)[schema.column(i).path] for i in columns]
    root = struct([(4, BINARY, binary(b"schema")), (5, I32, whole(len(elements)))])
    chunks = [_chunk(row_group.column(i)) for i in columns]
    described = struct(
        [
            (1, LIST, listed(STRUCT, chunks)),
            (2, I64, whole(row_group.total_byte_size)),
            (3, I64, whole(row_group.num_rows)),
        ]
    )
    made = struct(
        [
            (1, I32, whole(2)),
            (2, LIST, listed(STRUCT, [root, *elements])),
            (3, I64, whole(row_group.num_rows)),
            (4, LIST, listed(STRUCT, [described])),
        ]
    )
    return made + len(made).to_bytes(4, "little") + _MAGIC


def _chunk(column: Any) -> bytes:
    encodings = [whole(_ENCODINGS[each]) for each in column.encodings]
    path = [binary(part.encode()) for part in (column.path_in_schema,)]
    fields: list[Field] = [
        (1, I32, whole(_TYPES.index(column.physical_type))),
        (2, LIST, listed(I32, encodings)),
        (3, LIST, listed(BINARY, path)),
        (4, I32, whole(_CODECS.index(column.compression))),
        (5, I64, whole(column.num_values)),
        (6, I64, whole(column.total_uncompressed_size)),
        (7, I64, whole(column.total_compressed_size)),
        (9, I64, whole(column.data_page_offset)),
    ]
    if column.dictionary_page_offset:
        fields.append((11, I64, whole(column.dictionary_page_offset)))
    return struct([(2, I64, whole(0)), (3, STRUCT, struct(fields))])
