"""A piece of the source with its rows sorted by partition: read column by column, each row put in its place.

The partition and the block of a row come from DuckDB's hash, by the SQL of `assignment.py`, so that a
table is laid out alike whoever reads it. Within a partition the rows keep the order of the source.

The least and the greatest value of a column are found piece by piece while its rows are at hand (`ends_of`).

**Windows** are runs of pieces that are held in memory together, and become one row group of each
partition. A source of any size is read once in bounded memory: as many rows are gathered as fit, each
partition's part of them is written, and the next window begins. Where a window ends depends on the source
and the memory limit, never on how many threads there are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from relaqs_bootstrap.arrays import IntArray

from relaqs_engine.duck import Cursor
from relaqs_engine.layouts.assignment import Assignment
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT
from relaqs_engine.layouts.pieces import Encodings, Piece, as_kept, opened, unreadable
from relaqs_engine.layouts.sources import RESERVED_PREFIX, ROW_NUMBER


def ends_of(values: pa.Array) -> pa.Array:
    """Return three values of the column's type: the least, the greatest, and NaN if it has one, else NULL.

    NULL are not values: without any other the first two are NULL as well. DuckDB takes NaN for the greatest
    number, Arrow takes it for none, so it has a place of its own.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary.take(pc.unique(values.indices).drop_null())
    numbers = _as_numbers(values)
    found = pc.min_max(numbers)
    nan = math.nan if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py() else None
    return pa.array([found["min"].as_py(), found["max"].as_py(), nan], numbers.type).view(values.type)


def _as_numbers(values: pa.Array) -> pa.Array:
    """Return decimals and times as the whole numbers they are stored as, whose order is the same."""
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    is_stored_in_64_bits = pa.types.is_timestamp(values.type) or pa.types.is_decimal64(values.type)
    return values.view(pa.int64()) if is_stored_in_64_bits else values


MOST_PARTITIONS = 4_096
"""Of a table that is gathered: each needs a writer of its own, and a place in each piece."""
_UNIT_HASH = f"{RESERVED_PREFIX}unit_hash"
_KEYS = f"{RESERVED_PREFIX}keys"
_FOOTERS_KEPT = 4  # pieces come file by file, and a footer of many row groups takes long to parse


