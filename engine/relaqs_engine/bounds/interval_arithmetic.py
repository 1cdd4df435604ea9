"""Interval arithmetic: what is provable of a value that lies between two ends.

A side that is None is not known. Rounding of floats is ignored here: what is told apart by these bounds, such
as whether one more row could move a sum, does not hang on the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """lowest <= value <= highest, wherever the value is a number at all. None: that side is not known.

    >>> Bounds(0.0, 10.0) - Bounds(1.0, 2.0)
    Bounds(lowest=-2.0, highest=9.0)
    """

    lowest: float | None
    highest: float | None

    @classmethod
    def exactly(cls, value: float) -> Bounds:
        return cls(value, value)

    @classmethod
    def within(cls, size: float) -> Bounds:
        """Return the bounds of what is at most so far from zero."""
        return cls(-size, size)

    def __neg__(self) -> Bounds:
        return Bounds(_negated(self.highest), _negated(self.lowest))

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(_plus(self.lowest, other.lowest), _plus(self.highest, other.highest))

    def __sub__(self, other: Bounds) -> Bounds:
        return self + -other

    def __mul__(self, other: Bounds) -> Bounds:
        if (mine := self.ends) and (theirs := other.ends):
            return _hull_of([a * b for a in mine for b in theirs])
        if self.is_nonnegative and other.is_nonnegative:
            return Bounds(0.0, None)
        return UNKNOWN

    def __truediv__(self, other: Bounds) -> Bounds:
        """Return the bounds of a quotient: unknown where the divisor may be 0, which gives an infinity."""
        if (ends := other.ends) and ends[0] * ends[1] > 0.0:
            return self * Bounds(1.0 / ends[1], 1.0 / ends[0])
        if self.is_nonnegative and other.lowest is not None and other.lowest > 0.0:
            return Bounds(0.0, None if self.highest is None else self.highest / other.lowest)
        return UNKNOWN

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return both ends, None unless both are known."""
        return None if self.lowest is None or self.highest is None else (self.lowest, self.highest)

    @property
    def only_value(self) -> float | None:
        """Return the value if there is but one that it can have."""
        return self.lowest if self.lowest == self.highest else None

    @property
    def is_nonnegative(self) -> bool:
        return self.lowest is not None and self.lowest >= 0.0

    @property
    def size(self) -> float | None:
        """Return how far from zero the value can be, None where a side is not known."""
        return max(map(abs, self.ends)) if self.ends else None

    def widened(self, by: float) -> Bounds:
        return self + Bounds(-by, by)

    def absolute(self) -> Bounds:
        if self.is_nonnegative:
            return self
        if self.highest is not None and self.highest <= 0.0:
            return -self
        return Bounds(0.0, self.size)

    def rising(self, function: Callable[[float], float]) -> Bounds:
        """Return the bounds of a function that never falls. An end it has no value at becomes unknown."""
        return Bounds(_applied(function, self.lowest), _applied(function, self.highest))

    def clipped(self, lowest: float) -> Bounds:
        """Return the bounds of a value that is known not to be below `lowest` either."""
        return Bounds(lowest if self.lowest is None else max(self.lowest, lowest), self.highest)


UNKNOWN = Bounds(None, None)


def hull(parts: Sequence[Bounds]) -> Bounds:
    """Return the bounds of a value that is one of these; of none of them nothing is known."""
    if not parts:
        return UNKNOWN
    lows, highs = [part.lowest for part in parts], [part.highest for part in parts]
    return Bounds(
        None if None in lows else min(low for low in lows if low is not None),
        None if None in highs else max(high for high in highs if high is not None),
    )


def power(base: Bounds, exponent: float) -> Bounds:
    """Return the bounds of base ** exponent."""
    if base.is_nonnegative and exponent >= 0.0:
        return base.rising(lambda value: value**exponent)
    if exponent < 0.0:
        return Bounds(1.0, 1.0) / power(base, -exponent)
    if not exponent.is_integer():
        return UNKNOWN
    if exponent % 2 == 0:
        return base.absolute().rising(lambda value: value**exponent)
    return base.rising(lambda value: value**exponent)


def remainder(dividend: Bounds, divisor: Bounds) -> Bounds:
    """Return the bounds of a % b: it has the sign of a, and is no larger than either.

    Unknown where b may be 0, which gives no number.
    """
    if divisor.ends is None or divisor.ends[0] * divisor.ends[1] <= 0.0:
        return UNKNOWN
    most = min(size for size in (dividend.size, divisor.size) if size is not None)
    falls = dividend.lowest is None or dividend.lowest < 0.0
    rises = dividend.highest is None or dividend.highest > 0.0
    return Bounds(-most if falls else 0.0, most if rises else 0.0)


def _hull_of(values: Sequence[float]) -> Bounds:
    known = not any(map(math.isnan, values))
    return Bounds(min(values), max(values)) if known else UNKNOWN


def _applied(function: Callable[[float], float], value: float | None) -> float | None:
    if value is None:
        return None
    try:
        result = function(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return result if math.isfinite(result) else None


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
