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
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Protocol

from pygwire.messages import CancelRequest, ErrorResponse
from relaqs_engine.postgres.metadata import Metadata, ShownColumn, ShownTable, ShownType

from relaqs.serve.answering import Answering, Asker
from relaqs.serve.column_types import TYPES, column_type
from relaqs.serve.conversation import Conversation
from relaqs.serve.entry import Door, Guesses, Guest, Key, Strangers, enter, network, welcome
from relaqs.serve.failures import SHUTTING_DOWN, TOO_MANY, WRONG_PASSWORD, RefusedError, error_fields
from relaqs.serve.health import Health
from relaqs.serve.named import Channels
from relaqs.serve.quotas import FairPool, UserQuota
from relaqs.serve.settings import Settings
from relaqs.serve.stream import ClientGoneError, Stream
from relaqs.session import Session

GOODBYE_SECONDS = 3.0  # for clients to take what was sent
END_SECONDS = 8.0  # from a signal to the end of the process, whatever does not let go
PLANNING_THREADS, PLANNING_THREADS_EACH = 8, 2  # in all, and of one user at once
TURN_SECONDS = 0.0005  # after which a thread that plans or encodes gives Python's lock to one that waits
MOST_CONNECTIONS = 500
_BACKLOG = 256  # connections that came in the same moment
_OUTCOMES = {WRONG_PASSWORD: "wrong password", TOO_MANY: "too many"}


class Holder(Protocol):
    """Holds the conversations with guests: in this process, or in others."""

    @property
    def timezone(self) -> str:
        """The time zone of clients that name none."""
        ...

    async def start(self) -> None:
        """Be ready for guests."""

    async def hold(self, stream: Stream, guest: Guest) -> None:
        """Answer a guest until they go. Raises RefusedError where they are turned away."""

    def cancel(self, request: CancelRequest) -> None:
        """Stop the statement of the connection that has this key. A wrong key does nothing."""

    async def stop(self) -> None:
        """End. There are no guests any more."""


class Conversations:
    """Answers the guests of one process with one session.

    Args:
        session: the tables and cores. It stays open when the server ends.
        users: names that may connect.
        place: which of several processes this is.
        places: how many processes there are.

    Attributes:
        timezone: of clients that name none.
    """

    def __init__(self, session: Session, users: Iterable[str], place: int = 0, places: int = 1) -> None:
        metadata_of = partial(_metadata, session, tuple(users))
        planning = FairPool(PLANNING_THREADS, PLANNING_THREADS_EACH, "relaqs-planning")
        encoding = FairPool(1, 1, "relaqs-encoding")  # Python encodes: more threads are no faster
        self._answering = Answering(session, metadata_of, planning, encoding)
        self._quotas: dict[str, UserQuota] = {}
        self._all: dict[Key, Conversation] = {}
        self._channels = Channels()
        self._place, self._places = place, places
        self.timezone = session.timezone

    async def start(self) -> None:
        """Be ready, as it is."""

    async def hold(self, stream: Stream, guest: Guest) -> None:
        """Answer a guest until they go. Raises RefusedError where they have too many connections."""
        name = guest.user.name
        quota = self._quotas.setdefault(name, UserQuota(name, guest.user.limits))
        key = Key.drawn(self._place, self._places)
        with quota.connected():
            asker = Asker(name, guest.settings, quota, key.process_id, partial(self._stop_own, name))
            conversation = self._all[key] = Conversation(stream, asker, self._answering, self._channels)
            try:
                welcome(stream, guest, key)
                await conversation.hold()
            finally:
                del self._all[key]

    def cancel(self, request: CancelRequest) -> None:
        """Stop the statement of the connection that has this key. A wrong key does nothing."""
        for key, conversation in self._all.items():
            is_secret = hmac.compare_digest(key.secret, request.secret_key)
            if key.process_id == request.process_id and is_secret:
                conversation.cancel()
                return

    def _stop_own(self, user: str, process_id: int, is_to_end: bool) -> bool:
        """Stop the statement of another connection of a user, or end it. Return whether there is one."""
        for key, conversation in self._all.items():
            if key.process_id == process_id and conversation.user == user:
                (conversation.end if is_to_end else conversation.cancel)()
                return True
        return False

    async def stop(self) -> None:
        """Answer nothing about the server any more."""
        self._answering.close()


