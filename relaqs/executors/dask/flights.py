"""What a client keeps of a job while it is on the cluster: enough to send it again."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from distributed import Future
from distributed.protocol import pickle

from relaqs.executors.dask.messages import AskTurn, GangTold, Lease, Setting, StepFolded
from relaqs.jobs.executor import Done, Stoppable
from relaqs.jobs.job import CommonWork, JobDescription, Task, TaskKey, TaskResult

KEPT_REPORTS = 50  # a scheduler that comes back learns of so many
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
        held: the tasks that wait for credits, or for room below `most`.
        most: how many tasks may be on the cluster at once, None: as many as there are.
        lease: the slots that a gang asked for last.
        turn: that a gang waits for a turn.
        told: how a gang got on last.
    """

    description: JobDescription
    driver: Stoppable | None = None
    parcels: dict[TaskKey, Parcel] = field(default_factory=dict)
    futures: dict[TaskKey, Future[TaskResult]] = field(default_factory=dict)
    held: deque[Parcel] = field(default_factory=deque)
    most: int | None = None
    lease: Lease | None = None
    turn: AskTurn | None = None
    told: GangTold | None = None
    _reports: deque[StepFolded] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    _settings: dict[type[Setting], Setting] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.description.id

    def released(self) -> list[Parcel]:
        """Return the held tasks that there is room for, and hold them no more."""
        room = len(self.held) if self.most is None else max(0, self.most - len(self.futures))
        return [self.held.popleft() for _ in range(min(room, len(self.held)))]

    def note(self, message: StepFolded | Setting) -> None:
        """Keep what was said of the job: its newest reports, and the last of each setting."""
        if isinstance(message, StepFolded):
            self._reports.append(message)
        else:
            self._settings[type(message)] = message

    def said(self) -> Iterator[StepFolded | Setting | GangTold | Lease | AskTurn]:
        """Yield what was said of the job, for a scheduler that does not know it."""
        if self.told is not None:
            yield self.told
        if self.lease is not None:
            yield self.lease
        if self.turn is not None:
            yield self.turn
        yield from self._settings.values()
        yield from self._reports
