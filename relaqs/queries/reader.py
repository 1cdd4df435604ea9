"""Reader: what `for` and `async for` hold while they go through a query's snapshots."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from relaqs.queries.feed import Feed
from relaqs.snapshot import Snapshot


class Reader:
    """Reads a feed at its own pace: always the newest snapshot, none twice, and always the last.

    Every loop has its own, so any number may read one query. on_interrupt: called when ctrl-C ends a wait.
    owner: kept alive for as long as somebody reads.
    """

    def __init__(self, feed: Feed, on_interrupt: Callable[[], None], owner: object = None) -> None:
        self._feed = feed
        self._on_interrupt = on_interrupt
        self._owner = owner
        self._seen = 0

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Snapshot:
        snapshot = self.next_within(None)
        if snapshot is None:
            raise StopIteration
        return snapshot

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Snapshot:
        await self._news()
        snapshot = self.next_within(None)
        if snapshot is None:
            raise StopAsyncIteration
        return snapshot

    def next_within(self, timeout_seconds: float | None) -> Snapshot | None:
        """Return the newest unread snapshot, or None at the end or after the timeout.

        Raises the query's error once its last snapshot was read.
        """
        try:
            news = self._feed.wait(self._seen, timeout_seconds)
        except KeyboardInterrupt:
            self._on_interrupt()
            raise
        if news is None:
            return None
        self._seen, snapshot = news
        return snapshot

    async def _news(self) -> None:
        """Wait without a thread, so that a cancelled `async for` leaves nothing behind."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                loop.call_soon_threadsafe(changed.set)

        with self._feed.waking(wake):
            while not self._feed.has_news(self._seen):
                await changed.wait()
                changed.clear()
