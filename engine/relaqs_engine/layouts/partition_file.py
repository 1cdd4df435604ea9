"""A partition's file, written row group by row group and open only while bytes go to the disk.

A layout may have thousands of partitions, all of them begun before one is finished, and a process may have
only about a thousand files open.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from relaqs_engine.layouts.encodings import ROW_GROUP_ROWS, Encodings


class PartitionFile:
    """A Parquet file under way. Nothing of it is to be read before `close`."""

    def __init__(self, path: Path, encodings: Encodings) -> None:
        self.path = path
        self._schema = encodings.schema
        self._bytes = _Appended(path)
        self._writer = pq.ParquetWriter(self._bytes, encodings.schema, **encodings.writer_options)

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows as one row group, or as several if they are more than a row group's. Raises OSError."""
        rows = pa.Table.from_batches(batches, self._schema)
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
            self._bytes.to_disk()

    def close(self) -> None:
        """Write what ends the file. Raises OSError."""
        self._writer.close()
        self._bytes.to_disk()


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

    def to_disk(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(b"".join(self._pieces))
        self._pieces.clear()
