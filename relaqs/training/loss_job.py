"""The loss adapter: a training run as an iterative Job. A step is one pass, its quality the loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.errors import DataError

from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.progress.loss_delta import LossDelta
from relaqs.training.kept import KEPT
from relaqs.training.passes import (
    FIRST_PIECES,
    PIECE_ROWS,
    PartitionSource,
    PassWork,
    ProfileWork,
    Summed,
    add_sums,
    in_pairs,
    pieces_of,
    pieces_per_task,
    sample_rows,
)
from relaqs.training.profile import Profile
from relaqs.training.protocol import SizedPieces, Training, TrainingJob
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


class LossJob:
    """Passes over a training set, one after another: the next model depends on all of the last pass.

    The first step reads everything and profiles it; it has no loss yet. The job has no end that is known
    beforehand, so `work_done` is None. budget_bytes: what a worker process may keep in memory between passes.
    """

    accuracy = math.nan
    batch_rows = None
    journal = None
    ranks = None
    rescales = ()

    def __init__(self, id: str, job: TrainingJob, data: TrainingSet, *, budget_bytes: int) -> None:
        self.id = id
        self.latest: BestModel | None = None
        self._job = job
        self._data = data
        self._budget_bytes = budget_bytes
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
        return len(self._data.reads) * self._pieces_of(read.row_count for read in self._data.reads)

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        index, self._issued = self._issued, self._issued + 1
        works = self._profile_works() if self._training is None else self._pass_works(self._training)
        return Step(index, tuple(Task(TaskKey(self.id, index, i), work) for i, work in enumerate(works)))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        core_seconds = sum(result.core_seconds for result in results)
        values: list[Any] = [result.value for result in results]
        loss, is_final = float("inf"), False
        if self._training is None:
            self._begin(in_pairs(values, Profile.merged))
        else:
            assert self._profile is not None
            fold = self._training.fold(in_pairs([summed.sums for summed in values], add_sums))
            loss, is_final = fold.loss, fold.is_final
            self.passes += 1
            self.latest = BestModel(self._job, self._profile, fold.model)
            self._per_task = self._grouped(core_seconds, values)
        progress = self._progress.update(loss)
        return StepReport(step.index, loss, None, core_seconds, is_final, progress)

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
        partitions = len(self._data.reads)
        self._cut = self._pieces_of([-(-profile.row_count // partitions)])
        fits = profile.row_count * (len(self._data.names) + 1) * 8 <= self._budget_bytes
        self._per_task = min(self._cut, FIRST_PIECES) if fits else self._cut

    def _pieces_of(self, row_counts: Iterable[int]) -> int:
        job = self._job
        return pieces_of(tuple(row_counts), job.piece_rows if isinstance(job, SizedPieces) else PIECE_ROWS)

    def _profile_works(self) -> list[Work]:
        rows = sample_rows([read.row_count for read in self._data.reads], SAMPLE_ROWS)
        return [
            ProfileWork(self._source(i, i + 1), tuple(rows[i : i + 1])) for i in range(len(self._data.reads))
        ]

    def _pass_works(self, training: Training) -> list[Work]:
        model, cut, size = training.model, self._cut, self._per_task
        count = len(self._data.reads) * cut
        return [
            PassWork(self._job, model, self._source(i // cut, -(-end // cut)), cut, i, end)
            for i in range(0, count, size)
            if (end := min(i + size, count))
        ]

    def _grouped(self, core_seconds: float, values: Sequence[Summed]) -> int:
        """Return how many pieces the next pass's tasks have, by what this pass took.

        Whole partitions at least, where some had to be read: each task would read its partition again.
        """
        least = self._cut if any(summed.reads for summed in values) else 1
        return max(least, pieces_per_task(core_seconds, len(self._data.reads) * self._cut))

    def _source(self, first: int, end: int) -> PartitionSource:
        return PartitionSource(
            self.id, self._data.digest, self._budget_bytes, first, self._data.reads[first:end]
        )
