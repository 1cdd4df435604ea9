"""Writing the partitions by tasks of several processes, which see the same folders.

    piece ── sorted by partition ──► a file in the folder of the write under way
    some partitions ◄── their rows of each of these files, in the order of the source

A task may be run twice, or die in the middle: whatever it makes has a name of its own until it is whole. The
bytes are those that one process writes in one pass.
"""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_bootstrap.arrays import IntArray

from relaqs_engine.duck import Cursor, open_for_reading
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.assignment import Assignment
from relaqs_engine.layouts.encodings import Encodings
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.gathering import Gathered, Gatherer
from relaqs_engine.layouts.manifest import Partition
from relaqs_engine.layouts.one_pass import (
    Course,
    Reading,
    counted,
    entry_of,
    memory_of_the_system,
    reading_of,
)
from relaqs_engine.layouts.partition_file import PartitionFile
from relaqs_engine.layouts.partitions import PartitionJob, Units, WrittenPartitions
from relaqs_engine.layouts.pieces import Piece
from relaqs_engine.layouts.spread import Spread
from relaqs_engine.layouts.windows import TooManyTextsError, windows

_ROWS_OF_A_TASK = 1_000_000
_FEWEST_TASKS = 16
_MOST_AHEAD = 1_000
"""Tasks whose results may wait: they are small, since the rows are in files."""


def write_by_tasks(job: PartitionJob, memory_limit_bytes: int, spread: Spread) -> WrittenPartitions | None:
    """Return what was written, or None where the source is not of a kind that this is known to be right for.

    Raises DataError if the source cannot be read, OSError if the disk is full.

    Args:
        job: what is written.
        memory_limit_bytes: decides where row groups end, as in one process.
        spread: over other processes. Its work and its items can be pickled.
    """
    if (reading := reading_of(job, memory_limit_bytes)) is None:
        return None
    rows = reading.source.row_count
    job.target.check_space(int(rows * reading.encodings.bytes_per_row) + job.source.byte_count)
    course = Course(job, rows, (0.0, 1.0))
    course.report("reading")
    sorting = Sorting(job.target, job.assignment, reading.encodings, job.key)
    try:
        with closing(spread(sorting, reading.source.pieces, _MOST_AHEAD)) as pieces:
            found = list(windows(counted(pieces, course), reading.plan, reading.encodings))
    except TooManyTextsError:
        return None
    return WrittenPartitions.of(_assembled(job, reading, spread, found, course), course.seen)


@dataclass(frozen=True, slots=True)
class Kept(Gathered):
    """A piece with its rows in a file. `rows` has none of them, and the texts of its columns."""

    file: Path


@dataclass(frozen=True, slots=True)
class Sorting:
    """The task that sorts a piece, in any process."""

    target: Writing
    assignment: Assignment
    encodings: Encodings
    key: tuple[str, ...]

    def __call__(self, piece: Piece) -> Kept:
        """Return the piece, sorted, with its rows in a new file. Raises DataError, OSError."""
        check_seen(piece.file, self.target.scratch)
        everything = range(self.assignment.partition_count)
        with closing(_database().another()) as cursor, memory_of_the_system():
            gatherer = Gatherer(cursor, self.assignment, self.encodings, self.key, everything)
            gathered = gatherer.gather(piece)
        handle, name = tempfile.mkstemp(".arrow", "piece-", self.target.scratch)
        with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, gathered.rows.schema) as writer:
            writer.write_batch(gathered.rows)
        known = {each.name: getattr(gathered, each.name) for each in fields(Gathered)}
        return Kept(**{**known, "rows": _texts_of(gathered.rows)}, file=Path(name))


@lru_cache(1)
def _database() -> Cursor:
    """Return the database of this process that hashes. To open one takes longer than to hash a piece."""
    return open_for_reading()


def _texts_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return no rows, with the texts of the columns. A slice would take all rows along when it is sent."""
    columns = [
        pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), column.dictionary)
        if pa.types.is_dictionary(column.type)
        else pa.array([], column.type)
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


class UnseenHereError(Exception):
    """A process that was to help does not see a file or folder that it needs."""


def check_seen(*paths: Path) -> None:
    """Raise UnseenHereError if one of the paths is not there for this process."""
    for path in paths:
        if not path.exists():
            raise UnseenHereError(
                f"a process on {platform.node()} does not see {path}; give all machines one path to it"
            )


@dataclass(frozen=True, slots=True)
class Slice:
    """Neighbouring partitions' rows of one piece. starts: of each of them in the file, and the end."""

    file: Path
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowSlices:
    """Neighbouring partitions' rows of one window. texts: no rows, with all texts of the columns so far."""

    slices: tuple[Slice, ...]
    texts: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Share:
    """Neighbouring partitions, and where their rows are. block_rows: of each of them."""

    partitions: range
    windows: tuple[WindowSlices, ...]
    block_rows: IntArray


