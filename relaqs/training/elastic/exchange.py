"""How the ranks of a gang exchange values and add up their sums, over plain sockets.

**The sums.** Rank r owns the r-th block of neighbouring pieces, and adds these up in pairs itself. Then the
ranks add in pairs: 0 with 1, 2 with 3, then 0 with 2 and 1 with 3. That is one fixed binary tree over the
pieces. So 1, 2 and 4 ranks get the same sum, bit by bit, because (a + b) is (b + a) in floating point.

    pieces   0   1   2   3      a rank of one adds (0+1) + (2+3) itself
    ranks    └─0─┘   └─1─┘      two ranks add (0+1) and (2+3), then swap these and add
"""

from __future__ import annotations

import hmac
import socket
import ssl
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from relaqs.training.elastic.link import ExchangeBrokenError, PeerLink
from relaqs.training.elastic.membership import Membership, RankAddress
from relaqs.training.passes import add_sums
from relaqs.training.rows import Sums

RETRY_SECONDS = 0.01  # between two attempts to reach a peer that is not there yet
HELLO_SECONDS = 0.5  # for a connection to say what it belongs to
RANK_BYTES = 4

Linked = TypeVar("Linked", bound=PeerLink)


class Exchange(Protocol):
    """What the ranks of a generation say to each other. Any rank that fails to answer breaks it, for good."""

    limit_seconds: float
    """How long a peer may let the others wait."""

    def send(self, peer: int, value: object) -> None:
        """Send a value to a partner. Raises ExchangeBrokenError."""
        ...

    def receive(self, peer: int) -> Any:
        """Return the value that a partner sends. Raises ExchangeBrokenError."""
        ...

    def all_reduce(self, sums: Sums | None) -> Sums:
        """Return the sums of all ranks, the same bits on each. None: this rank has nothing to add.

        Raises ExchangeBrokenError.
        """
        ...

    def broadcast(self, value: object, root: int) -> Any:
        """Return the root's value on every rank. Raises ExchangeBrokenError."""
        ...

    def barrier(self) -> None:
        """Wait for all ranks. Raises ExchangeBrokenError."""
        ...

    def close(self) -> None:
        """Break it, from any thread. A rank that waits in it is freed at once."""
        ...


@dataclass(frozen=True, slots=True)
class Encryption:
    """The contexts of TLS, by which a rank calls its peers and is called."""

    calling: ssl.SSLContext
    called: ssl.SSLContext


class SocketExchange:
    """An `Exchange` over sockets: each rank has a link to the ranks that differ from it in one bit."""

    def __init__(self, rank: int, size: int, links: dict[int, PeerLink], limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.size = size
        self._rank = rank
        self._links = links

    def send(self, peer: int, value: object) -> None:
        self._links[peer].send(value, self.limit_seconds)

    def receive(self, peer: int) -> Any:
        return self._links[peer].receive(self.limit_seconds)

    def all_reduce(self, sums: Sums | None) -> Sums:
        return _present(self._doubled(sums))

    def broadcast(self, value: object, root: int) -> Any:
        place, bit = self._rank ^ root, 1
        while bit < self.size:
            if place < bit:
                self.send(self._rank ^ bit, value)
            elif place < 2 * bit:
                value = self.receive(self._rank ^ bit)
            bit *= 2
        return value

    def barrier(self) -> None:
        self._doubled(None)

    def close(self) -> None:
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
