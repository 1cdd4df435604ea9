"""What the driver of a run keeps: the course, the journal, the newest model, and when the run ends."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.training.elastic.batches import BatchRule
from relaqs.training.elastic.course import MiniBatch, TrainingCourse, first_course
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.order import Order, piece_rows_of
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.first_look import Profiled
from relaqs.training.passes import PartitionSource
from relaqs.training.profile import Profile
from relaqs.training.reading import TrainingSet
from relaqs.training.rows import Sums

LOOK_ROWS = 50_000  # that a task looks at, about, in small partitions: a task costs some milliseconds


@dataclass(frozen=True, slots=True)
class NewestModel:
    """The model of a run as it is now, and all it takes to make an estimator of it."""

    job: MiniBatchTraining
    profile: Profile
    state: Any

    def estimator(self) -> Any:
        return self.job.estimator(self.profile, self.state)


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
    def latest(self) -> NewestModel | None:
        if self.course is None or self._profile is None or not self.course.step:
            return None
        return NewestModel(self.job, self._profile, self.course.state)

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

    def begin(self, look: Profiled) -> None:
        """Take in the first look at the data."""
        rows = look.row_counts[: len(look.row_counts) - self._held_out]
        if not sum(rows):
            raise DataError("the SELECT of the training job returns no rows; there is nothing to learn from")
        check_start_rows(self.job, sum(rows))
        self._profile = look.profile
        self._order = Order(rows, piece_rows_of(self.job.start_rows), self.job.seed)
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
    if job.start_rows > rows:
        raise ArgumentError(
            f"start_rows is {job.start_rows}, but there are {rows} rows to train on; give fewer"
        )
