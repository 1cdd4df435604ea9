"""What a worker process keeps between passes, by partition: in memory within a budget, then on disk.

A pass reads every partition again. DuckDB decodes them once; from then on a worker has their arrays.

1. `KEPT` has arrays in memory. Nothing in use is pushed out for what comes later: passes go round and
   round, so what was used longest ago is just what is needed next. What is not asked for in 30 seconds is
   freed.
2. `SPILL` has on disk what does not fit. A block is one partition's rows in a file, with a checksum of
   every megabyte. The file has no name: it is written once, and mapped whenever it is read, which costs a
   tiny part of what reading by DuckDB does.
3. Where neither has the rows (the disk is full, a block is damaged), the job reads by DuckDB as before,
   and a line in the log says so. No model differs by a bit.
"""

from __future__ import annotations

import logging
import mmap
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import xxhash
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.executors.files import FOLDER_VARIABLE, local_folder
from relaqs.jobs.executor import call_later
from relaqs.memory import amount_bytes
from relaqs.training.rows import Pieces, Rows

IDLE_SECONDS = 30.0  # what was not asked for in this time is freed

VersionedArrays = Mapping[str, tuple[int, Any]]
"""Named arrays of numpy, or tables of Arrow, each with its version."""

Stored = TypeVar("Stored")


@dataclass(slots=True)
class _Group(Generic[Stored]):
    """What one owner keeps, by partition. Times are on the monotonic clock."""

    used_seconds: float
    of_partition: dict[int, Stored] = field(default_factory=dict)


