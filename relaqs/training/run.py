"""TrainingRun: the user's handle of a model in training, with what was asked of it and its passes so far.

- `TrainingOptions` are what a user may ask: an accuracy, a deadline, a kind of batch. All is checked before
  a run starts.
- `TrainingListener` hears of each pass, keeps it as a `TrainingStep`, and says when the model is good
  enough: at the target loss, at the required accuracy, at the best accuracy that is to be expected
  (`AccuracyWatch`), or when the chart of losses moves by less than a pixel.
- `TrainingRun` is the handle: losses, models so far, pause, priority, stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from relaqs_engine.errors import RelaqsError

from relaqs.arguments import (
    ArgumentError,
    check_loss,
    check_priority,
    check_seconds,
    check_whole,
    is_number,
    refusal,
)
from relaqs.jobs.checkpoint import SECONDS_BETWEEN, RunKeeper
from relaqs.jobs.executor import Executor, Stopwatch
from relaqs.jobs.handle import Handle, RunListener, check_strictly, lacking_loss, late
from relaqs.jobs.job import JobDescription, StepReport
from relaqs.jobs.runner import JobRunner, RunningJobs, RunState
from relaqs.progress import PIXEL, StopReason, StopRules, curve_pixels
from relaqs.sharing.view import LEAST_URGENCY, MOST_URGENCY, AccuracySoFar, Goals, Kind, Stop
from relaqs.training.passes import ModelJob, PlacedPart, SavedJob, SubtaskSeconds
from relaqs.training.protocol import MiniBatchTraining, TellsClasses, TrainingJob

if TYPE_CHECKING:
    from relaqs.training.elastic.course import Journal, Rescale
    from relaqs.training.parted.placing import ModelParts

StopWord: TypeAlias = Literal["iterations", "best", "required"]
HELD_OUT = 0.05  # of the partitions, where accuracy is measured and nothing else was said


Batch: TypeAlias = "int | Literal['elastic'] | Journal | None"
"""How many rows a mini-batch has: a number, "elastic", or what a journal says. None: the job's own number."""

