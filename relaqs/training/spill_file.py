"""A file of Arrow record batches that has no name: written once, mapped whenever it is read.

    batch of partition 0 | … | batch of partition 7 | …      each begins at a page

The system frees its space when the last who has it open is gone, whatever ended the process. So nothing is
ever left behind, and nobody else can open it, cut it or write into it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


class TornError(Exception):
    """What is in the file is not what was written."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a batch lies in the file. offset: a whole number of pages."""

    offset: int
    byte_count: int


class SpillFile:
    """Any number of batches. Several threads may write and read them. Raises OSError if there is no room.

    content: a word for those who look at the files that a process has open.
    """

    def __init__(self, folder: Path, content: str = "rows") -> None:
        prefix = f"relaqs-{content}-"
        self._file = tempfile.TemporaryFile(dir=folder, prefix=prefix)  # noqa: SIM115 - until it goes
        self._writing = threading.Lock()
        self._end = 0

    def append(self, batch: pa.RecordBatch) -> Extent:
        """Write a batch behind all others and return where it is."""
        with self._writing:
            self._file.seek(self._end)
            with pa.ipc.new_stream(self._file, batch.schema) as stream:
                stream.write_batch(batch)
            self._file.flush()
            extent = Extent(self._end, self._file.tell() - self._end)
            pages = -(-extent.byte_count // mmap.ALLOCATIONGRANULARITY)
            self._end += pages * mmap.ALLOCATIONGRANULARITY
        return extent

    def batch(self, extent: Extent) -> pa.RecordBatch:
        """Return a batch. Its arrays are the file's own pages, for as long as they are held.

        Raises TornError where the file is too short, or holds no batch there.
        """
        try:
            with pa.ipc.open_stream(pa.py_buffer(self._mapped(extent))) as stream:
                batch: pa.RecordBatch = stream.read_next_batch()
            batch.validate()
        except (OSError, pa.ArrowException, StopIteration) as error:
            raise TornError(str(error)) from error
        return batch

    def _mapped(self, extent: Extent) -> mmap.mmap:
        """Return the pages of a batch, which the system begins to read."""
        handle = self._file.fileno()
        if (size := os.fstat(handle).st_size) < extent.offset + extent.byte_count:
            raise TornError(f"{size} bytes are left of {extent.offset + extent.byte_count}")
        mapped = mmap.mmap(handle, extent.byte_count, access=mmap.ACCESS_READ, offset=extent.offset)
        if hasattr(mmap, "MADV_WILLNEED"):
            mapped.madvise(mmap.MADV_WILLNEED)
        return mapped
