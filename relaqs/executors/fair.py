"""Which job runs next: weighted fair shares of measured core-seconds. The one place for another scheduler.

`FairQueue` where the choice is made here, one task at a time; `FairStarts` where tasks are sent ahead to wait
for a cluster's cores. Pure: no clock, no thread, no Dask.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")

CREDIT_CORE_SECONDS = 0.1  # what a job that comes back may be owed: two ordinary tasks
FIRST_TASK_CORE_SECONDS = 0.05  # taken for a job's task until one was measured
LEAST_CORE_SECONDS = 1e-4  # taken for tasks too quick to measure
PACE_SECONDS = 1.0  # over which what came back is averaged
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
    """The waiting items of many jobs; next is the job with the least virtual time: core-seconds by weight.

    An item is charged its job's mean when it starts, so that items started together spread over the jobs,
    and what it really took when it ends. Not thread-safe: its owner holds a lock.
    Source: Waldspurger, Weihl 1995, Stride Scheduling.
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


@dataclass(slots=True)
class _Sent:
    weight: float
    waiting: int = 0
    task_core_seconds: float = FIRST_TASK_CORE_SECONDS


class FairStarts:
    """When tasks that are sent ahead, to wait elsewhere, would start if each job had its share.

    Where the earliest goes first, jobs get core-seconds in proportion to their weights, and none starves, not
    even beside tasks of others who plan like this: a waiting task's start comes nearer, while those of tasks
    sent later lie ahead. The pace is taken from what came back lately, so neither the cores need be known
    nor who else uses them; cores is a first guess. Not thread-safe: its owner holds a lock.
    """

    def __init__(self, cores: float) -> None:
        self._jobs: dict[str, _Sent] = {}
        self._came_core_seconds = cores * FIRST_TASK_CORE_SECONDS
        self._busy_seconds = FIRST_TASK_CORE_SECONDS
        self._seen_seconds = 0.0

    def plan(self, job: str, weight: float, count: int, now_seconds: float) -> list[float]:
        """Return the starts of so many new tasks of the job, behind those it has waiting."""
        sent = self._jobs.setdefault(job, _Sent(weight))
        sent.weight = weight
        if not any(each.waiting for each in self._jobs.values()):
            self._seen_seconds = now_seconds  # an idle time does not count
        active = sum(each.weight for each in self._jobs.values() if each.waiting or each is sent)
        pace_cores = max(self._came_core_seconds, LEAST_CORE_SECONDS) / self._busy_seconds
        apart_seconds = max(sent.task_core_seconds, LEAST_CORE_SECONDS) * active / (weight * pace_cores)
        first = now_seconds + sent.waiting * apart_seconds
        sent.waiting += count
        return [first + position * apart_seconds for position in range(count)]

    def settle(self, job: str, core_seconds: float, now_seconds: float) -> None:
        """Note that a task came back and what it took."""
        passed_seconds = max(0.0, now_seconds - self._seen_seconds)
        fading = math.exp(-passed_seconds / PACE_SECONDS)
        self._came_core_seconds = self._came_core_seconds * fading + core_seconds
        self._busy_seconds = self._busy_seconds * fading + passed_seconds
        self._seen_seconds = now_seconds
        if (sent := self._jobs.get(job)) is not None:
            sent.waiting -= 1
            sent.task_core_seconds += NEWEST_SHARE * (core_seconds - sent.task_core_seconds)

    def set_weight(self, job: str, weight: float) -> None:
        """Change the share, for tasks that are planned from now on."""
        if job in self._jobs:
            self._jobs[job].weight = weight

    def drop(self, job: str) -> None:
        self._jobs.pop(job, None)
