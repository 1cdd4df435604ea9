"""The slot desk: which gangs train, what their slot policy sees of them, and which slots each is offered.

Two tiers decide. The sharing policy's plan says how many cores all gangs have together. The slot policy
divides that number of slots among them. A gang is offered a slot only once no other gang holds it. So gangs
never wait for each other in a circle.

**Leases.** A gang gets all the slots that it asks for, or none of them. Gang A holds slots 1 and 2, gang
B holds 3. C asks for 2 and 3, and waits. D asks for 3, and waits behind C. A and B let go of 2 and 3. Now
C gets both at once, and D waits on.

**Turns.** Jobs that run on certain workers take turns, by the clocks of all jobs. A turn is a task on
each of some slots. A gang has leased its slots for long, and asks for turns on these. A run whose model
is cut into parts asks for slots and a turn in one, and holds them until it asks again. So at each turn
the run that is furthest behind its share gets the slots, and not the one that asked first.

**Example.** A and B have a part each on slot 1, and A has three quarters of the cores. A's turn ends, and
its driver folds what it gave. B asks. If A is further behind, slot 1 is kept for A, which is to ask at
once. Else B has it at once, without a word of A's driver.

A job that is due and whose slots are not all free keeps those that are: none of them goes to one that is
further ahead. A core is not idle for that, since tasks that need no slot run there.

Pure: no clock and no thread lives here, and nothing of Dask.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.scheduling.virtual_time import FairShares
from relaqs.sharing.gangs import FINISHED_COLUMNS, Gang, Gangs, Nodes, SlotPlan, SlotPolicy, SlotView
from relaqs.slot_policies import EqualSlots


def slot_name(worker: str, index: int) -> str:
    """Return the name of one of a worker's slots."""
    return f"{worker}/{index}"


def worker_of(slot: str) -> str:
    """Return the worker whose slot it is."""
    return slot.rpartition("/")[0]


