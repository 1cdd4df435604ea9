"""How a connection begins: TLS, the user's name and password, and what the client is told first.

Until then it is a stranger's, who has some seconds. Where too many come, the oldest of the address that sent
most goes, so that somebody who knows a password is always heard. A wrong password makes all further ones of
its address wait, longer each time. Who has logged in from there before has a count of their own, and does
not wait with them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from pygwire import ConnectionPhase
from pygwire import messages as wire
from relaqs_engine.postgres.wording import DATABASE
from scramp import ScramException, ScramMechanism
from scramp.core import ScramServer

from relaqs.serve.failures import (
    NO_DATABASE,
    NOT_LET_IN,
    PROTOCOL_VIOLATION,
    TOO_MANY,
    WRONG_PASSWORD,
    RefusedError,
)
from relaqs.serve.settings import REPORTED, Settings
from relaqs.serve.stream import Stream
from relaqs.serve.users import User, Users

ENTRY_SECONDS = 5.0  # from connecting to being let in
MOST_STRANGERS, MOST_STRANGERS_EACH = 400, 200  # in all, and of one address
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 3.0
FORGET_SECONDS = 600.0
_MOST_KEPT = 10_000

Guesser: TypeAlias = tuple[str, str]
"""An address, and a user's name or "" for all who have not logged in from there."""


def network(host: str) -> str:
    """Return whom an address belongs to: itself, or the network of one that has many in IPv6."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


class Strangers:
    """The connections that have not logged in."""

    def __init__(self) -> None:
        self._here: dict[asyncio.Timeout, str] = {}  # with their addresses, the oldest first

    def __len__(self) -> int:
        return len(self._here)

    @asynccontextmanager
    async def coming(self, address: str) -> AsyncIterator[None]:
        """Give somebody the time to log in.

        Raises:
            RefusedError: it is over, or too many others came.
        """
        limit = asyncio.timeout(ENTRY_SECONDS)
        try:
            async with limit:
                self._here[limit] = address
                self._make_room(address)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._refusal(limit) from None
        finally:
            self._here.pop(limit, None)

    def _refusal(self, limit: asyncio.Timeout) -> RefusedError:
        if limit in self._here:
            said = f"nobody said who they are within {ENTRY_SECONDS:g} s"
            return RefusedError(PROTOCOL_VIOLATION, said, is_fatal=True)
        return RefusedError(TOO_MANY, "too many connections came that do not log in", is_fatal=True)

    def _make_room(self, address: str) -> None:
        counts = Counter(self._here.values())
        if counts[address] > MOST_STRANGERS_EACH:
            self._send_away(address)
        elif len(self._here) > MOST_STRANGERS:
            self._send_away(counts.most_common(1)[0][0])

    def _send_away(self, address: str) -> None:
        oldest = next(limit for limit, other in self._here.items() if other == address)
        del self._here[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True)
class _Count:
    """How many passwords were wrong, and when the next one is looked at."""

    wrong: int = 0
    next_at: float = 0.0
    last_at: float = 0.0


class Guesses:
    """Passwords that were wrong.

    Args:
        clock: tells seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: OrderedDict[Guesser, _Count] = OrderedDict()  # the one that was asked last is last
        self._friends: OrderedDict[Guesser, None] = OrderedDict()

    async def turn(self, address: str, user: str) -> None:
        """Wait until a password of this address is looked at.

        Raises:
            RefusedError: so many others wait that it would take long.
        """
        count = self._count(address, user)
        now = self._clock()
        wait = count.next_at - now
        if wait > LONGEST_DELAY_SECONDS:
            raise RefusedError(
                TOO_MANY,
                f"too many wrong passwords came from this address; try again in {wait:.0f} s",
                is_fatal=True,
            )
        if wait > 0:
            count.next_at += _delay(count.wrong)
            await asyncio.sleep(wait)

    def was_wrong(self, address: str, user: str) -> None:
        """Count a wrong password."""
        count = self._count(address, user)
        count.wrong += 1
        count.last_at = self._clock()
        count.next_at = max(count.next_at, count.last_at + _delay(count.wrong))

    def was_right(self, address: str, user: str) -> None:
        """Remember who has logged in from where, and forget what they got wrong before."""
        self._friends[address, user] = None
        self._friends.move_to_end((address, user))
        self._counts.pop((address, user), None)
        if len(self._friends) > _MOST_KEPT:
            self._friends.popitem(last=False)

    def _count(self, address: str, user: str) -> _Count:
        guesser = (address, user if (address, user) in self._friends else "")
        count = self._counts.setdefault(guesser, _Count())
        self._counts.move_to_end(guesser)
        if self._clock() - count.last_at > FORGET_SECONDS:
            count.wrong = 0
        if len(self._counts) > _MOST_KEPT:
            self._counts.popitem(last=False)
        return count


