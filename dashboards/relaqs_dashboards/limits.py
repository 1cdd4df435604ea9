"""What one user may take of the server, and what one message may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one user, or one page, may take of the server.

    Attributes:
        running_queries: how many queries of one user run at once. Further ones wait.
        plans: how many queries are planned for one user at once.
        answer_bytes: what one user's answers may take together, in memory.
        run_seconds: how long a query may run.
        grace_seconds: how long a query goes on after its last viewer has left.
        messages_per_second: how many messages one page may send, on average.
        burst_messages: how many messages one page may send at once.
        connections: how many connections one user may have.
        strangers: how many connections may be open that have not shown a cookie yet.
        request_seconds: how long a whole request may take to arrive. It counts from the connection, or from
            the last answer over it.
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
