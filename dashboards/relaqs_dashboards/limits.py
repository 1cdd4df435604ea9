"""What one user may take of the server, and what one message may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of everything. Counts are per user where they say so.

    running_queries: of one user at once; further ones wait. plans: that are made for one user at once.
    answer_bytes: of one user's answers together, in memory. run_seconds: that a query may run. grace_seconds:
    that a query goes on after its last viewer has left. messages_per_second: from one page, on average;
    burst_messages: at once. connections: of one user; strangers: of all who have not shown a cookie yet.
    request_seconds: from the connection, or from the last answer over it, until a whole request has come.
    """

    running_queries: int = 32
    plans: int = 2
    answer_bytes: int = 256 << 20
    run_seconds: float = 1800.0
    grace_seconds: float = 30.0
    messages_per_second: float = 20.0
    burst_messages: int = 60
    pages_open: int = 16
    connections: int = 64
    strangers: int = 128
    request_seconds: float = 5.0


class TokenBucket:
    """Lets so many through at once, and then so many a second. clock: in seconds."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._seen = clock()

    def take(self) -> bool:
        """Return whether one more may pass now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._per_second)
        self._seen = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
