"""An executor that remembers, of every job, what its tasks took and what its steps reported."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from relaqs.executors import Executor
from relaqs.jobs.executor import Done, Stoppable
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, Task, TaskResult


@dataclass(frozen=True, slots=True)
class Held:
    """For how long a task held its cores, and when, on `time.perf_counter`, it gave them back."""

    ended_at: float
    held_seconds: float
    cores: int


@dataclass(slots=True)
class StepMeter:
    """One step: its tasks, in the order they ended, and how far the result moved.

    Attributes:
        queued_at: when its tasks were queued, on `time.perf_counter`. NaN where it was not measured.
        cores: how many its tasks could use.
    """

    task_core_seconds: list[float] = field(default_factory=list)
    progress: float = math.nan
    queued_at: float = math.nan
    cores: int = 0
    held: list[Held] = field(default_factory=list)

    @property
    def core_seconds(self) -> float:
        return sum(self.task_core_seconds)

    @property
    def held_seconds(self) -> float:
        return sum(each.held_seconds for each in self.held)

    @property
    def ended_at(self) -> float:
        """When the last task ended. NaN where it was not measured."""
        return max((each.ended_at for each in self.held), default=math.nan)


class MeteredExecutor:
    """Passes everything on to another executor, and notes what comes back."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._steps: defaultdict[str, defaultdict[int, StepMeter]] = defaultdict(
            lambda: defaultdict(StepMeter)
        )

    def steps(self, job_id: str) -> dict[int, StepMeter]:
        """Return what is known of a job's steps, by their index."""
        with self._lock:
            return dict(self._steps[job_id])

    @property
    def capacity(self) -> int:
        return self._inner.capacity

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self._inner.enter(description, driver)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        cores = {task.key: task.cores for task in tasks}

        def metered(result: TaskResult) -> None:
            held = Held(time.perf_counter(), result.held_seconds, cores[result.key])
            with self._lock:
                step = self._steps[result.key.job][result.key.step]
                step.task_core_seconds.append(result.core_seconds)
                step.held.append(held)
            done(result)

        if tasks:
            with self._lock:
                step = self._steps[tasks[0].key.job][tasks[0].key.step]
                step.queued_at, step.cores = time.perf_counter(), sum(cores.values())
        self._inner.submit(tasks, metered)

    def report(self, job_id: str, report: StepReport) -> None:
        with self._lock:
            self._steps[job_id][report.step].progress = report.progress
        self._inner.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        self._inner.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        self._inner.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self._inner.set_waiting(job_id, is_waiting)

    def cancel(self, job_id: str) -> None:
        self._inner.cancel(job_id)

    def status(self) -> ClusterStatus:
        return self._inner.status()

    def close(self) -> None:
        self._inner.close()

    def describe(self) -> str:
        return self._inner.describe()
