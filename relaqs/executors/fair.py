"""Which task runs next: shares of measured core-seconds.

`FairQueue` where the choice is made here, one task at a time; `FairStarts` where tasks are sent ahead to wait
for a cluster's cores. Pure: no clock, no thread, no Dask.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from relaqs.executors.shares import FIRST_TASK_CORE_SECONDS, NEWEST_SHARE, FairShares

Item = TypeVar("Item")

LEAST_CORE_SECONDS = 1e-4  # taken for tasks too quick to measure
PACE_SECONDS = 1.0  # over which what came back is averaged


@dataclass(frozen=True, slots=True)
class Turn(Generic[Item]):
    """An item that was given a core. charged_core_seconds: put on its job's account in advance."""

    job: str
    item: Item
    charged_core_seconds: float


class FairQueue(Generic[Item]):
    """The waiting items of many jobs, each job's in order; whose is next is `FairShares`' to say.

    Not thread-safe: its owner holds a lock.
    """

    def __init__(self, shares: FairShares | None = None) -> None:
        self._shares = FairShares() if shares is None else shares
        self._waiting: dict[str, deque[Item]] = {}

    def enter(self, job: str, share: float = 1.0) -> None:
        """Let the job queue items. share: in cores, until `set_shares` says another."""
        self._shares.enter(job, share)

    def add(self, job: str, items: Iterable[Item]) -> None:
        """Queue items behind the job's others. Raises ValueError if the job has not entered."""
        if job not in self._shares:
            raise ValueError(f"job {job!r} has not entered; call enter with its description first")
        if job not in self._waiting:
            self._shares.wake(job)
        self._waiting.setdefault(job, deque()).extend(items)

    def pop(self) -> Turn[Item] | None:
        """Take the next item of the job whose turn it is, or None where nothing waits."""
        if (job := self._shares.next(self._waiting)) is None:
            return None
        waiting = self._waiting[job]
        turn = Turn(job, waiting.popleft(), self._shares.start(job))
        if not waiting:
            del self._waiting[job]
        return turn

    def settle(self, turn: Turn[Item], core_seconds: float) -> None:
        """Charge what the item took instead of what was charged in advance."""
        self._shares.settle(turn.job, turn.charged_core_seconds, core_seconds)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Give jobs other shares, from the next item on."""
        self._shares.set_shares(shares)

    def drop(self, job: str) -> None:
        """Forget the job and what of it waits."""
        self._shares.leave(job)
        self._waiting.pop(job, None)

    def jobs(self) -> list[str]:
        return self._shares.jobs()


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
