"""How the workers of one run speak with each other: a mesh of plain sockets, and sums over it.

**The mesh.** Each member has a line to those that it speaks with. Values go there and back on all lines at
the same time, without a thread: whoever waits for one sends on what it still has to send, and takes in what
comes. So two that send each other much never wait for each other. A member waits for a value of one peer
(ranks of a gang), or for the next one of anybody (parts of a model). A peer that is silent for too long, or
gone, breaks the mesh; any thread may free who waits in it.

**The sums.** Rank r owns the r-th block of neighbouring pieces, and adds these up in pairs itself. Then
the ranks add in pairs: 0 with 1, 2 with 3, then 0 with 2 and 1 with 3. That is one fixed binary tree over
the pieces. So 1, 2 and 4 ranks get the same sum, bit by bit, because (a + b) is (b + a) in floating point.

    pieces   0   1   2   3      a rank of one adds (0+1) + (2+3) itself
    ranks    └─0─┘   └─1─┘      two ranks add (0+1) and (2+3), then swap these and add
"""

from __future__ import annotations

import contextlib
import hmac
import pickle
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaqs.training.passes import add_sums
from relaqs.training.rows import Sums

CHUNK_BYTES = 1 << 18  # sent at a time
_COUNT, _LENGTH = struct.Struct("!I"), struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class RankAddress:
    """Where a rank listens for its peers.

    Attributes:
        slot: the slot that it holds, as `relaqs.executors.slot_desk` names it.
        host, port: of its listening socket.
    """

    slot: str
    host: str
    port: int


