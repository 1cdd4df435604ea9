"""How many cores a job has used lately."""

from __future__ import annotations

import math

WINDOW_SECONDS = 1.0


class Usage:
    """A running mean of charged core-seconds a second, in which what is older than a window fades."""

    def __init__(self) -> None:
        self._core_seconds = 0.0
        self._seen_seconds = -math.inf

    def add(self, core_seconds: float, now_seconds: float) -> None:
        self._core_seconds = self._faded(now_seconds) + core_seconds
        self._seen_seconds = now_seconds

    def cores(self, now_seconds: float) -> float:
        return self._faded(now_seconds) / WINDOW_SECONDS

    def _faded(self, now_seconds: float) -> float:
        return self._core_seconds * math.exp(-(now_seconds - self._seen_seconds) / WINDOW_SECONDS)