def slots_of(threads: Mapping[str, int]) -> tuple[str, ...]:
    """Return all slots of some workers: one for each thread.

    threads: of each worker, by its address.

    >>> slots_of({"tcp://b:1": 1, "tcp://a:1": 2})
    ('tcp://a:1/0', 'tcp://a:1/1', 'tcp://b:1/0')
    """
    return tuple(slot_name(worker, index) for worker in sorted(threads) for index in range(threads[worker]))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a job asks for. slots: empty where it has leased them. number: see `SlotTurns.ask_turn`."""

    slots: tuple[str, ...]
    number: int


@dataclass(slots=True)
class _Turn:
    """The newest turn of a job that asked for its slots with it.

    Attributes:
        slots: that it holds by this turn, until another one has them.
        tasks: that have not ended. Then it holds the slots on, and is to ask again at once.
        was_next: whether nobody was further behind who asked.
    """

    slots: tuple[str, ...]
    tasks: int
    was_next: bool


class SlotTurns:
    """The slots that jobs hold and wait for, and the turns that they ask for. Not thread-safe.

    Args:
        shares: has a clock of each job that asks for turns.
    """

    def __init__(self, shares: FairShares) -> None:
        self._shares = shares
        self._held: dict[str, tuple[str, ...]] = {}
        self._leasing: dict[str, tuple[str, ...]] = {}  # what gangs wait for, in the order of asking
        self._asking: dict[str, _Asked] = {}  # for a turn
        self._turns: dict[str, _Turn] = {}

    def held(self, job: str) -> tuple[str, ...]:
        return self._held.get(job, ())

    def holders(self) -> set[str]:
        """Return the jobs that hold slots, or wait for some."""
        return {*self._held, *self._leasing}

    def has_claim(self, gang: str) -> bool:
        """Return whether a gang holds slots, or waits for some."""
        return bool(self._held.get(gang) or self._leasing.get(gang))

    def lease(self, gang: str, slots: Collection[str]) -> tuple[str, ...]:
        """Let a gang hold these slots and no others, as soon as all are free.

        Return the gangs that get theirs. It keeps what it holds until then. What it asked for before is
        forgotten.
        """
        self._leasing.pop(gang, None)
        self._leasing[gang] = tuple(slots)
        return self.leased()

    def leased(self) -> tuple[str, ...]:
        """Give those gangs their slots whose slots are all free now, and return them."""
        granted = []
        reserved: set[str] = set()  # by gangs that asked earlier
        for gang, slots in list(self._leasing.items()):
            taken = {slot for other, own in self._held.items() if other != gang for slot in own}
            if (reserved | taken).isdisjoint(slots):
                self._held[gang] = self._leasing.pop(gang)
                granted.append(gang)
            else:
                reserved.update(slots)
        return tuple(granted)

    def ask_turn(self, job: str, slots: Collection[str] = (), number: int = 0) -> tuple[str, ...]:
        """Note that a job wants its next turn. Return the gangs that get slots which it held until now.

        Args:
            slots: that it wants to hold with this turn. Empty: it has leased them.
            number: comes back with the turn.
        """
        is_new = job not in self._asking and not self.held(job)  # else it asked all the time
        self._asking[job] = _Asked(tuple(slots), number)
        if not slots:
            return ()
        if is_new:
            self._shares.wake(job)
        self._turns.pop(job, None)
        return self._release(job)

    def ended(self, job: str) -> None:
        """Note that a task of a job's turn has ended."""
        if (turn := self._turns.get(job)) is not None:
            turn.tasks -= 1

    def forget_turn(self, job: str) -> None:
        """Drop the turn that a job asks for, and the one that it has."""
        self._asking.pop(job, None)
        self._turns.pop(job, None)

    def leave(self, job: str) -> tuple[str, ...]:
        """Take all slots of a job back, and forget what it asks for. Return the gangs that get theirs."""
        self.forget_turn(job)
        return self._release(job)

    def lost(self, worker: str) -> dict[str, tuple[str, ...]]:
        """Forget the slots of a worker that is gone. Return what each job held there or waited for."""
        found = defaultdict[str, dict[str, None]](dict)
        for slots_of_job in (self._held, self._leasing):
            for job, slots in slots_of_job.items():
                if gone := _at(worker, slots):
                    found[job].update(gone)
                    slots_of_job[job] = tuple(slot for slot in slots if slot not in gone)
        for job, asked in list(self._asking.items()):
            if gone := _at(worker, asked.slots):
                found[job].update(gone)
                del self._asking[job]
        return {job: tuple(gone) for job, gone in found.items()}

    def was_next(self, job: str) -> bool | None:
        """Return whether a job was furthest behind when it got slots for a turn. None: it has none so."""
        return None if (turn := self._turns.get(job)) is None else turn.was_next

    def granted(self, waiting: Collection[str]) -> Iterator[tuple[str, int]]:
        """Give those their turns that are due and whose slots are free. Yield them, and their numbers.

        waiting: the jobs with tasks that wait for any core. Whoever is further ahead than one of them waits.
        """
        kept = {job for job, turn in self._turns.items() if turn.slots and turn.tasks <= 0}
        taken: set[str] = set()  # by jobs that are further behind
        for job in self._shares.in_order({*waiting, *self._asking, *kept}):
            if (asked := self._asking.get(job)) is not None:
                if self._begins(job, asked.slots, taken, kept):
                    yield job, asked.number
                else:
                    taken.update(asked.slots)
            elif job in kept:
                taken.update(self._turns[job].slots)
            else:
                return

    def _begins(self, job: str, slots: tuple[str, ...], taken: set[str], kept: Collection[str]) -> bool:
        """Let a job hold the slots that it asks for, and begin its turn, if it can. Return whether."""
        claims = (*self._held.items(), *self._leasing.items())
        claiming = {other for other, own in claims if not {*slots}.isdisjoint(own)}
        if not taken.isdisjoint(slots) or not claiming <= {*kept}:
            return False
        for other in kept:
            self._turns[other].slots = tuple(each for each in self._turns[other].slots if each not in slots)
        if slots:
            for other, own in self._held.items():
                self._held[other] = tuple(slot for slot in own if slot not in slots)
            self._held[job] = slots
            self._turns[job] = _Turn(slots, len(slots), not taken)
        del self._asking[job]
        return True

    def _release(self, job: str) -> tuple[str, ...]:
        self._leasing.pop(job, None)
        self._held.pop(job, None)
        return self.leased()


def _at(worker: str, slots: Iterable[str]) -> dict[str, None]:
    """Return those of some slots that are a worker's, in their order."""
    return dict.fromkeys(slot for slot in slots if worker_of(slot) == worker)


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
        """Count the time since the last look. slots: how many it held in it."""
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
            offers[name] = tuple(chosen[: most_ranks(len(chosen))])
            for slot in offers[name]:
                free[self._machine(slot)].pop(slot, None)
        return offers

    def machine_count(self, slots: Sequence[str]) -> int:
        """Return on how many machines some slots are."""
        return len(self._machines(slots))

    def _within(self, slots: Sequence[str], held: Mapping[str, Sequence[str]], count: int) -> tuple[str, ...]:
        """Return `count` of the slots: first those that are held."""
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
        """Return the wanted slots of each machine: those of the gang's own first, then free ones."""
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


def most_ranks(slots: int) -> int:
    """Return how many ranks some slots can have: the largest power of two, so that sums keep their bits.

    >>> [most_ranks(slots) for slots in (0, 1, 2, 3, 4, 7)]
    [0, 1, 2, 2, 4, 4]
    """
    return 1 << (slots.bit_length() - 1) if slots else 0
