"""Threads that users take in turn: who makes many calls waits behind their own ones, and nobody else does.

user    calls that wait      the order in which one thread takes them
eve     e1 e2 e3 e4          e1 b1 e2 b2 e3 e4
bob     b1 b2
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")


class FairPool:
    """Runs functions on threads. It belongs to one event loop.

    Args:
        threads: how many there are.
        each: how many of them one user may have at once.
        name: of the threads.
    """

    def __init__(self, threads: int, each: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._threads = self._free = threads
        self._each = each
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # users in the order of their turns

    @property
    def is_idle(self) -> bool:
        """Whether no call runs or waits."""
        return self._free == self._threads

    async def run(
        self,
        user: str,
        function: Callable[..., _T],
        *arguments: Any,
        undo: Callable[[_T], object] | None = None,
    ) -> _T:
        """Return what a function returns, once it was its user's turn.

        A call that is cancelled while it waits is never made. One that runs keeps its thread until its end.

        Args:
            user: whose turn it must be.
            function: is called in a thread.
            arguments: of the function.
            undo: is called with what the function returns if the call was cancelled meanwhile.
        """
        await self._turn(user)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()
        try:
            future = self._executor.submit(function, *arguments)
        except BaseException:
            self._over(user)
            raise

        def over(done: Future[_T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                loop.call_soon_threadsafe(self._end, user, done, answer)

        future.add_done_callback(over)
        try:
            return await answer
        except asyncio.CancelledError:
            if undo is not None:
                future.add_done_callback(partial(_undo, undo))
            raise

    def shutdown(self) -> None:
        """Begin nothing more. What runs goes on until its end."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, user: str) -> None:
        """Wait for a thread, which is the user's from then on."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._give_turns()
            else:  # it came in the same moment
                self._over(user)
            raise

    def _end(self, user: str, done: Future[_T], answer: asyncio.Future[_T]) -> None:
        """Give a thread back, and hand on what was returned or raised, in one turn of the loop."""
        self._over(user)
        if answer.done():  # it was cancelled meanwhile
            return
        if done.cancelled():
            answer.cancel()
        elif (error := done.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    def _over(self, user: str) -> None:
        self._free += 1
        self._busy[user] -= 1
        self._give_turns()

    def _give_turns(self) -> None:
        """Give free threads to users who wait and have fewer than they may, the next in the round first."""
        for user, turns in list(self._waiting.items()):
            while turns and turns[0].done():  # cancelled
                turns.popleft()
            if turns and self._free and self._busy[user] < self._each:
                self._free -= 1
                self._busy[user] += 1
                turns.popleft().set_result(None)
                self._waiting[user] = self._waiting.pop(user)
            if not turns:
                del self._waiting[user]
        self._busy += Counter()  # forgets users who have nothing


def _undo(undo: Callable[[_T], object], done: Future[_T]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())
