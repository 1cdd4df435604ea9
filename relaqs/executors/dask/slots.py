"""Slots on a Dask scheduler: who holds which, whose next turn may start, and how drivers of gangs hear of it.

A turn is one pinned task on each slot of a gang. Pinned tasks pass the queue by, so a gang asks before
each turn. It may take the turn if no job with waiting tasks is further behind its share: the same clocks
decide (`relaqs.executors.slot_desk`).

A slot policy may take a tenth of a second. The scheduler's event loop must not wait for it. So it plans
over a view, which nothing changes, in a thread. What the plan offers is worked out on the loop, by what is
held then.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from distributed import get_worker
from distributed.comm.addressing import get_address_host
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask.messages import (
    GangAnswer,
    Leased,
    MayTurn,
    NoLeases,
    SlotsLost,
    SlotsOffered,
    tell_session,
)
from relaqs.executors.slot_desk import DeskFacts, SlotCount, SlotDesk, SlotTurns, planned, slots_of, worker_of
from relaqs.jobs.executor import Stoppable
from relaqs.scheduling.virtual_time import FairShares
from relaqs.sharing.gangs import Gang, SlotPlan, SlotPolicy

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler


@runtime_checkable
class GangDriver(Stoppable, Protocol):
    """What drives a gang. Each call comes on the client's event loop, must return at once and not raise."""

    def leased(self, slots: tuple[str, ...]) -> None:
        """The gang holds these slots now, and no others."""
        ...

    def offered(self, slots: tuple[str, ...]) -> None:
        """The gang is to train on these slots and no others."""
        ...

    def may_turn(self, number: int) -> None:
        """The gang may take one turn. number: of its asking."""
        ...

    def slots_lost(self, slots: tuple[str, ...]) -> None:
        """These slots are gone with their worker, and with what ran there."""
        ...

    def refused(self, why: str) -> None:
        """No gang can run on this cluster."""
        ...

    def unreachable(self, error: ClusterError) -> None:
        """The cluster is out of reach for good: nothing that was asked for will come."""
        ...


def tell_driver(driver: GangDriver, answer: GangAnswer) -> None:
    """Pass on what the plugin says."""
    match answer:
        case Leased(_, slots):
            driver.leased(slots)
        case SlotsOffered(_, slots):
            driver.offered(slots)
        case MayTurn(_, number):
            driver.may_turn(number)
        case SlotsLost(_, slots):
            driver.slots_lost(slots)
        case NoLeases(_, why):
            driver.refused(why)


@dataclass(frozen=True, slots=True)
class WorkerHere:
    """The Dask worker that runs the calling task.

    Attributes:
        host: the address by which other workers reach its machine.
        contexts: of TLS, by which it calls others and is called. None: the cluster is without.
    """

    host: str
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None


def worker_here() -> WorkerHere | None:
    """Return the worker whose thread calls, or None: it is no thread of a worker."""
    try:
        worker = get_worker()
    except ValueError:
        return None
    if not worker.address.startswith(("tls://", "wss://")):
        return WorkerHere(get_address_host(worker.address), None)
    calling = worker.security.get_connection_args("worker")["ssl_context"]
    called = worker.security.get_listen_args("worker")["ssl_context"]
    return WorkerHere(get_address_host(worker.address), (calling, called))


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
        self._turns = SlotTurns(shares)
        self._gangs: set[str] = set()  # with slots or without
        self._workers: dict[str, tuple[str, ...]] = {}  # where jobs took their turns last that lease no slots

    def lease(self, job: str, slots: Collection[str]) -> None:
        """Let a gang hold these slots as soon as they are free."""
        if (there := self._there(job, slots)) is None:
            return
        if not slots:
            self._turns.forget_turn(job)
        self._granted(self._turns.lease(job, there))
        self.look()

    def hand(self, job: str, slots: Collection[str]) -> None:
        """Let a gang without slots hold some that are offered to it, before it asks: it would ask at once."""
        if slots and not self._turns.has_claim(job):
            self.lease(job, slots)

    def ask_turn(self, job: str, slots: Collection[str], number: int) -> None:
        """A gang wants its next turn. slots: those that come with it; empty where it has leased them."""
        if job not in self._shares or (there := self._there(job, slots)) is None or len(there) < len(slots):
            return
        if slots:
            self._workers[job] = tuple(sorted({*map(worker_of, slots)}))
        self._granted(self._turns.ask_turn(job, slots, number))
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
        self._gangs.discard(job)
        self._workers.pop(job, None)
        self._granted(self._turns.leave(job))

    def worker_gone(self, worker: str) -> None:
        """The slots of a worker are gone."""
        for job, slots in self._turns.lost(worker).items():
            self._tell(SlotsLost(job, slots))
        self._granted(self._turns.leased())

    def workers(self, job: str) -> tuple[str, ...]:
        """Return the workers where a job takes turns that leases no slots: they have parts of its model."""
        return self._workers.get(job, ())

    def held(self, job: str) -> tuple[str, ...]:
        """Return the slots that a gang holds."""
        return self._turns.held(job)

    def held_by_others(self, jobs: Collection[str]) -> set[str]:
        """Return the slots of all gangs but these."""
        others = self._turns.holders() - {*jobs}
        return {slot for job in others for slot in self._turns.held(job)}

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
            self._tell(Leased(job, self._turns.held(job)))

    def _tell(self, answer: GangAnswer) -> None:
        if (session := self._session_of(answer.job)) is not None:
            tell_session(self._scheduler, session, answer)


