"""The process that answers: it listens, holds a conversation with each client, and ends cleanly."""

from __future__ import annotations

import asyncio
import gc
import hmac
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from pygwire.messages import CancelRequest, ErrorResponse, PGMessage
from relaqs_engine.postgres.metadata import Metadata, ShownColumn, ShownTable, ShownType

from relaqs.serve.answering import Answering, Asker
from relaqs.serve.column_types import ARRAYS, TYPES, column_type
from relaqs.serve.conversation import Conversation
from relaqs.serve.entry import Door, Guest, Key, enter, welcome
from relaqs.serve.failures import SHUTTING_DOWN, TOO_MANY, WRONG_PASSWORD, RefusedError, error_fields
from relaqs.serve.fair_pool import FairPool
from relaqs.serve.health import Health
from relaqs.serve.quotas import UserQuota
from relaqs.serve.settings import Settings
from relaqs.serve.strangers import Guesses, Strangers, network
from relaqs.serve.stream import ClientGoneError, Stream
from relaqs.session import Session

GOODBYE_SECONDS = 3.0  # for clients to take what was sent
END_SECONDS = 8.0  # from a signal to the end of the process, whatever does not let go
PLANNING_THREADS, PLANNING_THREADS_EACH = 8, 2  # in all, and of one user at once
TURN_SECONDS = 0.0005  # after which a thread that plans or encodes gives Python's lock to one that waits
MOST_CONNECTIONS = 500
_BACKLOG = 256  # connections that came in the same moment
_OUTCOMES = {WRONG_PASSWORD: "wrong password", TOO_MANY: "too many"}


