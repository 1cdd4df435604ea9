"""A training by mini-batches as a Job of independent tasks.

While steps are short, one task makes many of them, one after another. When a step takes long, its pieces
are shared out over several tasks, and the driver makes the step of their sums. Both give the same bits.
A model that makes whole steps itself (`WholeSteps`) is never shared out.

What the driver of a run keeps: the course, the journal, the newest model, and when the run ends.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import IntArray
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.progress import LossDelta
from relaqs.training.elastic.course import (
    BatchRule,
    Journal,
    MiniBatch,
    Order,
    Rescale,
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
    PartitionSource,
    Profiled,
    SavedJob,
    TrainedModel,
    add_sums,
    in_pairs,
    one_thread,
    profile_works,
)
from relaqs.training.protocol import Learner, MiniBatchTraining, WholeSteps, most_rows
from relaqs.training.row_cache import SPILL
from relaqs.training.rows import ALL, Profile, Rows, Sums, TrainingSet

LOOK_ROWS = 50_000  # that a task looks at, about, in small partitions: a task costs some milliseconds


@dataclass(frozen=True, slots=True)
class PassEnd:
    """What a pass gave. accuracy: of held-out rows, NaN where there are none or no classes."""

    loss: float
    accuracy: float
    is_final: bool


class RunBook:
    """Keeps what happened in a run by mini-batches. Whoever carries the run tells it.

    Args:
        run_id: of the run.
        job: what is trained.
        data: its partitions. The last ones are held out, where the job wants that.
        rule: who decides how many rows a step has.
        budget_bytes: what a worker process may keep in memory.

    Attributes:
        course: where the run stands; None before the first look at the data.
    """

    def __init__(
        self, run_id: str, job: MiniBatchTraining, data: TrainingSet, rule: BatchRule, budget_bytes: int
    ) -> None:
        self._run_id = run_id
        self.job, self.rule, self._data = job, rule, data
        self.course: TrainingCourse | None = None
        self._order: Order | None = None
        self._profile: Profile | None = None
        self._budget_bytes = budget_bytes
        self._held_out = held_out_partitions(job, data)
        self._rows, self._rates, self._ranks = array("q"), array("d"), array("q")
        self._best_loss, self._idle_passes = math.inf, 0

    @property
    def order(self) -> Order:
        assert self._order is not None
        return self._order

    @property
    def latest(self) -> TrainedModel | None:
        if self.course is None or self._profile is None or not self.course.step:
            return None
        return TrainedModel(self.job, self._profile, self.course.state)

    @property
    def journal(self) -> Journal:
        return Journal(*(np.array(column) for column in (self._rows, self._rates, self._ranks)))

    @property
    def steps(self) -> int:
        """How many steps were made."""
        return len(self._rows)

    @property
    def ranks(self) -> int:
        """How many ranks the last step had; 0 before it."""
        return self._ranks[-1] if self._ranks else 0

    @property
    def batch_rows(self) -> int:
        """The rows of the last step, or of the first one before that."""
        return self._rows[-1] if self._rows else self.job.start_rows

    @property
    def feature_count(self) -> int:
        assert self._profile is not None
        return len(self._profile.names)

    @property
    def held_out(self) -> range:
        """The partitions that are not trained on."""
        return range(len(self._data.reads) - self._held_out, len(self._data.reads))

    @property
    def steps_left(self) -> float:
        most = self.rule.steps_most
        return math.inf if most is None else most - self.steps

    def saved(self) -> tuple[Any, ...] | None:
        """Return what `restore` goes on from; None before the first look at the data is over."""
        if self.course is None:
            return None
        journal = (self._rows, self._rates, self._ranks)
        return (self.course, self._order, self._profile, journal, self._best_loss, self._idle_passes)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go on from there."""
        self.course, self._order, self._profile, journal, self._best_loss, self._idle_passes = saved
        self._rows, self._rates, self._ranks = journal

    def begin(self, look: Profiled) -> None:
        """Take in the first look at the data."""
        rows = look.row_counts[: len(look.row_counts) - self._held_out]
        if not sum(rows):
            raise DataError("the SELECT of the training job returns no rows; there is nothing to learn from")
        check_start_rows(self.job, sum(rows))
        self._profile = look.profile
        is_whole = isinstance(self.job, WholeSteps)  # nobody adds up its pieces: a step is one
        piece_rows = self.job.start_rows if is_whole else piece_rows_of(self.job.start_rows)
        self._order = Order(rows, piece_rows, self.job.seed)
        self.course = first_course(self.job, self.job.begin(self._profile))

    def made(self, course: TrainingCourse, steps: Iterable[MiniBatch], ranks: int) -> None:
        """Take in steps that were made, and the course after the last one."""
        for step in steps:
            self._rows.append(step.batch_rows)
            self._rates.append(step.rate)
            self._ranks.append(ranks)
        self.course = course

    def passed(self, course: TrainingCourse, journal: Journal) -> None:
        """Take in the course after a pass, and the steps that led there from the one before."""
        assert course.step == self.steps + len(journal), (course.step, self.steps, len(journal))
        self._rows.extend(journal.batch_rows.tolist())
        self._rates.extend(journal.rates.tolist())
        self._ranks.extend(journal.ranks.tolist())
        self.course = course

    def end_of_pass(self, held_out: Sums | None) -> PassEnd:
        """Return what the pass gave that is just over. held_out: the sums over held-out rows, rows last."""
        assert self.course is not None
        accuracy = math.nan
        if held_out is None:
            loss = self.course.loss_sum / max(self.course.loss_rows, 1)
        else:
            *sums, rows = (float(each) for each in held_out)
            loss = sums[0] / max(rows, 1.0)
            accuracy = sums[1] / max(rows, 1.0) if len(sums) > 1 else math.nan
        return PassEnd(loss, accuracy, self._ends(loss))

    def _ends(self, loss: float) -> bool:
        """Return whether the run is over, by the rule of scikit-learn's estimators."""
        assert self.course is not None
        self._idle_passes = 0 if loss <= self._best_loss - self.job.tolerance else self._idle_passes + 1
        self._best_loss = min(self._best_loss, loss)
        if self.rule.steps_most is not None:
            return self.steps_left <= 0
        return self._idle_passes >= self.job.patience_passes or self.course.passes >= self.job.passes_most

    def source(self, partition: int) -> PartitionSource:
        """Return where a partition's rows come from."""
        return self.source_of(range(partition, partition + 1))

    def held_out_sources(self) -> Iterator[PartitionSource]:
        """Yield where the held-out rows come from: small partitions together, for a task each."""
        held_out = self.held_out
        rows = np.cumsum([self._data.reads[partition].row_count for partition in held_out])
        tasks = np.ceil(rows / LOOK_ROWS)
        for task in np.unique(tasks):
            own = np.flatnonzero(tasks == task) + held_out.start
            yield self.source_of(range(int(own[0]), int(own[-1]) + 1))

    def source_of(self, partitions: range) -> PartitionSource:
        """Return where the rows of neighbours come from."""
        reads = self._data.reads[partitions.start : partitions.stop]
        return PartitionSource(self._run_id, self._data.digest, self._budget_bytes, partitions.start, reads)

    def sources(self, partitions: Iterable[int]) -> dict[int, PartitionSource]:
        return {partition: self.source(partition) for partition in partitions}


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
        job = self._job
        what = job.label if isinstance(job, WholeSteps) else type(job).__name__
        return f"{what} on {' '.join(job.sql.split())}"

    @property
    def tasks_most(self) -> int:
        """How many tasks a step has at most."""
        if isinstance(self._job, WholeSteps):
            return 1
        return max(1, most_rows(self._job) // max(1, self._job.start_rows))

    @property
    def latest(self) -> TrainedModel | None:
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

    def saved(self) -> SavedJob | None:
        """Return what `restore` goes on from; None before the first look at the data is over."""
        if (book := self._book.saved()) is None:
            return None
        state = (book, self._evaluates, self.accuracy, self._progress)
        return SavedJob(self.passes, self._data.digest, state)

    def restore(self, saved: SavedJob) -> None:
        """Go on from what a job like this saved. Only at the beginning. Raises RelaqsError: of other rows."""
        book, self._evaluates, self.accuracy, self._progress = saved.checked(self._data)
        self.passes = saved.passes
        self._book.restore(book)

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
        is_slow = self._step_seconds > SPLIT_SECONDS and not isinstance(self._job, WholeSteps)
        if is_slow and len(shares := self._shares(course)) > 1:
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