@dataclass(frozen=True, slots=True)
class Assembling:
    """The task that writes some partitions, in any process. key: SQL of the cluster key's columns."""

    target: Writing
    encodings: Encodings
    key: tuple[str, ...]

    def __call__(self, share: Share) -> list[tuple[Partition, Units]]:
        """Return the partitions' entries in the manifest, and their units. Raises DataError, OSError."""
        check_seen(self.target.scratch)
        with tempfile.TemporaryDirectory(prefix="drafts-", dir=self.target.scratch) as drafts:
            files = [
                PartitionFile(Path(drafts, f"part-{i:05d}.parquet"), self.encodings) for i in share.partitions
            ]
            for window in share.windows:
                self._append(files, window)
            return list(self._settled(files, share.block_rows))

    def _append(self, files: Sequence[PartitionFile], window: WindowSlices) -> None:
        pieces = [(_rows(each, window.texts, self.encodings), each.starts) for each in window.slices]
        for i, file in enumerate(files):
            file.append(
                rows.slice(starts[i] - starts[0], starts[i + 1] - starts[i]) for rows, starts in pieces
            )

    def _settled(
        self, files: Sequence[PartitionFile], block_rows: IntArray
    ) -> Iterator[tuple[Partition, Units]]:
        with closing(_database().another()) as cursor:
            for file, rows_of_blocks in zip(files, block_rows, strict=True):
                file.close()
                path = file.path.replace(self.target.parts / file.path.name)
                yield entry_of(cursor, self.target, path, self.key, rows_of_blocks)


def _rows(wanted: Slice, texts: pa.RecordBatch, encodings: Encodings) -> pa.RecordBatch:
    """Return a copy of some rows of a sorted piece, with the codes of these texts."""
    start, stop = wanted.starts[0], wanted.starts[-1]
    with pa.memory_map(str(wanted.file)) as file:
        rows = pa.ipc.open_file(file).get_batch(0).slice(start, stop - start)
        everything = pa.array(np.arange(len(rows), dtype=np.int32))
        columns = [
            _with_codes(column, known.dictionary)
            if pa.types.is_dictionary(column.type)
            else pc.take(column, everything, boundscheck=False)
            for column, known in zip(rows.columns, texts.columns, strict=True)
        ]
    return pa.RecordBatch.from_arrays(columns, schema=encodings.schema)


def _with_codes(column: pa.DictionaryArray, texts: pa.Array) -> pa.DictionaryArray:
    codes = pc.index_in(column.dictionary, value_set=texts).take(column.indices)
    return pa.DictionaryArray.from_arrays(codes, texts, safe=False)


def _assembled(
    job: PartitionJob, reading: Reading, spread: Spread, found: Sequence[Sequence[Kept]], course: Course
) -> list[tuple[Partition, Units]]:
    """Return the entries of all partitions, written by tasks from the sorted pieces of the windows."""
    count = job.assignment.partition_count
    shares = _shares(count, reading.source.row_count, found, course.block_rows)
    assembling = Assembling(job.target, reading.encodings, job.assignment.unit if job.key else ())
    written: list[tuple[Partition, Units]] = []
    with closing(spread(assembling, shares, _MOST_AHEAD)) as done:
        for entries in done:
            written += entries
            course.report(f"writing partition {len(written)} of {count}", len(written) / count)
    if len(written) != count:
        raise DataError(f"{len(written)} of {count} partitions were written; lay the table out again")
    return written


def _shares(
    count: int, row_count: int, found: Sequence[Sequence[Kept]], block_rows: IntArray
) -> Iterator[Share]:
    """Yield the partitions of each task, and what it needs to know."""
    tasks = min(count, max(_FEWEST_TASKS, math.ceil(row_count / _ROWS_OF_A_TASK)))
    for i in range(tasks):
        chosen = range(i * count // tasks, (i + 1) * count // tasks)
        of_windows = tuple(
            WindowSlices(
                tuple(
                    Slice(piece.file, tuple(piece.starts[chosen.start : chosen.stop + 1].tolist()))
                    for piece in window
                ),
                window[0].rows,
            )
            for window in found
        )
        yield Share(chosen, of_windows, block_rows[chosen.start : chosen.stop])
