"""The waiting tasks of a Dask scheduler, by job: what takes the place of its `queued`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, MutableSet
from typing import TYPE_CHECKING, Any

from distributed.collections import HeapSet

from relaqs.executors.dask.names import KEY_PREFIX
from relaqs.scheduling.shares import FairShares

if TYPE_CHECKING:
    from distributed.scheduler import TaskState


class JobQueue(MutableSet["TaskState"]):
    """A set of waiting tasks that peeks at the first one of the job whose turn it is.

    Within a job tasks are in the order of its steps; among foreign tasks the order is Dask's, `priority`. The
    job is chosen when it is asked for, that is when a core is free, so a new share counts from the next task.
    account_of: the job with shares that a task's key belongs to, now.
    """

    def __init__(self, shares: FairShares, account_of: Callable[[object], str]) -> None:
        self._shares = shares
        self._account_of = account_of
        self._of_job: dict[str, HeapSet[TaskState]] = {}  # of jobs that have any
        self._job_of: dict[TaskState, str] = {}

    def jobs(self) -> KeysView[str]:
        """Return the jobs with waiting tasks."""
        return self._of_job.keys()

    def has_tasks_of(self, job: str) -> bool:
        return job in self._of_job

    def add(self, value: TaskState) -> None:
        if value in self._job_of:
            return
        job = self._account_of(value.key)
        if job not in self._of_job:
            self._shares.wake(job)
            self._of_job[job] = HeapSet(key=_step_order if job.startswith(KEY_PREFIX) else _dask_order)
        self._of_job[job].add(value)
        self._job_of[value] = job

    def discard(self, value: TaskState) -> None:
        if (job := self._job_of.pop(value, None)) is None:
            return
        self._of_job[job].discard(value)
        if not self._of_job[job]:
            del self._of_job[job]

    def peek(self) -> TaskState:
        """Return the task to start next; it stays in. Raises KeyError if there is none."""
        if (job := self._shares.next(self._of_job)) is None:
            raise KeyError("peek into empty set")
        return self._of_job[job].peek()

    def sort_again(self, job: str) -> None:
        """Put a job's tasks where they belong now that it has left, or that it is no foreign one any more."""
        tasks = list(self._of_job.pop(job, ()))
        for task in tasks:
            del self._job_of[task]
        for task in tasks:
            self.add(task)

    def clear(self) -> None:
        self._of_job.clear()
        self._job_of.clear()

    def __contains__(self, value: object) -> bool:
        return value in self._job_of

    def __iter__(self) -> Iterator[TaskState]:
        return iter(list(self._job_of))

    def __len__(self) -> int:
        return len(self._job_of)


def _dask_order(task: TaskState) -> tuple[float, ...] | None:
    return task.priority  # never None for a task that waits


def _step_order(task: TaskState) -> tuple[Any, ...]:
    assert isinstance(task.key, tuple)  # it has a job of ours: `names.job_of`
    return task.key[1:]  # step and index
