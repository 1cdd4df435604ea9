"""What it costs to start a part somewhere, or to move it, and which machines fail."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaqs_bootstrap.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """A job pauses when one of its parts starts, moves or goes, and the iteration in hand is lost.

    Args:
        restart_seconds: each time. A part that has learned fetches its state over the network as well.
        are_free: nothing pauses, to see what the pauses cost. The iteration in hand is lost all the same.
    """

    restart_seconds: float = 5.0
    are_free: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.restart_seconds < math.inf:
            raise ValueError(f"restart_seconds is {self.restart_seconds}; it must be finite and 0 or more")

    def pause_seconds(self, state_bytes: FloatArray, bytes_per_second: float) -> FloatArray:
        """Return how long jobs pause whose largest moved state is so large, shape (n,)."""
        if self.are_free:
            return state_bytes * 0.0
        return self.restart_seconds + state_bytes / max(bytes_per_second, 1.0)


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A machine that is away for a while. node: its position."""

    node: int
    from_seconds: float
    until_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.from_seconds < self.until_seconds:
            raise ValueError(
                f"node {self.node} is away from {self.from_seconds} to {self.until_seconds} s; the first "
                "must be 0 or more and less than the second"
            )
