"""Reader: what `for` and `async for` hold while they go through the reports of a running job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic

from relaqs.jobs.feed import AnyReport, Feed


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
