"""A training by mini-batches as a Job of independent tasks.

While steps are short, one task makes many of them, one after another. When a step takes long, its pieces are
shared out over several tasks, and the driver makes the step of their sums. Both give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.progress import LossDelta
from relaqs.training.elastic.batches import BatchRule
from relaqs.training.elastic.course import MiniBatch, TrainingCourse, after, next_step
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.order import Order, pieces_of_step, subtrees
from relaqs.training.elastic.piece_sums import PieceReader, piece_sums
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.elastic.run_book import NewestModel, PassEnd, RunBook
from relaqs.training.elastic.settings import most_rows
from relaqs.training.elastic.step_log import Rescale
from relaqs.training.first_look import Profiled, profile_works
from relaqs.training.one_thread import one_thread
from relaqs.training.passes import (
    PIECE_ROWS,
    PartitionSource,
    add_sums,
    in_pairs,
)
from relaqs.training.reading import TrainingSet
from relaqs.training.rows import ALL, Rows, Sums
from relaqs.training.spill import SPILL

SAMPLE_ROWS = 10_000
TASK_SECONDS = 0.05  # what a task takes at most, if it makes several steps
SPLIT_SECONDS = 0.02  # a step that takes longer is shared out
LEAST_SECONDS = 0.01  # of a share, which costs about a millisecond to hand out
MOST_MORE = 4  # times the steps of the last task: early times say little


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a task of whole steps gives. reads: the partitions that it had to read."""

    course: TrainingCourse
    steps: tuple[MiniBatch, ...]
    reads: int


@dataclass(frozen=True, slots=True)
class StepsWork:
    """Makes some steps, one after another, to the end of the pass at most."""

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    course: TrainingCourse
    count: int
    sources: Mapping[int, PartitionSource]

    def run(self, owner: str) -> Stepped:
        reader = PieceReader(owner, self.order, self.sources)
        course, steps = self.course, list[MiniBatch]()
        with one_thread():
            while len(steps) < self.count and (not steps or not course.is_between_passes):
                step = next_step(self.job, self.rule, self.order, course)
                sums = piece_sums(self.job, course.state, reader, step.step, step.pieces)
                course = after(self.job, self.order, course, step, sums)
                steps.append(step)
        return Stepped(course, tuple(steps), reader.reads)


@dataclass(frozen=True, slots=True)
class ShareWork:
    """Returns the sums of one share of a step's pieces."""

    job: MiniBatchTraining
    state: Any
    order: Order
    step: int
    pieces: IntArray
    sources: Mapping[int, PartitionSource]

    @property
    def common(self) -> Any:
        return self.state

    def with_common(self, common: Any) -> ShareWork:
        return replace(self, state=common)

    def run(self, owner: str) -> Sums:
        reader = PieceReader(owner, self.order, self.sources)
        with one_thread():
            return piece_sums(self.job, self.state, reader, self.step, self.pieces)


@dataclass(frozen=True, slots=True)
class EvaluateWork:
    """Returns what `evaluate` gives for each of some partitions, and its rows last. None: it has no rows."""

    job: MiniBatchTraining
    state: Any
    source: PartitionSource

    @property
    def common(self) -> Any:
        return self.state

    def with_common(self, common: Any) -> EvaluateWork:
        return replace(self, state=common)

    def run(self, owner: str) -> tuple[Sums | None, ...]:
        return tuple(self._of_partition(offset, owner) for offset in range(len(self.source.reads)))

    def _of_partition(self, offset: int, owner: str) -> Sums | None:
        rows = self.source.kept(offset, ALL) or self.source.read(offset, owner)
        with one_thread():
            sums = [self._of_piece(rows, first) for first in range(0, len(rows), PIECE_ROWS)]
        return in_pairs(sums, add_sums) if sums else None

    def _of_piece(self, rows: Rows, first: int) -> Sums:
        place = slice(first, first + PIECE_ROWS)
        target = None if rows.target is None else rows.target[place]
        piece = Rows(rows.features[place], target)
        sums = self.job.evaluate(self.state, piece)
        return *(np.asarray(each, dtype=np.float64) for each in sums), np.asarray(float(len(piece)))


