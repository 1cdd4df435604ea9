"""Feed and Reader: where a running job leaves its newest report, and how readers find it at their own pace.

A report is what the job's owner cares for: the snapshot of a query, the step of a training run. A feed has
one report, the newest. Its writer publishes and never waits. A reader says how many reports it knows of,
and gets the newest if there is a newer one. So a slow reader skips some, and every reader gets the last.
Example: a query publishes ten snapshots a second, and a notebook draws one a second. It gets every tenth
snapshot.

`for` waits on the feed's condition in short pieces. `async for` waits without a thread: the feed calls a
waker of the loop at each change.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Literal, TypeVar

from relaqs.jobs.threads import wait_pieces

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


class Reader(Generic[AnyReport]):
    """Reads a feed at its own pace: always the newest report, none twice, and always the last.

    Every loop has a reader of its own, so any number of loops may go through one query.

    Args:
        feed: what is read.
        on_interrupt: called when ctrl-C, or the cancelling of a task of asyncio, ends a wait.
        owner: kept alive for as long as somebody reads.
    """

    def __init__(self, feed: Feed[AnyReport], on_interrupt: Callable[[], None], owner: object = None) -> None:
        self._feed = feed
        self._on_interrupt = on_interrupt
        self._owner = owner
        self._seen = 0

    def __iter__(self) -> Reader[AnyReport]:
        return self

    def __next__(self) -> AnyReport:
        report = self.next_within(None)
        if report is None:
            raise StopIteration
        return report

    def __aiter__(self) -> Reader[AnyReport]:
        return self

    async def __anext__(self) -> AnyReport:
        try:
            await self._news()
        except BaseException:  # the task was cancelled, or its time was over
            self._on_interrupt()
            raise
        report = self.next_within(None)
        if report is None:
            raise StopAsyncIteration
        return report

    def next_within(self, timeout_seconds: float | None) -> AnyReport | None:
        """Return the newest unread report, or None at the end or after the timeout.

        Raises the job's error once its last report was read.
        """
        try:
            news = self._feed.wait(self._seen, timeout_seconds)
        except KeyboardInterrupt:
            self._on_interrupt()
            raise
        if news is None:
            return None
        self._seen, report = news
        return report

    async def _news(self) -> None:
        """Wait without a thread, so that a cancelled `async for` leaves nothing behind."""
        import asyncio

        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, so no one waits there any more
                loop.call_soon_threadsafe(changed.set)

        with self._feed.waking(wake):
            while not self._feed.has_news(self._seen):
                await changed.wait()
                changed.clear()
