"""How the ranks of a gang exchange values and add up their sums, over plain sockets.

**The sums.** Rank r owns the r-th block of neighbouring pieces, and adds these up in pairs itself. Then
the ranks add in pairs: 0 with 1, 2 with 3, then 0 with 2 and 1 with 3. That is one fixed binary tree over
the pieces. So 1, 2 and 4 ranks get the same sum, bit by bit, because (a + b) is (b + a) in floating point.

    pieces   0   1   2   3      a rank of one adds (0+1) + (2+3) itself
    ranks    └─0─┘   └─1─┘      two ranks add (0+1) and (2+3), then swap these and add

One connection between two ranks: values there and back, with a limit of time, freed from any thread.

Parts of one model send each other letters instead, in any order and without a thread (`SocketMail`). Every
place has a line to every other one. Whoever waits for a letter sends on what it still has to send, and
takes in what comes, on all lines. So two places that send each other much never wait for each other.
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
from typing import Any, Protocol, TypeVar

from relaqs.training.elastic.membership import Membership, RankAddress
from relaqs.training.passes import add_sums
from relaqs.training.rows import Sums

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


RETRY_SECONDS = 0.01  # between two attempts to reach a peer that is not there yet
HELLO_SECONDS = 0.5  # for a connection to say what it belongs to
RANK_BYTES = 4

Linked = TypeVar("Linked", bound=PeerLink)


@dataclass(frozen=True, slots=True)
class Encryption:
    """The contexts of TLS, by which a rank calls its peers and is called."""

    calling: ssl.SSLContext
    called: ssl.SSLContext


class SocketExchange:
    """What the ranks of a generation say to each other, over links to the ranks that differ in one bit.

    Any rank that fails to answer breaks it, for good: what waits in it raises ExchangeBrokenError.

    Args:
        limit_seconds: how long a peer may let the others wait.
    """

    def __init__(self, rank: int, size: int, links: dict[int, PeerLink], limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.size = size
        self._rank = rank
        self._links = links

    def send(self, peer: int, value: object) -> None:
        """Send a value to a partner. Raises ExchangeBrokenError."""
        self._links[peer].send(value, self.limit_seconds)

    def receive(self, peer: int) -> Any:
        """Return the value that a partner sends. Raises ExchangeBrokenError."""
        return self._links[peer].receive(self.limit_seconds)

    def all_reduce(self, sums: Sums | None) -> Sums:
        """Return the sums of all ranks, the same bits on each. None: this rank has nothing to add."""
        return _present(self._doubled(sums))

    def broadcast(self, value: object, root: int) -> Any:
        """Return the root's value on every rank, by a binomial tree of log2(ranks) turns."""
        place, bit = self._rank ^ root, 1
        while bit < self.size:
            if place < bit:
                self.send(self._rank ^ bit, value)
            elif place < 2 * bit:
                value = self.receive(self._rank ^ bit)
            bit *= 2
        return value

    def close(self) -> None:
        """Break it, from any thread. A rank that waits in it is freed at once."""
        for link in self._links.values():
            link.close()

    def free(self) -> None:
        """Give all that it holds back. Called by the thread that uses it, or once nobody does."""
        for link in self._links.values():
            link.free()

    def _doubled(self, sums: Sums | None) -> Sums | None:
        bit = 1
        while bit < self.size:
            sums = _added(sums, self._links[self._rank ^ bit].swap(sums, self.limit_seconds))
            bit *= 2
        return sums


def meet(
    membership: Membership,
    rank: int,
    listener: socket.socket,
    encryption: Encryption | None,
    limit_seconds: float,
) -> SocketExchange:
    """Return the exchange of a generation, once all its ranks are there.

    Args:
        membership: the generation.
        rank: which of its ranks this one is.
        listener: this rank's listening socket.
        encryption: by which all of it goes. None: without.
        limit_seconds: for all of it, and then for each answer.

    Raises:
        ExchangeBrokenError: a peer did not come.
    """
    over_seconds = time.monotonic() + limit_seconds
    meeting = Meeting(membership.ranks, membership.token, rank, listener, encryption, over_seconds)
    links = meeting.links(partners_of(rank, membership.size), PeerLink)
    return SocketExchange(rank, membership.size, links, limit_seconds)


def partners_of(rank: int, size: int) -> list[int]:
    """Return the ranks that one swaps sums with, in that order.

    >>> partners_of(2, 8)
    [3, 0, 6]
    """
    return [rank ^ (1 << bit) for bit in range((size - 1).bit_length())]


