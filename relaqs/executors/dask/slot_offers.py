"""Slots for gangs on the scheduler: the slot policy is asked in a thread, and gangs hear what they may hold.

A slot policy may take a tenth of a second. The scheduler's event loop must not wait for it. So it plans over
a view, which nothing changes, in a thread. What the plan offers is worked out on the loop, by what is held
then.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from distributed.comm.addressing import get_address_host

from relaqs.executors.dask.gangs import LeasedGangs
from relaqs.executors.dask.messages import SlotsOffered
from relaqs.executors.leases import slots_of
from relaqs.executors.slot_desk import DeskFacts, SlotCount, SlotDesk, planned
from relaqs.gangs.plan import SlotPlan, SlotPolicy
from relaqs.gangs.view import Gang

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

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
