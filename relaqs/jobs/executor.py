"""The door every place of execution has, and the one way a task is run and measured."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from getpass import getuser
from typing import Protocol

from relaqs.jobs.description import JobDescription
from relaqs.jobs.job import StepReport, Task, TaskResult
from relaqs.scheduling import ClusterStatus

Done = Callable[[TaskResult], None]


class Executor(Protocol):
    """Where tasks run: threads of this process, or a Dask cluster. Methods may be called from any thread.

    What is said of a job that has not entered, or has left, changes nothing.
    """

    @property
    def capacity(self) -> int:
        """Cores that run tasks now. On a cluster it follows the workers that join and leave."""
        ...

    def enter(self, description: JobDescription) -> None:
        """Take a job in, before its first task. Raises ClusterError if jobs can no longer be taken."""
        ...

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        """Queue the tasks of one step of one job that has entered.

        done: called with each task's result, once for each key, from any thread; it must be quick and must
        not raise. Raises ClusterError if tasks can no longer be taken.
        """
        ...

    def report(self, job_id: str, report: StepReport) -> None:
        """Tell the scheduler what a folded step of the job gave."""
        ...

    def set_weight(self, job_id: str, weight: float) -> None:
        """Change the job's weight beside others."""
        ...

    def set_target(self, job_id: str, target: float | None) -> None:
        """Change the error or loss the job may stop at."""
        ...

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        """Say whether the job asks for cores; a paused one does not, but what it has submitted still runs."""
        ...

    def cancel(self, job_id: str) -> None:
        """Drop the job's waiting tasks, interrupt its running statements, and forget the job.

        Its cores are free within one task. Dropped tasks have no result; one that runs may still report one.
        """
        ...

    def status(self) -> ClusterStatus:
        """Return how every job stands, also those of others where cores are shared with them."""
        ...

    def close(self) -> None:
        """Cancel everything and free what this executor holds; what the user handed in stays open."""
        ...

    def describe(self) -> str:
        """Return where tasks run, for people."""
        ...


def run_measured(task: Task, owner: str) -> TaskResult:
    """Return the task's result, or its error, with the core-seconds it took, and for how long it held them.

    owner: the name under which this process can interrupt the task. Measured on the calling thread, which
    does an even part where the work says that it occupies several `cores` (an exact query does). A task that
    waits, for storage or for whatever else, holds its thread, and is charged for that as well. A value that
    says itself what `core_seconds` it took was computed elsewhere.
    """
    cores = cores_of(task)
    began_seconds, started_seconds, started_busy = time.perf_counter(), time.thread_time(), busy_seconds()
    value: object = None
    raised: BaseException | None = None
    try:
        value = task.work.run(owner)
    except BaseException as error:  # whatever it is, it belongs to the job and must not end the thread
        raised = error
    took = max((time.thread_time() - started_seconds) * cores, busy_seconds() - started_busy)
    core_seconds: float = getattr(value, "core_seconds", took)
    return TaskResult(task.key, value, core_seconds, raised, (time.perf_counter() - began_seconds) * cores)


def cores_of(task: Task) -> int:
    """Return how many cores the task occupies: one, but for work that says otherwise, as an exact query's."""
    return getattr(task.work, "cores", 1)


def busy_seconds() -> float:
    """Return how long the calling thread computed or waited, by a clock of its own; 0.0 where it is not told.

    Left out is the time in which it could have gone on, but the machine ran somebody else: whose tasks meet
    with a busy machine is chance. Linux tells it, in nanoseconds, as the second number of its schedstat.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            ready_nanoseconds = int(file.read().split()[1])
    except OSError:
        return 0.0
    return time.monotonic() - 1e-9 * ready_nanoseconds


def client_name() -> str:
    """Return the name by which people know this process among the clients of a cluster."""
    return f"{user_name()}@{socket.gethostname()}:{os.getpid()}"


def user_name() -> str:
    """Return who runs this process; a number where a container's user has no name."""
    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())
