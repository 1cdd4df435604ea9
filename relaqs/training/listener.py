"""What hears of each pass of a run: it keeps them, and says when the model is good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaqs.jobs.handle import RunListener
from relaqs.jobs.job import StepReport
from relaqs.jobs.runner import RunningJobs
from relaqs.jobs.stopping import PIXEL, StopReason, StopRules, curve_pixels
from relaqs.jobs.threads import Stopwatch
from relaqs.training.accuracy_watch import AccuracyWatch
from relaqs.training.model_job import ModelJob
from relaqs.training.options import TrainingOptions


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