@dataclass(frozen=True, slots=True)
class Gathered:
    """A piece, sorted.

    Attributes:
        rows: in the order of their partitions, and within a partition in that of the source. Where only some
            partitions are gathered, theirs alone.
        byte_count: of the rows of all partitions in memory.
        starts: where each partition begins in it, and the end; shape (partitions + 1,).
        block_rows: rows of each block of each partition; shape (partitions, BLOCK_COUNT).
        ends: of each column of the table, as `ends_of` gives them.
        null_counts: of each column of the table, in order.
    """

    rows: pa.RecordBatch
    byte_count: int
    starts: IntArray
    block_rows: IntArray
    ends: pa.RecordBatch
    null_counts: IntArray

    def of_partition(self, partition: int) -> pa.RecordBatch:
        """Return the rows of one partition, without a copy."""
        start, stop = int(self.starts[partition]), int(self.starts[partition + 1])
        return self.rows.slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Gathers pieces of one source, several at once if need be.

    Attributes:
        cursor: of the database that hashes. Each piece has a cursor of its own.
        assignment: which partition and block a row belongs to.
        encodings: how the columns are held.
        key: names of the columns that the unit's hash is of; empty where the unit is a row.
        chosen: the partitions to gather. What is counted and measured is of all.
    """

    cursor: Cursor
    assignment: Assignment
    encodings: Encodings
    key: tuple[str, ...]
    chosen: range

    def gather(self, piece: Piece) -> Gathered:
        """Return a piece with its rows sorted. Raises DataError where it cannot be read."""
        codes = sorted(self.encodings.codes)
        with opened(piece.file, metadata=footer_of(piece.file), read_dictionary=codes) as file:
            keys = {name: self._column(file, piece, name) for name in self.key}
            partition, block = self._assigned(piece, keys)
            starts = self._starts(partition)
            order = self._order(partition, starts)
            columns, ends, null_counts, byte_count = [], [], [], piece.row_count
            for name in self.encodings.schema.names[:-1]:
                values = keys[name] if name in keys else self._column(file, piece, name)
                ends.append(ends_of(values))
                null_counts.append(values.null_count)
                byte_count += values.nbytes
                columns.append(pc.take(values, order, boundscheck=False))
        columns.append(pc.take(pa.array(block), order, boundscheck=False))
        first, stop = starts[self.chosen.start], starts[self.chosen.stop]
        return Gathered(
            rows=pa.RecordBatch.from_arrays(columns, self.encodings.schema.names),
            byte_count=byte_count,
            starts=np.clip(starts, first, stop) - first,
            block_rows=self._block_rows(partition, block),
            ends=pa.RecordBatch.from_arrays(ends, self.encodings.schema.names[:-1]),
            null_counts=np.array(null_counts),
        )

    def _starts(self, partition: IntArray) -> IntArray:
        """Return where each partition would begin if all were gathered, and the end."""
        counts = np.bincount(partition, minlength=self.assignment.file_count)
        return np.concatenate([[0], np.cumsum(counts)])

    def _order(self, partition: IntArray, starts: IntArray) -> pa.Array:
        """Return the positions of the rows of the chosen partitions, in the order of their partitions."""
        order = np.argsort(partition.astype(np.uint16), kind="stable")
        return pa.array(order[starts[self.chosen.start] : starts[self.chosen.stop]].astype(np.int32))

    def _column(self, file: pq.ParquetFile, piece: Piece, name: str) -> pa.Array:
        """Return a column of the piece as it is held. Raises ArrowInvalid where it is damaged."""
        found = file.read_row_group(piece.row_group, columns=[name], use_threads=False)[name]
        if pa.types.is_dictionary(found.type):
            found = found.unify_dictionaries()
        values = as_kept(found.combine_chunks(), self.encodings.schema.field(name).type)
        if len(values) != piece.row_count:
            raise pa.ArrowInvalid(f"column {name!r} has {len(values)} rows, not {piece.row_count}")
        if pa.types.is_string(values.type) or pa.types.is_dictionary(values.type):
            values.validate(full=True)  # UTF-8, which Arrow takes for granted and DuckDB insists on
        return values

    def _assigned(self, piece: Piece, keys: Mapping[str, pa.Array]) -> tuple[IntArray, IntArray]:
        """Return the partition and the block of each row of the piece."""
        assignment = self.assignment
        table = _KEYS if keys else _row_names(piece)
        if assignment.unit == (ROW_NUMBER,):
            assignment = replace(assignment, unit=("source_row_number",))
        with closing(self.cursor.another()) as cursor:
            if keys:
                cursor.register(_KEYS, pa.table(dict(keys)))
            found = cursor.table(
                f"SELECT {assignment.partition(_UNIT_HASH)} AS part, "
                f"{assignment.block(_UNIT_HASH)} AS {BLOCK_COLUMN} "
                f"FROM (SELECT {assignment.unit_hash} AS {_UNIT_HASH} FROM {table})"
            )
        return found["part"].to_numpy(), found[BLOCK_COLUMN].to_numpy()

    def _block_rows(self, partition: IntArray, block: IntArray) -> IntArray:
        count = self.assignment.file_count
        cells = np.bincount(partition.astype(np.int64) * BLOCK_COUNT + block, minlength=count * BLOCK_COUNT)
        return cells.reshape(count, BLOCK_COUNT)


def footer_of(file: Path) -> pq.FileMetaData:
    """Return what stands at the end of a Parquet file. Raises DataError if it cannot be read."""
    try:
        state = os.stat(file)
        return _footer_in_state(file, state.st_size, state.st_mtime_ns)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error


@lru_cache(_FOOTERS_KEPT)
def _footer_in_state(file: Path, byte_count: int, modified_ns: int) -> pq.FileMetaData:
    return pq.read_metadata(file)


def _row_names(piece: Piece) -> str:
    """Return SQL for the piece's rows by their names alone: as DuckDB names them, and counted from 1."""
    stop = piece.first_row + piece.row_count
    offset = piece.rows_before - piece.first_row + 1
    return (
        f"(SELECT {piece.file_index}::UBIGINT AS file_index, range AS file_row_number, "
        f"range + {offset} AS source_row_number FROM range({piece.first_row}, {stop}))"
    )


