"""What drives actors on the slots of a cluster: a gang in training, or the parts of a model.

A driver is the executor of one run. It carries some of the work itself, by turns of the actors, and all the
rest goes to the cluster as it is. All that happens meanwhile arrives in one mailbox, and is handled by one
thread.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, runtime_checkable

from relaqs_engine.errors import ClusterError

from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.executor import Done, Executor, Stoppable, background_thread, is_set_in_time
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.sharing.gangs import Gang
from relaqs.training.elastic.membership import DismissWork

PLACED = -2  # the index of tasks of actors; no other task of their job has one below COMMON_INDEX


@runtime_checkable
class GangExecutor(Executor, Protocol):
    """Where actors have slots: a Dask cluster (`relaqs.executors.dask.DaskExecutor`)."""

    def lease(self, job_id: str, slots: tuple[str, ...]) -> None: ...
    def ask_turn(self, job_id: str, slots: tuple[str, ...] = (), number: int = 0) -> None: ...
    def slots(self) -> tuple[str, ...]: ...
    def tell_gang(self, job_id: str, gang: Gang) -> None: ...


FREEING_SECONDS = 3.0  # at the end, for actors to be freed, which wait for a turn to end; else it is a while
PARTING_SECONDS = 4.0  # for all of it


class StoppedError(Exception):
    """The run is over."""


class Driver(ABC):
    """See the module. It begins with the first task of the run that is its own.

    Args:
        cluster: where everything runs.

    Attributes:
        carries: what tasks of the run say that are its own.
        what: cannot run where a cluster refuses it.
    """

    carries: type[Work]
    what = "no gang"

    def __init__(self, id: str, cluster: GangExecutor) -> None:
        self.id = id
        self._cluster = cluster
        self._driver: Stoppable | None = None  # of the run
        self._mailbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._ended = threading.Event()
        self._keys = 0
        self._lock = threading.Lock()
        self._wanted: tuple[Task, Done] | None = None  # what the runner waits for
        self.has_stopped = False
        self.error: BaseException | None = None

    # The executor of the run.

    @property
    def capacity(self) -> int:
        return self._cluster.capacity

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self._driver = driver
        self._cluster.enter(description, self)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        if len(tasks) != 1 or not isinstance(tasks[0].work, self.carries):
            self._cluster.submit(tasks, done)
            return
        with self._lock:
            self._wanted = tasks[0], done
        self._take_on(tasks[0].work)
        if self._thread is None:
            self._thread = background_thread(self._run, f"relaqs-driver-{self.id}")
            self._thread.start()
        elif self._ended.is_set():
            self._answer(None, error=self._why_over)

    def report(self, job_id: str, report: StepReport) -> None:
        self._cluster.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        self._cluster.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        self._cluster.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self._cluster.set_waiting(job_id, is_waiting)

    def cancel(self, job_id: str) -> None:
        with self._lock:
            self.has_stopped, self._wanted = True, None
        if self._thread is not None:
            self.set_waiting(job_id, False)  # its slots are planned for others while it parts
            self.stop()
            self.ends(PARTING_SECONDS)
        self._cluster.cancel(job_id)

    def status(self) -> ClusterStatus:
        return self._cluster.status()

    def close(self) -> None:
        """Do nothing: the cluster belongs to the session."""
        return

    def describe(self) -> str:
        return self._cluster.describe()

    # From any thread.

    def stop(self) -> None:
        self._post(self._end)

    def ends(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end, however it comes. Return whether it came in time."""
        return is_set_in_time(self._ended, timeout_seconds)

    # What the cluster says, on its event loop: see `relaqs.executors.dask.slots.GangDriver`.

    def end_by_plan(self) -> None:
        if self._driver is None:
            self.stop()
        else:
            self._driver.end_by_plan()

    def leased(self, slots: tuple[str, ...]) -> None:
        """Do nothing: where slots come with a turn."""
        return

    def offered(self, slots: tuple[str, ...]) -> None:
        """Do nothing: where no slot policy says which slots these are."""
        return

    def may_turn(self, number: int) -> None:
        self._post(lambda: self._note_may_turn(number))

    def slots_lost(self, slots: tuple[str, ...]) -> None:
        self._post(lambda: self._note_gone({*slots}))

    def refused(self, why: str) -> None:
        self.unreachable(ClusterError(f"{self.what} can run on this cluster: {why}"))

    def unreachable(self, error: ClusterError) -> None:
        self._post(lambda: self._fail(error))

    # What the runner is told.

    @property
    def _why_over(self) -> BaseException:
        return self.error or ClusterError(f"the driver of the run {self.id} has ended before the run")

    def _answer(self, value: object, core_seconds: float = 0.0, error: BaseException | None = None) -> None:
        """Give the runner what it waits for, if it still does."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted[1](TaskResult(wanted[0].key, value, core_seconds, error))

    @property
    def _wanted_work(self) -> Work | None:
        """What the runner waits for. None: nothing."""
        with self._lock:
            return None if self._wanted is None else self._wanted[0].work

    @abstractmethod
    def _take_on(self, work: Any) -> None:
        """Begin what a task says, or go on with it. On the runner's thread; it must not wait."""

    # On its own thread.

    def _run(self) -> None:
        try:
            self._drive()
        except StoppedError:
            pass
        except BaseException as error:
            self.error = self.error or error
        finally:
            self._part()
            self._ended.set()
            self._answer(None, error=self._why_over)

    @abstractmethod
    def _drive(self) -> None:
        """Live until the end. Raises StoppedError, or what it ends with."""

    @abstractmethod
    def _part(self) -> None:
        """Free all that it holds on the cluster."""

    def _end(self) -> None:
        self._is_over = True

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self._end()

    @abstractmethod
    def _note_may_turn(self, number: int) -> None:
        """The scheduler gives a turn. number: which one."""

    @abstractmethod
    def _note_gone(self, slots: set[str]) -> None:
        """Slots of the run are lost, with all that was on them."""

    def _post(self, event: Callable[[], None]) -> None:
        self._mailbox.put(event)

    def _hear(self, timeout_seconds: float) -> None:
        """Handle the next event, if one comes in time."""
        with suppress(Empty):
            self._mailbox.get(timeout=timeout_seconds)()

    def _send(self, slot: str, work: Work, done: Done) -> None:
        """Send a task to a slot."""
        task = Task(TaskKey(self.id, self._keys, PLACED), work, place=worker_of(slot))
        self._keys += 1
        self._cluster.submit([task], done)

    def _dismiss_all(self, names: Mapping[str, str]) -> Callable[[], None]:
        """Free actors, by their slots and names. Return what waits for it, for a while."""
        told = threading.Semaphore(0)
        for slot, name in names.items():
            self._send(slot, DismissWork(name, slot), lambda result: told.release())

        def wait() -> None:
            over_seconds = time.monotonic() + FREEING_SECONDS
            for _ in names:
                told.acquire(timeout=max(0.0, over_seconds - time.monotonic()))

        return wait
