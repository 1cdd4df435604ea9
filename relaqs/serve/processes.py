"""A server of several processes: an entrance that lets clients in, and processes that answer them.

    clients ─── entrance: TLS, passwords ───┬─── process 0: a session, the users ana and cid
                metrics, keys to cancel     └─── process 1: a session, the user bob

One interpreter runs Python on one core. With several, small statements of several users are answered on
several cores. **All connections of a user are in one process**: turns, limits and memory of the user are one
account, and processes need not agree on anything. A user's first connection goes to the process with the
fewest users connected, and all later ones to the same. By a hash of the names two users would share a process
half of the time.

Each process has a line to the entrance: a Unix socket with frames of JSON. A connection without TLS goes over
the line as a descriptor, and costs the entrance nothing from then on. One with TLS stays with the entrance,
which hands on its bytes. The entrance keeps a descriptor of each connection, so that clients are told if
their process dies. `marks` is memory that all share, with a byte for each connection: whether the last
message is sent whole. In the middle of a row nothing can be told, and the connection just ends.

A process ends when its line does, whether the entrance has closed the line or was killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

from pygwire.messages import CancelRequest

from relaqs.serve.entry import Guest
from relaqs.serve.failures import CRASHED, NOT_YET, RefusedError
from relaqs.serve.health import Health
from relaqs.serve.quotas import Limits
from relaqs.serve.server import (
    END_SECONDS,
    GOODBYE_SECONDS,
    MOST_CONNECTIONS,
    Conversations,
    answer_fast,
    attended,
    end_by_force,
)
from relaqs.serve.settings import Settings
from relaqs.serve.stream import ClientGoneError, Stream
from relaqs.serve.users import User
from relaqs.session import Session

logger = logging.getLogger("relaqs.serve")

UP_SECONDS = 10.0  # that a client waits for a process that is being started
METRICS_SECONDS = 5.0  # that a scrape waits for a process
_KILL_SECONDS = END_SECONDS - GOODBYE_SECONDS - 1.0  # from the goodbye on, before a process is ended by force
_MOST_PAUSE_SECONDS = 30.0  # between two starts of a process that dies again and again
_MOST_KEPT = 10_000  # users without a connection, of which it is known where they were
_READ_BYTES = 1 << 16

_DOWN = "# TYPE relaqs_up gauge\nrelaqs_up 0.0\n"  # the metrics of a process that is not there

_Message: TypeAlias = dict[str, Any]


def _frame(message: _Message) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4) + body


def _taken(received: bytearray) -> Iterator[_Message]:
    """Yield the messages that are whole, and take them away."""
    while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4])):
        message = json.loads(received[4:end])
        del received[:end]
        yield message


class NotStartedError(Exception):
    """A process ended before it could answer. It has said why on standard error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a process of the server ended with code {status}")
        self.status = status