class Meeting:
    """The ranks of a generation find each other: those with the higher number call, the lower ones answer.

    Args:
        ranks: their addresses.
        token: only who says it belongs to the generation.
        rank: which of them this one is.
        deadline: for all of it, on the monotonic clock.
    """

    def __init__(
        self,
        ranks: Sequence[RankAddress],
        token: str,
        rank: int,
        listener: socket.socket,
        encryption: Encryption | None,
        deadline: float,
    ) -> None:
        self._ranks = ranks
        self._rank = rank
        self._listener = listener
        self._encryption = encryption
        self._deadline = deadline
        self._token = token.encode()

    def links(self, peers: Collection[int], kind: type[Linked]) -> dict[int, Linked]:
        """Return a link to each of some peers. Raises ExchangeBrokenError where one does not come."""
        found: dict[int, Linked] = {}
        try:
            for peer in sorted(peers):
                if peer < self._rank:
                    found[peer] = kind(self._call(peer), peer)
            while waiting := {*peers} - {*found}:
                connection, peer = self._answer(waiting)
                found[peer] = kind(connection, peer)
        except BaseException:
            for link in found.values():
                link.free()
            raise
        return found

    def _call(self, peer: int) -> socket.socket:
        """Return a connection to a peer that is, or will be, in the same meeting."""
        there = self._ranks[peer]
        while True:
            try:
                return self._said(peer, socket.create_connection((there.host, there.port), self._left(peer)))
            except OSError as error:
                if time.monotonic() + RETRY_SECONDS >= self._deadline:
                    raise ExchangeBrokenError(peer, f"it did not come ({error})", is_late=True) from error
                time.sleep(RETRY_SECONDS)

    def _answer(self, waiting: set[int]) -> tuple[socket.socket, int]:
        """Return the next connection of one of the peers that are waited for, and which peer it is."""
        while True:
            peer = min(waiting)
            self._listener.settimeout(self._left(peer))
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                raise ExchangeBrokenError(peer, f"it did not come ({error})", is_late=True) from error
            try:
                connection, peer = self._heard(connection)
                if peer in waiting:
                    return connection, peer
            except OSError:
                pass  # it was cut off, or is no rank
            connection.close()

    def _said(self, peer: int, connection: socket.socket) -> socket.socket:
        """Return the connection once the peer has answered with the token. Raises OSError."""

        def say(secured: socket.socket) -> None:
            secured.settimeout(self._left(peer))
            secured.sendall(self._token + self._rank.to_bytes(RANK_BYTES, "big"))
            if not hmac.compare_digest(_exactly(secured, len(self._token)), self._token):
                raise ConnectionError("another generation answers")

        wrap = None if self._encryption is None else self._encryption.calling.wrap_socket
        return _prepared(connection, wrap, say)

    def _heard(self, connection: socket.socket) -> tuple[socket.socket, int]:
        """Return the connection and whose it is. Raises OSError where it is not of this generation."""
        connection.settimeout(min(HELLO_SECONDS, self._left(0)))
        said = bytearray()

        def hear(secured: socket.socket) -> None:
            said.extend(_exactly(secured, len(self._token) + RANK_BYTES))
            if not hmac.compare_digest(bytes(said[:-RANK_BYTES]), self._token):
                raise ConnectionError("it is of another generation")
            secured.sendall(self._token)

        wrap = None
        if self._encryption is not None:
            called = self._encryption.called

            def wrap(raw: socket.socket) -> ssl.SSLSocket:
                return called.wrap_socket(raw, server_side=True)

        secured = _prepared(connection, wrap, hear)
        return secured, int.from_bytes(said[-RANK_BYTES:], "big")

    def _left(self, peer: int) -> float:
        left_seconds = self._deadline - time.monotonic()
        if left_seconds <= 0:
            raise ExchangeBrokenError(peer, "it did not come", is_late=True)
        return left_seconds


def _prepared(
    connection: socket.socket,
    wrap: Callable[[socket.socket], ssl.SSLSocket] | None,
    greet: Callable[[socket.socket], None],
) -> socket.socket:
    """Return a connection on which both sides have greeted. It is closed where that fails."""
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wrap is not None:
            connection = wrap(connection)
        greet(connection)
    except BaseException:
        connection.close()
        raise
    return connection


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


def _present(sums: Sums | None) -> Sums:
    assert sums is not None, "no rank had anything to add"
    return sums


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
