"""Interval arithmetic: what can be proved about a value that lies between two ends.

A query that sums `price * (1 - discount)` must know two things that no sample shows. May a row make the sum
smaller? And how much can one row that was not read add? Both follow from the least and the greatest value of
each column, which the manifest has. If price is in [1, 100] and discount in [0, 0.1], the product is in
[0.9, 100]. Operations on intervals carry this through an expression:

    [a, b] + [c, d]  =  [a + c, b + d]
    [a, b] − [c, d]  =  [a − d, b − c]
    [a, b] · [c, d]  =  from the least to the greatest of ac, ad, bc, bd
    [a, b] / [c, d]  =  [a, b] · [1/d, 1/c], if 0 is not in [c, d]
    f([a, b])        =  [f(a), f(b)], if f never falls

>>> price, discount = Bounds(1.0, 100.0), Bounds(0.0, 0.1)
>>> price * (Bounds.exactly(1.0) - discount)
Bounds(lowest=0.9, highest=100.0)

A side that is None is *not known*, never "without bound by luck". It stays None through each step that needs
it:

>>> Bounds(0.0, None) + Bounds(1.0, 2.0)
Bounds(lowest=1.0, highest=None)

The result may be wider than what can really happen, never narrower. `x − x` with x in [0, 1] gives [−1, 1],
because the two are not known to be the same x. A square is known, so `x * x` is treated as a power
(`bounds/values.py`). Wider costs a certificate that could have been given, and nothing else.

What is ugly. Rounding of floats is ignored. What these bounds decide, such as whether one row more could move
a sum, does not depend on the last digit.

The decision: docs/decisions/0016-heavy-tails.md, point 1. SQL functions are mapped to these steps in
`bounds/values.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The two ends of a value: lowest <= value <= highest. NaN is above all numbers, as in DuckDB.

    Attributes:
        lowest: the lower end, None where it is not known.
        highest: the upper end, None where it is not known. A value that may be NaN has none.

    >>> Bounds(0.0, 10.0) - Bounds(1.0, 2.0)
    Bounds(lowest=-2.0, highest=9.0)
    >>> Bounds(-1.0, 2.0) * Bounds(-3.0, 4.0)   # the least and the greatest of 3, -4, -6 and 8
    Bounds(lowest=-6.0, highest=8.0)
    """

    lowest: float | None
    highest: float | None

    @classmethod
    def exactly(cls, value: float) -> Bounds:
        return cls(value, value)

    @classmethod
    def within(cls, size: float) -> Bounds:
        """Return the bounds of a value that is at most this far from zero."""
        return cls(-size, size)

    def __neg__(self) -> Bounds:
        """Return the bounds of −x. Where x may be NaN, so may be −x, which then has no upper end."""
        if self.highest is None:
            return UNKNOWN
        return Bounds(-self.highest, None if self.lowest is None else -self.lowest)

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
        """Return the bounds of a quotient: unknown where the divisor may be 0, which gives an infinity.

        A divisor without a known upper end may be NaN, and so the quotient.
        """
        if (ends := other.ends) and ends[0] * ends[1] > 0.0:
            return self * Bounds(1.0 / ends[1], 1.0 / ends[0])
        if self.is_nonnegative and other.lowest is not None and other.lowest > 0.0:
            return Bounds(0.0, None)
        return UNKNOWN

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return both ends, None unless both are known."""
        return None if self.lowest is None or self.highest is None else (self.lowest, self.highest)

    @property
    def only_value(self) -> float | None:
        """Return the value if it can have only one."""
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
        """Return the bounds of a function that never falls. An end at which it has no value becomes unknown.

        >>> import math
        >>> Bounds(0.0, 100.0).rising(math.log10)
        Bounds(lowest=None, highest=2.0)
        """
        return Bounds(_applied(function, self.lowest), _applied(function, self.highest))

    def clipped(self, lowest: float) -> Bounds:
        """Return the bounds of a value that is also known to be at least `lowest`."""
        return Bounds(lowest if self.lowest is None else max(self.lowest, lowest), self.highest)


UNKNOWN = Bounds(None, None)


def hull(parts: Sequence[Bounds]) -> Bounds:
    """Return the bounds of a value that is one of these. Of no parts nothing is known.

    >>> hull([Bounds(0.0, 1.0), Bounds(5.0, 9.0)])
    Bounds(lowest=0.0, highest=9.0)
    """
    if not parts:
        return UNKNOWN
    lows, highs = [part.lowest for part in parts], [part.highest for part in parts]
    return Bounds(
        None if None in lows else min(low for low in lows if low is not None),
        None if None in highs else max(high for high in highs if high is not None),
    )


def power(base: Bounds, exponent: float) -> Bounds:
    """Return the bounds of base ** exponent.

    >>> power(Bounds(-3.0, 2.0), 2.0)
    Bounds(lowest=0.0, highest=9.0)
    """
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
    """Return the bounds of a % b, which has the sign of a and is no larger than either of them.

    They are unknown where b may be 0, or a NaN or an infinity, which gives no number.

    >>> remainder(Bounds(0.0, 100.0), Bounds.exactly(7.0))
    Bounds(lowest=0.0, highest=7.0)
    """
    if dividend.ends is None or divisor.ends is None or divisor.ends[0] * divisor.ends[1] <= 0.0:
        return UNKNOWN
    most = min(max(map(abs, dividend.ends)), max(map(abs, divisor.ends)))
    return Bounds(-most if dividend.ends[0] < 0.0 else 0.0, most if dividend.ends[1] > 0.0 else 0.0)


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


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
