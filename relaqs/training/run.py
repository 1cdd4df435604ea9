"""TrainingRun: the user's handle of a model in training. Watch its losses, steer it, take the model."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal

from relaqs_engine.errors import RelaqsError

from relaqs.jobs.description import JobDescription
from relaqs.jobs.executor import Executor
from relaqs.jobs.job import StepReport
from relaqs.jobs.runner import JobRunner, RunState, stop_when_forgotten
from relaqs.jobs.stopping import PIXEL, StopReason, StopRules, curve_pixels
from relaqs.options import check_priority, check_seconds
from relaqs.sharing.view import Kind
from relaqs.training.arguments import check_count, check_loss
from relaqs.training.loss_job import LossJob

TrainingState = Literal["waiting", "running", "paused", "stopped", "converged", "failed"]


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """The keyword arguments of `Session.train`. Raises ArgumentError naming the first one not accepted."""

    priority: float = 1.0
    target_loss: float | None = None
    timeout: float | None = None
    max_steps: int | None = None
    chart_pixels: int | None = None

    def __post_init__(self) -> None:
        check_priority(self.priority)
        if self.target_loss is not None:
            check_loss("target_loss", self.target_loss)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        for name in ("max_steps", "chart_pixels"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One pass over the data. loss: of the best model so far. elapsed_seconds: since it was submitted."""

    loss: float
    core_seconds: float
    elapsed_seconds: float


class _RunProgress:
    """What the runner's thread writes and the handle reads. It knows the job and not the handle."""

    def __init__(self, job: LossJob, options: TrainingOptions, elapsed_seconds: Callable[[], float]) -> None:
        self.job = job
        self.steps: list[TrainingStep] = []
        self.stop_reason: StopReason | None = None
        self._rules = StopRules(options.target_loss, pixels=None if options.chart_pixels is None else PIXEL)
        self._chart_pixels = options.chart_pixels or 0
        self._max_steps = options.max_steps
        self._elapsed_seconds = elapsed_seconds

    @property
    def target_loss(self) -> float | None:
        return self._rules.target

    @target_loss.setter
    def target_loss(self, loss: float | None) -> None:
        self._rules = replace(self._rules, target=loss)

    def should_stop(self, report: StepReport) -> bool:
        """Whether the model is good enough, or this was the last pass allowed. Step 0 is no pass."""
        return self._has_reason([*self.losses, report.quality]) or report.step == self._max_steps

    def on_report(self, report: StepReport) -> None:
        if self.job.latest is not None:
            step = TrainingStep(report.quality, report.core_seconds, self._elapsed_seconds())
            self.steps.append(step)

    @property
    def losses(self) -> list[float]:
        return [step.loss for step in self.steps]

    def is_good_enough(self) -> bool:
        return bool(self.steps) and self._has_reason(self.losses)

    def _has_reason(self, losses: Sequence[float]) -> bool:
        change_pixels = curve_pixels(losses, self._chart_pixels)
        reason = self._rules.reason(losses[-1], change_pixels)
        self.stop_reason = self.stop_reason or reason
        return reason is not None


class TrainingRun:
    """A model that is being trained, better and better.

    Leaving a `with` stops it; so do ctrl-C while waiting for its result, and dropping the last reference to
    it. runner: drives the job, and outlives this handle by a task.
    """

    def __init__(
        self,
        job: LossJob,
        executor: Executor,
        options: TrainingOptions,
        *,
        elapsed_seconds: Callable[[], float],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Set the run up. elapsed_seconds: since it was submitted. on_end: called when it is over."""
        progress = _RunProgress(job, options, elapsed_seconds)
        timer: threading.Timer | None = None

        def end() -> None:
            if timer is not None:
                timer.cancel()
            job.close()
            on_end()

        runner = JobRunner(
            job,
            executor,
            JobDescription(
                job.id,
                Kind.TRAINING,
                name=job.name,
                weight=options.priority,
                cores_most=job.tasks_most,
                work_total=math.inf if options.max_steps is None else options.max_steps,
                target=options.target_loss,
            ),
            on_report=progress.on_report,
            should_stop=progress.should_stop,
            on_end=end,
        )

        def out_of_time() -> None:
            progress.stop_reason = progress.stop_reason or StopReason.TIME
            runner.stop()

        if options.timeout is not None:
            timer = threading.Timer(options.timeout, out_of_time)
            timer.daemon = True
        self._timer = timer
        self._progress = progress
        self.runner = runner
        stop_when_forgotten(self, runner)

    def start(self) -> None:
        """Begin to train, once."""
        self.runner.start()
        if self._timer is not None:
            self._timer.start()

    @property
    def id(self) -> str:
        return self._progress.job.id

    @property
    def state(self) -> TrainingState:
        """One of waiting, running, paused; at the end stopped, converged or failed."""
        return _STATES[self.runner.state]

    @property
    def steps(self) -> tuple[TrainingStep, ...]:
        """The passes made so far, but for the first look at the data, which has no loss."""
        return tuple(self._progress.steps)

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss after each pass, in the algorithm's own unit."""
        return tuple(self._progress.losses)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run stopped by itself before it converged: at its target, in time, nothing left to see."""
        return self._progress.stop_reason

    @property
    def latest(self) -> Any:
        """The best model so far as a fitted estimator, a new one each time; None before the first loss."""
        fitted = self._progress.job.latest
        return None if fitted is None else fitted.estimator()

    @property
    def target_loss(self) -> float | None:
        """The loss to stop at. Set it at any time; one already reached stops the run."""
        return self._progress.target_loss

    @target_loss.setter
    def target_loss(self, loss: float | None) -> None:
        self._progress.target_loss = None if loss is None else check_loss("target_loss", loss)
        self.runner.set_target(self._progress.target_loss)
        if self._progress.is_good_enough():
            self.stop()

    @property
    def priority(self) -> float:
        """The run's weight: with 2.0 it gets twice the cores of one with 1.0. Set it at any time."""
        return self.runner.weight

    @priority.setter
    def priority(self, priority: float) -> None:
        self.runner.weight = check_priority(priority)

    def pause(self) -> None:
        """Start no more passes; the one that runs is finished. The timeout goes on."""
        self.runner.pause()

    def resume(self) -> None:
        self.runner.resume()

    def stop(self) -> None:
        """End the run with the model it has. Returns at once; its cores are free within one task."""
        self.runner.stop()

    def result(self, timeout: float | None = None) -> Any:
        """Return the fitted estimator once the run has converged or was stopped; then it is over.

        timeout: in seconds; when they are over, the run is stopped and the best model so far returned.
        Raises whatever made the run fail, and RelaqsError if there is no model yet.
        """
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        try:
            self.runner.wait(seconds)
        finally:
            self.stop()
        self.runner.wait()
        if self.runner.error is not None:
            raise self.runner.error
        if self._progress.job.latest is None:
            raise RelaqsError(
                "training ended before the first pass over the data was complete; allow it more time"
            )
        return self.latest

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the run is over and its cores are free, within the timeout in seconds."""
        return self.runner.wait(timeout)

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        reached = f", loss {self.losses[-1]:.6g} after {len(self.steps)} passes" if self.steps else ""
        return f"<TrainingRun {self.state}{reached}>"


_STATES: dict[RunState, TrainingState] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "converged",
    RunState.FAILED: "failed",
}