ParametersWord = Literal["auto", "client", "sharded"]
"""Where parameters are between passes."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """What is asked of a run. `TrainArguments` says what each means.

    Raises:
        ArgumentError: naming the first that is not accepted.

    >>> TrainingOptions(urgency=0)
    Traceback (most recent call last):
        ...
    relaqs.arguments.ArgumentError: urgency is 0; it must be a number from 1, no hurry, to 10
    """

    batch: Batch = None
    parameters: ParametersWord = "auto"
    priority: float = 1.0
    target_loss: float | None = None
    timeout: float | None = None
    max_steps: int | None = None
    chart_pixels: int | None = None
    deadline: float | None = None
    accuracy: float | None = None
    urgency: float = LEAST_URGENCY
    stop: StopWord = "iterations"
    may_stop: Sequence[StopWord] = ()
    held_out: float | None = None
    parts: int | ModelParts | None = None
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = SECONDS_BETWEEN

    def __post_init__(self) -> None:
        check_priority(self.priority)
        if self.target_loss is not None:
            check_loss("target_loss", self.target_loss)
        for name in ("timeout", "deadline"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        for name in ("max_steps", "chart_pixels"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        if self.accuracy is not None and not (is_number(self.accuracy) and 0 < self.accuracy <= 1):
            raise refusal("accuracy", self.accuracy, "a share of rows above 0 and up to 1, such as 0.95")
        if not is_number(self.urgency) or not LEAST_URGENCY <= self.urgency <= MOST_URGENCY:
            raise refusal("urgency", self.urgency, "a number from 1, no hurry, to 10")
        words = get_args(StopWord)
        if self.stop not in words:
            raise refusal("stop", self.stop, " or ".join(map(repr, words)))
        if isinstance(self.may_stop, str) or not all(each in words[1:] for each in self.may_stop):
            raise refusal("may_stop", self.may_stop, 'some of "best" and "required", such as ("required",)')
        if self.accuracy is None and "required" in (self.stop, *self.may_stop):
            name = "stop" if self.stop == "required" else "may_stop"
            raise ArgumentError(
                f"{name} is {getattr(self, name)!r}, but no accuracy is required; give accuracy=0.95, or say "
                '"best"'
            )
        if self.held_out is not None and not (is_number(self.held_out) and 0 < self.held_out < 1):
            raise refusal(
                "held_out", self.held_out, "a share of the partitions between 0 and 1, such as 0.05"
            )

    @property
    def passes_most(self) -> float:
        """After how many passes the run ends, inf where that is not said."""
        return math.inf if self.max_steps is None else self.max_steps

    @property
    def goals(self) -> Goals:
        """What the scheduler is told of accuracy."""
        return Goals(
            accuracy=math.nan if self.accuracy is None else self.accuracy,
            urgency=float(self.urgency),
            stop=Stop[self.stop.upper()],
            may_stop=frozenset(Stop[each.upper()] for each in self.may_stop),
        )

    @property
    def asking(self) -> str | None:
        """The first argument for which accuracy must be measured, with its value."""
        asked = {
            "accuracy": self.accuracy,
            "stop": None if self.stop == "iterations" else self.stop,
            "may_stop": tuple(self.may_stop) or None,
            "held_out": self.held_out,
        }
        return next((f"{name} is {value!r}" for name, value in asked.items() if value is not None), None)

    def held_out_of(self, job: TrainingJob | MiniBatchTraining, partitions: int) -> int:
        """Return how many of so many partitions a job by passes does not train on.

        Raises ArgumentError where the job has no accuracy, or no partition would be left to train on.
        """
        if self.asking is None:
            return 0
        if isinstance(job, MiniBatchTraining):
            self._check_mini_batches(job)
            return 0
        if not isinstance(job, TellsClasses):
            raise ArgumentError(self._without_accuracy(job))
        share = HELD_OUT if self.held_out is None else self.held_out
        held = max(1, round(share * partitions))
        if held >= partitions:
            raise ArgumentError(
                f"{self.asking}, for which {held} of the {partitions} partitions would be held out; "
                "lay the table out in more partitions"
            )
        return held

    def _check_mini_batches(self, job: MiniBatchTraining) -> None:
        if not getattr(job, "tells_classes", False):
            raise ArgumentError(self._without_accuracy(job))
        if self.held_out is not None:
            raise ArgumentError(
                f"held_out is {self.held_out!r}, but {type(job).__name__} has a held_out of its own; "
                f"give it there: {type(job).__name__}(…, held_out={self.held_out!r})"
            )
        if not job.held_out:
            raise ArgumentError(
                f"{self.asking}, but {type(job).__name__} holds no rows out to measure accuracy on; "
                f"give {type(job).__name__}(…, held_out={HELD_OUT})"
            )

    def _without_accuracy(self, job: object) -> str:
        return (
            f"{self.asking}, but {type(job).__name__} tells no classes and has no accuracy; "
            "use target_loss, or chart_pixels to stop when nothing moves"
        )


class AccuracyWatch:
    """Keeps the accuracies of one run after its passes, and what they promise.

    Args:
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
        from relaqs.prediction.accuracy import accuracy_ahead  # few runs measure their accuracy

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
    def is_missing(self) -> bool:
        """Whether the newest accuracy is less than what is required."""
        return not math.isnan(self._goals.accuracy) and not self._has_required

    @property
    def _has_required(self) -> bool:
        return self.so_far is not None and self.so_far.newest >= self._goals.accuracy


class GivenModel(Protocol):
    """The model that a user gave, where another one is fitted for it."""

    def fitted(self, estimator: Any, passes: int) -> Any:
        """Return it with what was fitted. passes: how many that took."""
        ...


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


@dataclass(frozen=True, slots=True)
class SavedTraining:
    """What a run goes on from in another process.

    Attributes:
        steps: the passes before.
        elapsed_seconds: since the run was submitted.
    """

    job: SavedJob
    steps: tuple[TrainingStep, ...]
    elapsed_seconds: float


