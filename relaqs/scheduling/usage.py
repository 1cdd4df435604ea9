"""How many cores a job has used lately."""

from __future__ import annotations

import math
from collections.abc import Iterable

WINDOW_SECONDS = 1.0


class Usage:
    """A running mean of charged core-seconds a second, in which what is older than a window fades.

    since_seconds: when the job came. The mean of one that is younger than the window is over its own time, or
    most queries, which take a second, would be shown with half of what they use.
    """

    def __init__(self, since_seconds: float) -> None:
        self._since_seconds = since_seconds
        self._core_seconds = 0.0
        self._seen_seconds = since_seconds

    def add(self, core_seconds: float, now_seconds: float) -> None:
        """Note what a task took that ends now. It took at least as long, and was spread over that time."""
        self._core_seconds = self._faded(now_seconds) + _within_window(core_seconds)
        self._seen_seconds = now_seconds

    def cores(self, now_seconds: float, held_seconds: Iterable[float] = ()) -> float:
        """Return the mean. held_seconds: for how long each core is held by a task that has not ended yet."""
        seconds = _within_window(now_seconds - self._since_seconds)
        core_seconds = self._faded(now_seconds) + sum(map(_within_window, held_seconds))
        return core_seconds / seconds if seconds > 0 else 0.0

    def _faded(self, now_seconds: float) -> float:
        return self._core_seconds * math.exp(-(now_seconds - self._seen_seconds) / WINDOW_SECONDS)


def _within_window(seconds: float) -> float:
    """Return what has not faded of the last so many seconds: all of them if few, else a window."""
    return -WINDOW_SECONDS * math.expm1(-seconds / WINDOW_SECONDS)
