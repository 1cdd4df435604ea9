"""Writing the partitions of a source of pieces: in one pass by this process, or by tasks of several.

**In one pass** the source is read once, in windows that fit into memory.

    piece: a row group of the source ── sorted by partition ──┐
    piece ── sorted by partition ─────────────────────────────┤ a window
    …                                                         ┘
    partition: its rows of each piece of the window, in order ── one row group of its file

Decoding, sorting and encoding are spread over the caller's threads; what is written does not depend on them.

Where somebody waits for a first part, the source is read twice: the first partitions are written in a pass
of their own. Every byte is the same. A pass over the source without most of the encoding takes about a
quarter of all the time.

**By tasks of several processes**, which see the same folders:

    piece ── sorted by partition ──► a file in the folder of the write under way
    some partitions ◄── their rows of each of these files, in the order of the source

A task may be run twice, or die in the middle: whatever it makes has a name of its own until it is whole.
The bytes are those that one process writes in one pass.
"""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_bootstrap.arrays import IntArray

from relaqs_engine.duck import Cursor, open_for_reading
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.assignment import Assignment, Spread
from relaqs_engine.layouts.column_statistics import SeenValues
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.gathering import (
    MOST_PARTITIONS,
    Gathered,
    Gatherer,
    TooManyTextsError,
    WindowPlan,
    planned,
    windows,
)
from relaqs_engine.layouts.manifest import BLOCK_COUNT, Partition
from relaqs_engine.layouts.parquet import settled
from relaqs_engine.layouts.partitions import NO_ROWS, PartitionJob, Units, WrittenPartitions, units_of_file
from relaqs_engine.layouts.pieces import Encodings, PartitionFile, Piece, Pieces, pieces_of, probed

_SHARE_OF_MEMORY = 0.5
"""Of the memory limit, for the rows of a window; the rest is for reading, encoding and counting them."""
_SHARE_UNDER_WAY = 0.2
"""Of the memory limit, for pieces that are being sorted, or wait for those before them."""
_SORTING = 0.6
"""Of the work on a row; encoding it is the rest."""
_FIRST_SHARE = 0.05
"""Of the partitions, that are the first part."""
_FIRST_WORK = 0.28
"""Of the work on all of them, where there is a first part."""

_Piece = TypeVar("_Piece", bound=Gathered)

FirstWritten = Callable[[WrittenPartitions], None]
"""Is handed the first partitions once they are there, with what was seen of the values of all."""


