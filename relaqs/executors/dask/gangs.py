"""Gangs on the scheduler: which slots each holds, and whose next turn may start.

A turn is one pinned task on each slot of a gang. Pinned tasks pass the queue by, so a gang asks before each
turn. It may take the turn if no job with waiting tasks is further behind its share: the same clocks decide
(`relaqs.executors.slot_turns`).
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from relaqs.executors.dask.messages import (
    GangAnswer,
    Leased,
    MayTurn,
    NoLeases,
    SlotsLost,
    tell_session,
)
from relaqs.executors.leases import Leases, worker_of
from relaqs.executors.slot_turns import SlotTurns
from relaqs.scheduling.virtual_time import FairShares

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler


class LeasedGangs:
    """The gangs of all clients. All is called on the scheduler's event loop.

    Args:
        scheduler: passes answers on, and knows the workers.
        shares: the clocks of all jobs.
        session_of: the session of a job, None where the job has left.
        waiting: the jobs with tasks that wait for a core.
        why_not: why no gang can run here. None: they can.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        shares: FairShares,
        session_of: Callable[[str], str | None],
        waiting: Callable[[], Collection[str]],
        why_not: str | None,
    ) -> None:
        self._scheduler = scheduler
        self._shares = shares
        self._session_of = session_of
        self._waiting = waiting
        self._why_not = why_not
        self._leases = Leases()
        self._turns = SlotTurns(shares, self._leases)
        self._gangs: set[str] = set()  # with slots or without
        self._workers: dict[str, tuple[str, ...]] = {}  # where jobs took their turns last that lease no slots

    def lease(self, job: str, slots: Collection[str]) -> None:
        """Let a gang hold these slots as soon as they are free."""
        if (there := self._there(job, slots)) is None:
            return
        if not slots:
            self._turns.forget(job)
        self._granted(self._leases.ask(job, there))
        self.look()

    def hand(self, job: str, slots: Collection[str]) -> None:
        """Let a gang without slots hold some that are offered to it, before it asks: it would ask at once."""
        if slots and not self._leases.has_claim(job):
            self.lease(job, slots)

    def ask_turn(self, job: str, slots: Collection[str], number: int) -> None:
        """A gang wants its next turn. slots: those that come with it; empty where it has leased them."""
        if job not in self._shares or (there := self._there(job, slots)) is None or len(there) < len(slots):
            return
        if slots:
            self._workers[job] = tuple(sorted({*map(worker_of, slots)}))
        self._granted(self._turns.ask(job, slots, number))
        self.look()

    def ended(self, job: str) -> None:
        """A task of a job has ended. In a turn there are no others than those of the turn."""
        self._turns.ended(job)

    def was_next(self, job: str) -> bool | None:
        """Return whether a job was next when it got slots for a turn. None: it has none, or leased them."""
        return self._turns.was_next(job)

    def look(self) -> None:
        """Let those gangs take their turn that are due."""
        for job, number in list(self._turns.granted(self._waiting())):
            self._tell(MayTurn(job, number))

    def left(self, job: str) -> None:
        """A gang is over."""
        self._turns.forget(job)
        self._gangs.discard(job)
        self._workers.pop(job, None)
        if job in self._leases.gangs():
            self._granted(self._leases.release(job))

    def worker_gone(self, worker: str) -> None:
        """The slots of a worker are gone."""
        for lost in (self._leases.lost(worker), self._turns.lost(worker)):
            for job, slots in lost.items():
                self._tell(SlotsLost(job, slots))
        self._granted(self._leases.granted())

    def workers(self, job: str) -> tuple[str, ...]:
        """Return the workers where a job takes turns that leases no slots: they have parts of its model."""
        return self._workers.get(job, ())

    def held(self, job: str) -> tuple[str, ...]:
        """Return the slots that a gang holds."""
        return self._leases.held(job)

    def held_by_others(self, jobs: Collection[str]) -> set[str]:
        """Return the slots of all gangs but these."""
        others = self._leases.gangs() - {*jobs}
        return {slot for job in others for slot in self._leases.held(job)}

    def _there(self, job: str, slots: Collection[str]) -> list[str] | None:
        """Return those of the slots whose worker is there, and tell of the others. None: no gang can run."""
        if self._why_not is not None:
            self._tell(NoLeases(job, self._why_not))
            return None
        self._gangs.add(job)
        gone = tuple(slot for slot in slots if worker_of(slot) not in self._scheduler.workers)
        if gone:
            self._tell(SlotsLost(job, gone))
        return [slot for slot in slots if slot not in gone]

    def _granted(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._tell(Leased(job, self._leases.held(job)))

    def _tell(self, answer: GangAnswer) -> None:
        if (session := self._session_of(answer.job)) is not None:
            tell_session(self._scheduler, session, answer)