class Kept(Generic[Stored]):
    """Values by owner and partition. What does not fit in is not kept, and has to be made again.

    Nothing in use is pushed out for what comes later: passes go round and round over the partitions, and what
    was used longest ago is just what is needed next. Safe to use from any thread.

    Args:
        size: returns how many bytes of the budget a value takes. It must stay the same.
    """

    def __init__(self, size: Callable[[Stored], int]) -> None:
        self._size = size
        self._lock = threading.RLock()
        self._groups: dict[str, _Group[Stored]] = {}
        self._byte_count = 0
        self._sweeper: threading.Timer | None = None

    @property
    def byte_count(self) -> int:
        return self._byte_count

    def get(self, owner: str, partition: int) -> Stored | None:
        with self._lock:
            if (group := self._groups.get(owner)) is None:
                return None
            group.used_seconds = time.monotonic()
            return group.of_partition.get(partition)

    def newest(self, owner: str) -> tuple[int, Stored] | None:
        """Return what an owner has kept last, and its partition. None: it keeps nothing."""
        with self._lock:
            group = self._groups.get(owner)
            return None if group is None else next(reversed(group.of_partition.items()), None)

    def drop(self, owner: str, partition: int) -> None:
        """Let go what is kept of one partition, if anything is."""
        with self._lock:
            group = self._groups.get(owner)
            if group is not None and (dropped := group.of_partition.pop(partition, None)) is not None:
                self._byte_count -= self._size(dropped)

    def put(self, owner: str, partition: int, value: Stored, budget_bytes: int) -> bool:
        """Keep a value in the place of an earlier one, if all that is kept is within the budget then.

        Returns whether it is kept. Otherwise the earlier one is gone, too.
        """
        with self._lock:
            now = time.monotonic()
            group = self._groups.setdefault(owner, _Group(now))
            group.used_seconds = now
            if (earlier := group.of_partition.pop(partition, None)) is not None:
                self._byte_count -= self._size(earlier)
            room = budget_bytes - self._size(value)
            if self._byte_count > room:
                self.drop_unused_since(now - IDLE_SECONDS)
            if self._byte_count > room:
                return False
            group.of_partition[partition] = value
            self._byte_count += self._size(value)
            self._sweep_later()
            return True

    def forget(self, owner: str) -> None:
        with self._lock:
            if (group := self._groups.pop(owner, None)) is not None:
                self._byte_count -= sum(map(self._size, group.of_partition.values()))

    def drop_unused_since(self, seconds: float) -> None:
        """Let go what was last used before that time of the monotonic clock."""
        with self._lock:
            for owner in [owner for owner, group in self._groups.items() if group.used_seconds < seconds]:
                self.forget(owner)

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = call_later(IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        with self._lock:
            self._sweeper = None
            self.drop_unused_since(time.monotonic() - IDLE_SECONDS)
            if self._groups:
                self._sweep_later()


def byte_count(arrays: VersionedArrays) -> int:
    """Return the bytes of all arrays together."""
    return sum(array.nbytes for _, array in arrays.values())


KEPT = Kept(byte_count)


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


_CHUNK_BYTES = 1 << 20  # small: a task checks no more than it reads, but for a chunk's rest
_HEAD_BYTES = 1 << 16  # at most, of what the file has beside the values


class SpilledBlock:
    """Rows that are written once, and mapped whenever they are read. byte_count: what they take of a disk."""

    def __init__(self, rows: Rows) -> None:
        batch = _batch(rows)
        self.byte_count = batch.nbytes + _HEAD_BYTES
        self._schema: pa.Schema = batch.schema
        self._row_count = len(rows)
        self._target_type = None if rows.target is None else rows.target.dtype
        self._chunk_rows = max(1, _CHUNK_BYTES * len(rows) // max(batch.nbytes, 1))
        self._checksums: list[int] = []
        self._place: tuple[SpillFile, Extent] | None = None

    def __len__(self) -> int:
        return self._row_count

    @property
    def is_written(self) -> bool:
        return self._place is not None

    def write(self, file: SpillFile, rows: Rows) -> None:
        """Write the rows that the block was made of. Raises OSError."""
        self._checksums = [self._checksum(rows, start) for start in range(0, len(rows), self._chunk_rows)]
        self._place = file, file.append(_batch(rows))

    def rows(self, of: slice) -> Rows:
        """Return the rows, to be used for these positions alone. They were found to be what was written.

        Raises TornError.
        """
        assert self._place is not None
        file, extent = self._place
        batch = file.batch(extent)
        try:
            rows = self._rows_of(batch)
        except (TypeError, ValueError) as error:  # what else is left of a batch that was described wrongly
            raise TornError(str(error)) from error
        first = of.start // self._chunk_rows
        for number, start in enumerate(range(first * self._chunk_rows, of.stop, self._chunk_rows), first):
            if self._checksum(rows, start) != self._checksums[number]:
                raise TornError(f"rows {start} and on are not those that were written")
        return rows

    def _rows_of(self, batch: pa.RecordBatch) -> Rows:
        if batch.schema != self._schema or batch.num_rows != self._row_count:
            raise TornError("it has other columns or rows than were written")
        width = batch.schema.field(0).type.list_size
        features = batch.column(0).values.to_numpy().reshape(-1, width)
        if self._target_type is None:
            return Rows(features, None)
        target = batch.column(1).buffers()[1]
        return Rows(features, np.frombuffer(target, self._target_type, self._row_count))

    def _checksum(self, rows: Rows, start: int) -> int:
        part = rows.part(slice(start, start + self._chunk_rows))
        digest = xxhash.xxh3_64(part.features.data)
        if part.target is not None:
            digest.update(part.target.view(np.uint8).data)
        return digest.intdigest()


def _batch(rows: Rows) -> pa.RecordBatch:
    """Return the rows as Arrow's, not copied. Targets are bytes, whatever their type."""
    count, width = rows.features.shape
    values = pa.array(rows.features.reshape(-1))
    columns = {"features": pa.FixedSizeListArray.from_arrays(values, width)}
    if rows.target is not None:
        buffers = [None, pa.py_buffer(rows.target)]
        type = pa.binary(rows.target.dtype.itemsize)
        columns["target"] = pa.FixedSizeBinaryArray.from_buffers(type, count, buffers)
    return pa.record_batch(columns)


LIMIT_VARIABLE = "RELAQS_SPILL_LIMIT"
"""The environment variable that says how many bytes a process may spill, such as 50GB. 0: none."""

FREE_SHARE = 1 / 20
MOST_FREE_BYTES = 10 << 30
"""So much of the disk is left free: this share of its size, and no more than these bytes."""

logger = logging.getLogger("relaqs.training")


class Spill:
    """Blocks by data and partition. Those of one data set are in one file. Safe to use from any thread."""

    def __init__(self) -> None:
        self._blocks: Kept[SpilledBlock] = Kept(lambda block: block.byte_count)
        self._lock = threading.Lock()
        self._files: weakref.WeakValueDictionary[str, SpillFile] = weakref.WeakValueDictionary()
        self._open: dict[str, set[str]] = {}  # the jobs of this process, by their data
        self._given_up: set[str] = set()  # jobs that spill no more

    @property
    def byte_count(self) -> int:
        return self._blocks.byte_count

    def open(self, job: str, data: str) -> None:
        """Keep what is spilled of some data until this job is closed, if it is used meanwhile."""
        with self._lock:
            self._open.setdefault(data, set()).add(job)

    def close(self, job: str, data: str) -> None:
        """Let go what is spilled of a job's data, if no other job of this process is open for it."""
        with self._lock:
            self._given_up.discard(job)
            jobs = self._open.get(data, set())
            jobs.discard(job)
            if not jobs:
                self._open.pop(data, None)
                self._blocks.forget(data)

    def rows(self, job: str, data: str, partition: int, pieces: Pieces) -> Rows | None:
        """Return a partition's rows, to be used for these pieces alone. None: they have to be read anew."""
        block = self._blocks.get(data, partition)
        if block is None or not block.is_written:
            return None
        try:
            return block.rows(pieces.of(len(block)))
        except TornError as error:
            self._give_up(job, data, f"a spilled partition is damaged: {error}")
            return None

    def put(self, job: str, data: str, partition: int, rows: Rows) -> bool:
        """Write a partition's rows, if there is room for them. Return whether they are there now."""
        if (block := self._blocks.get(data, partition)) is not None:
            return block.is_written
        if rows.others is not None:
            self._stop(job, "columns that are no numbers are not spilled")
            return False
        limit = limit_bytes()
        if limit == 0 or job in self._given_up:
            return False
        if (folder := local_folder()) is None:
            self._stop(job, f"all folders for temporary files are in memory; set {FOLDER_VARIABLE}")
            return False
        try:
            return self._write(job, data, partition, rows, folder, limit)
        except OSError as error:
            self._give_up(job, data, f"{folder} cannot be written: {error.strerror or error}")
            return False

    def _write(
        self, job: str, data: str, partition: int, rows: Rows, folder: Path, limit: int | None
    ) -> bool:
        room = self.byte_count + free_bytes(folder)
        block = SpilledBlock(rows)
        if self._blocks.put(data, partition, block, room if limit is None else min(room, limit)):
            block.write(self._file_of(data, folder), rows)
            return True
        if limit is not None and limit <= room:
            self._stop(job, f"{LIMIT_VARIABLE} is {limit / 1e9:.3g} GB, which is used up")
        else:
            self._stop(job, f"the disk of {folder} is nearly full")
        return False

    def _file_of(self, data: str, folder: Path) -> SpillFile:
        with self._lock:
            file = self._files.get(data)
            if file is None:
                file = self._files[data] = SpillFile(folder)
            return file

    def _give_up(self, job: str, data: str, reason: str) -> None:
        """Let go all that is spilled of some data, which this job does not spill again."""
        self._blocks.forget(data)
        self._stop(job, reason)

    def _stop(self, job: str, reason: str) -> None:
        with self._lock:
            is_first = job not in self._given_up
            self._given_up.add(job)
        if is_first:
            logger.warning("the training run %s reads its rows again in each pass: %s", job, reason)


def free_bytes(folder: Path) -> int:
    """Return how many bytes may be written to a folder, so that enough of its disk is left free."""
    disk = shutil.disk_usage(folder)
    return disk.free - min(int(FREE_SHARE * disk.total), MOST_FREE_BYTES)


def limit_bytes() -> int | None:
    """Return how many bytes a process may spill. None: anything that the disk has. Raises DataError."""
    if not (text := os.environ.get(LIMIT_VARIABLE)):
        return None
    try:
        return amount_bytes(text)
    except ArgumentError:
        raise DataError(f"{LIMIT_VARIABLE} is {text!r}; it must be a size, such as 50GB, or 0") from None


SPILL = Spill()