class _Process:
    """One process as the entrance knows it, also while it is started again."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.is_up = asyncio.Event()
        self.users: Counter[str] = Counter()  # of the connections
        self.guests: dict[int, asyncio.Future[bool]] = {}  # by mark: whether it was there until they went
        self.answers: dict[int, asyncio.Future[str]] = {}  # by the number of a question
        self.timezone = ""  # until it has been ready once
        self._line: socket.socket | None = None
        self._sending = asyncio.Lock()
        self._running: asyncio.subprocess.Process | None = None

    async def live(self, options: _Message, marks: int) -> int:
        """Start it, hear what it says until it ends, and return its code."""
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        with self._line as line:
            with theirs:
                path = os.pathsep.join(filter(None, sys.path))
                self._running = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "relaqs", "serve", "answer"),
                    *map(str, (theirs.fileno(), marks)),
                    pass_fds=(theirs.fileno(), marks),
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,  # ctrl-C is for the entrance
                )
            loop, received = asyncio.get_running_loop(), bytearray()
            try:
                await loop.sock_sendall(line, _frame(options))
                while got := await loop.sock_recv(line, _READ_BYTES):
                    received += got
                    for message in _taken(received):
                        self._heard(message)
            except OSError:  # it was killed with something unread
                pass
            self.is_up.clear()
            for guest in self.guests.values():
                _set(guest, False)
            for answer in self.answers.values():
                _set(answer, _DOWN)
            return await self._running.wait()

    def _heard(self, message: _Message) -> None:
        match message:
            case {"ready": timezone}:
                self.timezone = timezone
                self.is_up.set()
            case {"over": mark}:
                _set(self.guests.get(mark), True)
            case {"answered": number, "metrics": text}:
                _set(self.answers.get(number), text)

    async def send(self, message: _Message, descriptor: int | None = None) -> bool:
        """Send a message, and a copy of a descriptor. Return whether the process was there to take it."""
        frame = _frame(message)
        async with self._sending:
            if self._line is None or not self.is_up.is_set():
                return False
            try:
                while descriptor is not None:
                    try:
                        frame = frame[socket.send_fds(self._line, [frame], [descriptor]) :]
                        descriptor = None
                    except BlockingIOError:  # it has much to take
                        await asyncio.sleep(0.01)
                await asyncio.get_running_loop().sock_sendall(self._line, frame)
            except OSError:
                return False
            return True

    async def wait(self) -> None:
        """Wait until it answers. Raises RefusedError where that takes long."""
        try:
            async with asyncio.timeout(UP_SECONDS):
                await self.is_up.wait()
        except TimeoutError:
            raise RefusedError(
                NOT_YET,
                "the server's process that answers this user is being started; connect again in some seconds",
                is_fatal=True,
            ) from None

    async def metrics(self, number: int) -> str:
        """Return the metrics of the process. Raises TimeoutError where it does not answer."""
        async with asyncio.timeout(METRICS_SECONDS):
            answer = self.answers[number] = asyncio.get_running_loop().create_future()
            try:
                return await answer if await self.send({"question": number}) else _DOWN
            finally:
                del self.answers[number]

    def end(self) -> None:
        """Have it tell its clients that it ends, and end. One that does not answer yet ends at once."""
        if not self.is_up.is_set():
            self.kill()
        elif self._line is not None and self._line.fileno() >= 0:
            self._line.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it by force."""
        if self._running is not None and self._running.returncode is None:
            self._running.kill()


