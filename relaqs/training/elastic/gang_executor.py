"""What a gang asks of a cluster, and whom it tells how it gets on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from relaqs.gangs.view import Gang
from relaqs.jobs.executor import Done, Stoppable
from relaqs.jobs.job import JobDescription, StepReport, Task
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import TurnResult


@runtime_checkable
class LeasesSlots(Protocol):
    """A place where a gang can hold slots."""

    def lease(self, job_id: str, slots: tuple[str, ...]) -> None: ...
    def ask_turn(self, job_id: str, slots: tuple[str, ...] = (), number: int = 0) -> None: ...
    def slots(self) -> tuple[str, ...]: ...
    def tell_gang(self, job_id: str, gang: Gang) -> None: ...


class GangExecutor(Protocol):
    """Where gangs run: a Dask cluster (`relaqs.executors.dask.DaskExecutor`)."""

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None: ...
    def submit(self, tasks: Sequence[Task], done: Done) -> None: ...
    def report(self, job_id: str, report: StepReport) -> None: ...
    def cancel(self, job_id: str) -> None: ...
    def lease(self, job_id: str, slots: tuple[str, ...]) -> None: ...
    def ask_turn(self, job_id: str) -> None: ...
    def slots(self) -> tuple[str, ...]: ...


class GangWitness(Protocol):
    """Whom a gang tells how it gets on, on the gang's own thread."""

    def turned(self, membership: Membership, results: Sequence[TurnResult], core_seconds: float) -> None:
        """A turn is over."""

    def passed(self, passes: int, course: bytes) -> None:
        """So many passes are over. It is said once of each, in their order, where there is an end of passes.

        course: the pickled one after them.
        """

    def ended(self, error: BaseException | None) -> None:
        """The gang is no more."""
