"""A task on a worker of the cluster: how it runs, how it is stopped, and what it tells the scheduler.

A step's tasks are sent each by itself, and once what they have in common. What Dask says of a task that
gave no result is told in this project's words.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dask.task_spec import Task as GraphTask
from dask.task_spec import TaskRef
from dask.typing import Key
from distributed import Future, KilledWorker, Reschedule, Worker, WorkerPlugin, get_worker, secede
from distributed.protocol import pickle
from relaqs_engine.duck import Interrupted
from relaqs_engine.errors import ClusterError, InternalError, RelaqsError, fault_of, shortened
from relaqs_engine.layouts.manifest import SOON_SECONDS

from relaqs.executors import duck_process as worker
from relaqs.executors.dask.messages import (
    COMMON_INDEX,
    CORE_SECONDS,
    SETTINGS,
    Setting,
    StepFolded,
    job_of,
    named_versions,
)
from relaqs.executors.files import UnseenFileError, use_folder_of_worker
from relaqs.executors.places import OVERDUE_SECONDS
from relaqs.jobs.executor import Done, Stoppable, call_later, core_wanted_by, give_way, run_measured
from relaqs.jobs.job import CommonWork, JobDescription, Task, TaskKey, TaskResult

KEPT_REPORTS = 50  # of each job, that a scheduler that comes back learns of
LEAST_COMMON_BYTES = 50_000  # less is sent with each task: a worker that fetches it takes milliseconds


@dataclass(frozen=True, slots=True)
class Parcel:
    """A task without a result, as it is sent.

    Attributes:
        pickled: the task, without what it has in common with others if that is sent by itself.
        done: takes the result.
        place: the worker that alone may run it. None: any.
        common: what it has in common with the other tasks of its step, pickled. None: it stands in the task.
        whole_seconds: as in `Task`.
    """

    key: TaskKey
    pickled: bytes
    done: Done
    place: str | None = None
    common: bytes | None = None
    whole_seconds: float | None = None


def parcels_of(tasks: Sequence[Task], done: Done) -> list[Parcel]:
    """Return tasks of one step as they are sent. What they have in common goes by itself if it is large."""
    common = _common_part(tasks)
    if common is None:
        return [
            Parcel(task.key, pickle.dumps(task), done, task.place, whole_seconds=task.whole_seconds)
            for task in tasks
        ]
    return [
        Parcel(task.key, pickle.dumps(with_common(task, None)), done, task.place, common, task.whole_seconds)
        for task in tasks
    ]


def with_common(task: Task, common: object) -> Task:
    """Return the same task with another common part of its work."""
    assert isinstance(task.work, CommonWork)
    return replace(task, work=task.work.with_common(common))


def _common_part(tasks: Sequence[Task]) -> bytes | None:
    first = tasks[0].work
    if len(tasks) == 1 or not isinstance(first, CommonWork):
        return None
    works = [task.work for task in tasks]
    if not all(isinstance(work, CommonWork) and work.common is first.common for work in works):
        return None
    pickled: bytes = pickle.dumps(first.common)
    return pickled if len(pickled) >= LEAST_COMMON_BYTES else None


@dataclass(slots=True)
class JobInFlight:
    """One job of this session.

    Attributes:
        description: its id is the job's name on the cluster, unique among all clients.
        driver: what is asked to stop where a plan stops the job.
        parcels: the tasks without a result.
        futures: those of the tasks that were sent.
        held: the tasks that wait for room below `most`.
        most: how many tasks may be on the cluster at once, None: as many as there are.
        said: the newest of each kind that was said of it, but for reports.
    """

    description: JobDescription
    driver: Stoppable | None = None
    parcels: dict[TaskKey, Parcel] = field(default_factory=dict)
    futures: dict[TaskKey, Future[TaskResult]] = field(default_factory=dict)
    held: deque[Parcel] = field(default_factory=deque)
    most: int | None = None
    said: dict[type[Setting], Setting] = field(default_factory=dict)
    _reports: deque[StepFolded] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))

    @property
    def name(self) -> str:
        return self.description.id

    def released(self) -> list[Parcel]:
        """Return the held tasks that there is room for, and hold them no more."""
        room = len(self.held) if self.most is None else max(0, self.most - len(self.futures))
        return [self.held.popleft() for _ in range(min(room, len(self.held)))]

    def note(self, message: StepFolded | Setting) -> None:
        """Keep what was said of the job: its newest reports, and the last of each other kind."""
        if isinstance(message, StepFolded):
            self._reports.append(message)
        else:
            self.said[type(message)] = message

    def to_say_again(self) -> Iterator[StepFolded | Setting]:
        """Yield what was said of the job, for a scheduler that does not know it."""
        yield from (self.said[kind] for kind in SETTINGS if kind in self.said)
        yield from self._reports


LONGEST_TRACE = 10_000  # characters of a traceback that a client gets


def common_part(pickled: bytes) -> object:
    """Return what the tasks of a step have in common. It counts for nobody's time."""
    tell_core_seconds(get_worker(), 0.0)
    common: object = pickle.loads(pickled)
    return common


