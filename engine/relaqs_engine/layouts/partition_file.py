"""A partition's file, written row group by row group and open only while bytes go to the disk.

A layout may have thousands of partitions, all of them begun before one is finished, and a process may have
only about a thousand files open.

Arrow leaves NaN out of a column's ends in the footer, and readers skip rows by them. So where there is NaN,
the ends are taken out of the footer.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relaqs_engine.layouts.encodings import ROW_GROUP_ROWS, Encodings
from relaqs_engine.layouts.thrift import STRUCT, Field, Reader, listed, struct

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
