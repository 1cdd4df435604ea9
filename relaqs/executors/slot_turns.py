"""Whose turn on slots is next: jobs that run on certain workers take turns, by the clocks of all jobs.

A **turn** is a task on each of some slots. A gang has leased its slots for long, and asks for turns on these.
A run whose model is cut into parts asks for slots and a turn in one, and holds them until it asks again. So
at each turn the run that is furthest behind its share gets the slots, and not the one that asked first.

**Example.** A and B have a part each on slot 1, and A has three quarters of the cores. A's turn ends, and its
driver folds what it gave. B asks. If A is further behind, slot 1 is kept for A, which is to ask at once. Else
B has it at once, without a word of A's driver.

A job that is due and whose slots are not all free keeps those that are: none of them goes to one that is
further ahead. A core is not idle for that, since tasks that need no slot run there.

Pure: no clock and no thread lives here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from relaqs.executors.leases import Leases, worker_of
from relaqs.scheduling.virtual_time import FairShares


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a job asks for. slots: empty where it has leased them. number: see `SlotTurns.ask`."""

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
    """The jobs that ask for turns, and those that have one. Not thread-safe.

    Each job has a clock in `shares`.

    >>> shares = FairShares()
    >>> shares.enter("a", share=1.5)
    >>> shares.enter("b", share=0.5)
    >>> turns = SlotTurns(shares, Leases())
    >>> order = []
    >>> for _ in range(8):
    ...     _ = turns.ask("a", ("w/0",)), turns.ask("b", ("w/0",))
    ...     ((job, _),) = turns.granted(waiting=())
    ...     shares.settle(job, shares.start(job), core_seconds=0.25)
    ...     turns.ended(job)
    ...     order.append(job)
    >>> order.count("a"), order.count("b")
    (6, 2)
    """

    def __init__(self, shares: FairShares, leases: Leases) -> None:
        self._shares = shares
        self._leases = leases
        self._asking: dict[str, _Asked] = {}
        self._turns: dict[str, _Turn] = {}

    def ask(self, job: str, slots: Collection[str] = (), number: int = 0) -> tuple[str, ...]:
        """Note that a job wants its next turn. Return the gangs that get slots which it held until now.

        Args:
            job: has a clock.
            slots: that it wants to hold with this turn. Empty: it has leased them.
            number: comes back with the turn.
        """
        is_new = job not in self._asking and not self._leases.held(job)  # else it asked all the time
        self._asking[job] = _Asked(tuple(slots), number)
        if not slots:
            return ()
        if is_new:
            self._shares.wake(job)
        self._turns.pop(job, None)
        return self._leases.release(job)

    def ended(self, job: str) -> None:
        """Note that a task of a job's turn has ended."""
        if (turn := self._turns.get(job)) is not None:
            turn.tasks -= 1

    def forget(self, job: str) -> None:
        """Drop what a job asks for, and its turn. What it holds is for `Leases.release`."""
        self._asking.pop(job, None)
        self._turns.pop(job, None)

    def lost(self, worker: str) -> dict[str, tuple[str, ...]]:
        """Drop what jobs ask for on a worker that is gone. Return their slots there."""
        found = {
            job: gone
            for job, asked in self._asking.items()
            if (gone := tuple(slot for slot in asked.slots if worker_of(slot) == worker))
        }
        for job in found:
            del self._asking[job]
        return found

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
        if not taken.isdisjoint(slots) or not self._leases.claimed(slots) <= {*kept}:
            return False
        for other in kept:
            self._turns[other].slots = tuple(each for each in self._turns[other].slots if each not in slots)
        if slots:
            self._leases.take(job, slots)
            self._turns[job] = _Turn(slots, len(slots), not taken)
        del self._asking[job]
        return True
