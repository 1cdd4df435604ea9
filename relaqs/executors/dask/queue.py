"""Whose task starts next on a Dask cluster: a queue of waiting tasks by job, which enforces shares.

Dask keeps tasks that have no worker yet in `Scheduler.queued`, by priority. `JobQueue` takes its place,
and gives the task of the job that is furthest behind its share (`QueueEnforcement`). `queued` is not
public, and a release of Dask may change it. So what is needed of it is checked when the plugin starts
(`broken_contract`). A scheduler that has it not is refused, with the reason.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, MutableSet, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import dask
import distributed
import distributed.scheduler
from dask.task_spec import Task as GraphTask
from distributed.collections import HeapSet
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask.messages import KEY_PREFIX
from relaqs.executors.dask.placement import AbreastPlaces, Rooms
from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS, Charges, FairShares

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState


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


ENDS = ("memory", "erred", "released", "forgotten")  # states of Dask in which a task does not run


class QueueEnforcement:
    """Carries shares out: its `JobQueue` in the scheduler chooses the next task when a core is free.

    All is called on the scheduler's event loop. Tasks are named by their keys.

    Args:
        account_of: says whose a task is.
        was_next: whether a job that has slots for a turn was next when it got them, and None of others. Such
            a job has asked before its tasks came, and was woken then.
        abreast: as `JobQueue` has it.
        places: where the tasks of such steps go. None: where Dask has them.
        rooms: which tasks may start. None: any.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        shares: FairShares,
        charges: Charges,
        account_of: Callable[[object], str],
        was_next: Callable[[str], bool | None],
        abreast: Callable[[str], int],
        places: AbreastPlaces | None,
        rooms: Rooms | None,
    ) -> None:
        self._account_of = account_of
        self._shares = shares
        self._charges = charges
        self._was_next = was_next
        self._places = places
        self._rooms = rooms
        self._queue = JobQueue(shares, account_of, abreast, self._next_is, rooms)
        for task in scheduler.queued:
            self._queue.add(task)
        scheduler.queued = self._queue  # type: ignore[assignment]  # it has all that is asked of it: `broken_contract`

    def arrived(self, keys: Sequence[object]) -> None:
        """Tasks have been submitted."""
        if self._places is not None:
            self._places.arrived(keys)

    def moved(self, key: object, start: str, finish: str) -> None:
        """A task went from one of Dask's states to another; its end, if it is one, was charged."""
        if self._places is not None:
            self._places.moved(key, finish)
        if self._rooms is not None:
            self._rooms.moved(key, finish)
        if finish != "processing":
            return
        job = self._account_of(key)
        if (in_turn := self._was_next(job)) is None:
            in_turn = (start == "queued" and not self._queue.passes_by(key)) or not len(self._queue)
            if start != "queued" and not self._queue.has_tasks_of(job):  # it did not wait
                self._shares.wake(job)
        self._charges.start(key, job, in_turn=in_turn)

    def left(self, job: str) -> None:
        """A job is over; it has no shares any more."""
        if self._places is not None:
            self._places.left(job)
        self._queue.sort_again(job)

    def has_tasks_of(self, job: str) -> bool:
        """Whether tasks of a job of other programs wait or run."""
        return self._queue.has_tasks_of(job) or self._charges.running(job) > 0

    def waiting(self) -> Collection[str]:
        """Return the jobs with tasks that wait for a core."""
        return self._queue.jobs()

    def clear(self) -> None:
        """The scheduler has dropped all tasks."""
        self._queue.clear()
        self._charges.clear()
        if self._rooms is not None:
            self._rooms.clear()

    def _next_is(self, key: object) -> None:
        if self._places is not None:
            self._places.next_is(key)
        if self._rooms is not None:
            self._rooms.next_is(key)


# In Dask's configuration, on the scheduler.
CREDIT_SETTING = "relaqs.credit-core-seconds"  # see `FairShares`

KNOWN_RELEASE = "2026.8.0"  # of distributed: that of constraints.txt, with which all tests pass


def check_contract(scheduler: Scheduler) -> None:
    """Raise ClusterError where this scheduler's queue cannot be taken over: nobody's share would hold."""
    if (why := broken_contract(scheduler)) is not None:
        raise ClusterError(
            f"the cores of this Dask scheduler cannot be shared: {why}. Mend that, or install distributed "
            f"{KNOWN_RELEASE}, with which ReLAQS is tested, where the scheduler runs; then start it again"
        )


_QUEUE_USE = re.compile(r"\bself\.queued\.(\w+)")
_TURN = "qts = self.queued.peek()"
PINNING = {
    "if ts.resource_restrictions or ts.worker_restrictions or ts.host_restrictions:": (
        "queues tasks that one worker must run"
    ),
    "len(ws.processing) - len(ws.long_running)": "counts the tasks of a worker otherwise",
}
"""What gangs need: pinned tasks keep others' off their slots, are not queued, and count as a worker's."""
PLACING = dict.fromkeys(
    (
        "def decide_worker_rootish_queuing_enabled(self) -> WorkerState | None:",
        "if ws := self.decide_worker_rootish_queuing_enabled():",
        "if not self.queued:",
        "def stimulus_queue_slots_maybe_opened(self, *, stimulus_id: str) -> None:",
    ),
    "chooses the workers of waiting tasks otherwise",
)
"""What `AbreastPlaces` and `Rooms` need, which choose in the place of Dask."""


def broken_contract(scheduler: Scheduler) -> str | None:
    """Return why shares cannot be enforced on this scheduler and what helps, or None if they can."""
    if not isinstance(getattr(scheduler, "queued", None), HeapSet | JobQueue):
        return _changed("keeps its waiting tasks otherwise")
    if math.isinf(scheduler.WORKER_SATURATION):
        return (
            "Dask's setting distributed.scheduler.worker-saturation is inf, so no task waits on the "
            "scheduler; it must be a number, such as 1.1"
        )
    try:
        source = inspect.getsource(distributed.scheduler)
    except OSError:
        return _changed("comes without its source, by which the rest is checked")
    return broken_source(source)


def chosen_credit() -> float:
    """Return what a job may be owed that did not ask, in core-seconds. Raises ValueError if it cannot be."""
    chosen = dask.config.get(CREDIT_SETTING, CREDIT_CORE_SECONDS)
    try:
        credit = float(chosen)
    except (TypeError, ValueError):
        credit = math.nan
    if not 0 <= credit < math.inf:
        raise ValueError(f"Dask's setting {CREDIT_SETTING} is {chosen!r}; give core-seconds, 0 or more")
    return credit


def broken_source(source: str) -> str | None:
    """Return what the source of `distributed.scheduler` lacks, or None."""
    if missing := {use for use in _QUEUE_USE.findall(source) if not hasattr(JobQueue, use)}:
        return _changed(f"asks its queue to {', '.join(sorted(missing))}")
    if _TURN not in source:
        return _changed("takes tasks from its queue otherwise")
    can_mark = "_data_producer" in inspect.signature(GraphTask).parameters
    if not can_mark or "run_spec.data_producer" not in source:
        return _changed("marks tasks that wait on it otherwise")
    return None


def lacking(needed: Mapping[str, str], source: str | None = None) -> str | None:
    """Return what the source of `distributed.scheduler` lacks of `PINNING` or `PLACING`, or None."""
    found = inspect.getsource(distributed.scheduler) if source is None else source
    return next((_changed(how) for text, how in needed.items() if text not in found), None)


def _changed(what: str) -> str:
    return f"distributed {version('distributed')} {what}"
