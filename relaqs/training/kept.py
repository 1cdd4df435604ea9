"""What a worker process keeps in memory between passes: partitions' arrays, within a budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

IDLE_SECONDS = 30.0  # what was not asked for in this time is freed

VersionedArrays = Mapping[str, tuple[int, NDArray[Any]]]
"""Named arrays, each with its version."""


@dataclass(slots=True)
class _Group:
    """What one owner keeps, by partition. Times are on the monotonic clock."""

    used_seconds: float
    of_partition: dict[int, VersionedArrays] = field(default_factory=dict)


class Kept:
    """Arrays by owner and partition. What does not fit in is not kept, and has to be made again.

    Nothing in use is ever pushed out for something else: passes go round and round over the partitions, and
    what was used longest ago is just what is needed next. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}
        self._byte_count = 0
        self._sweeper: threading.Timer | None = None

    @property
    def byte_count(self) -> int:
        return self._byte_count

    def get(self, owner: str, partition: int) -> VersionedArrays | None:
        with self._lock:
            if (group := self._groups.get(owner)) is None:
                return None
            group.used_seconds = time.monotonic()
            return group.of_partition.get(partition)

    def put(self, owner: str, partition: int, arrays: VersionedArrays, budget_bytes: int) -> None:
        """Keep arrays in the place of earlier ones, if all that is kept is within the budget then."""
        with self._lock:
            now = time.monotonic()
            group = self._groups.setdefault(owner, _Group(now))
            group.used_seconds = now
            self._byte_count -= _byte_count(group.of_partition.pop(partition, {}))
            room = budget_bytes - _byte_count(arrays)
            if self._byte_count > room:
                self._drop_unused_since(now - IDLE_SECONDS)
            if self._byte_count <= room:
                group.of_partition[partition] = arrays
                self._byte_count += _byte_count(arrays)
                self._sweep_later()

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
            self._byte_count -= sum(map(_byte_count, group.of_partition.values()))

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


def _byte_count(arrays: VersionedArrays) -> int:
    return sum(array.nbytes for _, array in arrays.values())


KEPT = Kept()
