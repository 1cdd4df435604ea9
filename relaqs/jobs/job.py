"""What the cluster knows of any work: a job has steps, a step has independent tasks, folding gives quality.

A query and a training run are both jobs. The scheduler sees the reports and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class Work(Protocol):
    """What a task does on a worker: picklable, pure, and safe to run again after a worker's death."""

    def run(self, owner: str) -> object:
        """Return the task's result. Runs on a worker's thread; `owner` names it for interruption."""
        ...


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Names a task once and for all, so that a result can be folded once only."""

    job: str
    step: int
    index: int


@dataclass(frozen=True, slots=True)
class Task:
    key: TaskKey
    work: Work


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks that are independent of each other. Steps are folded in order, each once, without gaps."""

    index: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came back of one task: its value or its error, and what it was measured to take.

    core_seconds: of computing, and of waiting for a file or a lock. held_seconds: for how long it held cores,
    times how many: it may have waited with them for a turn on the processor, too.
    """

    key: TaskKey
    value: object
    core_seconds: float
    error: BaseException | None = None
    held_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What folding a step gave. work_done: share of all the work, in (0, 1], or None where there is no end.

    quality: the error (queries) or the loss (training), smaller is better, inf while unknown.
    core_seconds: measured over the step's tasks. progress: how far the result moved with this step, in
    [0, 1], by a metric of `relaqs.progress`; NaN where none was measured.
    """

    step: int
    quality: float
    work_done: float | None
    core_seconds: float
    is_final: bool
    progress: float = math.nan


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
