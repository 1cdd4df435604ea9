"""How the user's thread waits: in short pieces, so that a ctrl-C always ends it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

LONGEST_WAIT_SECONDS = 0.5


def wait_pieces(timeout_seconds: float | None = None) -> Iterator[float]:
    """Yield how long to wait next, in seconds, until the timeout is over. None waits for as long as it takes.

    Python notices a ctrl-C that comes just before a wait (on Windows any) only after that wait.

    >>> list(wait_pieces(0.0))
    []
    >>> next(wait_pieces(60.0))
    0.5
    """
    deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, LONGEST_WAIT_SECONDS)


def is_set_in_time(event: threading.Event, timeout_seconds: float | None = None) -> bool:
    """Wait for the event, and return whether it came in time."""
    return any(map(event.wait, wait_pieces(timeout_seconds))) or event.is_set()
