"""What a user may ask of a run: an accuracy, a deadline, a kind of batch. All is checked before it starts.

`TrainingOptions` is what `Session.train` was asked for, beside the job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from relaqs.arguments import ArgumentError, check_loss, check_priority, check_seconds, is_number, refusal
from relaqs.sharing.view import LEAST_URGENCY, MOST_URGENCY, Goals, Stop
from relaqs.training.arguments import check_count
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.parted.cut import ModelParts
from relaqs.training.protocol import TellsClasses, TrainingJob

StopWord: TypeAlias = Literal["iterations", "best", "required"]
HELD_OUT = 0.05  # of the partitions, where accuracy is measured and nothing else was said


@dataclass(frozen=True, slots=True)
class TrainingGoals:
    """Deadline, accuracy, urgency and stops of a run, as `Session.train` takes them.

    Raises:
        ArgumentError: naming the first that is not accepted.

    >>> TrainingGoals(urgency=0)
    Traceback (most recent call last):
        ...
    relaqs.arguments.ArgumentError: urgency is 0; it must be a number from 1, no hurry, to 10
    """

    deadline: float | None = None
    accuracy: float | None = None
    urgency: float = LEAST_URGENCY
    stop: StopWord = "iterations"
    may_stop: Sequence[StopWord] = ()
    held_out: float | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None:
            check_seconds("deadline", self.deadline)
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
    def of_job(self) -> Goals:
        """What the scheduler is told of them."""
        return Goals(
            accuracy=math.nan if self.accuracy is None else self.accuracy,
            urgency=float(self.urgency),
            stop=Stop[self.stop.upper()],
            may_stop=frozenset(Stop[each.upper()] for each in self.may_stop),
        )

    @property
    def _asking(self) -> str | None:
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
        if self._asking is None:
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
                f"{self._asking}, for which {held} of the {partitions} partitions would be held out; "
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
                f"{self._asking}, but {type(job).__name__} holds no rows out to measure accuracy on; "
                f"give {type(job).__name__}(…, held_out={HELD_OUT})"
            )

    def _without_accuracy(self, job: object) -> str:
        return (
            f"{self._asking}, but {type(job).__name__} tells no classes and has no accuracy; "
            "use target_loss, or chart_pixels to stop when nothing moves"
        )


Batch: TypeAlias = int | Literal["elastic"] | Journal | None
"""How many rows a mini-batch has: a number, "elastic", or what a journal says. None: the job's own number."""

ParametersWord = Literal["auto", "client", "sharded"]
"""Where parameters are between passes."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """The keyword arguments of `Session.train`. Raises ArgumentError naming the first one not accepted."""

    priority: float = 1.0
    target_loss: float | None = None
    timeout: float | None = None
    max_steps: int | None = None
    chart_pixels: int | None = None
    goals: TrainingGoals = field(default_factory=TrainingGoals)
    batch: Batch = None
    parameters: ParametersWord = "auto"
    parts: int | ModelParts | None = None

    @property
    def passes_most(self) -> float:
        """After how many passes the run ends, inf where that is not said."""
        return math.inf if self.max_steps is None else self.max_steps

    def __post_init__(self) -> None:
        check_priority(self.priority)
        if self.target_loss is not None:
            check_loss("target_loss", self.target_loss)
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        for name in ("max_steps", "chart_pixels"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
