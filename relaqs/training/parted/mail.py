"""What parts on several workers send each other: letters, in any order, without a thread.

Every place has a line to every other one. Whoever waits for a letter sends on what it still has to send, and
takes in what comes, on all lines. So two places that send each other much never wait for each other.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from relaqs.training.elastic.exchange import (
    Arriving,
    Encryption,
    ExchangeBrokenError,
    Meeting,
    PeerLink,
    packed,
)
from relaqs.training.elastic.membership import RankAddress


class Mail(Protocol):
    """The letters of one place."""

    def send(self, place: int, letter: tuple[Any, Any]) -> None:
        """Send a letter, which is what it is about and a value. Nothing of it may change after that."""
        ...

    def take(self) -> tuple[Any, Any]:
        """Return the next letter that comes from anywhere. Raises ExchangeBrokenError."""
        ...


class MailLine(PeerLink):
    """A line to one place: what goes and what comes move on bit by bit."""

    def __init__(self, connection: socket.socket, peer: int) -> None:
        super().__init__(connection, peer)
        self.connection = connection
        self._leaving: deque[memoryview] = deque()
        self._arriving = Arriving()

    @property
    def is_sending(self) -> bool:
        return bool(self._leaving)

    def put(self, letter: tuple[Any, Any]) -> None:
        """Let a letter leave, after those before it."""
        self._leaving.extend(packed(letter))

    def advance(self, arrived: deque[Any]) -> bool:
        """Move what can be moved at once, and return whether anything was. Raises ExchangeBrokenError.

        arrived: where letters are added that are here as a whole.
        """
        has_moved = False
        try:
            while self._leaving and self._sent(self._leaving):
                has_moved = True
            while self._came(self._arriving):
                has_moved = True
                if self._arriving.is_complete:
                    arrived.append(self._arriving.value())
                    self._arriving = Arriving()
        except (OSError, ValueError) as error:  # ValueError: of a descriptor that is closed
            raise ExchangeBrokenError(self._peer, str(error) or type(error).__name__) from error
        return has_moved


class SocketMail:
    """A `Mail` over lines to all other places. One thread uses it; any thread may close it.

    Attributes:
        limit_seconds: for which nothing may move while it waits.
    """

    def __init__(self, lines: Mapping[int, MailLine], limit_seconds: float) -> None:
        self._lines = dict(lines)
        self.limit_seconds = limit_seconds
        self._arrived: deque[tuple[Any, Any]] = deque()
        self._moved_seconds = 0.0  # when something moved last, on the monotonic clock
        self._selector = selectors.DefaultSelector()
        for line in self._lines.values():
            self._selector.register(line.connection, selectors.EVENT_READ)

    def send(self, place: int, letter: tuple[Any, Any]) -> None:
        self._lines[place].put(letter)
        self._lines[place].advance(self._arrived)

    def take(self) -> tuple[Any, Any]:
        self._moved_seconds = time.monotonic()
        while not self._arrived:
            self._move()
        return self._arrived.popleft()

    def flush(self) -> None:
        """Send all that has not left yet. Raises ExchangeBrokenError."""
        self._moved_seconds = time.monotonic()
        while any(line.is_sending for line in self._lines.values()):
            self._move()

    def close(self) -> None:
        """Break all lines. A thread that waits is freed at once."""
        for line in self._lines.values():
            line.close()

    def free(self) -> None:
        """Give the file descriptors back. Called by the thread that uses it, or once nobody does."""
        self._selector.close()
        for line in self._lines.values():
            line.free()

    def _move(self) -> None:
        """Move what can be moved, or else wait until something can. Raises ExchangeBrokenError."""
        moved = [line.advance(self._arrived) for line in self._lines.values()]
        if any(moved):
            self._moved_seconds = time.monotonic()
            return
        for line in self._lines.values():
            sending = selectors.EVENT_WRITE if line.is_sending else 0
            self._selector.modify(line.connection, selectors.EVENT_READ | sending)
        left_seconds = self._moved_seconds + self.limit_seconds - time.monotonic()
        if left_seconds <= 0 or not self._selector.select(left_seconds):
            silent = min(self._lines)
            raise ExchangeBrokenError(
                silent, f"nobody has said anything for {self.limit_seconds:g} s", is_late=True
            )


def met(
    places: Sequence[RankAddress],
    token: str,
    here: int,
    listener: socket.socket,
    encryption: Encryption | None,
    limits_seconds: tuple[float, float],
) -> SocketMail:
    """Return the mail of a place, once all places are there.

    Args:
        places: the addresses of all, in their order.
        token: who does not say it belongs to something else.
        here: which of the places this one is.
        listener: its listening socket.
        encryption: by which all of it goes. None: without.
        limits_seconds: for all of it, and then for each letter.

    Raises:
        ExchangeBrokenError: a place did not come.
    """
    meeting = Meeting(places, token, here, listener, encryption, time.monotonic() + limits_seconds[0])
    lines = meeting.links({*range(len(places))} - {here}, MailLine)
    return SocketMail(lines, limits_seconds[1])
