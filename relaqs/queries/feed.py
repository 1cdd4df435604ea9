"""Feed: where a running query leaves its newest snapshot, and where readers find it at their own pace."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from relaqs.snapshot import Snapshot

_LONGEST_WAIT_SECONDS = 0.5

End = Literal["stopped", "exact", "failed"]
State = Literal["waiting", "running", "paused"] | End


class Feed:
    """One writer, any number of readers, and one snapshot: the newest. Safe to use from any thread.

    The writer never waits for a reader. A reader says how many snapshots it knows of and gets the newest if
    there is a newer one, so that a slow reader skips, and every reader meets the last.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()
        self._latest: Snapshot | None = None
        self._count = 0
        self._end: End | None = None
        self._error: BaseException | None = None

    @property
    def latest(self) -> Snapshot | None:
        return self._latest

    @property
    def end(self) -> End | None:
        """How the feed ended, or None while it is open."""
        return self._end

    def publish(self, snapshot: Snapshot, end: End | None = None) -> bool:
        """Make the snapshot the newest, with `end` the last. After the end do nothing and return False."""
        with self._changed:
            if self._end is not None:
                return False
            self._latest = snapshot
            self._count += 1
            self._end = end
            self._tell()
            return True

    def close(self, end: End, error: BaseException | None = None) -> bool:
        """End the feed as it is; after the end do nothing and return False. error: what readers raise."""
        with self._changed:
            if self._end is not None:
                return False
            self._end, self._error = end, error
            self._tell()
            return True

    def wait(self, seen: int, timeout: float | None = None) -> tuple[int, Snapshot] | None:
        """Return the newest snapshot and the count to say next time; None at the end or after the timeout.

        seen: the count last returned, 0 at first. Raises the query's error once the last snapshot was seen.
        """
        with self._changed:
            self._wait_for_news(seen, timeout)
            if self._count > seen and self._latest is not None:
                return self._count, self._latest
            if self._error is not None:
                raise self._error
            return None

    def _wait_for_news(self, seen: int, timeout: float | None) -> None:
        """Wait in short pieces: a ctrl-C just before a wait (on Windows any) is only noticed after it."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self.has_news(seen) and (left := deadline - time.monotonic()) > 0:
            self._changed.wait(min(left, _LONGEST_WAIT_SECONDS))

    def has_news(self, seen: int) -> bool:
        """Whether `wait` would return at once."""
        return self._count > seen or self._end is not None

    @contextmanager
    def waking(self, waker: Callable[[], None]) -> Iterator[None]:
        """Call the waker, on the writer's thread, at each change inside the block."""
        with self._changed:
            self._wakers.add(waker)
        try:
            yield
        finally:
            with self._changed:
                self._wakers.discard(waker)

    def _tell(self) -> None:
        self._changed.notify_all()
        for waker in tuple(self._wakers):
            waker()
