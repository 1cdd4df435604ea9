"""What the ranks of a gang train, as it is on a worker: from one step to the next, and the sums between.

What a worker computes of a step: the sums of some of its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.training.elastic.course import (
    BatchRule,
    FixedBatch,
    MiniBatch,
    Order,
    TrainingCourse,
    after,
    next_step,
    norm,
    pieces_of_step,
)
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.kept import KEPT
from relaqs.training.passes import PartitionSource, add_sums, in_pairs
from relaqs.training.rows import ALL, Rows, Sums


class ReadsPieces(Protocol):
    """What gives the rows of pieces: `PieceReader` does."""

    @property
    def order(self) -> Order: ...

    def rows(self, piece: int) -> Rows: ...


@dataclass(slots=True)
class PieceReader:
    """Reads pieces of partitions, for one task or one rank.

    Partitions that the process keeps are taken from there. Others are read by each reader. It lets go of
    those that it used longest ago, where all of them together are beyond the budget of the process.

    Attributes:
        owner: the name by which a read can be interrupted.
        order: where the pieces are.
        sources: of partitions, by their positions in the order.
        reads: how many partitions were read, because the process did not have them.
    """

    owner: str
    order: Order
    sources: Mapping[int, PartitionSource]
    reads: int = 0
    _open: dict[int, tuple[Rows, IntArray]] = field(default_factory=dict)  # the one used last comes last
    _bytes: int = 0  # of what is open
    _lets_go: bool = False

    def rows(self, piece: int) -> Rows:
        """Return the rows of a piece, copied together."""
        partition, first, end = self.order.place(piece)
        rows, places = self._opened(partition)
        picked = places[first:end]
        return Rows(rows.features[picked], None if rows.target is None else rows.target[picked])

    def read_ahead(self) -> bool:
        """Open all partitions that fit into the budget. Return whether these are all there are."""
        for partition in self.sources:
            self._opened(partition)
            if self._lets_go:
                return False
        return True

    def _opened(self, partition: int) -> tuple[Rows, IntArray]:
        if (found := self._open.pop(partition, None)) is None:
            source = self.sources[partition]
            if (rows := source.kept(0, ALL)) is None:
                rows, self.reads = source.read(0, self.owner), self.reads + 1
            found = rows, self._places(partition, source)
            self._bytes += _byte_count(*found)
            self._make_room(source.budget_bytes)
        self._open[partition] = found  # the last one is the one used last
        return found

    def _make_room(self, budget_bytes: int) -> None:
        while self._bytes > budget_bytes and self._open:
            self._bytes -= _byte_count(*self._open.pop(next(iter(self._open))))
            self._lets_go = True

    def _places(self, partition: int, source: PartitionSource) -> IntArray:
        owner = f"{source.data} by {self.order.seed}"
        if (kept := KEPT.get(owner, partition)) is not None:
            return kept["places"][1]
        places = self.order.rows_of(partition)
        KEPT.put(owner, partition, {"places": (0, places)}, source.budget_bytes)
        return places


def _byte_count(rows: Rows, places: IntArray) -> int:
    target_bytes = 0 if rows.target is None else rows.target.nbytes
    return rows.features.nbytes + target_bytes + places.nbytes


def piece_sums(
    job: MiniBatchTraining, state: Any, reader: ReadsPieces, step: int, pieces: Sequence[int] | IntArray
) -> Sums:
    """Return the sums of some neighbouring pieces of a step, added in pairs.

    The last of them is for the noise: Σ |g|²/n over the pieces, g a piece's gradient sums, n its rows.
    """

    def each() -> Iterator[Sums]:
        for piece in pieces:
            rows = reader.rows(int(piece))
            sums = job.partial(state, rows, reader.order.draw(step, int(piece)))
            yield *sums, np.asarray(norm(job.gradients(sums)) / len(rows))

    return in_pairs(each(), add_sums)


MEETING_SECONDS = 2.0  # for a peer to answer, where all that it needs is in its memory
READING_SECONDS = 60.0  # where it may have to read rows first; one that dies is noticed at once all the same


@dataclass(frozen=True, slots=True)
class Lesson:
    """A job and its rows, ready for the next step.

    Attributes:
        rule: who decides how many rows a step has, where the driver does not.
        first: the course before the first step.
        patience_seconds: how long a rank may let its peers wait, at least.
    """

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    first: TrainingCourse
    reader: ReadsPieces
    patience_seconds: float = MEETING_SECONDS

    def next(self, course: TrainingCourse, batch_rows: int | None) -> MiniBatch:
        """Return the next step. batch_rows: how many rows it shall have. None: what the rule says."""
        rule = self.rule if batch_rows is None else FixedBatch(batch_rows)
        return next_step(self.job, rule, self.order, course)

    def steps_left(self, course: TrainingCourse) -> int:
        """Return how many steps lead to the end of the pass, with the rows of the last one."""
        pieces = pieces_of_step(course.batch_rows, self.order.piece_rows)
        return -(-(self.order.piece_count - course.pieces) // pieces)

    def sums(self, course: TrainingCourse, pieces: Sequence[int] | IntArray) -> Sums:
        """Return the sums of some neighbouring pieces of the next step."""
        return piece_sums(self.job, course.state, self.reader, course.step, pieces)

    def after(self, course: TrainingCourse, step: MiniBatch, sums: Sums) -> TrainingCourse:
        """Return the course after a step. sums: of all its pieces."""
        return after(self.job, self.order, course, step, sums)


class Recipe(Protocol):
    """Makes a lesson on a worker: it imports, builds, compiles and reads first rows. It is picklable."""

    def lesson(self, owner: str) -> Lesson:
        """Return it, ready for its first step. owner: the name by which a read can be interrupted."""
        ...


@dataclass(frozen=True, slots=True)
class TableRecipe:
    """The lesson over partitions of tables. sources: of all partitions, by their positions in the order.

    What fits into the budget of a process is read before the first step, because a rank that reads in a step
    keeps its peers waiting.
    """

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    first: TrainingCourse
    sources: Mapping[int, PartitionSource]

    def lesson(self, owner: str) -> Lesson:
        reader = PieceReader(owner, self.order, self.sources)
        patience_seconds = MEETING_SECONDS if reader.read_ahead() else READING_SECONDS
        lesson = Lesson(self.job, self.rule, self.order, self.first, reader, patience_seconds)
        step = lesson.next(self.first, None)
        lesson.sums(self.first, step.pieces[:1])  # imports and compiles what the first step needs
        return lesson
