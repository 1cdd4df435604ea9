"""Threads for what blocks: the event loop goes on, one user takes no other's, and the end waits for none."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from relaqs.jobs.executor import background_thread

_Result = TypeVar("_Result")


class Threads:
    """Runs calls on threads of their own, so many of one user at once; further ones wait their turn.

    A call keeps its place until it ends, even if its caller has gone, because no thread can be stopped.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(most))

    async def run(self, user: str, call: Callable[[], _Result]) -> _Result:
        """Return what the call returns, or raise what it raises."""
        free = self._free[user]
        await free.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[_Result] = loop.create_future()
        ended.add_done_callback(lambda _: free.release())

        def work() -> None:
            try:
                settle = partial(ended.set_result, call())
            except BaseException as error:
                settle = partial(ended.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed, and its callers have gone
                loop.call_soon_threadsafe(settle)

        try:
            background_thread(work, self._name).start()
        except RuntimeError as error:  # the machine has no thread left
            ended.set_exception(error)
        return await asyncio.shield(ended)
