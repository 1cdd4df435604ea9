"""What the cluster knows of any work: a job has steps, a step has independent tasks, folding gives quality.

A query and a training run are both jobs. The scheduler sees their reports and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from relaqs.sharing.goals import AccuracySoFar


class Work(Protocol):
    """What a task does on a worker: picklable, pure, and safe to run again after a worker's death."""

    def run(self, owner: str) -> object:
        """Return the task's value, or a `Metered` one that another thread computed.

        Runs on a worker's thread. owner: the name by which this run can be interrupted.
        """
        ...


@runtime_checkable
class CommonWork(Work, Protocol):
    """Work that holds what all tasks of its step have in common, such as a model of megabytes.

    An executor that sends tasks away may send that once, and the rest of each task without it.
    """

    @property
    def common(self) -> object:
        """The same object in all tasks of the step, which nothing changes."""
        ...

    def with_common(self, common: object) -> Self:
        """Return the same work with another common part."""
        ...


@dataclass(frozen=True, slots=True)
class Metered:
    """A task's value, and the core-seconds that another thread took for it.

    The task's own thread only waited, so what it computed says nothing. Example: a paced loop computes on a
    thread of its own while a task holds a core for it.
    """

    value: object
    core_seconds: float


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Names a task once and for all, so that a result can be folded once only."""

    job: str
    step: int
    index: int


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a step.

    Attributes:
        cores: how many it occupies while it runs; an exact query occupies several.
        place: the worker that alone may run it, at once and before others' tasks. None: any, in its turn.
        whole_seconds: of a query that runs as a whole, about how long one core reads for it; inf: unknown.
            It may take any time. None: the task is a part of its job, made to be short.
    """

    key: TaskKey
    work: Work
    cores: int = 1
    place: str | None = None
    whole_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks that are independent of each other. Steps are folded in order, each once, without gaps."""

    index: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came back of one task: its value or its error, and what it was measured to take.

    Attributes:
        core_seconds: the time it computed or waited for a file or a lock, over all its cores.
        held_seconds: the time it held its cores, over all of them. It is longer where the task also waited
            for a turn on the processor.
    """

    key: TaskKey
    value: object
    core_seconds: float
    error: BaseException | None = None
    held_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What folding a step gave.

    Attributes:
        quality: the error of a query or the loss of a training run. Smaller is better; inf: unknown yet.
        work_done: the share of all the work that is done, in (0, 1]; None where no end is known.
        core_seconds: measured over the step's tasks.
        is_final: no step follows.
        progress: how far the result moved with this step, in [0, 1], by a metric of `relaqs.progress`; NaN
            where it was not measured.
        accuracy: of a training run that measures it.
    """

    step: int
    quality: float
    work_done: float | None
    core_seconds: float
    is_final: bool
    progress: float = math.nan
    accuracy: AccuracySoFar | None = None


@runtime_checkable
class Job(Protocol):
    """An iterative job. The runner calls these from one thread at a time."""

    @property
    def id(self) -> str: ...

    def next_step(self) -> Step | None:
        """Return the next step, or None: nothing more, or nothing before the steps in flight are folded."""
        ...

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        """Fold a whole step's results, in task order, and report. Called once per step, in order."""
        ...
