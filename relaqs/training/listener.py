"""What hears of each pass of a run: it keeps them, and says when the model is good enough.

What a run needs of a job that trains a model.

A run's stop option is met by the required accuracy, or by the best accuracy that is to be expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from relaqs.jobs.executor import Stopwatch
from relaqs.jobs.handle import RunListener
from relaqs.jobs.job import Job, StepReport
from relaqs.jobs.runner import RunningJobs
from relaqs.prediction.accuracy import accuracy_ahead
from relaqs.progress import PIXEL, StopReason, StopRules, curve_pixels
from relaqs.sharing.view import AccuracySoFar, Goals, Stop
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.turns import Rescale
from relaqs.training.goals import TrainingOptions
from relaqs.training.parted.cut import PlacedPart
from relaqs.training.sharded.subtask_seconds import SubtaskSeconds


class AccuracyWatch:
    """Keeps the accuracies of one run after its passes, and what they promise.

    Args:
        goals: of the run.
        passes_most: the passes at the end of the run; inf where none is known.

    >>> watch = AccuracyWatch(Goals(accuracy=0.8, stop=Stop.REQUIRED), passes_most=math.inf)
    >>> for accuracy in (0.6, 0.7, 0.85):
    ...     watch.take(accuracy)
    >>> watch.reason().value, watch.so_far.newest
    ('required accuracy reached', 0.85)
    """

    def __init__(self, goals: Goals, passes_most: float) -> None:
        self._goals = goals
        self._passes_most = passes_most
        self._accuracies: list[float] = []
        self.so_far: AccuracySoFar | None = None
        """What the scheduler is told; None where no accuracy was measured."""
        self.may_be_ended = False
        """Whether a cluster with too few cores may have ended the run, at some pass so far."""

    def take(self, accuracy: float) -> None:
        """Note the accuracy after one more pass. NaN: it is not measured."""
        if math.isnan(accuracy):
            return
        self._accuracies.append(accuracy)
        required, most = np.array([self._goals.accuracy]), np.array([self._passes_most])
        ahead = accuracy_ahead(np.array([self._accuracies]), required, most)
        self.so_far = AccuracySoFar(accuracy, bool(ahead.is_best[0]), float(ahead.passes_needed[0]))
        at_required = self._has_required and self._goals.may_end(Stop.REQUIRED)
        self.may_be_ended |= at_required or (self.so_far.is_best and self._goals.may_end(Stop.BEST))

    def reason(self) -> StopReason | None:
        """Return why the run may stop by its own stop option, or None: go on."""
        if self.so_far is None or self._goals.stop is Stop.ITERATIONS:
            return None
        if self._goals.stop is Stop.REQUIRED:
            return StopReason.REQUIRED_ACCURACY if self._has_required else None
        if not self.so_far.is_best:
            return None
        is_in_reach = max(self._accuracies) >= self._goals.accuracy or math.isnan(self._goals.accuracy)
        return StopReason.BEST_ACCURACY if is_in_reach else StopReason.OUT_OF_REACH

    @property
    def _has_required(self) -> bool:
        return self.so_far is not None and self.so_far.newest >= self._goals.accuracy


class FittedModel(Protocol):
    """A model of a run, and all it takes to make an estimator of it."""

    def estimator(self) -> Any: ...


class ModelJob(Job, Protocol):
    """A job that trains a model: by passes over all rows, or by mini-batches."""

    @property
    def name(self) -> str: ...

    @property
    def tasks_most(self) -> int: ...

    @property
    def latest(self) -> FittedModel | None: ...

    @property
    def passes(self) -> int:
        """How many passes have given a loss."""
        ...

    @property
    def accuracy(self) -> float:
        """The accuracy after the last pass, NaN where it is not measured."""
        ...

    @property
    def batch_rows(self) -> int | None: ...

    @property
    def ranks(self) -> int | None: ...

    @property
    def rescales(self) -> tuple[Rescale, ...]: ...

    @property
    def journal(self) -> Journal | None: ...

    def explain(self) -> str:
        """Return where the parameters are, and why."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class JobInParts(Protocol):
    """A job whose model is cut into parts."""

    @property
    def placement(self) -> tuple[PlacedPart, ...]: ...

    def move(self, stage: int, replica: int, worker: str) -> None: ...


@runtime_checkable
class JobInShards(Protocol):
    """A job whose parameters may lie in shards."""

    @property
    def subtask_seconds(self) -> SubtaskSeconds | None: ...


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One pass over the data.

    Attributes:
        loss: of the best model so far. By mini-batches: the mean over the pass, or on the rows held out.
        core_seconds: what the pass used.
        elapsed_seconds: since the run was submitted.
        accuracy: of a classifier on the rows that are held out; NaN where none are.

    >>> TrainingStep(loss=0.25, core_seconds=1.5, elapsed_seconds=0.8).loss
    0.25
    """

    loss: float
    core_seconds: float
    elapsed_seconds: float
    accuracy: float = math.nan


class TrainingListener(RunListener[TrainingStep]):
    """Keeps what each pass gave, and says when the model is good enough.

    Args:
        job: the model in training.
        options: what the user asked for.
        stopwatch: counts since the run was submitted.
        running: the jobs of the session.
    """

    def __init__(
        self, job: ModelJob, options: TrainingOptions, stopwatch: Stopwatch, running: RunningJobs | None
    ) -> None:
        rules = StopRules(options.target_loss, pixels=None if options.chart_pixels is None else PIXEL)
        super().__init__(job.id, rules, running)
        self.job = job
        self.steps: list[TrainingStep] = []
        self._chart_pixels = options.chart_pixels or 0
        self._max_steps = options.max_steps
        self._stopwatch = stopwatch
        self._accuracy = AccuracyWatch(options.goals.of_job, options.passes_most)

    def should_stop(self, report: StepReport) -> bool:
        """Whether the model is good enough, or this was the last pass allowed."""
        if not self._ends_pass():
            return False
        self._accuracy.take(self.job.accuracy)
        self.stop_reason = self.stop_reason or self._accuracy.reason()
        if self._has_reason([*self.losses, report.quality]) or self.job.passes == self._max_steps:
            return True
        return self.stop_reason is not None

    def folded(self, report: StepReport) -> StepReport:
        if self._ends_pass():
            step = TrainingStep(
                report.quality, report.core_seconds, self._stopwatch.seconds(), self.job.accuracy
            )
            self.steps.append(step)
            self.feed.publish(step)
        return replace(report, accuracy=self._accuracy.so_far)

    def ended_by_plan(self) -> None:
        if self._accuracy.may_be_ended:
            self.stop_reason = self.stop_reason or StopReason.OVERLOAD

    def _ends_pass(self) -> bool:
        """Whether the report in hand is that of a pass. The first look at the data is none."""
        return self.job.passes > len(self.steps)

    def is_good_enough(self) -> bool:
        return bool(self.steps) and self._has_reason(self.losses)

    def _release(self) -> None:
        self.job.close()

    @property
    def losses(self) -> list[float]:
        return [step.loss for step in self.steps]

    def _has_reason(self, losses: Sequence[float]) -> bool:
        return self._may_stop(losses[-1], curve_pixels(losses, self._chart_pixels))
