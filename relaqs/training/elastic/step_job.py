"""A training by mini-batches as a Job of independent tasks.

While steps are short, one task makes many of them, one after another. When a step takes long, its pieces
are shared out over several tasks, and the driver makes the step of their sums. Both give the same bits.
A model that makes whole steps itself (`WholeSteps`) is never shared out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import IntArray
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.jobs.job import Step, StepReport, TaskResult, Work
from relaqs.training.elastic.course import (
    BatchRule,
    Journal,
    MiniBatch,
    Order,
    StepLog,
    TrainingCourse,
    advanced,
    after,
    first_course,
    next_step,
    piece_rows_of,
    pieces_of_step,
    subtrees,
)
from relaqs.training.elastic.rank import PieceReader, piece_sums
from relaqs.training.passes import (
    PIECE_ROWS,
    ModelJob,
    PartitionSource,
    Profiled,
    RunRows,
    SavedJob,
    TrainedModel,
    add_sums,
    in_pairs,
    one_thread,
    profile_works,
)
from relaqs.training.protocol import Learner, MiniBatchTraining, WholeSteps, most_rows
from relaqs.training.rows import ALL, NOTHING_TO_LEARN, Rows, Sums, TrainingSet

LOOK_ROWS = 50_000  # that a task looks at, about, in small partitions: a task costs some milliseconds


@dataclass(frozen=True, slots=True)
class PassEnd:
    """What a pass gave. accuracy: of held-out rows, NaN where there are none or no classes."""

    loss: float
    accuracy: float
    is_final: bool


def held_out_partitions(job: MiniBatchTraining, data: TrainingSet) -> int:
    """Return how many partitions are held out. Raises ArgumentError where none would be left."""
    count = len(data.reads)
    held = max(1, round(job.held_out * count)) if job.held_out else 0
    if held >= count:
        raise ArgumentError(
            f"held_out is {job.held_out}, which is {held} of the {count} partitions of the data; "
            "give a smaller share, or lay the table out in more partitions"
        )
    return held


def check_start_rows(job: MiniBatchTraining, rows: int) -> None:
    """Raise ArgumentError where a first step would have more rows than there are."""
    if job.start_rows > rows and not isinstance(job, WholeSteps):  # a larger step is a pass
        raise ArgumentError(
            f"start_rows is {job.start_rows}, but there are {rows} rows to train on; give fewer"
        )


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
        job = self.job
        with one_thread():
            learner = job.learner(course.state) if isinstance(job, WholeSteps) else None
            while len(steps) < self.count and (not steps or not course.is_between_passes):
                step = next_step(job, self.rule, self.order, course)
                if learner is None:
                    sums = piece_sums(job, course.state, reader, step.step, step.pieces)
                    course = after(job, self.order, course, step, sums)
                else:
                    course = self._learned(learner, course, step, reader)
                steps.append(step)
            if learner is not None:
                course = replace(course, state=learner.state())
        return Stepped(course, tuple(steps), reader.reads)

    def _learned(
        self, learner: Learner, course: TrainingCourse, step: MiniBatch, reader: PieceReader
    ) -> TrainingCourse:
        """Return the course after a whole step, but for its state: the learner has it."""
        rows = Rows.joined([reader.rows(int(piece)) for piece in step.pieces])
        loss = learner.step(rows, self.order.draw(step.step, int(step.pieces[0])))
        return advanced(self.job, self.order, course, step, loss, None, course.noise)


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
        piece = rows.part(slice(first, first + PIECE_ROWS))
        sums = self.job.evaluate(self.state, piece)
        return *(np.asarray(each, dtype=np.float64) for each in sums), np.asarray(float(len(piece)))


class StepJob(ModelJob):
    """Steps over a training set by tasks. The first step of the job reads everything and profiles it.

    A report tells the scheduler a loss after each pass; the others only say that the job goes on.
    """

    _job: MiniBatchTraining

    def __init__(self, rows: RunRows, job: MiniBatchTraining, rule: BatchRule) -> None:
        super().__init__(rows, job, held_out_partitions(job, rows.data))
        self._rule = rule
        self._course: TrainingCourse | None = None  # where it is; None before the first look at the data
        self._order: Order
        self._log = StepLog()
        self._best_loss, self._idle_passes = math.inf, 0
        self._evaluates = False
        self._shared: MiniBatch | None = None
        self._count = 1
        self._step_seconds = math.nan
        self._pass_core_seconds = 0.0

    @property
    def tasks_most(self) -> int:
        if isinstance(self._job, WholeSteps):
            return 1
        return max(1, most_rows(self._job) // max(1, self._job.start_rows))

    @property
    def latest(self) -> TrainedModel | None:
        if (course := self._course) is None or self._profile is None or not course.step:
            return None
        return TrainedModel(self._job, self._profile, course.state)

    @property
    def journal(self) -> Journal:
        return self._log.journal()

    @property
    def batch_rows(self) -> int:
        """The rows of the last step, or of the first one before that."""
        return self._log.batch_rows or self._job.start_rows

    @property
    def ranks(self) -> int:
        """Over how many tasks the last step was shared; 0 before it."""
        return self._log.ranks

    def explain(self) -> str:
        return "parameters: whole, with whoever makes the steps"

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

    def saved(self) -> SavedJob | None:
        if self._course is None:
            return None
        steps = self._log.columns
        kept = self._course, self._order, self._profile, steps, self._best_loss, self._idle_passes
        state = (kept, self._evaluates, self.accuracy, self._progress)
        return SavedJob(self.passes, self._data.digest, state)

    def restore(self, saved: SavedJob) -> None:
        kept, self._evaluates, self.accuracy, self._progress = saved.checked(self._data)
        self.passes = saved.passes
        self._course, self._order, self._profile, steps, self._best_loss, self._idle_passes = kept
        self._log.add(*steps)

    def _works(self) -> list[Work]:
        course = self._course
        if course is None:
            return profile_works(self._data.reads, self._source, SAMPLE_ROWS)
        if self._evaluates:
            return [EvaluateWork(self._job, course.state, each) for each in self._held_out_sources()]
        return self._step_works(course)

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        is_slow = self._step_seconds > SPLIT_SECONDS and not isinstance(self._job, WholeSteps)
        if is_slow and len(shares := self._shares(course)) > 1:
            return shares
        count = int(min(self._count, self._steps_left))
        return [StepsWork(self._job, self._rule, self._order, course, count, self._near(course))]

    @property
    def _steps_left(self) -> float:
        most = self._rule.steps_most
        return math.inf if most is None else most - self._log.end

    def _held_out_sources(self) -> Iterator[PartitionSource]:
        """Yield where the held-out rows come from: small partitions together, for a task each."""
        rows = np.cumsum([read.row_count for read in self._data.reads[self._trained :]])
        tasks = np.ceil(rows / LOOK_ROWS)
        for task in np.unique(tasks):
            own = np.flatnonzero(tasks == task) + self._trained
            yield self._source(range(int(own[0]), int(own[-1]) + 1))

    def _shares(self, course: TrainingCourse) -> list[Work]:
        """Return the tasks of one step that is shared out."""
        step = self._shared = next_step(self._job, self._rule, self._order, course)
        most = 1 << max(0, math.floor(math.log2(self._step_seconds / LEAST_SECONDS)))
        shares = [step.pieces[share] for share in subtrees(len(step.pieces), min(most, len(step.pieces)))]
        return [
            ShareWork(self._job, course.state, self._order, step.step, pieces, self._sources_of(pieces))
            for pieces in shares
            if len(pieces)
        ]

    def _near(self, course: TrainingCourse) -> dict[int, PartitionSource]:
        """Return the sources of the partitions that the next steps of a task may touch."""
        order = self._order
        rows = max(most_rows(self._job), self._rule.rows(course))  # of a step
        most = pieces_of_step(rows, order.piece_rows) * self._count
        return self._sources_of(order.of_pass(course.passes)[course.pieces : course.pieces + most])

    def _sources_of(self, pieces: IntArray) -> dict[int, PartitionSource]:
        return self._sources({self._order.place(int(piece))[0] for piece in pieces})

    def _sources(self, partitions: Iterable[int]) -> dict[int, PartitionSource]:
        return {each: self._source(range(each, each + 1)) for each in partitions}

    def _taken(self, results: Sequence[TaskResult]) -> PassEnd | None:
        """Take in the results, and return what a pass gave that has ended with them."""
        values: list[Any] = [result.value for result in results]
        if self._course is None:
            self._begin(Profiled.of(values))
            return None
        if self._evaluates:
            self._evaluates = False
            found = [sums for partitions in values for sums in partitions if sums is not None]
            return self._end_of_pass(in_pairs(found, add_sums) if found else None)
        self._take_made(values, results)
        return self._end()

    def _begin(self, look: Profiled) -> None:
        """Take in the first look at the data."""
        rows = look.row_counts[: self._trained]
        if not sum(rows):
            raise DataError(NOTHING_TO_LEARN)
        job = self._job
        check_start_rows(job, sum(rows))
        self._profile = look.profile
        is_whole = isinstance(job, WholeSteps)  # nobody adds up its pieces: a step is one
        piece_rows = job.start_rows if is_whole else piece_rows_of(job.start_rows)
        self._order = Order(rows, piece_rows, job.seed)
        self._course = first_course(job, job.begin(self._profile))

    def _take_made(self, values: Sequence[Any], results: Sequence[TaskResult]) -> None:
        """Take in steps that were made."""
        core_seconds = sum(result.core_seconds for result in results)
        if isinstance(values[0], Stepped):
            self._take_steps(values[0], core_seconds)
        else:
            self._take_shares(values, core_seconds)

    def _take_steps(self, stepped: Stepped, core_seconds: float) -> None:
        self._note(stepped.course, stepped.steps, ranks=1)
        made = len(stepped.steps)
        if stepped.reads:
            self._count = MOST_MORE * made  # reading was most of it
            return
        self._step_seconds = core_seconds / made
        wanted = int(TASK_SECONDS / max(self._step_seconds, 1e-9))
        self._count = max(1, min(wanted, MOST_MORE * self._count))

    def _take_shares(self, sums: Sequence[Sums], core_seconds: float) -> None:
        step, course = self._shared, self._course
        assert step is not None
        assert course is not None
        with one_thread():
            course = after(self._job, self._order, course, step, in_pairs(sums, add_sums))
        self._step_seconds = core_seconds
        self._note(course, [step], ranks=len(sums))

    def _note(self, course: TrainingCourse, steps: Iterable[MiniBatch], ranks: int) -> None:
        """Note steps that were made, and the course after the last one."""
        for step in steps:
            self._log.add([step.batch_rows], [step.rate], [ranks])
        self._course = course

    def _end(self) -> PassEnd | None:
        course = self._course
        assert course is not None
        if not course.is_between_passes and self._steps_left > 0:
            return None
        if self._trained < len(self._data.reads) and course.is_between_passes:
            self._evaluates = True
            return None
        return self._end_of_pass(None)

    def _end_of_pass(self, held_out: Sums | None) -> PassEnd:
        """Return what the pass gave that is just over. held_out: the sums over held-out rows, rows last."""
        assert self._course is not None
        accuracy = math.nan
        if held_out is None:
            loss = self._course.loss_sum / max(self._course.loss_rows, 1)
        else:
            *sums, rows = (float(each) for each in held_out)
            loss = sums[0] / max(rows, 1.0)
            accuracy = sums[1] / max(rows, 1.0) if len(sums) > 1 else math.nan
        return PassEnd(loss, accuracy, self._ends(loss, self._course.passes))

    def _ends(self, loss: float, passes: int) -> bool:
        """Return whether the run is over, by the rule of scikit-learn's estimators."""
        self._idle_passes = 0 if loss <= self._best_loss - self._job.tolerance else self._idle_passes + 1
        self._best_loss = min(self._best_loss, loss)
        if self._rule.steps_most is not None:
            return self._steps_left <= 0
        return self._idle_passes >= self._job.patience_passes or passes >= self._job.passes_most
