"""What a client keeps of a job while it is on the cluster: enough to send it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from distributed import Future

from relaqs.executors.dask.messages import AskTurn, GangTold, Lease, Setting, StepFolded
from relaqs.jobs.description import JobDescription
from relaqs.jobs.executor import Done, Stoppable
from relaqs.jobs.job import TaskKey, TaskResult

KEPT_REPORTS = 50  # a scheduler that comes back learns of so many


@dataclass(frozen=True, slots=True)
class Parcel:
    """A task without a result, as it is sent.

    Attributes:
        done: takes the result.
        place: the worker that alone may run it. None: any.
    """

    key: TaskKey
    pickled: bytes
    done: Done
    place: str | None = None


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
