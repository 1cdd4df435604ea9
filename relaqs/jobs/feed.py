"""Feed: where a running job leaves its newest report, and where readers find it at their own pace.

A report is what the job's owner cares for: the snapshot of a query, the step of a training run. Example: a
query publishes ten snapshots a second, and a notebook draws one a second. The query never waits. The
notebook gets every tenth snapshot, and always the last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Literal, TypeVar

from relaqs.jobs.waiting import wait_pieces

End = Literal["stopped", "exact", "failed"]
State = Literal["waiting", "running", "paused"] | End
AnyReport = TypeVar("AnyReport")


class Feed(Generic[AnyReport]):
    """One writer, any number of readers, and one report: the newest. Safe to use from any thread.

    The writer never waits for a reader. A reader says how many reports it knows of, and gets the newest if
    there is a newer one. So a slow reader skips some, and every reader gets the last.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()
        self._latest: AnyReport | None = None
        self._count = 0
        self._end: End | None = None
        self._error: BaseException | None = None

    @property
    def latest(self) -> AnyReport | None:
        return self._latest

    @property
    def end(self) -> End | None:
        """How the feed ended, or None while it is open."""
        return self._end

    def publish(self, report: AnyReport, end: End | None = None) -> bool:
        """Make the report the newest, with `end` the last. After the end do nothing and return False."""
        with self._changed:
            if self._end is not None:
                return False
            self._latest = report
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

    def wait(self, seen: int, timeout: float | None = None) -> tuple[int, AnyReport] | None:
        """Return the newest report and the count to say next time; None at the end or after the timeout.

        Args:
            seen: the count that was returned last; 0 at first.
            timeout: in seconds; None waits for as long as it takes.

        Raises:
            BaseException: the job's own error, once the reader has seen the last report.
        """
        with self._changed:
            self._wait_for_news(seen, timeout)
            if self._count > seen and self._latest is not None:
                return self._count, self._latest
            if self._error is not None:
                raise self._error
            return None

    def _wait_for_news(self, seen: int, timeout: float | None) -> None:
        for seconds in wait_pieces(timeout):
            if self.has_news(seen):
                return
            self._changed.wait(seconds)

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
