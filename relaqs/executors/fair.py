"""Which job runs next: weighted fair sharing of measured core-seconds, by virtual time.

A job's virtual time is the core-seconds it has used divided by its weight; the job with the least goes next
(stride scheduling: Waldspurger, Weihl 1995). This is the one place to change for another scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")

CREDIT_CORE_SECONDS = 0.1  # what a job that comes back may be owed: two ordinary tasks
FIRST_TASK_CORE_SECONDS = 0.05  # taken for a job's task until one was measured
NEWEST_SHARE = 0.2  # of the newest measurement in the running mean of a job's tasks


@dataclass(frozen=True, slots=True)
class Turn(Generic[Item]):
    """An item that was given a core. charged_virtual_seconds: put on its job's account in advance."""

    job: str
    item: Item
    charged_virtual_seconds: float


@dataclass(slots=True)
class _Account(Generic[Item]):
    weight: float
    virtual_seconds: float
    waiting: deque[Item] = field(default_factory=deque)
    running: int = 0
    task_core_seconds: float = FIRST_TASK_CORE_SECONDS


class FairQueue(Generic[Item]):
    """The waiting items of many jobs. Not thread-safe: its owner holds a lock.

    An item is charged its job's mean when it starts, so that items started together spread over the jobs,
    and what it really took when it ends.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account[Item]] = {}
        self._now_virtual_seconds = 0.0

    def add(self, job: str, weight: float, items: Iterable[Item]) -> None:
        """Queue items behind the job's others. A job that was idle has at most its credit in hand."""
        account = self._accounts.get(job)
        if account is None:
            account = self._accounts[job] = _Account(weight, self._now_virtual_seconds)
        elif not account.waiting and not account.running:
            oldest = self._now_virtual_seconds - CREDIT_CORE_SECONDS / weight
            account.virtual_seconds = max(account.virtual_seconds, oldest)
        account.weight = weight
        account.waiting.extend(items)

    def pop(self) -> Turn[Item] | None:
        """Take the next item of the job with the least virtual time, or None where nothing waits."""
        ready = [(account.virtual_seconds, job) for job, account in self._accounts.items() if account.waiting]
        if not ready:
            return None
        least, job = min(ready)
        account = self._accounts[job]
        self._now_virtual_seconds = max(self._now_virtual_seconds, least)
        charged = account.task_core_seconds / account.weight
        account.virtual_seconds += charged
        account.running += 1
        return Turn(job, account.waiting.popleft(), charged)

    def settle(self, turn: Turn[Item], core_seconds: float) -> None:
        """Charge what the item took instead of what was charged in advance."""
        account = self._accounts.get(turn.job)
        if account is None:  # the job was dropped meanwhile
            return
        account.running -= 1
        account.virtual_seconds += core_seconds / account.weight - turn.charged_virtual_seconds
        account.task_core_seconds += NEWEST_SHARE * (core_seconds - account.task_core_seconds)

    def set_weight(self, job: str, weight: float) -> None:
        if job in self._accounts:
            self._accounts[job].weight = weight

    def drop(self, job: str) -> None:
        """Forget the job and what of it waits."""
        self._accounts.pop(job, None)

    def jobs(self) -> list[str]:
        return list(self._accounts)
