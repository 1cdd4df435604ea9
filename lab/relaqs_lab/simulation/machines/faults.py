"""What goes wrong with simulated machines: they fail and come back, and they are slow for a while."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

HOUR_SECONDS = 3600.0
_FAILS, _SLOWS = 0, 1  # streams of one seed: how often machines fail does not change when they are slow


@dataclass(frozen=True, slots=True)
class Faults:
    """How often machines fail, and how often they are slow. Each machine by itself, all of them alike.

    Times between faults, and times until they are over, are exponential, so faults are Poisson processes.
    They are drawn machine by machine from the seed, so that all policies meet the same faults.

    Args:
        failures_per_hour: of a machine that is there. What its ranks held is lost.
        repair_seconds: until a machine that failed is back, on average.
        slow_per_hour: how often a machine becomes slow, a straggler. It has all its slots meanwhile.
        slow_factor: how many times as long a slow machine computes. The other ranks of a gang wait for it.
        slow_seconds: how long it stays slow, on average.
        save_seconds: how often a job's state goes where it survives the loss of all of its machines.
        seed: of the draws.

    Raises:
        ValueError: a number is negative, infinite, or a time that is 0; or slow_factor is below 1.
    """

    failures_per_hour: float = 0.0
    repair_seconds: float = 120.0
    slow_per_hour: float = 0.0
    slow_factor: float = 3.0
    slow_seconds: float = 60.0
    save_seconds: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("failures_per_hour", "slow_per_hour"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        for name in ("repair_seconds", "slow_seconds", "save_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite time above 0")
        if not 1 <= self.slow_factor < math.inf:
            raise ValueError(f"slow_factor is {self.slow_factor}; give a finite number, 1 or more")

    def __str__(self) -> str:
        """What goes wrong, in words.

        >>> str(Faults(failures_per_hour=2.0))
        'a node fails 2 times an hour, for 120 s, states saved every 10 s'
        """
        parts = []
        if self.failures_per_hour:
            rate, away = self.failures_per_hour, self.repair_seconds
            parts.append(f"a node fails {rate:g} times an hour, for {away:g} s")
            parts.append(f"states saved every {self.save_seconds:g} s")
        if self.slow_per_hour:
            slow = f"{self.slow_factor:g} times as slow for {self.slow_seconds:g} s"
            parts.append(f"a node is {slow} {self.slow_per_hour:g} times an hour")
        return ", ".join(parts) or "no faults"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A machine after a fault, or after its end.

    Attributes:
        node: its position.
        is_alive: None: as before.
        slow_factor: None: as before.
    """

    node: int
    is_alive: bool | None = None
    slow_factor: float | None = None


class FaultTimes:
    """The changes of N machines, in the order of time. Without an end, so they are drawn when asked for.

    >>> times = FaultTimes(Faults(failures_per_hour=60.0, repair_seconds=10.0), nodes=1)
    >>> first = times.next_seconds
    >>> times.taken(first), times.next_seconds > first
    ([NodeChange(node=0, is_alive=False, slow_factor=None)], True)
    """

    def __init__(self, faults: Faults | None, nodes: int) -> None:
        self._due: list[tuple[float, int, NodeChange, Iterator[tuple[float, NodeChange]]]] = []
        if faults is None:
            return
        for node in range(nodes):
            for number, changes in enumerate((_failures(faults, node), _slow_times(faults, node))):
                self._push(2 * node + number, changes)

    @property
    def next_seconds(self) -> float:
        """When the next change is, on the simulator's clock; inf: there is none."""
        return self._due[0][0] if self._due else math.inf

    def taken(self, until_seconds: float) -> list[NodeChange]:
        """Return the changes up to a time that were not taken before, in their order."""
        found = []
        while self.next_seconds <= until_seconds:
            _, number, change, more = heapq.heappop(self._due)
            found.append(change)
            self._push(number, more)
        return found

    def _push(self, number: int, changes: Iterator[tuple[float, NodeChange]]) -> None:
        if (found := next(changes, None)) is not None:
            heapq.heappush(self._due, (found[0], number, found[1], changes))


def _failures(faults: Faults, node: int) -> Iterator[tuple[float, NodeChange]]:
    random = np.random.default_rng([faults.seed, _FAILS, node])
    for seconds, fails in _alternating(random, faults.failures_per_hour, faults.repair_seconds):
        yield seconds, NodeChange(node, is_alive=not fails)


def _slow_times(faults: Faults, node: int) -> Iterator[tuple[float, NodeChange]]:
    random = np.random.default_rng([faults.seed, _SLOWS, node])
    for seconds, begins in _alternating(random, faults.slow_per_hour, faults.slow_seconds):
        yield seconds, NodeChange(node, slow_factor=faults.slow_factor if begins else 1.0)


def _alternating(
    random: np.random.Generator, per_hour: float, lasting_seconds: float
) -> Iterator[tuple[float, bool]]:
    """Yield when a machine's fault begins, when it is over, and so on, with whether it begins."""
    seconds = 0.0
    while per_hour > 0:
        seconds += random.exponential(HOUR_SECONDS / per_hour)
        yield seconds, True
        seconds += random.exponential(lasting_seconds)
        yield seconds, False
