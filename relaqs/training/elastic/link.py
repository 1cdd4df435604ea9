"""One connection between two ranks: values there and back, with a limit of time, freed from any thread."""

from __future__ import annotations

import contextlib
import pickle
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from typing import Any

CHUNK_BYTES = 1 << 18  # sent before it is looked whether the other side has sent something
_COUNT, _LENGTH = struct.Struct("!I"), struct.Struct("!Q")


class ExchangeBrokenError(Exception):
    """A rank cannot reach a peer: it died, hangs, or the exchange was closed.

    Attributes:
        peer: the rank of the peer.
        is_late: the peer said nothing within the limit. False: its connection broke.
    """

    def __init__(self, peer: int, reason: str, *, is_late: bool = False) -> None:
        super().__init__(f"rank {peer}: {reason}")
        self.peer = peer
        self.is_late = is_late


class PeerLink:
    """A connection to one peer. One thread uses it; any thread may close it.

    Values are pickled. Arrays in them are sent from where they lie, and arrive writable.

    Args:
        connection: a socket, with TLS or without.
        peer: the rank at the other end.
    """

    def __init__(self, connection: socket.socket, peer: int) -> None:
        self._socket = connection
        self._peer = peer
        self._selector = selectors.DefaultSelector()
        connection.setblocking(False)
        self._events = selectors.EVENT_READ
        self._selector.register(connection, self._events)
        self._is_closed = False

    def send(self, value: object, limit_seconds: float) -> None:
        """Send a value. Raises ExchangeBrokenError."""
        self._move(packed(value), None, limit_seconds)

    def receive(self, limit_seconds: float) -> Any:
        """Return the value that the peer sends. Raises ExchangeBrokenError."""
        arriving = Arriving()
        self._move(deque(), arriving, limit_seconds)
        return arriving.value()

    def swap(self, value: object, limit_seconds: float) -> Any:
        """Send a value and return the peer's, both at the same time. Raises ExchangeBrokenError."""
        arriving = Arriving()
        self._move(packed(value), arriving, limit_seconds)
        return arriving.value()

    def close(self) -> None:
        """Break the connection. A thread that waits in it gets ExchangeBrokenError at once."""
        self._is_closed = True
        with contextlib.suppress(OSError):  # the peer was faster
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # an SSLSocket's own would unwrap first

    def free(self) -> None:
        """Give the file descriptors back. Called by the thread that uses the link, or once nobody does."""
        self.close()
        self._selector.close()
        self._socket.close()

    def _move(self, leaving: deque[memoryview], arriving: Arriving | None, limit_seconds: float) -> None:
        """Move all. limit_seconds: for which nothing may move. A large value may take longer."""
        over_seconds = time.monotonic() + limit_seconds
        try:
            while leaving or (arriving is not None and not arriving.is_complete):
                has_sent = bool(leaving) and self._sent(leaving)
                has_come = arriving is not None and not arriving.is_complete and self._came(arriving)
                if has_sent or has_come:
                    over_seconds = time.monotonic() + limit_seconds
                else:
                    self._wait(bool(leaving), over_seconds)
        except (OSError, ValueError) as error:  # ValueError: of a descriptor that is closed
            reason = "the exchange was closed" if self._is_closed else str(error) or type(error).__name__
            raise ExchangeBrokenError(self._peer, reason, is_late=isinstance(error, TimeoutError)) from error

    def _sent(self, leaving: deque[memoryview]) -> bool:
        try:
            count = self._socket.send(leaving[0][:CHUNK_BYTES])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if count == len(leaving[0]):
            leaving.popleft()
        else:
            leaving[0] = leaving[0][count:]
        return True

    def _came(self, arriving: Arriving) -> bool:
        try:
            count = self._socket.recv_into(arriving.room())
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not count:
            raise ConnectionResetError("the connection ended")
        arriving.filled(count)
        return True

    def _wait(self, is_sending: bool, over_seconds: float) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_sending else 0)
        if events != self._events:
            self._selector.modify(self._socket, events)
            self._events = events
        left_seconds = over_seconds - time.monotonic()
        if left_seconds <= 0 or not self._selector.select(left_seconds):
            raise TimeoutError("it said nothing in time")


def packed(value: object) -> deque[memoryview]:
    """Return what goes over the wire: a count, then each part with its length before it."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(each.raw() for each in buffers)]
    small = [_COUNT.pack(len(parts)), *(_LENGTH.pack(len(part)) for part in parts)]
    return deque([memoryview(b"".join(small)), *(part for part in parts if len(part))])


class Arriving:
    """A message that comes in: first its count, then its lengths, then its parts."""

    def __init__(self) -> None:
        self._parts: list[bytearray] = []
        self._pending: deque[memoryview] = deque()
        self._count = bytearray(_COUNT.size)
        self._lengths: bytearray | None = None
        self._pending.append(memoryview(self._count))
        self.is_complete = False

    def room(self) -> memoryview:
        return self._pending[0]

    def filled(self, count: int) -> None:
        first = self._pending[0][count:]
        if len(first):
            self._pending[0] = first
            return
        self._pending.popleft()
        while not self._pending and not self.is_complete:
            self._next()

    def value(self) -> Any:
        return pickle.loads(self._parts[0], buffers=self._parts[1:])

    def _next(self) -> None:
        if self._lengths is None:
            (parts,) = _COUNT.unpack(self._count)
            self._lengths = bytearray(parts * _LENGTH.size)
            self._pending.append(memoryview(self._lengths))
        elif not self._parts:
            self._parts = [bytearray(length) for (length,) in _LENGTH.iter_unpack(self._lengths)]
            self._pending.extend(memoryview(part) for part in self._parts if len(part))
        else:
            self.is_complete = True
