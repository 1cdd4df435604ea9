"""Who holds which slot: a gang gets all the slots that it asks for, or none of them.

**Example.** Gang A holds slots 1 and 2, gang B holds 3. C asks for 2 and 3, and waits. D asks for 3, and
waits behind C. A and B let go of 2 and 3. Now C gets both at once, and D waits on.

Pure: no clock and no thread lives here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def slot_name(worker: str, index: int) -> str:
    """Return the name of one of a worker's slots.

    >>> slot_name("tcp://10.0.0.7:4711", 0), worker_of(slot_name("tcp://10.0.0.7:4711", 0))
    ('tcp://10.0.0.7:4711/0', 'tcp://10.0.0.7:4711')
    """
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


class Leases:
    """The slots that gangs hold, and those that they wait for. Not thread-safe.

    >>> leases = Leases()
    >>> leases.ask("a", ("1", "2"))
    ('a',)
    >>> leases.ask("b", ("2", "3")), leases.ask("c", ("3",)), leases.held("b")
    ((), (), ())
    >>> leases.release("a"), leases.held("b")
    (('b',), ('2', '3'))
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, ...]] = {}
        self._asked: dict[str, tuple[str, ...]] = {}  # in the order in which they asked

    def held(self, gang: str) -> tuple[str, ...]:
        return self._held.get(gang, ())

    def gangs(self) -> set[str]:
        """Return the gangs that hold slots, or wait for some."""
        return {*self._held, *self._asked}

    def ask(self, gang: str, slots: Collection[str]) -> tuple[str, ...]:
        """Let a gang hold these slots and no others, as soon as all are free.

        Return the gangs that get theirs. It keeps what it holds until then. What it asked for before is
        forgotten.
        """
        self._asked.pop(gang, None)
        self._asked[gang] = tuple(slots)
        return self.granted()

    def has_claim(self, gang: str) -> bool:
        """Return whether a gang holds slots, or waits for some."""
        return bool(self._held.get(gang) or self._asked.get(gang))

    def claimed(self, slots: Collection[str]) -> set[str]:
        """Return the gangs that hold one of these slots, or wait for one."""
        claims = (*self._held.items(), *self._asked.items())
        return {gang for gang, own in claims if not {*slots}.isdisjoint(own)}

    def take(self, gang: str, slots: Collection[str]) -> None:
        """Let a gang hold these slots at once, and no others. Whoever holds one of them holds it no more."""
        for other, own in self._held.items():
            self._held[other] = tuple(slot for slot in own if slot not in slots)
        self._held[gang] = tuple(slots)

    def release(self, gang: str) -> tuple[str, ...]:
        """Take all slots of a gang back. Return the gangs that get theirs."""
        self._asked.pop(gang, None)
        self._held.pop(gang, None)
        return self.granted()

    def lost(self, worker: str) -> dict[str, tuple[str, ...]]:
        """Forget the slots of a worker that is gone. Return what each gang held there or waited for."""
        found: dict[str, tuple[str, ...]] = {}
        for slots_of_gang in (self._held, self._asked):
            for gang, slots in slots_of_gang.items():
                if gone := tuple(slot for slot in slots if worker_of(slot) == worker):
                    found[gang] = tuple(dict.fromkeys((*found.get(gang, ()), *gone)))
                    slots_of_gang[gang] = tuple(slot for slot in slots if slot not in gone)
        return found

    def granted(self) -> tuple[str, ...]:
        """Give those gangs their slots whose slots are all free now, and return them."""
        granted = []
        reserved: set[str] = set()  # by gangs that asked earlier
        for gang, slots in list(self._asked.items()):
            if reserved.isdisjoint(slots) and self._taken_by_others(gang).isdisjoint(slots):
                self._held[gang] = self._asked.pop(gang)
                granted.append(gang)
            else:
                reserved.update(slots)
        return tuple(granted)

    def _taken_by_others(self, gang: str) -> set[str]:
        return _all(slots for other, slots in self._held.items() if other != gang)


def _all(groups: Iterable[Iterable[str]]) -> set[str]:
    return {each for group in groups for each in group}
