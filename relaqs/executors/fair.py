"""Which task runs next in this process: the waiting tasks of each job, and the turns of the jobs.

Pure: no clock and no thread lives here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from relaqs.scheduling.shares import FairShares

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Grant(Generic[Item]):
    """An item that was given a core. charged_core_seconds: put on its job's account in advance."""

    job: str
    item: Item
    charged_core_seconds: float


class FairQueue(Generic[Item]):
    """The waiting items of many jobs, each job's in order. `FairShares` says which job is next.

    A job's first item builds what its other items share, e.g. its hoisted tables. Until that item has ended,
    the job's other items do not start while another job has work: they would only hold a core and wait.

    Not thread-safe: its owner holds a lock.
    """

    def __init__(self, shares: FairShares | None = None) -> None:
        self._shares = FairShares() if shares is None else shares
        self._waiting: dict[str, deque[Item]] = {}
        self._begun: set[str] = set()  # jobs whose first item has started
        self._preparing: set[str] = set()  # of these, the jobs without an item that has ended

    def enter(self, job: str, share: float = 1.0) -> None:
        """Let the job queue items. share: in cores, until a plan gives another."""
        self._shares.enter(job, share)

    def add(self, job: str, items: Iterable[Item]) -> None:
        """Queue items behind the job's others. Raises ValueError if the job has not entered."""
        if job not in self._shares:
            raise ValueError(f"job {job!r} has not entered; call enter with its description first")
        if job not in self._waiting:
            self._shares.wake(job)
        self._waiting.setdefault(job, deque()).extend(items)

    def pop(self, may_start: Callable[[Item], bool] = lambda item: True) -> Grant[Item] | None:
        """Take the next item of the job whose turn it is, or None where nothing waits that may start.

        may_start: is asked of the first item of each job.
        """
        asking = [job for job, items in self._waiting.items() if may_start(items[0])]
        prepared = [job for job in asking if job not in self._preparing]
        chosen = prepared or asking
        if (job := self._shares.next(chosen)) is None:
            return None
        in_turn = len(chosen) == len(self._waiting)
        if job not in self._begun:
            self._begun.add(job)
            self._preparing.add(job)
        waiting = self._waiting[job]
        turn = Grant(job, waiting.popleft(), self._shares.start(job, in_turn=in_turn))
        if not waiting:
            del self._waiting[job]
        return turn

    def settle(self, turn: Grant[Item], core_seconds: float) -> None:
        """Charge what the item took instead of what was charged in advance."""
        self._shares.settle(turn.job, turn.charged_core_seconds, core_seconds)
        self._preparing.discard(turn.job)

    def first(self) -> list[Item]:
        """Return the first item that waits of each job."""
        return [items[0] for items in self._waiting.values()]

    def drop(self, job: str) -> None:
        """Forget the job and its waiting items."""
        self._shares.leave(job)
        self._waiting.pop(job, None)
        self._begun.discard(job)
        self._preparing.discard(job)

    def jobs(self) -> list[str]:
        return self._shares.jobs()
