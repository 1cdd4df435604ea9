"""Writing the partitions in one pass: the source is read once, in windows that fit into memory.

    piece: a row group of the source ── sorted by partition ──┐
    piece ── sorted by partition ─────────────────────────────┤ a window
    …                                                         ┘
    partition: its rows of each piece of the window, in order ── one row group of its file

Decoding, sorting and encoding are spread over the caller's threads; what is written does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import IntArray

from relaqs_engine.layouts.encodings import Encodings, probed
from relaqs_engine.layouts.gathering import MOST_PARTITIONS, Gathered, Gatherer
from relaqs_engine.layouts.manifest import BLOCK_COUNT, Partition
from relaqs_engine.layouts.parquet import settled
from relaqs_engine.layouts.partition_file import PartitionFile
from relaqs_engine.layouts.partitions import NO_ROWS, PartitionJob, Units, WrittenPartitions, units_of_file
from relaqs_engine.layouts.pieces import Pieces, pieces_of
from relaqs_engine.layouts.spread import Spread
from relaqs_engine.layouts.statistics import SeenValues
from relaqs_engine.layouts.windows import TooManyTextsError, WindowPlan, planned, windows

_SHARE_OF_MEMORY = 0.5
"""Of the memory limit, for the rows of a window; the rest is for reading, encoding and counting them."""
_SHARE_UNDER_WAY = 0.2
"""Of the memory limit, for pieces that are being sorted, or wait for those before them."""
_SORTING = 0.6
"""Of the work on a row; encoding it is the rest."""


def write_in_one_pass(job: PartitionJob, memory_limit_bytes: int, spread: Spread) -> WrittenPartitions | None:
    """Return what was written, or None where the source is not of a kind that this is known to be right for.

    Then nothing is left of it. Raises DataError if the source cannot be read, OSError if the disk is full.
    """
    if job.assignment.partition_count > MOST_PARTITIONS or (source := pieces_of(job.source)) is None:
        return None
    encodings = probed(source, job.key)
    largest_bytes = encodings.bytes_per_row * max(piece.row_count for piece in source.pieces)
    most_pieces = int(_SHARE_UNDER_WAY * memory_limit_bytes / largest_bytes)
    if most_pieces == 0:
        return None
    plan = planned(source.pieces, encodings.bytes_per_row, _SHARE_OF_MEMORY * memory_limit_bytes)
    try:
        with _memory_of_the_system():
            return _OnePass(job, source, encodings, plan, spread).write(most_pieces)
    except TooManyTextsError:
        for file in job.target.parts.iterdir():
            file.unlink()
        return None


@contextmanager
def _memory_of_the_system() -> Iterator[None]:
    """Let Arrow take its memory from the C library inside the block.

    Each piece frees what the next one needs. Arrow's usual allocator gives it back to the system at once, and
    fetching it again takes a fifth of the whole time.
    """
    usual, plain = pa.default_memory_pool(), pa.system_memory_pool()
    pa.set_memory_pool(plain)
    try:
        yield
    finally:
        pa.set_memory_pool(usual)
        plain.release_unused()


class _Course:
    """How far the work is, and what is known of the rows so far.

    block_rows: of shape (partitions, BLOCK_COUNT).
    """

    def __init__(self, job: PartitionJob, row_count: int) -> None:
        self.block_rows: IntArray = np.zeros((job.assignment.partition_count, BLOCK_COUNT), dtype=np.int64)
        self.seen = SeenValues()
        self.sorted_rows = 0
        self.written_rows = 0
        self._row_count = row_count
        self._job = job

    @property
    def is_sorted(self) -> bool:
        """Whether all rows of the source are sorted."""
        return self.sorted_rows == self._row_count

    def add(self, piece: Gathered) -> None:
        self.block_rows += piece.block_rows
        self.seen.add(piece.ends, piece.null_counts)
        self.sorted_rows += piece.rows.num_rows
        self.report("sorting rows")

    def report(self, doing: str, share_of_window: float = 0.0) -> None:
        """Tell what is being done. share_of_window: of the rows that are sorted, how many are written."""
        written = self.written_rows + share_of_window * (self.sorted_rows - self.written_rows)
        share = _SORTING * self.sorted_rows + (1.0 - _SORTING) * written
        self._job.progress(share / self._row_count, doing)


@dataclass(frozen=True, slots=True)
class _OnePass:
    """One pass over a source that is known to be read right."""

    job: PartitionJob
    source: Pieces
    encodings: Encodings
    plan: WindowPlan
    spread: Spread

    def write(self, most_pieces: int) -> WrittenPartitions:
        """Return what was written. most_pieces: how many may be sorted before they are needed."""
        course = _Course(self.job, self.source.row_count)
        files = [
            PartitionFile(self.job.file_of(i), self.encodings)
            for i in range(self.job.assignment.partition_count)
        ]
        gatherer = Gatherer(self.job.cursor, self.job.assignment, self.encodings, self.job.key)
        written: list[tuple[Partition, Units]] = []
        course.report("reading")
        with closing(self.spread(gatherer.gather, self.source.pieces, most_pieces)) as gathered:
            for window in windows(_counted(gathered, course), self.plan, self.encodings):
                if course.is_sorted:
                    written = self._finish(files, window, course)
                else:
                    self._append(files, window, course)
                del window  # its rows, before those of the next one are gathered
        return WrittenPartitions.of(written, course.seen)

    def _append(self, files: Sequence[PartitionFile], window: Sequence[Gathered], course: _Course) -> None:
        """Write a window that is not the last one."""

        def write(partition: int) -> None:
            files[partition].append(piece.of_partition(partition) for piece in window)

        with closing(self.spread(write, range(len(files)), len(files))) as done:
            for i, _ in enumerate(done):
                course.report("writing rows", i / len(files))
        course.written_rows = course.sorted_rows
        course.report("reading")

    def _finish(
        self, files: Sequence[PartitionFile], window: Sequence[Gathered], course: _Course
    ) -> list[tuple[Partition, Units]]:
        """Write the last window and end the files. Return each one's entry in the manifest, and its units."""

        def write(partition: int) -> tuple[Partition, Units]:
            if not self.job.is_written(course.block_rows[partition].sum()):
                return NO_ROWS, Units.rows(0)
            files[partition].append(piece.of_partition(partition) for piece in window)
            files[partition].close()
            return self._entry(files[partition].path, course.block_rows[partition])

        written, count = [], len(files)
        with closing(self.spread(write, range(count), count)) as entries:
            for i in range(count):
                course.report(f"writing partition {i + 1} of {count}", i / count)
                written.append(next(entries))
        return written

    def _entry(self, file: Path, block_rows: IntArray) -> tuple[Partition, Units]:
        rows = int(block_rows.sum())
        with closing(self.job.cursor.another()) as cursor:
            units = (
                units_of_file(cursor, file, self.job.assignment.unit)
                if self.job.counts_units
                else Units.rows(rows)
            )
            counts = tuple(block_rows.tolist())
            return settled(cursor, self.job.target, file, rows, units.count, counts), units


def _counted(gathered: Iterable[Gathered], course: _Course) -> Iterator[Gathered]:
    for piece in gathered:
        course.add(piece)
        yield piece
