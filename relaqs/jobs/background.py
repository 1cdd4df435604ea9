"""Threads of this process that are joined before the interpreter goes.

They are daemons, since the end of a program must not wait for its queries. But a daemon thread that is inside
DuckDB when the interpreter goes, be it to free a result, aborts the process: all must have ended by then.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable

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
