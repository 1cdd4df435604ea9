"""An executor that remembers, of every job, what its tasks took and what its steps reported."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from relaqs.executors import Executor
from relaqs.executors.base import Done
from relaqs.job import StepReport, Task, TaskResult
from relaqs.scheduling import ClusterStatus, JobDescription


@dataclass(slots=True)
class StepMeter:
    """One step: the core-seconds of each task, in the order they ended, and how far the result moved."""

    task_core_seconds: list[float] = field(default_factory=list)
    progress: float = math.nan

    @property
    def core_seconds(self) -> float:
        return sum(self.task_core_seconds)


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

    def enter(self, description: JobDescription) -> None:
        self._inner.enter(description)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        def metered(result: TaskResult) -> None:
            with self._lock:
                step = self._steps[result.key.job][result.key.step]
                step.task_core_seconds.append(result.core_seconds)
            done(result)

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