class ExchangeBrokenError(Exception):
    """A rank cannot reach a peer: it died, hangs, or the exchange was closed. peer: its rank."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(f"rank {peer}: {reason}")
        self.peer = peer


class PeerLine:
    """A connection to one peer: what goes and what comes move on bit by bit.

    Values are pickled. Arrays in them are sent from where they are, and arrive writable.

    Args:
        connection: a socket, with TLS or without.
        peer: the rank at the other end.

    Attributes:
        leaving: what is still to be sent.
        arrived: the values that are here as a whole.
        broken: why no more will come or go. None: the line is well.
    """

    def __init__(self, connection: socket.socket, peer: int) -> None:
        self.connection, self.peer = connection, peer
        self.leaving: deque[memoryview] = deque()
        self.arrived: deque[Any] = deque()
        self.broken: Exception | None = None
        self._arriving = Arriving()
        self._is_closed = False
        connection.setblocking(False)

    def advance(self) -> bool:
        """Move what can be moved at once, and return whether anything was."""
        has_moved = False
        try:
            while self.leaving and self._sent():
                has_moved = True
            while self._came():
                has_moved = True
        except (OSError, ValueError) as error:  # ValueError: of a descriptor that is closed
            self.broken = error
        return has_moved

    def raise_broken(self) -> None:
        """Raise ExchangeBrokenError where the line is broken."""
        if (error := self.broken) is not None:
            reason = "the exchange was closed" if self._is_closed else str(error) or type(error).__name__
            raise ExchangeBrokenError(self.peer, reason) from error

    def close(self) -> None:
        """Break the connection, from any thread."""
        self._is_closed = True
        with contextlib.suppress(OSError):  # the peer was faster
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)  # an SSLSocket's own would unwrap first

    def _sent(self) -> bool:
        try:
            count = self.connection.send(self.leaving[0][:CHUNK_BYTES])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if count == len(self.leaving[0]):
            self.leaving.popleft()
        else:
            self.leaving[0] = self.leaving[0][count:]
        return True

    def _came(self) -> bool:
        try:
            count = self.connection.recv_into(self._arriving.room())
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not count:
            raise ConnectionResetError("the connection ended")
        self._arriving.filled(count)
        if self._arriving.is_complete:
            self.arrived.append(self._arriving.value())
            self._arriving = Arriving()
        return True


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


class Mesh:
    """What one member of a generation says to the others. One thread uses it; any thread may close it.

    Args:
        lines: to those that it speaks with. Two that call `all_reduce` or `broadcast` differ in one bit.

    Attributes:
        limit_seconds: how long a peer may be silent that is waited for. A large value may take longer.
    """

    def __init__(self, rank: int, size: int, lines: Mapping[int, PeerLine], limit_seconds: float) -> None:
        self.size = size
        self.limit_seconds = limit_seconds
        self._rank = rank
        self._lines = dict(lines)
        self._selector = selectors.DefaultSelector()
        for line in self._lines.values():
            self._selector.register(line.connection, selectors.EVENT_READ, line)

    def send(self, peer: int, value: object) -> None:
        """Let a value leave, after those before it. Nothing of it may change after that."""
        line = self._lines[peer]
        line.leaving.extend(packed(value))
        line.advance()

    def take(self, peer: int | None = None) -> Any:
        """Return the next value of a peer. None: of anybody. Raises ExchangeBrokenError."""
        lines = [*self._lines.values()] if peer is None else [self._lines[peer]]
        self._move(lines, lambda: any(line.arrived for line in lines))
        return next(line.arrived for line in lines if line.arrived).popleft()

    def flush(self) -> None:
        """Send all that has not left yet. Raises ExchangeBrokenError."""
        lines = [line for line in self._lines.values() if line.leaving]
        self._move(lines, lambda: not any(line.leaving for line in lines))

    def all_reduce(self, sums: Sums | None) -> Sums:
        """Return the sums of all, the same bits on each. None: this member has nothing to add.

        Raises ExchangeBrokenError.
        """
        bit = 1
        while bit < self.size:
            self.send(self._rank ^ bit, sums)
            sums = _added(sums, self.take(self._rank ^ bit))
            self.flush()  # before what it sends may change
            bit *= 2
        assert sums is not None, "no rank had anything to add"
        return sums

    def broadcast(self, value: object, root: int) -> Any:
        """Return the root's value on every member, by a binomial tree of log2(size) turns.

        Raises ExchangeBrokenError.
        """
        place, bit = self._rank ^ root, 1
        while bit < self.size:
            if place < bit:
                self.send(self._rank ^ bit, value)
                self.flush()
            elif place < 2 * bit:
                value = self.take(self._rank ^ bit)
            bit *= 2
        return value

    def close(self) -> None:
        """Break it, from any thread. Who waits in it is freed at once."""
        for line in self._lines.values():
            line.close()

    def free(self) -> None:
        """Give all that it holds back. Called by the thread that uses it, or once nobody does."""
        self.close()
        self._selector.close()
        for line in self._lines.values():
            line.connection.close()

    def _move(self, awaited: Sequence[PeerLine], is_over: Callable[[], bool]) -> None:
        """Move on all lines until something is so. Raises ExchangeBrokenError where it will not be."""
        over_seconds = time.monotonic() + self.limit_seconds
        while not is_over():
            moved = {line.peer for line in self._lines.values() if line.broken is None and line.advance()}
            if is_over():
                return
            for line in awaited:
                line.raise_broken()
            if not moved.isdisjoint(line.peer for line in awaited):
                over_seconds = time.monotonic() + self.limit_seconds
            elif not moved:
                self._wait(awaited, over_seconds)

    def _wait(self, awaited: Sequence[PeerLine], over_seconds: float) -> None:
        """Wait until something can move on a line that is well."""
        for key in [*self._selector.get_map().values()]:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if key.data.leaving else 0)
            if key.data.broken is not None:
                self._selector.unregister(key.fileobj)
            elif events != key.events:
                self._selector.modify(key.fileobj, events, key.data)
        left_seconds = over_seconds - time.monotonic()
        if left_seconds <= 0 or not self._selector.select(left_seconds):
            first = min(line.peer for line in awaited)
            raise ExchangeBrokenError(first, "it said nothing in time")


RETRY_SECONDS = 0.01  # between two attempts to reach a peer that is not there yet
HELLO_SECONDS = 0.5  # for a connection to say what it belongs to
RANK_BYTES = 4


@dataclass(frozen=True, slots=True)
class Encryption:
    """The contexts of TLS, by which a rank calls its peers and is called."""

    calling: ssl.SSLContext
    called: ssl.SSLContext


def meet(
    ranks: Sequence[RankAddress],
    token: str,
    rank: int,
    listener: socket.socket,
    encryption: Encryption | None,
    limits_seconds: tuple[float, float],
    peers: Collection[int] | None = None,
) -> Mesh:
    """Return the mesh of a member, once those are there that it speaks with.

    Args:
        ranks: the addresses of all, in their order.
        token: who does not say it belongs to something else.
        rank: which of them this one is.
        listener: its listening socket.
        encryption: by which all of it goes. None: without.
        limits_seconds: for all of it, and then for each answer.
        peers: those that it speaks with. None: all others.

    Raises:
        ExchangeBrokenError: a peer did not come.
    """
    meeting = Meeting(ranks, token, rank, listener, encryption, time.monotonic() + limits_seconds[0])
    lines = meeting.lines({*range(len(ranks))} - {rank} if peers is None else peers)
    return Mesh(rank, len(ranks), lines, limits_seconds[1])


def partners_of(rank: int, size: int) -> list[int]:
    """Return the ranks that one swaps sums with, in that order.

    >>> partners_of(2, 8)
    [3, 0, 6]
    """
    return [rank ^ (1 << bit) for bit in range((size - 1).bit_length())]


@dataclass(frozen=True, slots=True)
class Meeting:
    """The ranks of a generation find each other: those with the higher number call, the lower ones answer.

    Attributes: as `meet` has them. deadline: for all of it, on the monotonic clock.
    """

    ranks: Sequence[RankAddress]
    token: str
    rank: int
    listener: socket.socket
    encryption: Encryption | None
    deadline: float

    def lines(self, peers: Collection[int]) -> dict[int, PeerLine]:
        """Return a line to each of some peers. Raises ExchangeBrokenError where one does not come."""
        found: dict[int, PeerLine] = {}
        try:
            for peer in sorted(peers):
                if peer < self.rank:
                    found[peer] = PeerLine(self._call(peer), peer)
            while waiting := {*peers} - {*found}:
                connection, peer = self._answer(waiting)
                found[peer] = PeerLine(connection, peer)
        except BaseException:
            for line in found.values():
                line.connection.close()
            raise
        return found

    def _call(self, peer: int) -> socket.socket:
        """Return a connection to a peer that is, or will be, in the same meeting."""
        there, calling = self.ranks[peer], None if self.encryption is None else self.encryption.calling
        while True:
            try:
                raw = socket.create_connection((there.host, there.port), self._left(peer))
                return self._greeted(raw, calling, peer, is_called=False)[0]
            except OSError as error:
                if time.monotonic() + RETRY_SECONDS >= self.deadline:
                    raise ExchangeBrokenError(peer, f"it did not come ({error})") from error
                time.sleep(RETRY_SECONDS)

    def _answer(self, waiting: set[int]) -> tuple[socket.socket, int]:
        """Return the next connection of one of the peers that are waited for, and which peer it is."""
        called = None if self.encryption is None else self.encryption.called
        while True:
            peer = min(waiting)
            self.listener.settimeout(self._left(peer))
            try:
                raw, _ = self.listener.accept()
            except OSError as error:
                raise ExchangeBrokenError(peer, f"it did not come ({error})") from error
            with contextlib.suppress(OSError):  # it was cut off, or is no rank
                connection, peer = self._greeted(raw, called, peer, is_called=True)
                if peer in waiting:
                    return connection, peer
                connection.close()

    def _greeted(
        self, connection: socket.socket, context: ssl.SSLContext | None, peer: int, *, is_called: bool
    ) -> tuple[socket.socket, int]:
        """Return a connection on which both sides have said the token and their ranks, and the other's rank.

        Who is called says it last, and to nobody who has not said it. The connection is closed where that
        fails. Raises OSError, or ExchangeBrokenError where no time is left for the peer that is awaited.
        """
        hello = self.token.encode() + self.rank.to_bytes(RANK_BYTES, "big")
        try:
            seconds = self._left(peer)
            connection.settimeout(min(HELLO_SECONDS, seconds) if is_called else seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                connection = context.wrap_socket(connection, server_side=is_called)
            if not is_called:
                connection.sendall(hello)
            said = _exactly(connection, len(hello))
            if not hmac.compare_digest(said[:-RANK_BYTES], self.token.encode()):
                raise ConnectionError("it is of another generation")
            if is_called:
                connection.sendall(hello)
        except BaseException:
            connection.close()
            raise
        return connection, int.from_bytes(said[-RANK_BYTES:], "big")

    def _left(self, peer: int) -> float:
        left_seconds = self.deadline - time.monotonic()
        if left_seconds <= 0:
            raise ExchangeBrokenError(peer, "it did not come")
        return left_seconds


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        if not (part := connection.recv(count - len(found))):
            raise ConnectionError("the connection ended")
        found += part
    return bytes(found)


def _added(one: Sums | None, other: Sums | None) -> Sums | None:
    if one is None or other is None:
        return one if other is None else other
    return add_sums(one, other)
