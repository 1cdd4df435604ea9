"""A source seen as pieces, how their columns are encoded, and the file that a partition's rows go to.

**A piece** is one row group of one Parquet file. Pieces come in the order of the rows. A source has pieces
if a reader of Parquet other than DuckDB is known to read the same values from it. That is so for the types
listed here. Whoever finds none lets DuckDB read the source.

**Encodings** are found out from a few rows before the source is read. Texts of few values are read as
codes of a dictionary, which halves the time to read a table. Columns of few values are written with a
dictionary; other whole numbers, decimals and times as differences, and texts with their lengths first.
Which encodings are small and are scanned fast was measured: decision record 0023.

**A partition's file** is written row group by row group, and open only while bytes go to the disk. A
layout may have thousands of partitions, all of them begun before one is finished, and a process may have
only about a thousand files open. Arrow leaves NaN out of a column's ends in the footer, and readers skip
rows by them. So where there is NaN, the ends are taken out of the footer.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relaqs_engine.errors import DataError
from relaqs_engine.layouts.footers import STRUCT, Field, Reader, listed, struct
from relaqs_engine.layouts.manifest import BLOCK_COLUMN
from relaqs_engine.layouts.sources import ParquetSource

_ARROW_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", tz="UTC"),
    "VARCHAR": pa.string(),
}
"""By DuckDB's type. Each is read and written without a change of any value, NULL included."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_DECIMAL_DIGITS = 18
"""Of decimals that fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One row group.

    Attributes:
        file: where it lies.
        file_index: the file's position among the source's files.
        row_group: its position in the file.
        first_row: how many rows of the file come before it.
        rows_before: how many rows of the source come before it.
        row_count: its rows, at least 1.
    """

    file: Path
    file_index: int
    row_group: int
    first_row: int
    rows_before: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """All pieces of a source, and its columns as they are held in memory and written.

    Attributes:
        pieces: in the order of the rows.
        schema: the columns, of the types listed above. A column that holds no NULL in any file says so.
        undecodable_as_codes: names of the texts that Arrow cannot read as codes of a dictionary.
    """

    pieces: tuple[Piece, ...]
    schema: pa.Schema
    undecodable_as_codes: frozenset[str]

    @property
    def row_count(self) -> int:
        """Return the rows of all pieces."""
        return sum(piece.row_count for piece in self.pieces)


@contextmanager
def opened(file: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """Give a Parquet file to be read. Raises DataError where that fails inside the block.

    options: of `pyarrow.parquet.ParquetFile`.
    """
    try:
        with pq.ParquetFile(file, pre_buffer=False, **options) as found:
            yield found
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> DataError:
    """Return what to raise where a file cannot be read. error: why."""
    return DataError(f"{file} cannot be read as Parquet ({error}); write it again or leave it out")


def pieces_of(source: ParquetSource) -> Pieces | None:
    """Return the pieces of a source; None where not all of its columns are known to be read exactly."""
    kept = {name: _arrow_type(type_text) for name, type_text in source.columns}
    if any(found is None for found in kept.values()) or source.folder_columns & {
        each.lower() for each in kept
    }:
        return None
    pieces: list[Piece] = []
    nullable: set[str] = set()
    undecodable: set[str] = set()
    for index, file in enumerate(source.files):
        with opened(file) as found:
            if not all(_is_read_exactly(found.schema_arrow, name, kept[name]) for name in kept):
                return None
            footer = found.metadata
            nullable |= {name for name in kept if found.schema_arrow.field(name).nullable}
            undecodable.update(_delta_encoded(footer))
        before = pieces[-1].rows_before + pieces[-1].row_count if pieces else 0
        pieces += _pieces_of_file(file, index, before, footer)
    schema = pa.schema([pa.field(name, kept[name], name in nullable) for name in kept])
    return Pieces(tuple(pieces), schema, frozenset(undecodable))


def _pieces_of_file(file: Path, index: int, before: int, footer: pq.FileMetaData) -> Iterator[Piece]:
    first = 0
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group).num_rows
        if rows:
            yield Piece(file, index, group, first, before + first, rows)
        first += rows