class Server:
    """Lets clients of Postgres's protocol in, inside one event loop.

    Args:
        holder: answers who was let in.
        door: who may come in.
        health: where it counts how it stands.
    """

    def __init__(self, holder: Holder, door: Door, health: Health) -> None:
        self.health = health
        self.health.connections = lambda: {"entering": len(self._strangers), "entered": self._entered}
        self._holder = holder
        self._door = door
        self._entered = 0
        self._strangers = Strangers()
        self._guesses = Guesses()
        self._clients: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address. Port 0 lets the system choose one. Raises OSError."""
        await self._holder.start()
        self._listening = await asyncio.start_server(self._client, host, port, backlog=_BACKLOG)
        address = self._listening.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """End: no more clients, and those that are there are told so. Their queries stop."""
        if self._listening is not None:
            self._listening.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=GOODBYE_SECONDS)
        await self._holder.stop()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        stream = Stream(reader, writer)
        _keep_alive(writer)
        try:
            await attended(stream, self._served(stream))
        finally:
            self._clients.discard(task)
            stream.close()

    async def _served(self, stream: Stream) -> None:
        try:
            async with self._strangers.coming(network(stream.host)):
                guest = await enter(stream, self._door, self._holder.timezone, self._guesses)
        except RefusedError as refusal:
            self.health.logins[_OUTCOMES.get(refusal.code, "refused")] += 1
            raise
        if isinstance(guest, CancelRequest):
            self._holder.cancel(guest)
        elif guest is not None:
            await self._with_guest(stream, guest)

    async def _with_guest(self, stream: Stream, guest: Guest) -> None:
        if self._entered >= MOST_CONNECTIONS:
            raise RefusedError(
                TOO_MANY, f"there are {MOST_CONNECTIONS} connections, the most here", is_fatal=True
            )
        self.health.logins["let in"] += 1
        self._entered += 1
        try:
            await self._holder.hold(stream, guest)
        finally:
            self._entered -= 1


async def attended(stream: Stream, served: Awaitable[None]) -> None:
    """Wait until a client was served. Whoever is turned away, or here when the server ends, is told why."""
    try:
        await served
    except asyncio.CancelledError:
        refusal = RefusedError(
            SHUTTING_DOWN,
            "the server is stopping, and queries that ran were cancelled; connect again later",
            is_fatal=True,
        )
        stream.send(ErrorResponse(error_fields(refusal)))
    except RefusedError as refusal:
        stream.send(ErrorResponse(error_fields(refusal)))
    except (ClientGoneError, OSError, TimeoutError):
        stream.abort()


def run(
    holder: Holder,
    door: Door,
    host: str,
    port: int,
    listening: Callable[[str, int], None],
    health: Health | None = None,
) -> None:
    """Serve until ctrl-C or SIGTERM, which end the process, if need be by force after END_SECONDS.

    holder: answers who was let in. listening: called with the address once clients may connect. health: where
    the server counts how it stands.
    """
    answer_fast()
    asyncio.run(_run(Server(holder, door, health or Health()), host, port, listening))


def answer_fast() -> None:
    """Have Python take turns as a process that answers needs them, once its tables are open."""
    sys.setswitchinterval(TURN_SECONDS)
    gc.collect()
    gc.freeze()  # what is there stays until the end: garbage is looked for beside it, which takes less time


async def _run(server: Server, host: str, port: int, listening: Callable[[str, int], None]) -> None:
    watching = asyncio.create_task(server.health.watch())
    with _ending_signals() as ended:
        ending = asyncio.create_task(ended.wait())
        starting = asyncio.create_task(server.start(host, port))
        try:
            await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                listening(*starting.result())
            await ending
        finally:
            starting.cancel()
            watching.cancel()
            await server.stop()


def end_by_force(status: int) -> None:
    """End the process after END_SECONDS, whoever holds the loop."""
    last = threading.Timer(END_SECONDS, os._exit, [status])
    last.daemon = True
    last.start()


@contextmanager
def _ending_signals() -> Iterator[asyncio.Event]:
    """Give what is set by ctrl-C and SIGTERM.

    The time until the process is ended by force begins with the signal itself, whoever holds the loop.
    """
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def end(number: int, frame: FrameType | None) -> None:
        end_by_force(128 + number)
        loop.call_soon_threadsafe(ended.set)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the system find out when a client's machine is gone."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _metadata(session: Session, users: Iterable[str]) -> Metadata:
    types = [ShownType(kind.oid, kind.name, kind.sql_name, kind.size_bytes, kind.array_oid) for kind in TYPES]
    tables = []
    for name, layout in session.tables.items():
        kinds = [(column.name, column_type(column.type)) for column in layout.columns]
        shown = (ShownColumn(column, kind.oid, kind.modifier, kind.sql_name) for column, kind in kinds)
        tables.append(ShownTable(name, layout.row_count, tuple(shown)))
    return Metadata(tables, types, list(users), dict(Settings({}, session.timezone)))
