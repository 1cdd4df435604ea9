"""Fetching what the next tasks will read of object stores, on threads of its own, while one computes."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts.reads import Read

from relaqs.jobs.threads import background_thread

_THREADS = 4  # they wait for the network, and cost no core
_MOST_WAITING = 256
"""Reads. Beyond them the oldest are left to the tasks themselves."""


class ReadAhead:
    """What is to be fetched, and the threads that do so. They end when nothing is left.

    fetch: called with each read. What it raises is left to the task, which will meet it as well.
    """

    def __init__(self, fetch: Callable[[Read], None]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._waiting: deque[Read] = deque(maxlen=_MOST_WAITING)
        self._running = 0
        _OPEN.add(self)

    def add(self, reads: Sequence[Read]) -> None:
        """Fetch these, some time."""
        if not reads:
            return
        with self._changed:
            self._waiting.extend(reads)
            for _ in range(min(_THREADS - self._running, len(self._waiting))):
                self._running += 1
                background_thread(self._work, "relaqs-ahead").start()

    def stop(self) -> None:
        """Fetch no more but what is being fetched now."""
        with self._changed:
            self._waiting.clear()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until nothing is left to fetch; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout_seconds)

    def _work(self) -> None:
        while (read := self._next()) is not None:
            with suppress(RelaqsError):
                self._fetch(read)

    def _next(self) -> Read | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            self._changed.notify_all()
            return None


_OPEN: weakref.WeakSet[ReadAhead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for each in list(_OPEN):
        each.stop()
