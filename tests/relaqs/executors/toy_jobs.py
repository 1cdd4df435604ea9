"""Small jobs and works for the tests of executors and runner. Dask workers import them from here."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Status, get_worker
from relaqs_engine.duck import DatabaseConfig

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.executor import is_core_wanted
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult, Work

LONG_SQL = "SELECT sum(a % 7) AS n FROM range(1_000_000_000_000_000) t(a)"  # takes days, and no memory
DATABASE = DatabaseConfig(readable=(), memory_limit_bytes=256 << 20)


def query_work(sql: str) -> QueryWork:
    return QueryWork(DATABASE, (), sql)


@dataclass(frozen=True, slots=True)
class Number:
    """Gives a number, after burning CPU time."""

    value: int
    core_seconds: float = 0.0

    def run(self, owner: str) -> int:
        started = time.thread_time()
        while time.thread_time() - started < self.core_seconds:
            pass
        return self.value


@dataclass(frozen=True, slots=True)
class Waits:
    """Gives a number after waiting, as for storage, without computing."""

    value: int
    seconds: float

    def run(self, owner: str) -> int:
        time.sleep(self.seconds)
        return self.value


@dataclass(frozen=True, slots=True)
class Niceness:
    """Says how much less weight its thread has than its process, after some seconds."""

    seconds: float

    def run(self, owner: str) -> int:
        time.sleep(self.seconds)
        return os.getpriority(os.PRIO_PROCESS, 0) - os.getpriority(os.PRIO_PROCESS, os.getpid())


@dataclass(frozen=True, slots=True)
class Times:
    """Says from when to when it ran, by the clock of the machine, and in which process."""

    seconds: float

    def run(self, owner: str) -> tuple[float, float, int]:
        began_seconds = time.monotonic()
        time.sleep(self.seconds)
        return began_seconds, time.monotonic(), os.getpid()


@dataclass(frozen=True, slots=True)
class UntilWanted:
    """Goes on until another task waits for its core, and says whether one came."""

    most_seconds: float

    def run(self, owner: str) -> bool:
        over_seconds = time.monotonic() + self.most_seconds
        while not is_core_wanted() and time.monotonic() < over_seconds:
            pass
        return is_core_wanted()


@dataclass(frozen=True, slots=True)
class StopsItsWorkerOnce:
    """Says who runs it, and hangs that process as long as nobody continues it; the next one goes on.

    mark: a file that does not exist at first.
    """

    value: int
    mark: str

    def run(self, owner: str) -> int:
        mark = Path(self.mark)
        if not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return self.value


@dataclass(frozen=True, slots=True)
class StopsItsWorkerWhenFetched:
    """Gives a number, or what hangs the process that sends it away, as `StopsItsWorkerOnce` does."""

    value: int
    mark: str

    def run(self, owner: str) -> object:
        return _HangsItsSender(self)


@dataclass(frozen=True, slots=True)
class _HangsItsSender:
    work: StopsItsWorkerWhenFetched

    def __reduce__(self) -> Any:
        return int, (StopsItsWorkerOnce(self.work.value, self.work.mark).run(""),)


@dataclass(frozen=True, slots=True)
class FillsItsWorkerOnce:
    """Takes so much memory for good that Dask pauses the worker; the next one goes on.

    mark: a file that does not exist at first.
    """

    value: int
    mark: str
    byte_count: int

    def run(self, owner: str) -> int:
        mark = Path(self.mark)
        if not mark.exists():
            mark.touch()
            FILLED.extend(b"\1" * PIECE_BYTES for _ in range(self.byte_count // PIECE_BYTES))
            while get_worker().status is not Status.paused:
                time.sleep(0.01)
        return self.value


FILLED: list[bytes] = []
PIECE_BYTES = 1 << 23  # the worker's other threads run between two pieces, so it is heard of


@dataclass(frozen=True, slots=True)
class LongQuery:
    """Says through a named pipe that it runs, then runs a statement that would take days."""

    pipe: str

    def run(self, owner: str) -> object:
        Path(self.pipe).write_text(f"{os.getpid()}\n")
        return query_work(LONG_SQL).run(owner)


@dataclass(frozen=True, slots=True)
class LendsItsCore:
    """Leaves its core to others once, takes one again, and does its work. Its workers have agents."""

    work: Work

    def run(self, owner: str) -> object:
        from relaqs.executors.dask.peer_agent import peer_agent_here

        peer_agent_here().leave_core()
        peer_agent_here().take_core()
        return self.work.run(owner)


@dataclass(frozen=True, slots=True)
class LongQueryOnce:
    """Says so through a named pipe and runs a statement of days; who runs it again has its number at once.

    mark: a file that does not exist at first.
    """

    value: int
    pipe: str
    mark: str

    def run(self, owner: str) -> object:
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            return LongQuery(self.pipe).run(owner)
        return self.value


@dataclass(frozen=True, slots=True)
class Fails:
    """Raises an error."""

    error: BaseException

    def run(self, owner: str) -> object:
        raise self.error


class UnpicklableError(Exception):
    """An error that no process can send to another."""

    def __reduce__(self) -> Any:
        raise TypeError("this error cannot be pickled")


@dataclass(frozen=True, slots=True)
class FailsUnpicklably:
    def run(self, owner: str) -> object:
        raise UnpicklableError("stays where it is")


@dataclass(frozen=True, slots=True)
class GivesALock:
    """Gives what cannot be pickled."""

    def run(self, owner: str) -> object:
        return threading.Lock()


@dataclass(frozen=True, slots=True)
class KillsItsWorker:
    def run(self, owner: str) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class ToyJob:
    """Runs the given works, some a step, and keeps what was folded: (step, values in task order)."""

    def __init__(self, id: str, steps: Sequence[Sequence[Work]]) -> None:
        self.id = id
        self.steps = steps
        self.issued = 0
        self.folded: list[tuple[int, list[object]]] = []
        self.core_seconds = 0.0

    def next_step(self) -> Step | None:
        if self.issued == len(self.steps):
            return None
        index = self.issued
        self.issued += 1
        works = enumerate(self.steps[index])
        return Step(index, tuple(Task(TaskKey(self.id, index, i), work) for i, work in works))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self.folded.append((step.index, [result.value for result in results]))
        core_seconds = sum(result.core_seconds for result in results)
        self.core_seconds += core_seconds
        is_final = step.index == len(self.steps) - 1
        return StepReport(step.index, 0.0, (step.index + 1) / len(self.steps), core_seconds, is_final)


def counting_job(id: str, *, steps: int, tasks: int, core_seconds: float = 0.0) -> ToyJob:
    """Return a job whose tasks give 0, 1, 2, …; a fold that lost, repeated or reordered one shows it."""
    numbers = [[Number(step * tasks + i, core_seconds) for i in range(tasks)] for step in range(steps)]
    return ToyJob(id, numbers)


def counted(*, steps: int, tasks: int) -> list[tuple[int, list[int]]]:
    """Return what a counting job must have folded."""
    return [(step, list(range(step * tasks, (step + 1) * tasks))) for step in range(steps)]