def _set(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


class Processes:
    """Has guests answered by other processes, and starts those that die again.

    Args:
        count: how many there are.
        options: what each is told when it starts.
    """

    def __init__(self, count: int, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._all = [_Process(place) for place in range(count)]
        self._places: dict[str, int] = {}  # of users, those that came first are first
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - all processes have it, until the last ends
        self._file.truncate(MOST_CONNECTIONS)
        self._marks = mmap.mmap(self._file.fileno(), MOST_CONNECTIONS)
        self._free = list(range(MOST_CONNECTIONS))
        self._kept: list[asyncio.Task[None]] = []  # one for each process
        self._cancelling: set[asyncio.Task[bool]] = set()
        self._questions = 0
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def timezone(self) -> str:
        """The time zone of clients that name none."""
        return self._all[0].timezone

    async def start(self) -> None:
        """Start all processes. The first one has to stand alone: what is wrong with the tables is said once.

        Raises:
            NotStartedError: one ended before it could answer.
        """
        self._loop = asyncio.get_running_loop()
        for some in (self._all[:1], self._all[1:]):
            self._kept += [asyncio.create_task(self._keep(process)) for process in some]
            for process in some:
                up = asyncio.create_task(process.is_up.wait())
                either: list[asyncio.Task[Any]] = [up, *self._kept]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                up.cancel()
                for kept in filter(asyncio.Task.done, self._kept):
                    kept.result()

    async def _keep(self, process: _Process) -> None:
        """Run a process, and run it again whenever it dies, until the server ends."""
        loop, pause, count = asyncio.get_running_loop(), 0.0, len(self._all)
        while not self._ending.is_set():
            began = loop.time()
            told = {**self._options, "place": process.place, "places": count}
            try:
                status = await process.live(told, self._file.fileno())
            except OSError as error:  # there is no room for another process now
                logger.error("process %d of %d cannot be started: %s", process.place + 1, count, error)
                status = 1
            if self._ending.is_set():
                return
            if not process.timezone:
                raise NotStartedError(status)
            how = f"by signal {-status}" if status < 0 else f"with code {status}"
            logger.warning("process %d of %d ended %s, and is started again", process.place + 1, count, how)
            if loop.time() - began > _MOST_PAUSE_SECONDS:
                pause = 0.0
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()
            pause = min(_MOST_PAUSE_SECONDS, max(1.0, 2 * pause))

    def _process_of(self, user: str) -> _Process:
        if (place := self._places.get(user)) is None:
            placed = Counter(self._places.values())
            place = min(self._all, key=lambda each: (len(each.users), placed[each.place])).place
            self._places[user] = place
        if len(self._places) > _MOST_KEPT:
            away = (name for name, there in self._places.items() if not self._all[there].users[name])
            del self._places[next(away)]
        return self._all[place]

    async def hold(self, stream: Stream, guest: Guest) -> None:
        """Have a guest answered until they go. Raises RefusedError where their process is not there."""
        process, name = self._process_of(guest.user.name), guest.user.name
        process.users[name] += 1
        try:
            await process.wait()
            await self._answered_by(process, stream, guest)
        finally:
            process.users[name] -= 1
            process.users += Counter()  # forgets users who have none

    async def _answered_by(self, process: _Process, stream: Stream, guest: Guest) -> None:
        received = await stream.let_go()
        loop, mark = asyncio.get_running_loop(), self._free.pop()
        self._marks[mark] = True
        over = process.guests[mark] = loop.create_future()
        joined: asyncio.Task[None] | None = None
        message = {
            "guest": guest.user.name,
            "limits": asdict(guest.user.limits),
            "settings": dict(guest.settings),
            "received": b64encode(received).decode(),
            "mark": mark,
        }
        try:
            if stream.is_encrypted:
                ours, theirs = socket.socketpair()
                with theirs:
                    joined = asyncio.create_task(stream.join(*await asyncio.open_connection(sock=ours)))
                    is_sent = await process.send(message, theirs.fileno())
            else:
                is_sent = await process.send(message, stream.descriptor)
            is_there = is_sent and await over
            is_whole = self._marks[mark]
            if joined is not None:
                await joined
        except asyncio.CancelledError:  # the process says goodbye
            self._end()
            await asyncio.wait([over, *([joined] if joined else [])], timeout=GOODBYE_SECONDS)
            return
        finally:
            process.guests.pop(mark).cancel()
            self._free.append(mark)
        if not is_there:
            if not is_whole:
                raise ClientGoneError
            raise RefusedError(
                CRASHED,
                "the server's process that answered this user has died, and is started again; what ran is "
                "lost; connect again",
                is_fatal=True,
            )

    def cancel(self, request: CancelRequest) -> None:
        """Let the process that has a key stop its statement. A wrong key does nothing."""
        process = self._all[request.process_id % len(self._all)]
        message = {"cancel": request.process_id, "secret": request.secret_key.hex()}
        task = asyncio.create_task(process.send(message))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    def metrics(self) -> list[str]:
        """Return the metrics of each process, from any thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._metrics(), self._loop).result()

    async def _metrics(self) -> list[str]:
        self._questions += 1
        asked = (process.metrics(self._questions) for process in self._all)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [each if isinstance(each, str) else _DOWN for each in answers]

    def _end(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            for process in self._all:
                process.end()

    async def stop(self) -> None:
        """End all processes, by force where they do not let go."""
        self._end()
        if not self._kept:
            return
        _, left = await asyncio.wait(self._kept, timeout=_KILL_SECONDS)
        for process in self._all:
            process.kill()
        if left:
            end_by_force(1)
            await asyncio.wait(left)
            await asyncio.Event().wait()  # the end by force comes now, and its code tells of it
        self._marks.close()
        self._file.close()


class LineToEntrance:
    """What a process that answers hears from the entrance. Without it the process ends.

    Args:
        line: the descriptor of the line.
        marks: of the memory that is shared.

    Attributes:
        options: what the entrance has told when it started the process.
    """

    def __init__(self, line: int, marks: int) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # which a terminal and systemd send to all processes
            signal.signal(number, signal.SIG_IGN)
        self._line = socket.socket(fileno=line)
        self._marks = mmap.mmap(marks, MOST_CONNECTIONS)
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._saying = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        while not (first := next(_taken(self._received), None)):
            self._read()
        self.options: _Message = first
        threading.Thread(target=self._listen, name="relaqs-line", daemon=True).start()

    def _read(self) -> None:
        received, descriptors, _, _ = socket.recv_fds(self._line, _READ_BYTES, 16)
        self._received += received
        self._descriptors += descriptors
        if not received:
            raise EOFError

    def _listen(self) -> None:
        try:
            while True:
                self._read()
                for message in _taken(self._received):
                    descriptor = self._descriptors.pop(0) if "guest" in message else -1
                    assert self._loop is not None
                    self._loop.call_soon_threadsafe(self._heard, message, descriptor)
        except (EOFError, OSError, RuntimeError):  # the entrance has gone, or this loop
            end_by_force(1)
            if self._loop is None or self._loop.is_closed():
                os._exit(1)  # nobody is in
            self._loop.call_soon_threadsafe(self._over.set)

    def _say(self, message: _Message) -> None:
        with self._saying, suppress(OSError):  # the entrance has gone, and so does this process
            self._line.sendall(_frame(message))

    def answer(self, session: Session, users: list[str], metrics: Callable[[], str], health: Health) -> None:
        """Answer guests with a session until the entrance ends.

        Args:
            session: the tables and cores.
            users: names that may connect.
            metrics: returns those of this process.
            health: where it counts how its loop stands.
        """
        place, places = self.options["place"], self.options["places"]
        self._metrics = metrics
        answer_fast()
        asyncio.run(self._answer(Conversations(session, users, place, places), health))

    async def _answer(self, conversations: Conversations, health: Health) -> None:
        self._conversations = conversations
        self._loop = asyncio.get_running_loop()
        watching = asyncio.create_task(health.watch())
        self._say({"ready": conversations.timezone})
        await self._over.wait()
        watching.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GOODBYE_SECONDS)
        await conversations.stop()

    def _heard(self, message: _Message, descriptor: int) -> None:
        match message:
            case {"guest": _}:
                task = asyncio.create_task(self._hold(message, descriptor))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case {"cancel": process_id, "secret": secret}:
                self._conversations.cancel(CancelRequest(process_id, bytes.fromhex(secret)))
            case {"question": number}:
                asyncio.get_running_loop().run_in_executor(None, self._tell, number)

    def _tell(self, number: int) -> None:
        self._say({"answered": number, "metrics": self._metrics()})

    async def _hold(self, message: _Message, descriptor: int) -> None:
        mark = message["mark"]
        try:
            connection = socket.socket(fileno=descriptor)
            reader, writer = await asyncio.open_connection(sock=connection)
            note = partial(self._marks.__setitem__, mark)
            stream = Stream(reader, writer, b64decode(message["received"]), note)
            user = User(message["guest"], Limits(**message["limits"]))
            guest = Guest(user, Settings(message["settings"], self._conversations.timezone))
            await attended(stream, self._conversations.hold(stream, guest))
            await stream.closed(GOODBYE_SECONDS)
        finally:
            self._say({"over": mark})
