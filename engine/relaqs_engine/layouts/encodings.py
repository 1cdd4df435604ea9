"""How each column is held in memory and written, found out from a few rows before the source is read.

Texts of few values are read as codes of a dictionary, which halves the time to read a table. Columns of few
values are written with a dictionary; other whole numbers, decimals and times as differences, and texts with
their lengths first. Which encodings are small and are scanned fast was measured: decision record 0023.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relaqs_engine.layouts.manifest import BLOCK_COLUMN
from relaqs_engine.layouts.pieces import Piece, Pieces, opened

ROW_GROUP_ROWS = 122_880
"""At most, in a file of a layout: as many as DuckDB itself writes."""
_PROBES = 4
_PROBE_ROWS = 8_192
_MOST_TEXTS, _MOST_VALUES = 1_000, 8_000
"""Different values of a column of few values, in all probes together."""
_ROWS_PER_VALUE = 4
_GROWTH = 1.5
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
        """Whether DuckDB may go by the ends of a column in a footer, but for NaN (see `partition_file.py`).

        Of texts without a dictionary and with one value for both ends, DuckDB 2.0 forgets the NULLs.
        """
        has_texts = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        return field.name in self.dictionaries or not has_texts


def probed(source: Pieces, key: Sequence[str]) -> Encodings:
    """Return how the columns are to be held and written. key: the columns to be hashed, never as codes."""
    found = [_first_rows(piece, source.schema) for piece in _spaced(source.pieces)]
    rows = pa.concat_tables(found)
    few = {field.name for field in source.schema if _has_few_values(field, found, rows)}
    texts = {field.name for field in source.schema if pa.types.is_string(field.type)}
    codes = frozenset(texts & few) - source.undecodable_as_codes - set(key)
    fields = [
        f.with_type(pa.dictionary(pa.int32(), pa.string())) if f.name in codes else f for f in source.schema
    ]
    widths = [_CODE_BYTES if f.name in codes else _bytes(rows[f.name]) for f in source.schema]
    schema = pa.schema([*fields, pa.field(BLOCK_COLUMN, pa.uint8(), nullable=False)])
    return Encodings(schema, codes, frozenset(few | {BLOCK_COLUMN}), sum(widths, start=1.0))


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
    def different(table: pa.Table) -> int:
        column = table[field.name]
        if pa.types.is_decimal64(field.type):
            column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks])
        return int(pc.count_distinct(column).as_py())

    together = different(rows)
    most = _MOST_TEXTS if pa.types.is_string(field.type) else _MOST_VALUES
    return (
        together <= most
        and together <= _GROWTH * max(map(different, found))
        and together * _ROWS_PER_VALUE < len(rows)
    )


def _bytes(column: pa.ChunkedArray) -> float:
    return float(column.nbytes / max(len(column), 1))
