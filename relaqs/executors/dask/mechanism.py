"""The two ways to let shares decide which task of a Dask cluster starts next: `Enforcement`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from relaqs.executors.dask.abreast import AbreastPlaces
from relaqs.executors.dask.charges import Charges
from relaqs.executors.dask.messages import Credits, tell_session
from relaqs.executors.dask.names import FOREIGN, job_of
from relaqs.executors.dask.queue import JobQueue
from relaqs.executors.dask.rooms import Rooms
from relaqs.scheduling.virtual_time import FairShares

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

ENDS = ("memory", "erred", "released", "forgotten")  # states of Dask in which a task does not run
LOOKAHEAD_TASKS = 1  # for each worker: one beyond its threads, so that none waits for the next credit


class Enforcement(Protocol):
    """Carries shares out. All is called on the scheduler's event loop. Tasks are named by their keys.

    `account_of` says whose a task is. `was_next` says whether a job that has slots for a turn was next when
    it got them, and None of others. Such a job has asked before its tasks came, and was woken then.
    """

    def demand(self, session: str, job: str, count: int) -> None:
        """A client's session holds so many more tasks of a job, for credits."""

    def arrived(self, keys: Sequence[object]) -> None:
        """Tasks have been submitted."""

    def moved(self, key: object, start: str, finish: str) -> None:
        """A task went from one of Dask's states to another; its end, if it is one, was charged."""

    def changed(self) -> None:
        """There are other shares, or other workers."""

    def left(self, job: str) -> None:
        """A job is over; it has no shares any more."""

    def has_tasks_of(self, job: str) -> bool:
        """Whether tasks of a job of other programs wait or run."""
        ...

    def waiting(self) -> Collection[str]:
        """Return the jobs with tasks that wait for a core."""
        ...

    def clear(self) -> None:
        """The scheduler has dropped all tasks."""


class QueueEnforcement:
    """Replaces the scheduler's queue by a `JobQueue`, which chooses the next task when a core is free.

    Clients send all their tasks at once, so there are no credits to ask for.

    Args:
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
        scheduler.queued = self._queue  # type: ignore[assignment]  # it has all that is asked of it: `contract`

    def demand(self, session: str, job: str, count: int) -> None:
        return

    def arrived(self, keys: Sequence[object]) -> None:
        if self._places is not None:
            self._places.arrived(keys)

    def moved(self, key: object, start: str, finish: str) -> None:
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

    def changed(self) -> None:
        return

    def left(self, job: str) -> None:
        if self._places is not None:
            self._places.left(job)
        self._queue.sort_again(job)

    def has_tasks_of(self, job: str) -> bool:
        return self._queue.has_tasks_of(job) or self._charges.running(job) > 0

    def waiting(self) -> Collection[str]:
        return self._queue.jobs()

    def clear(self) -> None:
        self._queue.clear()
        self._charges.clear()
        if self._rooms is not None:
            self._rooms.clear()

    def _next_is(self, key: object) -> None:
        if self._places is not None:
            self._places.next_is(key)
        if self._rooms is not None:
            self._rooms.next_is(key)


class CreditEnforcement:
    """Clients hold their tasks back, and send one for each credit. This needs public parts of Dask alone.

    There are as many credits as threads, and one more for each worker. Tasks of other programs take no
    credits. Dask schedules them beside ours, as it does without ReLAQS.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        shares: FairShares,
        charges: Charges,
        account_of: Callable[[object], str],
        was_next: Callable[[str], bool | None],
        limit_of: Callable[[str], tuple[str, float]],
    ) -> None:
        self._scheduler = scheduler
        self._limit_of = limit_of
        self._account_of = account_of
        self._shares = shares
        self._charges = charges
        self._session_of: dict[str, str] = {}
        self._demand: Counter[str] = Counter()  # tasks that clients hold
        self._granted: dict[str, deque[float]] = {}  # credits whose task has not come: what each was charged

    def demand(self, session: str, job: str, count: int) -> None:
        if job not in self._shares:
            return
        self._session_of[job] = session
        if not self._demand[job]:
            self._shares.wake(job)
        self._demand[job] += count
        self.changed()

    def arrived(self, keys: Sequence[object]) -> None:
        for key in keys:
            job = job_of(key)
            if job is not None and (granted := self._granted.get(job)):
                self._charges.take(key, job, granted.popleft())

    def moved(self, key: object, start: str, finish: str) -> None:
        if finish == "processing":
            self._charges.start(key, self._account_of(key), in_turn=False)
        elif finish in ENDS:
            self.changed()

    def changed(self) -> None:
        """Give out the credits that are free."""
        grants: dict[str, Counter[str]] = {}
        for _ in range(self._free_credits()):
            if (job := self._shares.next(self._within_limits())) is None:
                break
            self._granted.setdefault(job, deque()).append(self._shares.start(job))
            grants.setdefault(self._session_of[job], Counter())[job] += 1
            self._demand[job] -= 1
            if not self._demand[job]:
                del self._demand[job]
        for session, jobs in grants.items():
            tell_session(self._scheduler, session, Credits(dict(jobs)))

    def left(self, job: str) -> None:
        self._session_of.pop(job, None)
        self._demand.pop(job, None)
        self._granted.pop(job, None)
        self.changed()

    def has_tasks_of(self, job: str) -> bool:
        return self._charges.running(job) > 0

    def waiting(self) -> Collection[str]:
        return self._demand.keys()

    def clear(self) -> None:
        self._charges.clear()
        self._granted.clear()  # what clients hold stays held, and demanded

    def _within_limits(self) -> list[str]:
        """Return the jobs that tasks are held for and that may have one core more."""
        used = Counter[str]()
        for job in {*self._charges.running_jobs(), *self._granted}:
            used[self._limit_of(job)[0]] += self._charges.running(job) + len(self._granted.get(job, ()))
        found = []
        for job in self._demand:
            user, most = self._limit_of(job)
            if not used[user] or used[user] + 1 < most + 1:
                found.append(job)
        return found

    def _free_credits(self) -> int:
        credits = sum(each.nthreads + LOOKAHEAD_TASKS for each in self._scheduler.running)
        out = len(self._charges) - self._charges.running(FOREIGN) + sum(map(len, self._granted.values()))
        return max(0, credits - out)
