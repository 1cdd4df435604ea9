"""What the ranks of a gang train, as it is on a worker: from one step to the next, and the sums between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relaqs_bootstrap.arrays import IntArray

from relaqs.training.elastic.batches import BatchRule, FixedBatch
from relaqs.training.elastic.course import MiniBatch, TrainingCourse, after, next_step
from relaqs.training.elastic.order import Order, pieces_of_step
from relaqs.training.elastic.piece_sums import PieceReader, ReadsPieces, piece_sums
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.passes import PartitionSource
from relaqs.training.rows import Sums

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
