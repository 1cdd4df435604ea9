"""The loss adapter: a training run as an iterative Job. A step is one pass, its quality the loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.errors import DataError

from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.progress import LossDelta
from relaqs.training.first_look import Profiled, profile_works
from relaqs.training.kept import KEPT
from relaqs.training.passes import (
    FIRST_PIECES,
    PIECE_ROWS,
    Examined,
    PartitionSource,
    PassWork,
    Summed,
    SumsRows,
    add_sums,
    in_pairs,
    pieces_of,
    pieces_per_task,
)
from relaqs.training.profile import Profile
from relaqs.training.protocol import Fold, SizedPieces, TellsClasses, Training, TrainingJob
from relaqs.training.reading import TrainingSet
from relaqs.training.spill import SPILL

SAMPLE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class BestModel:
    """The best model of a run so far, and all it takes to make an estimator of it."""

    job: TrainingJob
    profile: Profile
    model: Any

    def estimator(self) -> Any:
        return self.job.estimator(self.profile, self.model)


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass over the data whose accuracy is not known yet."""

    fold: Fold
    core_seconds: float


class LossJob:
    """Passes over a training set, one after another: the next model depends on all of the last pass.

    The first step reads everything and profiles it; it has no loss yet. The job has no end that is known
    beforehand, so `work_done` is None. Where partitions are held out, one more step after each pass has the
    accuracy of its model on them, and the pass is reported then.

    Args:
        budget_bytes: what a worker process may keep in memory between passes.
        held_out: how many partitions, the last ones, are not trained on. The job then `TellsClasses`.
    """

    batch_rows = None
    journal = None
    ranks = None
    rescales = ()

    def __init__(
        self, id: str, job: TrainingJob, data: TrainingSet, *, budget_bytes: int, held_out: int = 0
    ) -> None:
        self.id = id
        self.latest: BestModel | None = None
        self._job = job
        self._data = data
        self._budget_bytes = budget_bytes
        self._trained = len(data.reads) - held_out  # partitions that are trained on
        self._unreported: _Pass | None = None
        self.accuracy = math.nan
        self._profile: Profile | None = None
        self._training: Training | None = None
        self._cut = self._per_task = 1  # until it is known how many rows there are
        self.passes = 0
        self._issued = 0
        self._folded = 0
        self._progress = LossDelta()
        SPILL.open(id, data.digest)

    @property
    def name(self) -> str:
        """What is trained, on what, for people."""
        return f"{type(self._job).__name__} on {' '.join(self._job.sql.split())}"

    @property
    def tasks_most(self) -> int:
        """How many tasks a pass has at most: one a piece of a partition, if the SELECT keeps all its rows."""
        return self._trained * self._pieces_of(read.row_count for read in self._data.reads)

    def explain(self) -> str:
        return "parameters: whole, in the client"

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        index, self._issued = self._issued, self._issued + 1
        works = self._works()
        return Step(index, tuple(Task(TaskKey(self.id, index, i), work) for i, work in enumerate(works)))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        core_seconds = sum(result.core_seconds for result in results)
        values: list[Any] = [result.value for result in results]
        if self._training is None:
            self._begin(Profiled.of(values).profile)
            return StepReport(
                step.index, math.inf, None, core_seconds, False, self._progress.update(math.inf)
            )
        sums = in_pairs([summed.sums for summed in values], add_sums)
        if self._unreported is not None:
            made, self._unreported = self._unreported, None
            right, rows = (float(each) for each in sums)
            if not rows:
                raise DataError(
                    f"the {len(self._data.reads) - self._trained} partitions held out have no rows of "
                    "the SELECT; give a larger held_out, or a SELECT of more rows"
                )
            self.accuracy = right / rows
            return self._reported(step, made, made.core_seconds + core_seconds)
        self._per_task = self._grouped(core_seconds, values)
        fold = self._training.fold(sums)
        made = _Pass(fold, core_seconds)
        if self._trained == len(self._data.reads):
            return self._reported(step, made, core_seconds)
        self._unreported = made
        return StepReport(step.index, math.inf, None, 0.0, False)

    def _reported(self, step: Step, made: _Pass, core_seconds: float) -> StepReport:
        """Return the report of a pass that is complete, and take over its model."""
        assert self._profile is not None
        fold = made.fold
        self.passes += 1
        self.latest = BestModel(self._job, self._profile, fold.model)
        progress = self._progress.update(fold.loss)
        return StepReport(step.index, fold.loss, None, core_seconds, fold.is_final, progress)

    def close(self) -> None:
        """Free what the run holds here. Other processes free what they keep of it after a while."""
        KEPT.forget(self.id)
        SPILL.close(self.id, self._data.digest)
        if self._training is not None:
            self._training.close()

    def _begin(self, profile: Profile) -> None:
        if not profile.row_count:
            raise DataError("the SELECT of the training job returns no rows; there is nothing to learn from")
        self._profile = profile
        self._training = self._job.begin(profile)
        # By the rows that the SELECT keeps, as even in all partitions as chance makes them: pieces of a few
        # rows would cost more to call than to compute.
        self._cut = self._pieces_of([-(-profile.row_count // self._trained)])
        fits = profile.row_count * (len(self._data.names) + 1) * 8 <= self._budget_bytes
        self._per_task = min(self._cut, FIRST_PIECES) if fits else self._cut

    def _pieces_of(self, row_counts: Iterable[int]) -> int:
        job = self._job
        return pieces_of(tuple(row_counts), job.piece_rows if isinstance(job, SizedPieces) else PIECE_ROWS)

    def _profile_works(self) -> list[Work]:
        return profile_works(self._data.reads[: self._trained], self._source, SAMPLE_ROWS)

    def _works(self) -> list[Work]:
        """Return the tasks of the next step: a first look at the rows, a pass, or the accuracy after it."""
        if self._training is None:
            return self._profile_works()
        trained, cut = self._trained, self._cut
        if self._unreported is None:
            return self._pass_works(self._job, self._training.model, range(0, trained * cut, self._per_task))
        assert isinstance(self._job, TellsClasses)
        pieces = range(trained * cut, len(self._data.reads) * cut, cut)
        return self._pass_works(Examined(self._job), self._unreported.fold.model, pieces)

    def _pass_works(self, job: SumsRows, model: Any, pieces: range) -> list[Work]:
        """Return the tasks that sum over some pieces. pieces: the first one of each task."""
        cut = self._cut
        return [
            PassWork(job, model, self._source(range(i // cut, -(-end // cut))), cut, i, end)
            for i in pieces
            if (end := min(i + pieces.step, pieces.stop))
        ]

    def _grouped(self, core_seconds: float, values: Sequence[Summed]) -> int:
        """Return how many pieces the next pass's tasks have, by what this pass took.

        Whole partitions at least, where some had to be read: each task would read its partition again.
        """
        least = self._cut if any(summed.reads for summed in values) else 1
        return max(least, pieces_per_task(core_seconds, self._trained * self._cut))

    def _source(self, partitions: range) -> PartitionSource:
        reads = self._data.reads[partitions.start : partitions.stop]
        return PartitionSource(self.id, self._data.digest, self._budget_bytes, partitions.start, reads)
