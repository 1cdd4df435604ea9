"""Jobs that arrive one after another and share cores for real, those of this process or of a cluster.

Two clocks. `wall` is the one on the wall. `work` counts the measured core-seconds of all tasks, divided by
the cores: what the wall would show if the machine did nothing else, so that figures can be compared which
were made on a machine that did. Where nobody is there, the work clock goes on to the next arrival; a core
that idles while another works it does not see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from relaqs_engine.catalog import Catalog
from relaqs_tpch.measuring import NotedPolicy, Planned

from relaqs.executors import ThreadExecutor
from relaqs.jobs.executor import Done
from relaqs.jobs.job import StepReport, Task, TaskResult
from relaqs.jobs.runner import JobRunner
from relaqs.memory import machine_memory_bytes
from relaqs.policies import chosen_policy
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session
from relaqs.sharing.view import Kind, Policy

FloatArray = NDArray[np.float64]
ClockName = Literal["work", "wall"]

LOOK_SECONDS = 0.02  # how long the last job may be over before the work clock notices


class Clock:
    """Tells the seconds since the run began. cores: of the executor whose work it counts."""

    def __init__(self, name: ClockName, cores: int) -> None:
        self.changed = threading.Condition()
        self._is_wall = name == "wall"
        self._cores = cores
        self._started = time.perf_counter()
        self._worked_core_seconds = 0.0
        self._skipped_seconds = 0.0

    def begin(self) -> None:
        """Start again at 0."""
        with self.changed:
            self._started = time.perf_counter()
            self._worked_core_seconds = self._skipped_seconds = 0.0

    def now(self) -> float:
        if self._is_wall:
            return time.perf_counter() - self._started
        return self._worked_core_seconds / self._cores + self._skipped_seconds

    def worked(self, core_seconds: float) -> None:
        with self.changed:
            self._worked_core_seconds += core_seconds
            self.changed.notify_all()

    def wait_until(self, at_seconds: float, is_idle: Callable[[], bool]) -> None:
        """Return once it is so late. is_idle: whether nobody works; the work clock then skips the rest."""
        with self.changed:
            while (left := at_seconds - self.now()) > 0:
                if not self._is_wall and is_idle():
                    self._skipped_seconds += left
                else:
                    self.changed.wait(left if self._is_wall else LOOK_SECONDS)


class ClockedExecutor(ThreadExecutor):
    """Threads whose work a clock counts, and which note when each step of each job was folded."""

    def __init__(self, cores: int, policy: Policy, clock: Clock) -> None:
        super().__init__(cores, policy=policy)
        self._clock = clock
        self.reports: dict[str, list[tuple[float, StepReport]]] = {}

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        def counted(result: TaskResult) -> None:
            self._clock.worked(result.core_seconds)
            done(result)

        super().submit(tasks, counted)

    def report(self, job_id: str, report: StepReport) -> None:
        self.reports.setdefault(job_id, []).append((self._clock.now(), report))
        super().report(job_id, report)


class Handle(Protocol):
    """What the driver asks of a query or a training run."""

    @property
    def id(self) -> str: ...

    runner: JobRunner

    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job to come. start: begins it in a session and returns its handle."""

    name: str
    kind: Kind
    start: Callable[[Session], Handle]


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A job that ran to its end. at_seconds: when each step was folded, (steps,), on the run's clock.

    reports: of the steps. snapshots: those of a query that its reader met, which skips where it is slow.
    """

    job: LiveJob
    id: str
    arrival_seconds: float
    at_seconds: FloatArray
    reports: tuple[StepReport, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def core_seconds(self) -> FloatArray:
        return np.array([max(report.core_seconds, 1e-9) for report in self.reports])


@dataclass(frozen=True, slots=True, eq=False)
class LiveRun:
    """Jobs that shared cores under a policy, in the order of their arrival, and the plans that were made."""

    policy: str
    finished: tuple[Finished, ...]
    plans: tuple[Planned, ...]


class JobDriver:
    """Starts jobs in a session as they come. A context manager, which closes the session.

    Args:
        session: where jobs run.
        clock: tells when they come, and when their steps are folded.
        reports: of the session's executor: what each step of each job gave, and when it was folded.
        policy: the name of what shares the cores.
        plans: those that were made; left empty where nobody notes them.
    """

    def __init__(
        self,
        session: Session,
        clock: Clock,
        reports: Mapping[str, Sequence[tuple[float, StepReport]]],
        policy: str,
        plans: list[Planned],
    ) -> None:
        self.session = session
        self._clock = clock
        self._reports = reports
        self._policy = policy
        self._plans = plans

    def run(self, jobs: Sequence[LiveJob], arrival_seconds: FloatArray) -> LiveRun:
        """Start every job at its time, wait for all, and return what became of them."""
        self._clock.begin()
        self._plans.clear()
        begun: list[_Begun] = []
        for job, at_seconds in zip(jobs, arrival_seconds.tolist(), strict=True):
            self._clock.wait_until(at_seconds, lambda: all(each.handle.wait(0) for each in begun))
            begun.append(_Begun.of(job.start(self.session)))
        for each in begun:
            each.join()
        finished = [
            self._finished(job, arrival, each)
            for job, arrival, each in zip(jobs, arrival_seconds.tolist(), begun, strict=True)
        ]
        return LiveRun(self._policy, tuple(finished), tuple(self._plans))

    def _finished(self, job: LiveJob, arrival_seconds: float, begun: _Begun) -> Finished:
        told = self._reports[begun.handle.id]
        return Finished(
            job,
            begun.handle.id,
            arrival_seconds,
            np.array([at_seconds for at_seconds, _ in told]),
            tuple(report for _, report in told),
            tuple(begun.snapshots),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.session.close()


class Driver(JobDriver):
    """A session over a warehouse, on so many cores of this process shared by a policy, and its clock."""

    def __init__(self, warehouse: Path, cores: int, policy: str | Policy, clock: ClockName) -> None:
        told = Clock(clock, cores)
        noted = NotedPolicy(chosen_policy(policy), told.now)
        executor = ClockedExecutor(cores, noted, told)
        session = Session(
            Catalog.open(warehouse),
            {},
            executor,
            memory_limit_bytes=machine_memory_bytes() // 2,
            exact_threads=cores,
        )
        super().__init__(session, told, executor.reports, noted.name, noted.plans)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A job that was started, and the thread that keeps its snapshots as they come; training has none."""

    handle: Handle
    snapshots: list[Snapshot]
    reader: threading.Thread

    @classmethod
    def of(cls, handle: Handle) -> _Begun:
        snapshots: list[Snapshot] = []

        def read() -> None:
            if isinstance(handle, OnlineQuery):
                snapshots.extend(handle)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return cls(handle, snapshots, reader)

    def join(self) -> None:
        """Wait for the end. Raises what made the job fail."""
        self.reader.join()
        self.handle.wait()
        if self.handle.runner.error is not None:
            raise self.handle.runner.error
