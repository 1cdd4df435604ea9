"""The waiting tasks of a Dask scheduler, by job: what takes the place of its `queued`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, MutableSet
from typing import TYPE_CHECKING, Any

from distributed.collections import HeapSet

from relaqs.executors.dask.names import KEY_PREFIX
from relaqs.executors.dask.rooms import Rooms
from relaqs.scheduling.virtual_time import FairShares

if TYPE_CHECKING:
    from distributed.scheduler import TaskState


class JobQueue(MutableSet["TaskState"]):
    """A set of waiting tasks that peeks at the first one of the job whose turn it is.

    Within a job tasks are in the order of its steps; among foreign tasks the order is Dask's, `priority`. The
    job is chosen when it is asked for, that is when a core is free, so a new share counts from the next task.

    Args:
        shares: say whose turn it is.
        account_of: the job with shares that a task's key belongs to, now.
        abreast: how many tasks at the end of a step, one of which has begun, go before those of other jobs.
            So all workers compute for the same job, and not each for another one while both jobs wait for
            all workers.
        tell: is told the key of each task that is first.
        rooms: which task may start now. None: any.
    """

    def __init__(
        self,
        shares: FairShares,
        account_of: Callable[[object], str],
        abreast: Callable[[str], int] = lambda job: 0,
        tell: Callable[[object], None] = lambda key: None,
        rooms: Rooms | None = None,
    ) -> None:
        self._shares = shares
        self._account_of = account_of
        self._abreast = abreast
        self._tell = tell
        self._rooms = rooms
        self._begun: tuple[str, object] | None = None  # the job and the step of the task that was first last
        self._passing: object = None  # the key of that task, if others were before it
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
        task = self._first()
        self._tell(task.key)
        return task

    def _first(self) -> TaskState:
        if (task := self._going_on()) is not None:
            self._passing = task.key
            return task
        asking = [job for job, tasks in self._of_job.items() if self._may_start(tasks.peek())]
        if (job := self._shares.next(asking or self._of_job)) is None:
            raise KeyError("peek into empty set")
        task = self._of_job[job].peek()
        if len(asking) < len(self._of_job):
            self._passing = task.key
        self._begun = (job, _step_of(task)) if self._abreast(job) else None
        return task

    def _going_on(self) -> TaskState | None:
        """Return the next task of a step that has begun and is to be abreast."""
        if self._begun is None or (waiting := self._of_job.get(self._begun[0])) is None:
            return None
        task = waiting.peek()
        is_next = _step_of(task) == self._begun[1] and len(waiting) <= self._abreast(self._begun[0])
        return task if is_next and self._may_start(task) else None

    def _may_start(self, task: TaskState) -> bool:
        return self._rooms is None or self._rooms.may_start(task.key)

    def passes_by(self, key: object) -> bool:
        """Whether the task that was first last is this one, and others were before it and had to wait."""
        return key == self._passing

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

    def __bool__(self) -> bool:
        """Whether a task may start now, as Dask asks before it peeks; without rooms, whether any waits."""
        if self._rooms is None or not self._job_of:
            return len(self._job_of) > 0
        return self._rooms.may_any_start([tasks.peek().key for tasks in self._of_job.values()])


def _step_of(task: TaskState) -> object:
    return task.key[1] if isinstance(task.key, tuple) else None


def _dask_order(task: TaskState) -> tuple[float, ...] | None:
    return task.priority  # never None for a task that waits


def _step_order(task: TaskState) -> tuple[Any, ...]:
    assert isinstance(task.key, tuple)  # it has a job of ours: `names.job_of`
    return task.key[1:]  # step and index
