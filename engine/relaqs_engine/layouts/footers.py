"""What the footers of Parquet files say: rows, bytes and ends of each row group. Each is read once.

A footer belongs to one state of its file. Whoever reads the file afterwards checks that state.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relaqs_engine.duck import FileState, file_state, is_duckdb
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.thrift import LIST, Reader

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