SLOT_EPOCH_SECONDS = 5.0  # between two plans where nothing happens: a change costs a gang a short pause


class SlotOffers:
    """The slots that the gangs of all clients are offered. All is called on the scheduler's event loop.

    Args:
        gangs: who holds which slots.
        tell: sends a gang's driver an answer.
        warn: tells all clients that something is wrong.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        gangs: LeasedGangs,
        policy: SlotPolicy,
        tell: Callable[[SlotsOffered], None],
        warn: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._gangs = gangs
        self._policy = policy
        self._tell = tell
        self._warn = warn
        self._warned: str | None = None
        self._desk = SlotDesk(get_address_host)
        self._count = SlotCount(SLOT_EPOCH_SECONDS)
        self._planned_count = 0
        self._plan: SlotPlan | None = None
        self._planned_seconds = 0.0
        self._planned_for: object = None
        self._thinking: asyncio.Task[None] | None = None
        self._offered: dict[str, tuple[str, ...]] = {}

    @property
    def policy(self) -> SlotPolicy:
        """Who gets which slots. Another one counts from the next plan on."""
        return self._policy

    @policy.setter
    def policy(self, policy: SlotPolicy) -> None:
        self._policy, self._planned_for, self._desk.memory = policy, None, None

    def take_in(self, gang: Gang, now_seconds: float) -> bool:
        """Note what a gang tells of itself. Return whether it is new."""
        is_new = gang.id not in self._desk
        self._desk.take_in(gang, now_seconds)
        return is_new

    def set_weight(self, job: str, weight: float) -> None:
        self._desk.set_weight(job, weight)

    def left(self, job: str) -> None:
        self._desk.leave(job)
        self._offered.pop(job, None)

    def slots_of(self, job: str) -> int:
        return len(self._gangs.held(job)) if job in self._desk else 0

    def gang(self, job: str) -> Gang | None:
        """Return what a gang has told last; None: the job is none."""
        return self._desk.gang(job) if job in self._desk else None

    def look(self, now_seconds: float, cores: Mapping[str, float], asking: Collection[str]) -> None:
        """Plan anew if it is time, and offer what is free.

        Args:
            cores: what the sharing policy has planned, by job.
            asking: the jobs that want cores now.
        """
        gangs = [job for job in self._desk if job in asking]
        slots = self._slots()
        if not list(self._desk) or not slots:
            return
        count = min(self._count.at(now_seconds, sum(cores.get(job, 0.0) for job in gangs)), len(slots))
        wanted_for = (tuple(gangs), slots, self._policy.name)
        has_changed = wanted_for != self._planned_for or count > self._planned_count
        is_due = has_changed or now_seconds - self._planned_seconds >= SLOT_EPOCH_SECONDS
        if is_due and self._thinking is None:
            self._planned_for, self._planned_seconds = wanted_for, now_seconds
            self._planned_count = count
            facts = self._desk.facts(now_seconds, slots, self._held(), count, gangs)
            self._thinking = asyncio.ensure_future(self._think(self._policy, facts))
        self._offer(slots)

    async def _think(self, policy: SlotPolicy, facts: DeskFacts) -> None:
        try:
            plan, wrong = await asyncio.to_thread(lambda: planned(policy, facts.view()))
        finally:
            self._thinking = None
        if wrong is not None and wrong != self._warned:
            self._warned = wrong
            self._warn(wrong)
        self._plan = plan
        if wrong is None and policy is self._policy:
            self._desk.memory = plan.memory
        self.offer_free()

    def offer_free(self) -> None:
        """Offer slots that have become free, as the present plan says."""
        self._offer(self._slots())

    def _offer(self, slots: tuple[str, ...]) -> None:
        """Offer what the plan says, of what is free."""
        if self._plan is None:
            return
        if self._desk.machine_count(slots) != len(self._plan.node_slots):
            return  # a machine came or went: the next plan is under way
        for job, offered in self._desk.offers(self._plan, slots, self._held()).items():
            if self._offered.get(job) != offered:
                self._offered[job] = offered
                self._tell(SlotsOffered(job, offered))
                self._gangs.hand(job, offered)

    def _held(self) -> dict[str, tuple[str, ...]]:
        return {job: self._gangs.held(job) for job in self._desk}

    def _slots(self) -> tuple[str, ...]:
        """Return all slots but those of gangs that ask for slots by themselves."""
        threads = {worker.address: worker.nthreads for worker in self._scheduler.running}
        taken = self._gangs.held_by_others({*self._desk})
        return tuple(slot for slot in slots_of(threads) if slot not in taken)