def write_in_one_pass(
    job: PartitionJob, memory_limit_bytes: int, spread: Spread, first_written: FirstWritten | None = None
) -> WrittenPartitions | None:
    """Return what was written, or None where the source is not of a kind that this is known to be right for.

    Then nothing is left of it. Raises DataError if the source cannot be read, OSError if the disk is full.
    """
    if (reading := reading_of(job, memory_limit_bytes)) is None:
        return None
    try:
        with memory_of_the_system():
            return _OnePass(job, reading, spread).write(first_written)
    except TooManyTextsError:
        for file in job.target.parts.iterdir():
            file.unlink()
        return None


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read that is known to be read right.

    Attributes:
        encodings: how they are held and written.
        plan: where windows end.
        most_pieces: how many may be sorted before they are needed.
    """

    source: Pieces
    encodings: Encodings
    plan: WindowPlan
    most_pieces: int


def reading_of(job: PartitionJob, memory_limit_bytes: int) -> Reading | None:
    """Return how a source is read, None where it is not of a kind that this is known to be right for."""
    if job.assignment.file_count > MOST_PARTITIONS or (source := pieces_of(job.source)) is None:
        return None
    encodings = probed(source, job.key)
    largest_bytes = encodings.bytes_per_row * max(piece.row_count for piece in source.pieces)
    most_pieces = int(_SHARE_UNDER_WAY * memory_limit_bytes / largest_bytes)
    plan = planned(source.pieces, encodings.bytes_per_row, _SHARE_OF_MEMORY * memory_limit_bytes)
    return Reading(source, encodings, plan, most_pieces) if most_pieces else None


@contextmanager
def memory_of_the_system() -> Iterator[None]:
    """Let Arrow take its memory from the C library inside the block.

    Each piece frees what the next one needs. Arrow's usual allocator gives it back to the system at once, and
    fetching it again takes a fifth of the whole time.
    """
    plain = pa.system_memory_pool()
    _LENT.append(plain)
    pa.set_memory_pool(plain)
    try:
        yield
    finally:
        _LENT.pop()
        if not _LENT:
            pa.set_memory_pool(_USUAL)
            plain.release_unused()


_USUAL = pa.default_memory_pool()
_LENT: list[pa.MemoryPool] = []
"""One for each block that runs now: tables may be laid out side by side. The last one restores the usual."""


class Course:
    """How far a pass is, and what is known of the rows so far.

    block_rows: of shape (partitions, BLOCK_COUNT). work: the pass's share of all work, from where to where.
    """

    def __init__(self, job: PartitionJob, row_count: int, work: tuple[float, float]) -> None:
        self.block_rows: IntArray = np.zeros((job.assignment.file_count, BLOCK_COUNT), dtype=np.int64)
        self.seen = SeenValues()
        self.sorted_rows = 0
        self.written_rows = 0
        self._row_count = row_count
        self._job = job
        self._work = work

    @property
    def is_sorted(self) -> bool:
        """Whether all rows of the source are sorted."""
        return self.sorted_rows == self._row_count

    def add(self, piece: Gathered) -> None:
        self.block_rows += piece.block_rows
        self.seen.add(piece.ends, piece.null_counts)
        self.sorted_rows += int(piece.block_rows.sum())
        self.report("sorting rows")

    def report(self, doing: str, share_of_window: float = 0.0) -> None:
        """Tell what is being done. share_of_window: of the rows that are sorted, how many are written."""
        written = self.written_rows + share_of_window * (self.sorted_rows - self.written_rows)
        share = _SORTING * self.sorted_rows + (1.0 - _SORTING) * written
        begin, end = self._work
        self._job.progress(begin + (end - begin) * share / self._row_count, doing)


_Files = dict[int, PartitionFile]
"""By partition."""


@dataclass(frozen=True, slots=True)
class _OnePass:
    """Passes over a source that is known to be read right."""

    job: PartitionJob
    reading: Reading
    spread: Spread

    def write(self, first_written: FirstWritten | None) -> WrittenPartitions:
        """Return what was written: in one pass, or in two where somebody waits for a first part."""
        count, parts = self.job.assignment.file_count, self.job.assignment.partition_count
        first = 0 if first_written is None else max(1, round(_FIRST_SHARE * parts))
        if first_written is None or first == count:
            return WrittenPartitions.of(*self._pass(range(count), (0.0, 1.0)))
        begun, seen = self._pass(range(first), (0.0, _FIRST_WORK))
        first_written(WrittenPartitions.of(begun, seen))
        others, seen = self._pass(range(first, count), (_FIRST_WORK, 1.0))
        return WrittenPartitions.of([*begun, *others], seen)

    def _pass(
        self, chosen: range, work: tuple[float, float]
    ) -> tuple[list[tuple[Partition, Units]], SeenValues]:
        """Write the chosen partitions. Return their entries, and what was seen of all of the source."""
        source, encodings = self.reading.source, self.reading.encodings
        course = Course(self.job, source.row_count, work)
        files = {i: PartitionFile(self.job.file_of(i), encodings) for i in chosen}
        gatherer = Gatherer(self.job.cursor, self.job.assignment, encodings, self.job.key, chosen)
        written: list[tuple[Partition, Units]] = []
        course.report("reading")
        with closing(self.spread(gatherer.gather, source.pieces, self.reading.most_pieces)) as gathered:
            for window in windows(counted(gathered, course), self.reading.plan, encodings):
                if course.is_sorted:
                    written = self._finish(files, window, course)
                else:
                    self._append(files, window, course)
                del window  # its rows, before those of the next one are gathered
        return written, course.seen

    def _append(self, files: _Files, window: Sequence[Gathered], course: Course) -> None:
        """Write a window that is not the last one."""

        def write(partition: int) -> None:
            files[partition].append(piece.of_partition(partition) for piece in window)

        with closing(self.spread(write, files, len(files))) as done:
            for i, _ in enumerate(done):
                course.report("writing rows", i / len(files))
        course.written_rows = course.sorted_rows
        course.report("reading")

    def _finish(
        self, files: _Files, window: Sequence[Gathered], course: Course
    ) -> list[tuple[Partition, Units]]:
        """Write the last window and end the files. Return each one's entry in the manifest, and its units."""

        def write(partition: int) -> tuple[Partition, Units]:
            if not self.job.is_written(course.block_rows[partition].sum()):
                return NO_ROWS, Units.rows(0)
            files[partition].append(piece.of_partition(partition) for piece in window)
            files[partition].close()
            return self._entry(files[partition].path, course.block_rows[partition])

        written, count = [], self.job.assignment.file_count
        with closing(self.spread(write, files, len(files))) as entries:
            for done, i in enumerate(files):
                course.report(f"writing partition {i + 1} of {count}", done / len(files))
                written.append(next(entries))
        return written

    def _entry(self, file: Path, block_rows: IntArray) -> tuple[Partition, Units]:
        with closing(self.job.cursor.another()) as cursor:
            unit = self.job.assignment.unit if self.job.counts_units else ()
            return entry_of(cursor, self.job.target, file, unit, block_rows)


def entry_of(
    cursor: Cursor, target: Writing, file: Path, key: Sequence[str], block_rows: IntArray
) -> tuple[Partition, Units]:
    """Return the entry of a written partition in the manifest, and its units.

    key: SQL of the cluster key's columns; empty where the sampling unit is a row.
    """
    rows = int(block_rows.sum())
    units = units_of_file(cursor, file, key) if key else Units.rows(rows)
    return settled(cursor, target, file, rows, units.count, tuple(block_rows.tolist())), units


def counted(gathered: Iterable[_Piece], course: Course) -> Iterator[_Piece]:
    """Yield what was gathered, once the course knows of it."""
    for piece in gathered:
        course.add(piece)
        yield piece


_ROWS_OF_A_TASK = 1_000_000
_FEWEST_TASKS = 16
_MOST_AHEAD = 1_000
"""Tasks whose results may wait: they are small, since the rows are in files."""


def write_by_tasks(job: PartitionJob, memory_limit_bytes: int, spread: Spread) -> WrittenPartitions | None:
    """Return what was written, or None where the source is not of a kind that this is known to be right for.

    Raises DataError if the source cannot be read, OSError if the disk is full.

    Args:
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
        everything = range(self.assignment.file_count)
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
    count = job.assignment.file_count
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
