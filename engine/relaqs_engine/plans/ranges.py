"""A range of numbers, in which the value of an inner stage is taken to lie."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Where a stage's value is taken to lie, both ends included. Without ends nothing is decided.

    >>> Range(2.0, 4.0).within(Range(3.0, 9.0))
    Range(low=3.0, high=4.0)
    """

    low: float = -math.inf
    high: float = math.inf

    def holds(self, other: Range) -> bool:
        """Whether the other range lies within this one."""
        return self.low <= other.low and other.high <= self.high

    @property
    def decides(self) -> bool:
        """Whether both ends are known, so that values outside of it are decided."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, other: Range) -> Range:
        """Return the part of this range that lies in the other."""
        return Range(max(self.low, other.low), min(self.high, other.high))
