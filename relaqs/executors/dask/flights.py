"""What a client keeps of a job while it is on the cluster: enough to send it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from distributed import Future

from relaqs.jobs.description import JobDescription
from relaqs.jobs.executor import Done
from relaqs.jobs.job import StepReport, TaskKey, TaskResult

KEPT_REPORTS = 50  # as many as a scheduler that comes back learns of


@dataclass(frozen=True, slots=True)
class Parcel:
    """A task without a result, as it is sent, and whom to hand the result to."""

    key: TaskKey
    pickled: bytes
    done: Done


@dataclass(slots=True)
class JobInFlight:
    """One job. description: its id is the job's name on the cluster, unique among all clients.

    parcels: tasks without a result. futures: of those that were sent. held: those that wait for credits.
    """

    description: JobDescription
    parcels: dict[TaskKey, Parcel] = field(default_factory=dict)
    futures: dict[TaskKey, Future[TaskResult]] = field(default_factory=dict)
    held: deque[Parcel] = field(default_factory=deque)
    _reports: deque[StepReport] = field(default_factory=lambda: deque(maxlen=KEPT_REPORTS))
    _settings: dict[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.description.id

    def note(self, call: str, value: object) -> None:
        """Keep what was said of the job: its newest reports, and the last value of each setting."""
        if isinstance(value, StepReport):
            self._reports.append(value)
        else:
            self._settings[call] = value

    def said(self) -> Iterator[tuple[str, object]]:
        """Yield it again, as calls and their values."""
        yield from self._settings.items()
        yield from (("report", report) for report in self._reports)
