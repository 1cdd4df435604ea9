"""When a query will be as good as its target: how far it must read, and how long that takes. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


def fraction_at(target: float, error: float, fraction: float) -> float | None:
    """Return the fraction of the rows at which the error will be the target; None while nothing is known.

    error: the relative error now, at the fraction now. A sample without replacement errs in proportion to
    √(1/f − 1), which the query's own newest interval scales.
    Source: Cochran 1977, Sampling Techniques, §2.6.
    """
    if not 0 < error < math.inf or not 0 < fraction < 1:
        return None
    ratio = target / error * math.sqrt(1 / fraction - 1)
    return 1 / (1 + ratio * ratio)


@dataclass(slots=True)
class Pace:
    """How fast a query reads, from the moments at which it was seen; pauses do not count.

    fraction_per_second: of the rows, averaged with more weight on what is new; 0.0 while nothing is known.
    """

    fraction_per_second: float = 0.0
    _last: tuple[float, float] | None = None

    NEWEST_SHARE = 0.3

    def see(self, now_seconds: float, fraction: float) -> None:
        """Note how far the query has come."""
        if self._last is not None:
            seconds, progress = now_seconds - self._last[0], fraction - self._last[1]
            if seconds <= 0 or progress <= 0:
                return
            pace = progress / seconds
            share = self.NEWEST_SHARE if self.fraction_per_second else 1.0
            self.fraction_per_second += share * (pace - self.fraction_per_second)
        self._last = (now_seconds, fraction)

    def interrupt(self) -> None:
        """Forget the last moment: the time from it to the next was a pause."""
        self._last = None

    def seconds_to(self, fraction: float) -> float | None:
        """Return the seconds from the moment last seen until that fraction; None while nothing is known."""
        if self._last is None or not self.fraction_per_second:
            return None
        return max(0.0, fraction - self._last[1]) / self.fraction_per_second
