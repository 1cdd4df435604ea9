"""A source seen as pieces: one row group of one Parquet file each, in the order of the rows.

A source has pieces if a reader of Parquet other than DuckDB is known to read the same values from it. That is
so for the types listed here. Whoever finds none lets DuckDB read the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relaqs_engine.errors import DataError
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