_Piece = TypeVar("_Piece", bound=Gathered)

_MOST_TEXTS = 65_536
"""Of a column that is held as codes."""
_OVERRUN = 1.25
"""How much larger than planned a window may become, as rows differ in size; then it ends early."""


class TooManyTextsError(Exception):
    """A column that looked as if it had few values has many."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Where windows end.

    Attributes:
        last_pieces: positions of the pieces that windows end with.
        most_bytes: of the rows of a window.
    """

    last_pieces: frozenset[int]
    most_bytes: float


def planned(pieces: Sequence[Piece], bytes_per_row: float, memory_bytes: float) -> WindowPlan:
    """Return windows of about equal rows, as few as the memory allows."""
    rows = pieces[-1].rows_before + pieces[-1].row_count
    count = max(1, math.ceil(rows * bytes_per_row / memory_bytes))
    ends = [rows * (i + 1) / count for i in range(count)]
    last: set[int] = set()
    for position, piece in enumerate(pieces):
        middle = piece.rows_before + piece.row_count / 2
        if position and middle > ends[len(last)]:
            last.add(position - 1)
    return WindowPlan(frozenset(last | {len(pieces) - 1}), _OVERRUN * memory_bytes)


def windows(gathered: Iterable[_Piece], plan: WindowPlan, encodings: Encodings) -> Iterator[Sequence[_Piece]]:
    """Yield the windows. Their texts are held as codes of one dictionary for each column.

    Raises TooManyTextsError.
    """
    texts = {name: _Texts() for name in encodings.codes}
    window: list[_Piece] = []
    size = 0
    for position, piece in enumerate(gathered):
        window.append(replace(piece, rows=_recoded(piece.rows, texts)))
        size += piece.byte_count
        if position in plan.last_pieces or size > plan.most_bytes:
            yield [replace(each, rows=_with_texts(each.rows, texts, encodings)) for each in window]
            window, size = [], 0
    if window:
        yield [replace(each, rows=_with_texts(each.rows, texts, encodings)) for each in window]


class _Texts:
    """The texts of one column in the order they were first seen; a text's code is its place."""

    def __init__(self) -> None:
        self.seen = pa.array([], pa.string())

    def codes_of(self, column: pa.DictionaryArray) -> pa.Array:
        """Return the codes of a column, after its texts are added to those seen."""
        places = pc.index_in(column.dictionary, value_set=self.seen)
        if places.null_count:
            self.seen = pa.concat_arrays([self.seen, column.dictionary.filter(places.is_null())])
            places = pc.index_in(column.dictionary, value_set=self.seen)
        if len(self.seen) > _MOST_TEXTS:
            raise TooManyTextsError
        return places.take(column.indices)


def _recoded(rows: pa.RecordBatch, texts: dict[str, _Texts]) -> pa.RecordBatch:
    columns = [
        texts[name].codes_of(column) if name in texts else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _with_texts(rows: pa.RecordBatch, texts: dict[str, _Texts], encodings: Encodings) -> pa.RecordBatch:
    columns = [
        pa.DictionaryArray.from_arrays(column, texts[name].seen, safe=False) if name in texts else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=encodings.schema)
