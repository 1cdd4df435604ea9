"""The slot desk: which gangs train, what their slot policy sees of them, and which slots each is offered.

Two tiers decide. The sharing policy's plan says how many cores all gangs have together. The slot policy
divides so many slots among them. A gang is offered a slot only once no other gang holds it. So gangs never
wait for each other in a circle.

Pure: no clock and no thread lives here, and nothing of Dask.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.executors.leases import worker_of
from relaqs.gangs.gangs import Gang, Gangs
from relaqs.gangs.nodes import Nodes
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.policy import SlotPolicy
from relaqs.gangs.view import FINISHED_COLUMNS, SlotView
from relaqs.slot_policies.equal_slots import EqualSlots

POINTS_KEPT = 400  # of the ways of gangs that ended


@dataclass(slots=True)
class _Row:
    """One gang. time_seconds: until when its seconds are counted."""

    gang: Gang
    time_seconds: float
    points: list[tuple[float, ...]] = field(default_factory=list)

    def count(self, slots: int, now_seconds: float) -> None:
        """Count the time since the last look, in which it held so many slots."""
        spent, self.time_seconds = now_seconds - self.time_seconds, now_seconds
        waited = self.gang.waiting_since_seconds
        self.gang = replace(
            self.gang,
            executed_seconds=self.gang.executed_seconds + (spent if slots else 0.0),
            attained_slot_seconds=self.gang.attained_slot_seconds + spent * slots,
            waiting_since_seconds=math.nan if slots else now_seconds if math.isnan(waited) else waited,
            slots_seen_most=max(self.gang.slots_seen_most, slots),
        )


class SlotDesk:
    """The gangs of all clients, and the slots that each is offered. Not thread-safe.

    Every `now_seconds` is on one clock of the caller's that never goes back.

    >>> desk = SlotDesk()
    >>> for name in ("a", "b"):
    ...     desk.take_in(Gang(name, rows_most=256.0, slot_rows_least=32.0), now_seconds=0.0)
    >>> slots = ("tcp://one:1/0", "tcp://one:2/0", "tcp://two:1/0", "tcp://two:2/0")
    >>> view = desk.view(1.0, slots, held={"a": slots}, count=4, asking=("a", "b"))
    >>> plan = EqualSlots().plan(view)
    >>> desk.offers(plan, slots, {"a": slots})
    {'a': ('tcp://one:1/0', 'tcp://one:2/0'), 'b': ()}
    >>> desk.offers(plan, slots, {"a": slots[:2]})["b"]
    ('tcp://two:1/0', 'tcp://two:2/0')

    Args:
        machine_of: returns the machine of a worker's address. Slots of one machine are one node.
    """

    def __init__(self, machine_of: Callable[[str], str] = lambda worker: worker.rpartition(":")[0]) -> None:
        self._machine_of = machine_of
        self._rows: dict[str, _Row] = {}
        self._points: list[tuple[float, ...]] = []
        self._began_seconds = math.inf
        self._arrived = 0
        self.memory: object | None = None

    def __contains__(self, gang: str) -> bool:
        return gang in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def gang(self, gang: str) -> Gang:
        return self._rows[gang].gang

    def take_in(self, gang: Gang, now_seconds: float) -> None:
        """Note what a gang tells of itself. The first time, it comes."""
        if (row := self._rows.get(gang.id)) is None:
            self._began_seconds = min(self._began_seconds, now_seconds)
            self._arrived += 1
            self._rows[gang.id] = _Row(replace(gang, arrival_seconds=now_seconds), now_seconds)
            return
        before, row.gang = row.gang, replace(gang, **{name: getattr(row.gang, name) for name in _OURS})
        if gang.passes_done > before.passes_done:
            row.points.append(_point(gang))

    def set_weight(self, gang: str, weight: float) -> None:
        if (row := self._rows.get(gang)) is not None:
            row.gang = replace(row.gang, weight=weight)

    def leave(self, gang: str) -> None:
        """Forget a gang. The way that it went is what the policies may learn from."""
        if (row := self._rows.pop(gang, None)) is not None:
            passes = row.gang.passes_done
            self._points += [(*point[:-1], max(passes - point[-1], 0.0)) for point in row.points]
            del self._points[:-POINTS_KEPT]

    def view(
        self,
        now_seconds: float,
        slots: Sequence[str],
        held: Mapping[str, Sequence[str]],
        count: int,
        asking: Collection[str],
    ) -> SlotView:
        """Return what the slot policy sees.

        Args:
            slots: those that may be offered.
            held: by gang; also slots that may not be offered any more.
            count: how many slots all gangs may hold together.
            asking: the gangs that want to train now.
        """
        for name, row in self._rows.items():
            row.count(len(held.get(name, ())), now_seconds)
        within = self._within(slots, held, count)
        machines = tuple(dict.fromkeys(map(self._machine, slots)))
        nodes = Nodes(machines, self._by_machine(within, machines), np.ones(len(machines), dtype=np.bool_))
        rows = [
            replace(row.gang, held=tuple(self._by_machine({*held.get(name, ())} & within, machines).tolist()))
            for name, row in self._rows.items()
            if name in asking
        ]
        return SlotView(
            now_seconds,
            nodes,
            Gangs.of(rows, len(machines)),
            np.array(self._points, dtype=np.float64).reshape(-1, len(FINISHED_COLUMNS)),
            self._arrived / max(now_seconds - self._began_seconds, 1.0),
            self.memory,
        )

    def offers(
        self, plan: SlotPlan, slots: Sequence[str], held: Mapping[str, Sequence[str]]
    ) -> dict[str, tuple[str, ...]]:
        """Return the slots that each gang may hold from now on: as the plan says, of those free by now.

        Ranks are a power of two. What is planned beyond stays free.
        """
        machines = tuple(dict.fromkeys(map(self._machine, slots)))
        free = [slot for slot in slots if not any(slot in own for own in held.values())]
        offers: dict[str, tuple[str, ...]] = {}
        for row, name in enumerate(plan.ids):
            wanted = dict(zip(machines, plan.slots_by_node[row].tolist(), strict=True))
            own = [slot for slot in held.get(name, ()) if slot in slots]
            chosen = self._taken(own, wanted) + self._taken(free, wanted)
            chosen = (chosen or own[: int(plan.slots[row])])[: _power_of_two(len(chosen or own))]
            free = [slot for slot in free if slot not in chosen]
            offers[name] = tuple(chosen)
        return offers | {name: () for name in self._rows if name not in offers}

    def _within(self, slots: Sequence[str], held: Mapping[str, Sequence[str]], count: int) -> set[str]:
        """Return so many of the slots: first those that are held."""
        own = {slot for each in held.values() for slot in each}
        return {*sorted(slots, key=lambda slot: slot not in own)[:count]}

    def _taken(self, slots: Sequence[str], wanted: dict[str, int]) -> list[str]:
        """Return slots of the machines where some are wanted, and count them off."""
        taken = []
        for slot in slots:
            if wanted[machine := self._machine(slot)] > 0:
                wanted[machine] -= 1
                taken.append(slot)
        return taken

    def _machine(self, slot: str) -> str:
        return self._machine_of(worker_of(slot))

    def _by_machine(self, slots: Collection[str], machines: Sequence[str]) -> IntArray:
        count = Counter(map(self._machine, slots))
        return np.array([count[machine] for machine in machines], dtype=np.int64)


def planned(policy: SlotPolicy, view: SlotView) -> tuple[SlotPlan, str | None]:
    """Return the policy's plan, and None; where it fails, that of equal slots, and what went wrong.

    A policy may be a user's own, and must not stop training.
    """
    try:
        plan = policy.plan(view)
        if not isinstance(plan, SlotPlan) or plan.ids != view.gangs.ids:
            raise TypeError(f"it returned {plan!r} instead of a SlotPlan for the jobs of its view")
        return plan, None
    except Exception as error:
        name = getattr(policy, "name", type(policy).__name__)
        wrong = f"slot policy {name!r} failed ({error!r}); gangs have equal numbers of slots meanwhile"
        return EqualSlots().plan(view), wrong


_OURS = (  # what the desk knows better than the gang
    "arrival_seconds",
    "weight",
    "executed_seconds",
    "attained_slot_seconds",
    "waiting_since_seconds",
    "slots_seen_most",
)


def _point(gang: Gang) -> tuple[float, ...]:
    fallen = 1.0 - gang.loss / gang.first_loss if gang.first_loss > 0 else math.nan
    return (gang.pass_rows, gang.first_loss, gang.rows_done, fallen, gang.accuracy, gang.passes_done)


def _power_of_two(count: int) -> int:
    """Return the largest power of two that is not above it; 0 for 0."""
    return 1 << (count.bit_length() - 1) if count else 0