class TrainingListener(RunListener[TrainingStep]):
    """Keeps what each pass gave, and says when the model is good enough.

    Args:
        stopwatch: counts since the run was submitted.
        keeper: keeps the run's state, and has the one that it goes on from.
    """

    def __init__(
        self,
        job: ModelJob,
        options: TrainingOptions,
        stopwatch: Stopwatch,
        running: RunningJobs | None,
        keeper: RunKeeper | None,
    ) -> None:
        rules = StopRules(options.target_loss, pixels=None if options.chart_pixels is None else PIXEL)
        super().__init__(job.id, rules, running, keeper)
        self.job = job
        self.steps: list[TrainingStep] = []
        self._chart_pixels = options.chart_pixels or 0
        self._max_steps = options.max_steps
        self._required = options.accuracy or 0.0
        self._stopwatch = stopwatch
        self._accuracy = AccuracyWatch(options.goals, options.passes_most)
        if (saved := self.keeper.restored()) is not None:
            self._restore(saved)

    def _restore(self, saved: SavedTraining) -> None:
        self.job.restore(saved.job)
        self._stopwatch.earlier_seconds = saved.elapsed_seconds
        for step in saved.steps:
            self.steps.append(step)
            self._accuracy.take(step.accuracy)

    def saved(self) -> SavedTraining | None:
        if (job := self.job.saved()) is None:
            return None
        return SavedTraining(job, tuple(self.steps[: job.passes]), self._stopwatch.seconds())

    def should_stop(self, report: StepReport) -> bool:
        """Whether the model is good enough, or this was the last pass allowed."""
        if not self._ends_pass():
            return False
        self._accuracy.take(self.job.accuracy)
        self.stop_reason = self.stop_reason or self._accuracy.reason()
        if not self._has_reason([*self.losses, report.quality]) and self.job.passes == self._max_steps:
            self.stop_reason = self.stop_reason or StopReason.PASSES
        return self.stop_reason is not None

    def folded(self, report: StepReport) -> StepReport:
        if self._ends_pass():
            step = TrainingStep(
                report.quality, report.core_seconds, self._stopwatch.seconds(), self.job.accuracy
            )
            self.steps.append(step)
            self.feed.publish(step)
        if not report.is_final and self.stop_reason is None:  # else it would go on behind its end
            self.keeper.keep_if_due(self.saved)
        return replace(report, accuracy=self._accuracy.so_far)

    @property
    def lacking_accuracy(self) -> str | None:
        """What to say of an accuracy below what is required; None of one that is not."""
        if not self._accuracy.is_missing:
            return None
        return f"the accuracy is {self.job.accuracy:.4g}, not {self._required:g} or more"

    @property
    def reason_at_end(self) -> StopReason:
        """Why the job has no more steps."""
        if self.job.passes == self._max_steps:
            return StopReason.PASSES
        has_loss = self.target is None or (bool(self.steps) and self.steps[-1].loss <= self.target)
        return StopReason.MISSED if not has_loss or self._accuracy.is_missing else StopReason.CONVERGED

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


TrainingState = Literal["waiting", "running", "paused", "stopped", "converged", "failed"]


