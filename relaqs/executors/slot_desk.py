"""The slot desk: which gangs train, what their slot policy sees of them, and which slots each is offered.

Two tiers decide. The sharing policy's plan says how many cores all gangs have together. The slot policy
divides so many slots among them. A gang is offered a slot only once no other gang holds it. So gangs never
wait for each other in a circle.

Pure: no clock and no thread lives here, and nothing of Dask.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.executors.leases import worker_of
from relaqs.gangs.plan import SlotPlan, SlotPolicy
from relaqs.gangs.view import FINISHED_COLUMNS, Gang, Gangs, Nodes, SlotView
from relaqs.slot_policies.arrival_order import EqualSlots

POINTS_KEPT = 400  # of the ways of gangs that ended
SLOTS_KNOWN = 1 << 14  # whose machines are remembered


@dataclass(slots=True)
class _Row:
    """One gang: what it has told last, and what the desk knows better, named as in Gang.

    time_seconds: until when its seconds are counted.
    """

    gang: Gang
    arrival_seconds: float
    weight: float
    time_seconds: float
    executed_seconds: float = 0.0
    attained_slot_seconds: float = 0.0
    waiting_since_seconds: float = math.nan
    slots_seen_most: int = 0
    points: list[tuple[float, ...]] = field(default_factory=list)

    def count(self, slots: int, now_seconds: float) -> None:
        """Count the time since the last look, in which it held so many slots."""
        spent, self.time_seconds = now_seconds - self.time_seconds, now_seconds
        self.attained_slot_seconds += spent * slots
        self.slots_seen_most = max(self.slots_seen_most, slots)
        if slots:
            self.executed_seconds += spent
            self.waiting_since_seconds = math.nan
        elif math.isnan(self.waiting_since_seconds):
            self.waiting_since_seconds = now_seconds

    def known_better(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OURS}

    def known(self) -> Gang:
        """Return all that is known of it."""
        return replace(self.gang, **self.known_better())


@dataclass(frozen=True, slots=True)
class DeskFacts:
    """What the desk knows at one moment. Nothing changes it, so any thread may make a view of it.

    Attributes:
        slots: those that may be divided, in their order.
        machines: all there are, as nodes of the view.
        machine_of: each slot's machine.
        rows: of each gang that asks, what it told, what the desk knows better, and the slots that it holds.
        points, arrivals_per_second, memory: as in the view.
    """

    time_seconds: float
    slots: tuple[str, ...]
    machines: tuple[str, ...]
    machine_of: Callable[[str], str]
    rows: tuple[tuple[Gang, Mapping[str, Any], tuple[str, ...]], ...]
    points: tuple[tuple[float, ...], ...]
    arrivals_per_second: float
    memory: object | None

    def view(self) -> SlotView:
        """Return what the slot policy sees."""
        machines, within = self.machines, {*self.slots}
        nodes = Nodes(machines, self._by_machine(self.slots), np.ones(len(machines), dtype=np.bool_))
        gangs = [
            replace(told, **better, held=tuple(self._by_machine(within.intersection(held)).tolist()))
            for told, better, held in self.rows
        ]
        return SlotView(
            self.time_seconds,
            nodes,
            Gangs.of(gangs, len(machines)),
            np.array(self.points, dtype=np.float64).reshape(-1, len(FINISHED_COLUMNS)),
            self.arrivals_per_second,
            self.memory,
        )

    def _by_machine(self, slots: Collection[str]) -> IntArray:
        count = Counter(map(self.machine_of, slots))
        return np.array([count[machine] for machine in self.machines], dtype=np.int64)


class SlotDesk:
    """The gangs of all clients, and the slots that each is offered. Not thread-safe.

    Every `now_seconds` is on one clock of the caller's that never goes back.

    >>> desk = SlotDesk()
    >>> for name in ("a", "b"):
    ...     desk.take_in(Gang(name, rows_most=256.0, slot_rows_least=32.0), now_seconds=0.0)
    >>> slots = ("tcp://one:1/0", "tcp://one:2/0", "tcp://two:1/0", "tcp://two:2/0")
    >>> facts = desk.facts(1.0, slots, held={"a": slots}, count=4, asking=("a", "b"))
    >>> plan = EqualSlots().plan(facts.view())
    >>> desk.offers(plan, slots, {"a": slots})
    {'a': ('tcp://one:1/0', 'tcp://one:2/0'), 'b': ()}
    >>> desk.offers(plan, slots, {"a": slots[:2]})["b"]
    ('tcp://two:1/0', 'tcp://two:2/0')

    Args:
        machine_of: returns the machine of a worker's address. Slots of one machine are one node.
    """

    def __init__(self, machine_of: Callable[[str], str] = lambda worker: worker.rpartition(":")[0]) -> None:
        self._machine = lru_cache(SLOTS_KNOWN)(lambda slot: machine_of(worker_of(slot)))
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
        return self._rows[gang].known()

    def take_in(self, gang: Gang, now_seconds: float) -> None:
        """Note what a gang tells of itself. The first time, it comes."""
        if (row := self._rows.get(gang.id)) is None:
            self._began_seconds = min(self._began_seconds, now_seconds)
            self._arrived += 1
            self._rows[gang.id] = _Row(gang, now_seconds, gang.weight, now_seconds)
            return
        before, row.gang = row.gang, gang
        if gang.passes_done > before.passes_done:
            row.points.append(_point(gang))

    def set_weight(self, gang: str, weight: float) -> None:
        if (row := self._rows.get(gang)) is not None:
            row.weight = weight

    def leave(self, gang: str) -> None:
        """Forget a gang. The way that it went is what the policies may learn from."""
        if (row := self._rows.pop(gang, None)) is not None:
            passes = row.gang.passes_done
            self._points += [(*point[:-1], max(passes - point[-1], 0.0)) for point in row.points]
            del self._points[:-POINTS_KEPT]

    def facts(
        self,
        now_seconds: float,
        slots: Sequence[str],
        held: Mapping[str, Sequence[str]],
        count: int,
        asking: Collection[str],
    ) -> DeskFacts:
        """Return what is known now. It takes little time: the view of it is made elsewhere.

        Args:
            slots: those that may be offered.
            held: by gang; also slots that may not be offered any more.
            count: how many slots all gangs may hold together.
            asking: the gangs that want to train now.
        """
        for name, row in self._rows.items():
            row.count(len(held.get(name, ())), now_seconds)
        asking = {*asking}
        return DeskFacts(
            now_seconds,
            self._within(slots, held, count),
            self._machines(slots),
            self._machine,
            tuple(
                (row.gang, row.known_better(), tuple(held.get(name, ())))
                for name, row in self._rows.items()
                if name in asking
            ),
            tuple(self._points),
            self._arrived / max(now_seconds - self._began_seconds, 1.0),
            self.memory,
        )

    def offers(
        self, plan: SlotPlan, slots: Sequence[str], held: Mapping[str, Sequence[str]]
    ) -> dict[str, tuple[str, ...]]:
        """Return the slots that each gang may hold from now on: as the plan says, of those free by now.

        Ranks are a power of two. What is planned beyond stays free, as does what is planned for a gang that
        has left since.
        """
        machines, there = self._machines(slots), {*slots}
        free = self._free(slots, held)
        wanted = defaultdict[str, dict[str, int]](dict)
        for row, node in np.argwhere(plan.slots_by_node).tolist():
            if (name := plan.ids[row]) in self._rows:
                wanted[name][machines[node]] = int(plan.slots_by_node[row, node])
        offers: dict[str, tuple[str, ...]] = dict.fromkeys(self._rows, ())
        for name, counts in wanted.items():
            own = [slot for slot in held.get(name, ()) if slot in there]
            chosen = self._taken(own, free, counts) or own[: sum(counts.values())]
            offers[name] = tuple(chosen[: _power_of_two(len(chosen))])
            for slot in offers[name]:
                free[self._machine(slot)].pop(slot, None)
        return offers

    def machine_count(self, slots: Sequence[str]) -> int:
        """Return on how many machines some slots are."""
        return len(self._machines(slots))

    def _within(self, slots: Sequence[str], held: Mapping[str, Sequence[str]], count: int) -> tuple[str, ...]:
        """Return so many of the slots: first those that are held."""
        own = {slot for each in held.values() for slot in each}
        return tuple(sorted(slots, key=lambda slot: slot not in own)[:count])

    def _free(
        self, slots: Sequence[str], held: Mapping[str, Sequence[str]]
    ) -> defaultdict[str, dict[str, None]]:
        """Return the slots of each machine that nobody holds, in their order."""
        own = {slot for each in held.values() for slot in each}
        free = defaultdict[str, dict[str, None]](dict)
        for slot in slots:
            if slot not in own:
                free[self._machine(slot)][slot] = None
        return free

    def _taken(
        self, own: Sequence[str], free: Mapping[str, Mapping[str, None]], wanted: Mapping[str, int]
    ) -> list[str]:
        """Return so many slots of each machine: those of the gang's own first, then free ones."""
        left = dict(wanted)
        taken = []
        for slot in own:
            if left.get(machine := self._machine(slot), 0):
                left[machine] -= 1
                taken.append(slot)
        for machine, count in left.items():
            taken += islice(free.get(machine, ()), count)
        return taken

    def _machines(self, slots: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self._machine, slots)))


class SlotCount:
    """How many slots all gangs have together: as many cores as they are planned, fewer only after a while.

    A query that comes is planned a core and may ask for none for a second, or end in one. Its tasks have
    their share without a slot, since turns end for them and go by the clocks. So a gang that gave its slot up
    at once would leave a core idle.

    Args:
        lasting_seconds: for how long gangs are planned fewer cores before they have fewer slots.

    >>> count = SlotCount(lasting_seconds=5.0)
    >>> [count.at(seconds, cores) for seconds, cores in ((0.0, 2.0), (1.0, 1.2), (6.5, 1.2), (7.0, 1.8))]
    [2, 2, 1, 2]
    """

    def __init__(self, lasting_seconds: float) -> None:
        self._lasting_seconds = lasting_seconds
        self._seen: list[tuple[float, int]] = []

    def at(self, now_seconds: float, cores: float) -> int:
        """Return how many there are now, at least 1. cores: what all gangs are planned now."""
        since_seconds = now_seconds - self._lasting_seconds
        self._seen = [each for each in self._seen if each[0] >= since_seconds]
        self._seen.append((now_seconds, max(1, round(cores))))
        return max(count for _, count in self._seen)


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
