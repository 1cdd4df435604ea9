"""Threads of this process: how they are made, how they wait, and what a task on one may know.

- `background_thread` makes daemon threads that are joined before the interpreter goes. They are daemons,
  since the end of a program must not wait for its queries. But a daemon thread that is inside DuckDB when
  the interpreter goes, be it to free a result, aborts the process: all must have ended by then.
- `wait_pieces` cuts a wait of the user's thread into short pieces, so that a ctrl-C always ends it.
- `Stopwatch` counts the seconds since a job was submitted.
- `is_core_wanted` tells a task whether another one waits for its core. A long task may end early for it: a
  gang's turn lasts half a second, and ends with its next step where a query's task waits.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

EXIT_SECONDS = 2.0  # what the end of the process waits for threads that no interruption reaches

_MADE: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def background_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Return a daemon thread, not yet started, that the end of the process waits for."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    _MADE.add(thread)
    return thread


def join_all(timeout_seconds: float = EXIT_SECONDS) -> bool:
    """Wait for the threads, and for those that they start; return whether all have ended by then."""
    deadline = time.monotonic() + timeout_seconds
    while running := [thread for thread in list(_MADE) if thread.is_alive()]:
        if (left := deadline - time.monotonic()) <= 0:
            return False
        running[0].join(left)
    return True


# Exit handlers run last in, first out: modules that import this one tell their threads to end before it.
atexit.register(join_all)


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


@dataclass(slots=True)
class Stopwatch:
    """Counts the seconds since a job was submitted.

    Attributes:
        started_at: on the clock of `time.perf_counter`.
        earlier_seconds: what the job had run in another process, before it went on here from a checkpoint.
    """

    started_at: float = field(default_factory=time.perf_counter)
    earlier_seconds: float = 0.0

    def seconds(self) -> float:
        """Return the seconds since the job was submitted, with those of an earlier process."""
        return self.earlier_seconds + time.perf_counter() - self.started_at


_LOOK: ContextVar[Callable[[], bool]] = ContextVar("look", default=lambda: False)


def is_core_wanted() -> bool:
    """Return whether a task waits behind the one that calls this. Where that is not known: False.

    >>> is_core_wanted()
    False
    >>> with core_wanted_by(lambda: True):
    ...     is_core_wanted()
    True
    """
    return _LOOK.get()()


@contextmanager
def core_wanted_by(look: Callable[[], bool]) -> Iterator[None]:
    """Let the tasks that this thread runs meanwhile know whether others wait. look: says it, at no cost."""
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)