class StepJob:
    """Steps over a training set by tasks. The first step of the job reads everything and profiles it.

    A report tells the scheduler a loss after each pass; the others only say that the job goes on.
    """

    def __init__(
        self, id: str, job: MiniBatchTraining, data: TrainingSet, rule: BatchRule, *, budget_bytes: int
    ) -> None:
        self.id = id
        self.accuracy = math.nan
        self.passes = 0
        self._book = RunBook(id, job, data, rule, budget_bytes)
        self._data = data
        self._job = job
        self._issued = self._folded = 0
        self._evaluates = False
        self._shared: MiniBatch | None = None
        self._count = 1
        self._step_seconds = math.nan
        self._pass_core_seconds = 0.0
        self._progress = LossDelta()
        SPILL.open(id, data.digest)

    @property
    def name(self) -> str:
        """What is trained, on what, for people."""
        return f"{type(self._job).__name__} on {' '.join(self._job.sql.split())}"

    @property
    def tasks_most(self) -> int:
        """How many tasks a step has at most."""
        return max(1, most_rows(self._job) // max(1, self._job.start_rows))

    @property
    def latest(self) -> NewestModel | None:
        return self._book.latest

    @property
    def journal(self) -> Journal:
        return self._book.journal

    @property
    def batch_rows(self) -> int:
        return self._book.batch_rows

    @property
    def ranks(self) -> int:
        """Over how many tasks the last step was shared."""
        return self._book.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        """None: tasks need no change to be more or fewer."""
        return ()

    def explain(self) -> str:
        return "parameters: whole, with whoever makes the steps"

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        index, self._issued = self._issued, self._issued + 1
        works = self._works()
        return Step(index, tuple(Task(TaskKey(self.id, index, i), work) for i, work in enumerate(works)))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        self._pass_core_seconds += sum(result.core_seconds for result in results)
        end = self._taken(results)
        if end is None:
            return StepReport(step.index, math.inf, None, 0.0, False)
        self.accuracy, self.passes = end.accuracy, self.passes + 1
        core_seconds, self._pass_core_seconds = self._pass_core_seconds, 0.0
        progress = self._progress.update(end.loss)
        return StepReport(step.index, end.loss, None, core_seconds, end.is_final, progress)

    def close(self) -> None:
        """Let go the rows on disk. Those in memory are freed when nobody asks for them."""
        SPILL.close(self.id, self._data.digest)

    def _works(self) -> list[Work]:
        course = self._book.course
        if course is None:
            return self._profile_works()
        if self._evaluates:
            return [EvaluateWork(self._job, course.state, each) for each in self._book.held_out_sources()]
        return self._step_works(course)

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        if self._step_seconds > SPLIT_SECONDS and len(shares := self._shares(course)) > 1:
            return shares
        count = int(min(self._count, self._book.steps_left))
        return [StepsWork(self._job, self._book.rule, self._book.order, course, count, self._near(course))]

    def _profile_works(self) -> list[Work]:
        return profile_works(self._data.reads, self._book.source_of, SAMPLE_ROWS)

    def _shares(self, course: TrainingCourse) -> list[Work]:
        """Return the tasks of one step that is shared out."""
        book = self._book
        step = self._shared = next_step(self._job, book.rule, book.order, course)
        most = 1 << max(0, math.floor(math.log2(self._step_seconds / LEAST_SECONDS)))
        shares = [step.pieces[share] for share in subtrees(len(step.pieces), min(most, len(step.pieces)))]
        return [
            ShareWork(self._job, course.state, book.order, step.step, pieces, self._sources(pieces))
            for pieces in shares
            if len(pieces)
        ]

    def _near(self, course: TrainingCourse) -> dict[int, PartitionSource]:
        """Return the sources of the partitions that the next steps of a task may touch."""
        order = self._book.order
        rows = max(most_rows(self._job), self._book.rule.rows(course))  # of a step
        most = pieces_of_step(rows, order.piece_rows) * self._count
        return self._sources(order.of_pass(course.passes)[course.pieces : course.pieces + most])

    def _sources(self, pieces: IntArray) -> dict[int, PartitionSource]:
        return self._book.sources({self._book.order.place(int(piece))[0] for piece in pieces})

    def _taken(self, results: Sequence[TaskResult]) -> PassEnd | None:
        """Take in the results, and return what a pass gave that has ended with them."""
        values: list[Any] = [result.value for result in results]
        book = self._book
        if book.course is None:
            book.begin(Profiled.of(values))
            return None
        if self._evaluates:
            self._evaluates = False
            found = [sums for partitions in values for sums in partitions if sums is not None]
            return book.end_of_pass(in_pairs(found, add_sums) if found else None)
        self._take_made(values, results)
        return self._end()

    def _take_made(self, values: Sequence[Any], results: Sequence[TaskResult]) -> None:
        """Take in steps that were made."""
        core_seconds = sum(result.core_seconds for result in results)
        if isinstance(values[0], Stepped):
            self._take_steps(values[0], core_seconds)
        else:
            self._take_shares(values, core_seconds)

    def _take_steps(self, stepped: Stepped, core_seconds: float) -> None:
        self._book.made(stepped.course, stepped.steps, ranks=1)
        made = len(stepped.steps)
        if stepped.reads:
            self._count = MOST_MORE * made  # reading was most of it
            return
        self._step_seconds = core_seconds / made
        wanted = int(TASK_SECONDS / max(self._step_seconds, 1e-9))
        self._count = max(1, min(wanted, MOST_MORE * self._count))

    def _take_shares(self, sums: Sequence[Sums], core_seconds: float) -> None:
        book, step = self._book, self._shared
        assert step is not None
        assert book.course is not None
        with one_thread():
            course = after(self._job, book.order, book.course, step, in_pairs(sums, add_sums))
        self._step_seconds = core_seconds
        book.made(course, [step], ranks=len(sums))

    def _end(self) -> PassEnd | None:
        course = self._book.course
        assert course is not None
        if not course.is_between_passes and self._book.steps_left > 0:
            return None
        if self._book.held_out and course.is_between_passes:
            self._evaluates = True
            return None
        return self._book.end_of_pass(None)