class TrainingRun(Handle[TrainingStep]):
    """A model that is being trained, better and better. Steer it as a query: `pause`, `priority`, `stop` …

    Each `for` or `async for` gets the newest step each time round; all of them are in `steps`. Leaving a
    `with` stops the run. So do ctrl-C while waiting, and dropping the last reference to it.

    The examples of its methods go on from this one:

    >>> from relaqs.training import LinearRegression
    >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"))
    >>> for step in run:
    ...     pass
    >>> run.state, step.loss == run.losses[-1], len(run.steps) == len(run.losses)
    ('converged', True, True)
    """

    def __init__(
        self,
        job: ModelJob,
        executor: Executor,
        options: TrainingOptions,
        *,
        stopwatch: Stopwatch,
        running: RunningJobs | None = None,
        given: GivenModel | None = None,
        keeper: RunKeeper | None = None,
    ) -> None:
        """Set the run up.

        Args:
            given: the model that the user gave, if that is not what the job fits.
            keeper: keeps the run's state, and has the one that it goes on from.
        """
        self._given = given
        description = JobDescription(
            job.id,
            Kind.TRAINING,
            name=job.name,
            weight=options.priority,
            cores_most=job.tasks_most,
            work_total=options.passes_most,
            target=options.target_loss,
            deadline_seconds=math.inf if options.deadline is None else options.deadline,
            goals=options.goals,
            is_abreast=job.is_abreast,
        )
        self._deadline_seconds = None if options.deadline is None else float(options.deadline)
        self._progress = TrainingListener(job, options, stopwatch, running, keeper)
        self._stopwatch = stopwatch
        runner = JobRunner(job, executor, description, self._progress, timeout_seconds=options.timeout)
        super().__init__(runner, self._progress)

    @property
    def state(self) -> TrainingState:
        """One of waiting, running, paused; at the end stopped, converged or failed.

        >>> run.state
        'converged'
        """
        return _STATES[self.runner.state]

    @property
    def steps(self) -> tuple[TrainingStep, ...]:
        """The passes made so far. The first look at the data is left out, because it has no loss.

        >>> run.steps[-1].loss == run.losses[-1]
        True
        """
        return tuple(self._progress.steps)

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss after each pass, in the algorithm's own unit.

        >>> len(run.losses) == len(run.steps)
        True
        """
        return tuple(self._progress.losses)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run is over; None while it is not.

        At its target or accuracy, in time, after its passes, with no visible change, because the cluster is
        overloaded or somebody stopped it, or since it has converged. It says so where it has converged before
        it got what was asked for, and where that came after the deadline.

        >>> from relaqs.training import LinearRegression
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), target_loss=1e9)
        >>> model = run.result()
        >>> run.stop_reason.value
        'target reached'
        """
        if self.state not in _REASONS:
            return self._progress.stop_reason
        reason = self._progress.stop_reason or _REASONS[self.state]
        if reason is StopReason.CONVERGED:
            reason = self._progress.reason_at_end
        return reason.by(self._deadline_seconds, self._seconds)

    @property
    def _seconds(self) -> float:
        """How long it has taken, to its end."""
        return self._stopwatch.seconds(self._progress.ended_seconds)

    @property
    def shortfall(self) -> str | None:
        """What was asked for and has not come, for people; None where all has, or the run is not over.

        >>> import duckdb, relaqs
        >>> from relaqs.training import LinearRegression
        >>> points = duckdb.sql("SELECT x, x % 2 AS y FROM range(1000) AS t(x)")
        >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), target_loss=0.1)
        >>> model = run.result()
        >>> run.shortfall
        'the loss is 0.249999, not 0.1 or less'
        """
        if self.state not in _REASONS:
            return None
        loss = lacking_loss(self.losses[-1] if self.steps else math.inf, self.target)
        time = late(self._deadline_seconds, self._seconds)
        return "; ".join(filter(None, (loss, self._progress.lacking_accuracy, time))) or None

    @property
    def accuracy(self) -> float:
        """The share of the held-out rows that `latest` tells rightly. NaN where accuracy is not measured.

        >>> from relaqs.training import LogisticRegression
        >>> job = LogisticRegression("SELECT x, late FROM points", target="late")
        >>> run = db.train(job, accuracy=0.9, stop="required")
        >>> model = run.result()
        >>> run.accuracy >= 0.9, run.stop_reason.value
        (True, 'required accuracy reached')
        """
        return self._progress.job.accuracy

    @property
    def deadline_seconds(self) -> float | None:
        """The seconds after its start by which the user wants what the run is for. None: no hurry.

        >>> from relaqs.training import LinearRegression
        >>> run = db.train(LinearRegression("SELECT x, y FROM points", target="y"), deadline=60)
        >>> run.deadline_seconds
        60.0
        """
        return self._deadline_seconds

    @property
    def latest(self) -> Any:
        """The best model so far as a fitted estimator, a new one each time. None before the first loss.

        >>> round(float(run.latest.intercept_), 3)
        1.0
        """
        job = self._progress.job
        if (newest := job.latest) is None:
            return None
        fitted = newest.estimator()
        return fitted if self._given is None else self._given.fitted(fitted, job.passes)

    @property
    def batch_rows(self) -> int | None:
        """The rows of a step as it is now. None where a step is a pass over all rows.

        >>> from relaqs.training import MiniBatchLinear
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> run.batch_rows
        64
        """
        return self._progress.job.batch_rows

    @property
    def ranks(self) -> int | None:
        """How many ranks share a step now. None where a step is a pass over all rows.

        On a Dask cluster a rank lives in a worker, and the slot policy says how many there are. Elsewhere it
        is a task. Ranks change no bit of the model.

        >>> from relaqs.training import MiniBatchLinear
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> model = run.result()
        >>> run.ranks
        1
        """
        return self._progress.job.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        """The changes of ranks and rows that a gang of a Dask cluster has made, and the pause of each.

        The first one is its start. There are none without a cluster, because tasks need no change.

        >>> from relaqs.training import MiniBatchLinear
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> run.rescales
        ()
        """
        return self._progress.job.rescales

    @property
    def placement(self) -> tuple[PlacedPart, ...]:
        """Where each part of the model is, by stage and replica. Empty where it is not cut or placed.

        >>> run.placement
        ()
        """
        return self._progress.job.placement

    @property
    def subtask_seconds(self) -> SubtaskSeconds | None:
        """What a pass is made of, where the parameters lie in shards: computing, sending, and the rest.

        None where they do not, and before the fourth pass in shards.

        >>> print(run.subtask_seconds)
        None
        """
        return self._progress.job.subtask_seconds

    def move(self, stage: int, replica: int, worker: str) -> None:
        """Let a part of the model go on at another worker, after the step in hand.

        It changes no bit of the model.

        Raises:
            ArgumentError: the model is not cut, or there is no such part or worker.

        >>> run.move(0, 0, "tcp://10.0.0.7:4711")
        Traceback (most recent call last):
        ...
        relaqs.arguments.ArgumentError: stage is 0, but the model is not cut; train it with parts=
        """
        self._progress.job.move(stage, replica, worker)

    @property
    def journal(self) -> Journal | None:
        """The rows, rate and ranks of each mini-batch so far. None where a step is a pass over all rows.

        `relaqs.training.replay` trains the same model again by it.

        >>> from relaqs.training import MiniBatchLinear
        >>> run = db.train(MiniBatchLinear("SELECT x, late FROM points", target="late"), max_steps=1)
        >>> model = run.result()
        >>> list(run.journal.changes())
        [Change(step=0, batch_rows=64, ranks=1)]
        """
        return self._progress.job.journal

    def explain(self) -> str:
        """Return where the model's parameters are, and why; by mini-batches also what a step is shared by.

        >>> print(run.explain())
        parameters: whole, in the client
        """
        job = self._progress.job
        lines = [job.explain()]
        if job.batch_rows is not None:
            lines.append(f"a step: {job.batch_rows} rows, ranks: {job.ranks}")
        lines += [
            f"stage {part.stage} of replica {part.replica}: on {part.worker}" for part in self.placement
        ]
        return "\n".join(lines)

    @property
    def target_loss(self) -> float | None:
        """The loss to stop at, which is also `target`. Set it at any time. A loss already reached stops the
        run.

        >>> run.target_loss = 0.5
        >>> run.target
        0.5
        """
        return self.target

    @target_loss.setter
    def target_loss(self, loss: float | None) -> None:
        self.target = loss

    def result(self, timeout: float | None = None, *, strict: bool = False) -> Any:
        """Return the fitted estimator once the run has converged or was stopped. The run is over then.

        Args:
            timeout: seconds after which the run is stopped, and the best model so far is returned.
            strict: whether to raise where the model is not as good as was asked for, or came too late.

        Raises:
            RelaqsError: there is no model yet, what was asked for has not come, or the run failed. Another
                error that made it fail is raised as it is.

        >>> round(float(run.result().coef_[0]), 3)
        3.0
        """
        self._wait_for_end(timeout)
        if self._progress.job.latest is None:
            raise RelaqsError(
                "training ended before the first pass over the data was complete; allow it more time"
            )
        check_strictly(self.shortfall, strict)
        return self.latest

    def _checked_target(self, target: Any) -> float | None:
        return None if target is None else check_loss("target_loss", target)

    def __repr__(self) -> str:
        reached = f", loss {self.losses[-1]:.6g} after {len(self.steps)} passes" if self.steps else ""
        return f"<TrainingRun {self.state}{reached}>"


_REASONS = {"converged": StopReason.CONVERGED, "stopped": StopReason.STOPPED, "failed": StopReason.FAILED}

_STATES: dict[RunState, TrainingState] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "converged",
    RunState.FAILED: "failed",
}
