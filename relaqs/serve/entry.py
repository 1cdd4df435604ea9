"""How a connection begins: TLS, the user's name and password, and what the client is told first."""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pygwire import ConnectionPhase
from pygwire import messages as wire
from scramp import ScramException, ScramMechanism
from scramp.core import ScramServer

from relaqs.serve.failures import NOT_LET_IN, PROTOCOL_VIOLATION, WRONG_PASSWORD, RefusedError
from relaqs.serve.settings import REPORTED, Settings
from relaqs.serve.strangers import Guesses, network
from relaqs.serve.stream import Stream
from relaqs.serve.users import User, Users

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
    # A wrong setting is told before the password.
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