def run_task(wanted: str, pickled: bytes, common: object = None) -> TaskResult:
    """Return the task's result, its error as a value. Runs on a worker's thread.

    wanted: the client's `named_versions`. pickled: a Task, so that the scheduler need not look into it.
    common: what it has in common with others, where that was sent by itself.
    Raises ClusterError on a worker that joined late with other versions, whose results must not be mixed
    with the rest, and Reschedule where the run was interrupted: a task that is wanted still is run again.
    """
    dask_worker = get_worker()
    if (found := named_versions()) != wanted:
        raise ClusterError(
            f"the worker at {dask_worker.address} has {found}, the client {wanted}; install the same "
            "packages there, start it again, and run the job again"
        )
    task: Task = pickle.loads(pickled)
    if common is not None:
        task = with_common(task, common)
    with _whole(task.whole_seconds), core_wanted_by(lambda: bool(dask_worker.state.ready)):
        result = run_measured(task, run_of(dask_worker, dask_worker.get_current_task()))
    tell_core_seconds(dask_worker, result.core_seconds)
    if result.error is None:
        return result
    if isinstance(result.error, Interrupted):
        raise Reschedule
    return replace(result, error=portable(result.error, dask_worker.address))


@contextmanager
def _whole(seconds: float | None) -> Iterator[None]:
    """Have nothing wait behind what runs as a whole, and have it give way where it takes long.

    What may start beside it, `Rooms` says. seconds: as `Task.whole_seconds`.
    """
    if seconds is None:
        yield
        return
    secede()  # the thread ends with the task, and so nothing else runs with less weight
    if seconds >= SOON_SECONDS:
        give_way()
        yield
        return
    giving_way = call_later(OVERDUE_SECONDS, give_way, threading.get_native_id())
    try:
        yield
    finally:
        giving_way.cancel()


def run_of(dask_worker: Worker, key: Any) -> str:
    """Return the name of the task's run on this worker. If it is wanted again later, that is another run."""
    state = dask_worker.state.tasks.get(key)
    return f"{key}, run {state.run_id if state is not None else None}"


def tell_core_seconds(dask_worker: Worker, core_seconds: float) -> None:
    """Put what the running task took where it goes to the scheduler, in the message that it has ended."""
    state = dask_worker.state.tasks.get(dask_worker.get_current_task())
    if state is not None:  # None: it was released meanwhile
        state.metadata[CORE_SECONDS] = core_seconds