class Server:
    """Answers clients of Postgres's protocol with one session, inside one event loop.

    Args:
        session: the tables and cores. It stays open when the server ends.
        door: who may come in.
        health: where it counts how it stands.
    """

    def __init__(self, session: Session, door: Door, health: Health | None = None) -> None:
        self._health = health or Health()
        self._health.connections = self._count_connections
        self._door = door
        self._timezone = session.timezone
        self._metadata = _metadata(session, door)
        self._planning = FairPool(PLANNING_THREADS, PLANNING_THREADS_EACH, "relaqs-planning")
        self._encoding = FairPool(1, 1, "relaqs-encoding")  # Python encodes: more threads are no faster
        self._answering = Answering(session, self._metadata, self._planning, self._encoding)
        self._quotas: dict[str, UserQuota] = {}
        self._conversations: dict[Key, Conversation] = {}
        self._strangers = Strangers()
        self._guesses = Guesses()
        self._clients: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address. Port 0 lets the system choose one. Raises OSError."""
        self._listening = await asyncio.start_server(self._client, host, port, backlog=_BACKLOG)
        address = self._listening.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def _count_connections(self) -> dict[str, int]:
        return {"entering": len(self._strangers), "entered": len(self._conversations)}

    async def stop(self) -> None:
        """End: no more clients, and those that are there are told so. Their queries stop."""
        if self._listening is not None:
            self._listening.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=GOODBYE_SECONDS)
        self._planning.shutdown()
        self._encoding.shutdown()
        self._metadata.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        stream = Stream(reader, writer)
        _keep_alive(writer)
        try:
            await self._served(stream)
        except asyncio.CancelledError:
            refusal = RefusedError(
                SHUTTING_DOWN,
                "the server is stopping, and queries that ran were cancelled; connect again later",
                is_fatal=True,
            )
            stream.send(_error(refusal))
        except RefusedError as refusal:
            stream.send(_error(refusal))
        except (ClientGoneError, OSError, TimeoutError):
            stream.abort()
        finally:
            self._clients.discard(task)
            stream.close()

    async def _served(self, stream: Stream) -> None:
        try:
            async with self._strangers.coming(network(stream.host)):
                guest = await enter(stream, self._door, self._timezone, self._guesses)
        except RefusedError as refusal:
            self._health.logins[_OUTCOMES.get(refusal.code, "refused")] += 1
            raise
        if isinstance(guest, CancelRequest):
            self._cancel(guest)
        elif guest is not None:
            await self._with_guest(stream, guest)

    async def _with_guest(self, stream: Stream, guest: Guest) -> None:
        if len(self._conversations) >= MOST_CONNECTIONS:
            raise RefusedError(
                TOO_MANY, f"there are {MOST_CONNECTIONS} connections, the most here", is_fatal=True
            )
        self._health.logins["let in"] += 1
        quota = self._quotas.setdefault(guest.user.name, UserQuota(guest.user.name, guest.user.limits))
        key = Key()
        with quota.connected():
            name = guest.user.name
            asker = Asker(
                name, guest.settings, quota, key.process_id, lambda other: self._stop_own(name, other)
            )
            conversation = self._conversations[key] = Conversation(stream, asker, self._answering)
            try:
                welcome(stream, guest, key)
                await conversation.hold()
            finally:
                del self._conversations[key]

    def _cancel(self, request: CancelRequest) -> None:
        """Stop the statement of the connection that has this key. A wrong key does nothing."""
        for key, conversation in self._conversations.items():
            is_secret = hmac.compare_digest(key.secret, request.secret_key)
            if key.process_id == request.process_id and is_secret:
                conversation.cancel()
                return

    def _stop_own(self, user: str, process_id: int) -> bool:
        """Stop the statement of another connection of a user. Return whether there is one."""
        for key, conversation in self._conversations.items():
            if key.process_id == process_id and conversation.user == user:
                conversation.cancel()
                return True
        return False


def run(
    session: Session,
    door: Door,
    host: str,
    port: int,
    listening: Callable[[str, int], None],
    health: Health | None = None,
) -> None:
    """Serve until ctrl-C or SIGTERM, which end the process, if need be by force after END_SECONDS.

    listening: called with the address once clients may connect.
    health: where the server counts how it stands.
    """
    sys.setswitchinterval(TURN_SECONDS)
    gc.collect()
    gc.freeze()  # what is there stays until the end: garbage is looked for beside it, which takes less time
    asyncio.run(_run(session, door, host, port, listening, health or Health()))


async def _run(
    session: Session,
    door: Door,
    host: str,
    port: int,
    listening: Callable[[str, int], None],
    health: Health,
) -> None:
    server = Server(session, door, health)
    watching = asyncio.create_task(health.watch())
    with _ending_signals() as ended:
        try:
            listening(*await server.start(host, port))
            await ended.wait()
        finally:
            watching.cancel()
            await server.stop()


@contextmanager
def _ending_signals() -> Iterator[asyncio.Event]:
    """Give what is set by ctrl-C and SIGTERM.

    The time until the process is ended by force begins with the signal itself, whoever holds the loop.
    """
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def end(number: int, frame: FrameType | None) -> None:
        last = threading.Timer(END_SECONDS, os._exit, [128 + number])
        last.daemon = True
        last.start()
        loop.call_soon_threadsafe(ended.set)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _error(refusal: RefusedError) -> PGMessage:
    return ErrorResponse(error_fields(refusal))


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the system find out when a client's machine is gone."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _metadata(session: Session, door: Door) -> Metadata:
    arrays = {kind.oid: oid for oid, kind in ARRAYS.items()}
    types = [
        ShownType(kind.oid, kind.name, kind.sql_name, kind.size_bytes, arrays.get(kind.oid, 0))
        for kind in TYPES
    ]
    tables = []
    for name, layout in session.tables.items():
        kinds = [(column.name, column_type(column.type)) for column in layout.columns]
        shown = (ShownColumn(column, kind.oid, kind.modifier, kind.sql_name) for column, kind in kinds)
        tables.append(ShownTable(name, layout.row_count, tuple(shown)))
    users = [user.name for user in door.users] if door.users is not None else ["relaqs"]
    return Metadata(tables, types, users, dict(Settings({}, session.timezone)))
