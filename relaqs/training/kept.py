"""What a worker process keeps between passes, by partition, within a budget: `KEPT` has arrays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

IDLE_SECONDS = 30.0  # what was not asked for in this time is freed

VersionedArrays = Mapping[str, tuple[int, NDArray[Any]]]
"""Named arrays, each with its version."""

Stored = TypeVar("Stored")


@dataclass(slots=True)
class _Group(Generic[Stored]):
    """What one owner keeps, by partition. Times are on the monotonic clock."""

    used_seconds: float
    of_partition: dict[int, Stored] = field(default_factory=dict)


class Kept(Generic[Stored]):
    """Values by owner and partition. What does not fit in is not kept, and has to be made again.

    Nothing in use is pushed out for what comes later: passes go round and round over the partitions, and what
    was used longest ago is just what is needed next. Safe to use from any thread.

    Args:
        size: returns how many bytes of the budget a value takes. It must stay the same.
    """

    def __init__(self, size: Callable[[Stored], int]) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._groups: dict[str, _Group[Stored]] = {}
        self._byte_count = 0
        self._sweeper: threading.Timer | None = None

    @property
    def byte_count(self) -> int:
        return self._byte_count

    def get(self, owner: str, partition: int) -> Stored | None:
        with self._lock:
            if (group := self._groups.get(owner)) is None:
                return None
            group.used_seconds = time.monotonic()
            return group.of_partition.get(partition)

    def newest(self, owner: str) -> tuple[int, Stored] | None:
        """Return what an owner has kept last, and its partition. None: it keeps nothing."""
        with self._lock:
            group = self._groups.get(owner)
            return None if group is None else next(reversed(group.of_partition.items()), None)

    def drop(self, owner: str, partition: int) -> None:
        """Let go what is kept of one partition, if anything is."""
        with self._lock:
            group = self._groups.get(owner)
            if group is not None and (dropped := group.of_partition.pop(partition, None)) is not None:
                self._byte_count -= self._size(dropped)

    def put(self, owner: str, partition: int, value: Stored, budget_bytes: int) -> bool:
        """Keep a value in the place of an earlier one, if all that is kept is within the budget then.

        Returns whether it is kept. Otherwise the earlier one is gone, too.
        """
        with self._lock:
            now = time.monotonic()
            group = self._groups.setdefault(owner, _Group(now))
            group.used_seconds = now
            if (earlier := group.of_partition.pop(partition, None)) is not None:
                self._byte_count -= self._size(earlier)
            room = budget_bytes - self._size(value)
            if self._byte_count > room:
                self._drop_unused_since(now - IDLE_SECONDS)
            if self._byte_count > room:
                return False
            group.of_partition[partition] = value
            self._byte_count += self._size(value)
            self._sweep_later()
            return True

    def forget(self, owner: str) -> None:
        with self._lock:
            self._drop(owner)

    def drop_unused_since(self, seconds: float) -> None:
        """Let go what was last used before that time of the monotonic clock."""
        with self._lock:
            self._drop_unused_since(seconds)

    def _drop_unused_since(self, seconds: float) -> None:
        for owner in [owner for owner, group in self._groups.items() if group.used_seconds < seconds]:
            self._drop(owner)

    def _drop(self, owner: str) -> None:
        group = self._groups.pop(owner, None)
        if group is not None:
            self._byte_count -= sum(map(self._size, group.of_partition.values()))

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Timer(IDLE_SECONDS, self._sweep)
            self._sweeper.daemon = True
            self._sweeper.start()

    def _sweep(self) -> None:
        with self._lock:
            self._sweeper = None
            self._drop_unused_since(time.monotonic() - IDLE_SECONDS)
            if self._groups:
                self._sweep_later()


def byte_count(arrays: VersionedArrays) -> int:
    """Return the bytes of all arrays together."""
    return sum(array.nbytes for _, array in arrays.values())


KEPT = Kept(byte_count)
