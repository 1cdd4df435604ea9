"""The order in which a worker sends parameters: one message at a time, answers to PULLs before PUSHes.

Nobody holds the lane while it waits for another worker, so lanes cannot wait for each other. An answer to a
PULL goes first, because a worker computes once it has one, and a PUSH makes nobody compute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

Direction = Literal["pull", "push"]


class EgressLane:
    """A lane of one worker. All is called on its event loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[Direction, deque[asyncio.Future[None]]] = {"pull": deque(), "push": deque()}

    @asynccontextmanager
    async def turn(self, direction: Direction) -> AsyncIterator[None]:
        """Hold the lane inside the block."""
        if self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[direction].append(turn)
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
