"""The order in which a worker sends parameters to another one: one letter at a time, answers to PULLs first.

An answer to a PULL goes before a PUSH, because a worker computes once it has one, and a PUSH makes nobody
compute. Each other worker has a lane of its own. So who hangs, or whose link is busy, keeps up nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relaqs.executors.peers import Haste


class EgressLane:
    """A lane from one worker to another. All is called on its event loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[Haste, deque[asyncio.Future[None]]] = {"pull": deque(), "push": deque()}

    @property
    def is_free(self) -> bool:
        return not self._is_taken

    @asynccontextmanager
    async def turn(self, haste: Haste) -> AsyncIterator[None]:
        """Hold the lane inside the block."""
        if self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[haste].append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the lane to the next one that waits. It stays taken meanwhile."""
        for waiting in self._waiting.values():
            while waiting:
                if not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    return
        self._is_taken = False


class EgressLanes:
    """The lanes of a worker, by the addresses of the workers they lead to.

    >>> lanes = EgressLanes()
    >>> lanes.to("tcp://a:1") is lanes.to("tcp://a:1"), lanes.to("tcp://a:1") is lanes.to("tcp://b:1")
    (True, False)
    """

    def __init__(self) -> None:
        self._lanes: dict[str, EgressLane] = {}

    def to(self, address: str) -> EgressLane:
        return self._lanes.setdefault(address, EgressLane())

    def sweep(self) -> None:
        """Let go the lanes that nobody uses: workers come and go."""
        self._lanes = {address: lane for address, lane in self._lanes.items() if not lane.is_free}
