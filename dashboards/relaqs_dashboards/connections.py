"""Who holds the server's connections: strangers get few for some seconds, users get many, and none gets all.

A connection is a stranger's until a request over it shows a user's cookie. `access.Gate` says when.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from relaqs_dashboards.limits import Limits

ADMIT = "relaqs.admit"  # in a scope's state: the function that makes its connection a user's


class Connections:
    """The open connections of one server, all on its event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._strangers: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # the oldest first
        self._idle: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # users', between two requests
        self._of_users: dict[str, set[asyncio.Transport]] = {}

    def enter(self, transport: asyncio.Transport) -> None:
        """Give a stranger some seconds. Where they are too many, one of them goes."""
        self._strangers[transport] = self._later(self._drop, transport)
        if len(self._strangers) > self._limits.strangers:
            self._drop(self._first_to_go())

    def admit(self, transport: asyncio.Transport, user: str) -> bool:
        """Return whether the connection is the user's from now on; one has so many and no more."""
        held = {each for each in self._of_users.get(user, ()) if not each.is_closing()} | {transport}
        if len(held) > self._limits.connections:
            return False
        self._of_users[user] = held
        self.leave(transport)
        return True

    def answered(self, transport: asyncio.Transport) -> None:
        """Give a user some seconds for the next request. What is still being sent is sent."""
        if transport not in self._strangers:
            self.leave(transport)
            self._idle[transport] = self._later(transport.close)

    def leave(self, transport: asyncio.Transport) -> None:
        """Wait no longer for a request."""
        for waiting in (self._strangers, self._idle):
            if (timer := waiting.pop(transport, None)) is not None:
                timer.cancel()

    def _drop(self, transport: asyncio.Transport) -> None:
        self.leave(transport)
        transport.abort()

    def _first_to_go(self) -> asyncio.Transport:
        """Return the oldest stranger of the address that has most of them."""
        crowd, _ = Counter(map(_peer, self._strangers)).most_common(1)[0]
        return next(each for each in self._strangers if _peer(each) == crowd)

    def _later(self, act: Any, *of: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._limits.request_seconds, act, *of)


class Connection(H11Protocol):
    """uvicorn's connection over HTTP, which tells `Connections` when it comes, has answered, and goes.

    A WebSocket goes on over the same transport, without this object.
    """

    def __init__(self, connections: Connections, **entries: Any) -> None:
        super().__init__(**entries)
        self._all = connections
        self.app_state = {**self.app_state, ADMIT: self._admit}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.enter(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self.transport)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._all.answered(self.transport)
        super().on_response_complete()

    def _admit(self, user: str) -> bool:
        return self._all.admit(self.transport, user)


def _peer(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""