def _delay(wrong: int) -> float:
    """Return how long the next password waits after so many wrong ones: 0.1 s, 0.2 s, 0.4 s … 3 s."""
    return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(wrong - 1, 20)) if wrong else 0.0


logger = logging.getLogger("relaqs.serve")

_SCRAM = "SCRAM-SHA-256"
_SHOWN_CHARACTERS = 63  # of a name in the log: none of ours is longer
_VERSION_3_0 = 0x00030000
_NOT_SETTINGS = {"user", "database", "options", "replication"}


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in, and how.

    Attributes:
        users: None lets anybody in who is on this machine.
        tls: the server's certificate and key; None for no TLS.
        demands_tls: whether a connection without TLS is refused.
    """

    users: Users | None = None
    tls: ssl.SSLContext | None = None
    demands_tls: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """What a client shows to cancel its query from another connection. `process_id` tells who has it."""

    process_id: int
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(4), repr=False)

    @classmethod
    def drawn(cls, place: int = 0, places: int = 1) -> Key:
        """Return a new key of one of several processes: the remainder of its `process_id` is that one's."""
        return cls((1 + secrets.randbelow((2**31 - 1) // places - 1)) * places + place)


@dataclass(frozen=True, slots=True)
class Guest:
    """Somebody who was let in."""

    user: User
    settings: Settings


async def enter(
    stream: Stream, door: Door, timezone: str, guesses: Guesses
) -> Guest | wire.CancelRequest | None:
    """Return who was let in, or the wish to cancel a query; None where the client has gone.

    timezone: of clients that name none. guesses: passwords that were wrong before.

    Raises:
        RefusedError: they were not let in.
    """
    startup = await _startup(stream, door)
    if not isinstance(startup, wire.StartupMessage):
        return startup
    if door.demands_tls and not stream.is_encrypted:
        raise RefusedError(NOT_LET_IN, "this server demands TLS; connect with sslmode=require", is_fatal=True)
    name = startup.params.get("user", "")
    if not name:
        raise RefusedError(NOT_LET_IN, "the connection names no user; give one", is_fatal=True)
    # A wrong setting and a wrong database are told before the password.
    if (database := startup.params.get("database", name)) not in (DATABASE, "postgres", name):
        said = f'database "{database[:_SHOWN_CHARACTERS]}" does not exist; the one that is here is {DATABASE}'
        raise RefusedError(NO_DATABASE, said, is_fatal=True)
    settings = Settings(_settings_at_start(startup.params), timezone)
    if door.users is None:
        user: User | None = User(name)
    else:
        user = await _user_with_password(stream, door.users, name, guesses)
    if user is None:
        return None
    unknown = [name for name in startup.params if name.startswith("_pq_.")]
    if startup.protocol_version != _VERSION_3_0 or unknown:
        stream.send(wire.NegotiateProtocolVersion(_VERSION_3_0, unknown))
    stream.send(wire.AuthenticationOk())
    return Guest(user, settings)


def welcome(stream: Stream, guest: Guest, key: Key) -> None:
    """Tell a client all that it waits for before its first statement."""
    for name, shown in REPORTED.items():
        value = guest.user.name if name == "session_authorization" else guest.settings.show(name)
        stream.send(wire.ParameterStatus(shown, value))
    stream.send(wire.BackendKeyData(key.process_id, key.secret), wire.ReadyForQuery())
    stream.phase = ConnectionPhase.READY


async def _startup(stream: Stream, door: Door) -> wire.StartupMessage | wire.CancelRequest | None:
    """Return the first message that is no request for encryption. Each kind of that is answered once."""
    asked: set[type] = set()
    while isinstance(message := await stream.next(), wire.SSLRequest | wire.GSSEncRequest):
        if type(message) in asked:
            raise RefusedError(PROTOCOL_VIOLATION, "encryption is asked for twice", is_fatal=True)
        asked.add(type(message))
        if isinstance(message, wire.SSLRequest) and door.tls is not None and not stream.is_encrypted:
            await stream.encrypt(door.tls)
        else:
            await stream.refuse_encryption()
    assert message is None or isinstance(message, wire.StartupMessage | wire.CancelRequest)
    return message


def _settings_at_start(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a client gives when it connects, also those in `options`, as -c name=value."""
    given = {name: value for name, value in parameters.items() if name.lower() not in _NOT_SETTINGS}
    words = parameters.get("options", "").replace("-c ", "-c").replace("\\ ", "\0").split()
    for word in words:
        name, sign, value = word.removeprefix("-c").removeprefix("--").partition("=")
        if sign:
            given[name.replace("-", "_")] = value.replace("\0", " ")
    return given


async def _user_with_password(stream: Stream, users: Users, name: str, guesses: Guesses) -> User | None:
    """Return the user who has shown that they know their password; None where the client has gone.

    Raises:
        RefusedError: they do not know it, or too many of their address did not. It is logged.
    """
    address = network(stream.host)
    try:
        user = await _proved(stream, users, name, lambda: guesses.turn(address, name))
    except RefusedError as refusal:
        if refusal.code == WRONG_PASSWORD:
            guesses.was_wrong(address, name)
            logger.warning("wrong password for user %r from %s", name[:_SHOWN_CHARACTERS], stream.host)
        raise
    if user is not None:
        guesses.was_right(address, name)
    return user


async def _proved(
    stream: Stream, users: Users, name: str, turn: Callable[[], Awaitable[None]]
) -> User | None:
    """Return the user whose password was proved; None where the client has gone.

    turn: waits until the proof may be looked at.
    """
    server = ScramMechanism(_SCRAM).make_server(lambda _: users.verifier(name))
    wrong = RefusedError(WRONG_PASSWORD, f"password authentication failed for user {name!r}", is_fatal=True)
    stream.send(wire.AuthenticationSASL([_SCRAM]))
    stream.phase = ConnectionPhase.AUTHENTICATING_SASL_INITIAL
    first = await stream.next()
    if first is None:
        return None
    if not isinstance(first, wire.SASLInitialResponse) or first.mechanism != _SCRAM:
        raise RefusedError(NOT_LET_IN, f"a password is proved by {_SCRAM} here", is_fatal=True)
    try:
        _begin_proof(server, first.data.decode())
        stream.send(wire.AuthenticationSASLContinue(server.get_server_first().encode()))
        stream.phase = ConnectionPhase.AUTHENTICATING_SASL_CONTINUE
        final = await stream.next()
        if final is None:
            return None
        if not isinstance(final, wire.SASLResponse):
            raise wrong
        await turn()
        server.set_client_final(final.data.decode())
        stream.send(wire.AuthenticationSASLFinal(server.get_server_final().encode()))
    except (ScramException, ValueError, KeyError):
        raise wrong from None
    user = users.find(name)
    if user is None:
        raise wrong
    return user


def _begin_proof(server: ScramServer, first: str) -> None:
    """Take a client's first message, also one that leaves the name empty because the connection has it.

    libpq sends it so, and scramp wants a name. What is proved is the message as it was sent.
    """
    header, comma, bare = first.partition(",n=,")
    server.set_client_first(f"{header},n=-,{bare}" if comma else first)
    if comma:
        server.client_first_bare = f"n=,{bare}"