def _arrow_type(type_text: str) -> pa.DataType | None:
    if (match := _DECIMAL.fullmatch(type_text)) and int(match[1]) <= _DECIMAL_DIGITS:
        return pa.decimal64(int(match[1]), int(match[2]))
    return _ARROW_TYPES.get(type_text)


def _is_read_exactly(schema: pa.Schema, name: str, kept: pa.DataType) -> bool:
    """Whether the file's column of that name is read as what it is kept as. Two of one name are not."""
    if len(schema.get_all_field_indices(name)) != 1:
        return False
    found = schema.field(name).type
    if pa.types.is_string(kept):
        return _is_text(found.value_type if pa.types.is_dictionary(found) else found)
    if pa.types.is_decimal64(kept):
        return bool(found == pa.decimal128(kept.precision, kept.scale))
    if pa.types.is_timestamp(kept) and pa.types.is_timestamp(found):
        return found.unit == kept.unit and (found.tz is None) == (kept.tz is None)
    return bool(found == kept)


def _is_text(found: pa.DataType) -> bool:
    return any(
        is_it(found) for is_it in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _delta_encoded(footer: pq.FileMetaData) -> Iterator[str]:
    """Yield the names of columns with pages that Arrow cannot read as codes of a dictionary."""
    chunks = (
        footer.row_group(group).column(column)
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    )
    for chunk in chunks:
        if any(encoding.startswith("DELTA") for encoding in chunk.encodings):
            yield chunk.path_in_schema


ROW_GROUP_ROWS = 122_880
"""At most, in a file of a layout: as many as DuckDB itself writes."""
_PROBES = 4
_PROBE_ROWS = 8_192
_MOST_TEXTS, _MOST_VALUES = 1_000, 8_000
"""Different values of a column of few values, in all probes together."""
_ROWS_PER_VALUE = 4
_GROWTH, _GROWTH_OF_TEXTS = 1.5, 2.5
"""Of the number of different values, from one probe to all: where it is more, a probe has seen too few."""
_CODE_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class Encodings:
    """How a source's columns are held and written.

    Attributes:
        schema: of the rows in memory and in the files, the block's number behind the table's own columns.
        codes: names of the texts that are read and held as codes of a dictionary.
        dictionaries: names of the columns that are written with a dictionary.
        bytes_per_row: in memory.
    """

    schema: pa.Schema
    codes: frozenset[str]
    dictionaries: frozenset[str]
    bytes_per_row: float

    @property
    def writer_options(self) -> dict[str, Any]:
        """Return how `pyarrow.parquet.ParquetWriter` is to write the files."""
        plain = [field for field in self.schema if field.name not in self.dictionaries]
        return {
            "write_statistics": [f.name for f in self.schema if self._has_sound_ends(f)],
            "compression": "lz4",
            "use_dictionary": sorted(self.dictionaries),
            "column_encoding": {f.name: name for f in plain if (name := _encoding(f.type)) is not None},
            "store_schema": False,  # else Arrow reads the texts of our dictionaries as codes
            "store_decimal_as_integer": True,
        }

    def _has_sound_ends(self, field: pa.Field) -> bool:
        """Whether DuckDB may go by the ends of a column in a footer, but for NaN (see above).

        Of texts without a dictionary and with one value for both ends, DuckDB 2.0 forgets the NULLs.
        """
        has_texts = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        return field.name in self.dictionaries or not has_texts


def probed(source: Pieces, key: Sequence[str]) -> Encodings:
    """Return how the columns are to be held and written. key: the columns to be hashed, never as codes."""
    found = [_first_rows(piece, source.schema) for piece in _spaced(source.pieces)]
    rows = pa.concat_tables(found)
    few = {field.name for field in source.schema if _has_few_values(field, found, rows)}
    repeated = {field.name for field in source.schema if _has_repeated_texts(field, found, rows)}
    texts = {field.name for field in source.schema if pa.types.is_string(field.type)}
    codes = frozenset(texts & few) - source.undecodable_as_codes - set(key)
    fields = [
        f.with_type(pa.dictionary(pa.int32(), pa.string())) if f.name in codes else f for f in source.schema
    ]
    widths = [_CODE_BYTES if f.name in codes else _bytes(rows[f.name]) for f in source.schema]
    schema = pa.schema([*fields, pa.field(BLOCK_COLUMN, pa.uint8(), nullable=False)])
    return Encodings(schema, codes, frozenset(few | repeated | {BLOCK_COLUMN}), sum(widths, start=1.0))


def as_kept(values: pa.Array, kept: pa.DataType) -> pa.Array:
    """Return a column of a piece as the type that it is kept as."""
    if pa.types.is_decimal64(kept) and values.offset == 0:
        return _low_halves(values, kept)
    return values if values.type == kept else values.cast(kept)


def _low_halves(values: pa.Array, kept: pa.DataType) -> pa.Array:
    """Return decimals that fit into 64 bits as such: four times as fast as a cast that checks each."""
    valid, halves = values.buffers()
    low = pa.Array.from_buffers(pa.int64(), 2 * len(values), [None, halves]).to_numpy()[::2].copy()
    return pa.Array.from_buffers(kept, len(values), [valid, pa.py_buffer(low)], values.null_count)


def _encoding(kept: pa.DataType) -> str | None:
    if pa.types.is_string(kept):
        return "DELTA_LENGTH_BYTE_ARRAY"
    is_number = pa.types.is_integer(kept) or pa.types.is_decimal(kept) or pa.types.is_temporal(kept)
    return "DELTA_BINARY_PACKED" if is_number else None


def _spaced(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces to be probed: spread evenly, since a source is often sorted."""
    for position in sorted({len(pieces) * i // _PROBES for i in range(_PROBES)}):
        yield pieces[position]


def _first_rows(piece: Piece, schema: pa.Schema) -> pa.Table:
    with opened(piece.file) as file:
        batch = next(file.iter_batches(_PROBE_ROWS, [piece.row_group], schema.names, use_threads=False))
    return pa.table([as_kept(batch[field.name], field.type) for field in schema], schema=schema)


def _has_few_values(field: pa.Field, found: Sequence[pa.Table], rows: pa.Table) -> bool:
    """Whether a column has few values in all, so that texts may be held as codes of one dictionary."""
    most = _MOST_TEXTS if pa.types.is_string(field.type) else _MOST_VALUES
    return _are_repeated(field, found, rows, _GROWTH) and _different(field, rows) <= most


def _has_repeated_texts(field: pa.Field, found: Sequence[pa.Table], rows: pa.Table) -> bool:
    """Whether a column has texts that come back within a file, so that a dictionary for each is shorter.

    The rows of all probes are about as many as those of a file, and as mixed. Where they are not, the file
    has a few bytes a row more than by lengths: the texts once, and their codes.
    """
    return pa.types.is_string(field.type) and _are_repeated(field, found, rows, _GROWTH_OF_TEXTS)


def _are_repeated(field: pa.Field, found: Sequence[pa.Table], rows: pa.Table, growth: float) -> bool:
    together = _different(field, rows)
    if together * _ROWS_PER_VALUE >= len(rows):
        return False
    return together <= growth * max(_different(field, each) for each in found)


def _different(field: pa.Field, table: pa.Table) -> int:
    column = table[field.name]
    if pa.types.is_decimal64(field.type):
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks])
    return int(pc.count_distinct(column).as_py())


def _bytes(column: pa.ChunkedArray) -> float:
    return float(column.nbytes / max(len(column), 1))


_END_BYTES = 8  # of a file: four of the footer's length, then PAR1
# Numbers of fields in Parquet's Thrift definition.
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS, _NULL_COUNT, _DISTINCT_COUNT = 4, 1, 3, 12, 3, 4


class PartitionFile:
    """A Parquet file under way. Nothing of it is to be read before `close`."""

    def __init__(self, path: Path, encodings: Encodings) -> None:
        self.path = path
        self._schema = encodings.schema
        self._bytes = _Appended(path)
        self._row_groups = 0
        self._with_nan: set[tuple[int, int]] = set()
        self._writer = pq.ParquetWriter(self._bytes, encodings.schema, **encodings.writer_options)

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows as one row group, or as several if they are more than a row group's. Raises OSError."""
        rows = pa.Table.from_batches(batches, self._schema)
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
            self._bytes.to_disk()
            self._look_for_nan(rows)

    def close(self) -> None:
        """Write what ends the file. Raises OSError."""
        self._writer.close()
        if self._with_nan:
            self._bytes.change(lambda end: _without_ends(end, self._with_nan))
        self._bytes.to_disk()

    def _look_for_nan(self, rows: pa.Table) -> None:
        """Note in which columns of which row groups there is NaN. The rows have just been written."""
        floats = [i for i, field in enumerate(self._schema) if pa.types.is_floating(field.type)]
        for begin in range(0, rows.num_rows, ROW_GROUP_ROWS):
            group = rows.slice(begin, ROW_GROUP_ROWS)
            has_nan = (i for i in floats if pc.any(pc.is_nan(group.column(i))).as_py())
            self._with_nan.update((self._row_groups, i) for i in has_nan)
            self._row_groups += 1


def _without_ends(end_of_file: bytes, chunks: Collection[tuple[int, int]]) -> bytes:
    """Return the end of a Parquet file, whose footer has no ends of these columns of row groups.

    chunks: the places of a row group and of a column in it.
    """
    length = int.from_bytes(end_of_file[-_END_BYTES:-4], "little")
    reader = Reader(end_of_file[-_END_BYTES - length : -_END_BYTES])

    def of_chunk(group: int, column: int) -> bytes:
        if (group, column) not in chunks:
            return _raw(reader, STRUCT)
        return _changed(reader, _META_DATA, lambda: _changed(reader, _STATISTICS, lambda: _counts(reader)))

    def of_group(group: int) -> bytes:
        return _changed(reader, _COLUMNS, lambda: _each(reader, lambda column: of_chunk(group, column)))

    footer = _changed(reader, _ROW_GROUPS, lambda: _each(reader, of_group))
    before = end_of_file[: -_END_BYTES - length]
    return before + footer + len(footer).to_bytes(4, "little") + end_of_file[-4:]


def _raw(reader: Reader, kind: int) -> bytes:
    """Return the bytes of the next value, as they are."""
    begun = reader.at
    reader.skip(kind)
    return reader.data[begun : reader.at]


def _changed(reader: Reader, number: int, made: Callable[[], bytes]) -> bytes:
    """Return the next struct with another value of one field, which reads the old one."""
    fields: list[Field] = []
    for each, kind in reader.fields():
        fields.append((each, kind, made() if each == number else _raw(reader, kind)))
    return struct(fields)


def _each(reader: Reader, made: Callable[[int], bytes]) -> bytes:
    """Return the next list of structs with other items, each made of its place, and of the old one."""
    count, kind = reader.length()
    return listed(kind, [made(i) for i in range(count)])


def _counts(reader: Reader) -> bytes:
    """Return the next statistics with nothing but counts."""
    fields = [(number, kind, _raw(reader, kind)) for number, kind in reader.fields()]
    return struct(each for each in fields if each[0] in (_NULL_COUNT, _DISTINCT_COUNT))


class _Appended(io.RawIOBase):
    """Bytes in memory that are added to a file when asked to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(piece))
        return len(piece)

    def change(self, changed: Callable[[bytes], bytes]) -> None:
        """Change the bytes that are not on the disk yet."""
        self._pieces = [changed(b"".join(self._pieces))]

    def to_disk(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(b"".join(self._pieces))
        self._pieces.clear()