def portable(error: BaseException, address: str) -> BaseException:
    """Return an error that says where it happened and survives pickling."""
    if isinstance(error, UnseenFileError):
        return UnseenThereError(error.path, address)
    trace = shortened("".join(traceback.format_exception(error)), LONGEST_TRACE)
    error.add_note(f"on the worker at {address}:\n{trace}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return InternalError(f"a task on the worker at {address}", fault_of(error))
    return error


class InterruptReleased(WorkerPlugin):
    """Stops a running task that nobody waits for any more: its job was cancelled, or its client died.

    It stops that run alone, since the job may go on: a result that has just been fetched from a worker that
    dies is computed again, until the scheduler hears that it is not needed.
    """

    name = "relaqs-interrupt"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        use_folder_of_worker(worker.local_directory)

    def transition(self, key: object, start: str, finish: str, **kwargs: Any) -> None:
        """Called by the worker, in its event loop, which must not wait for the interruption."""
        runs = start in ("executing", "long-running")  # the latter left its core, and may have one again
        if runs and finish == "released" and job_of(key) is not None:
            run = run_of(self._worker, key)
            threading.Thread(target=worker.interrupt, args=(run,), daemon=True).start()


# Why Dask cancels a task that nobody asked to cancel; such a task is simply sent again.
CONNECTION_LOST = "scheduler-connection-lost"
RESTARTED = "scheduler-restart"  # somebody called Client.restart


class UnseenThereError(Exception):
    """A worker does not see a file that its task reads. Whether anybody does, the client finds out."""

    def __init__(self, path: str, address: str) -> None:
        super().__init__(path, address)
        self.path = path
        self.address = address


def seen_from_here(result: TaskResult) -> TaskResult:
    """Return the result as the client tells it: what a worker does not see may be there, or be gone.

    To be called in the client's process, which found the table there.
    """
    if not isinstance(error := result.error, UnseenThereError):
        return result
    told: RelaqsError = UnseenFileError(error.path)
    if Path(error.path).exists():
        told = ClusterError(
            f"the worker at {error.address} does not see {error.path}, which this process sees; give all "
            "workers the same path to the data"
        )
    return replace(result, error=told)


def reason_of(error: BaseException) -> str | None:
    """Return why Dask cancelled the task, None if it did not."""
    reason: str | None = getattr(error, "reason", None)
    return reason


def lost(address: str, error: BaseException) -> ClusterError:
    return ClusterError(
        f"the Dask scheduler at {address} does not answer any more ({error}); see whether it runs"
    )


def explained(address: str, key: TaskKey, error: BaseException) -> ClusterError:
    """Return why a task gave no result, and what to do about it."""
    if isinstance(error, ClusterError):  # said over there, in full
        return error
    task = f"task {key.index} of step {key.step} of job {key.job}"
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"{task} killed its worker {error.allowed_failures + 1} times, the last at "
            f"{error.last_worker.address}; probably for want of memory: see that worker's log"
        )
    if isinstance(error, CancelledError | asyncio.CancelledError):
        return ClusterError(
            f"the cluster at {address} lost {task} ({error}): its scheduler or the client was "
            "closed or restarted; see whether it runs, and run the job again"
        )
    cause = error.__cause__ or error
    said = f"{type(cause).__name__}: {cause}".splitlines()[0]
    return ClusterError(
        f"{task} gave no result ({said}); see that it and its result can be pickled, and give workers, "
        "scheduler and client the same packages"
    )


def key_of(job: str, parcel: Parcel) -> Key:
    """Return the key of a task. job: its name on the cluster."""
    return (job, parcel.key.step, parcel.key.index)


def graph_of(job: str, parcels: Sequence[Parcel], versions: str) -> dict[Key, GraphTask]:
    """Return the tasks by their keys.

    Workers fetch what tasks have in common from each other. Where all that had it are gone, Dask makes it
    again from what it was sent.

    Args:
        job: its name on the cluster.
        versions: those of the client.
    """
    graph: dict[Key, GraphTask] = {}
    for parcel in parcels:
        key, common = key_of(job, parcel), list[TaskRef]()
        if parcel.common is not None:
            of_step = (job, parcel.key.step, COMMON_INDEX)
            graph[of_step] = _data_producer(of_step, common_part, parcel.common)
            common = [TaskRef(of_step)]
        graph[key] = _data_producer(key, run_task, versions, parcel.pickled, *common)
    return graph


def _data_producer(key: Key, function: Callable[..., object], *arguments: object) -> GraphTask:
    """Return a task that waits on the scheduler until a core is free, instead of in a worker's own queue."""
    return GraphTask(key, function, *arguments, _data_producer=True)
