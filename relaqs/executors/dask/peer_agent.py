"""The agent of a worker, through which its service speaks with those of others, over Dask's own connections.

It is a worker plugin with a handler, so letters use the ports and the TLS that the cluster has.

**The order of letters.** An answer to a PULL goes before a PUSH, because a worker computes once it has
one, and a PUSH makes nobody compute. Each other worker has a lane of its own (`EgressLane`), so that a
worker which hangs delays its own lane only. One letter at a time is on its way: Dask's `Comm.write`
returns as soon as a message is queued, and the system then sends what several connections have at the same
time. So a lane waits until a letter is at the other end before it sends the next one.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from distributed import Client, Worker, WorkerPlugin, get_worker, rejoin, secede
from distributed.comm.core import Comm
from distributed.comm.tcp import TCP
from distributed.core import Status
from distributed.protocol import pickle
from distributed.protocol.serialize import to_serialize
from distributed.utils import sync
from relaqs_engine.errors import ClusterError

from relaqs.jobs.executor import LEAST_BYTES_PER_SECOND, Haste, Letter, PeerLostError, PeerService

NEARLY_BYTES = 1 << 17  # that may still be on their way, so that the link has no gap between two messages
LOOK_SECONDS = 0.001  # between two looks


async def departed(comm: Comm) -> None:
    """Return once the other end has all but a last part of what was written, or the connection is closed."""
    if not isinstance(comm, TCP):
        return
    while (stream := comm.stream) is not None and not stream.closed():
        if not stream.writing() and _unacknowledged_bytes(stream.socket.fileno()) <= NEARLY_BYTES:
            return
        await asyncio.sleep(LOOK_SECONDS)


if sys.platform == "linux":
    import fcntl
    import struct
    import termios

    def _unacknowledged_bytes(socket: int) -> int:
        """Return what the system has of a socket's bytes that were not acknowledged (tcp(7), SIOCOUTQ)."""
        (found,) = struct.unpack("i", fcntl.ioctl(socket, termios.TIOCOUTQ, bytes(4)))
        return int(found)

else:  # other systems do not say it in this way: there a message is gone once the system has it

    def _unacknowledged_bytes(socket: int) -> int:
        return 0


class EgressLane:
    """A lane from one worker to another. All is called on its event loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[Haste, deque[asyncio.Future[None]]] = {"pull": deque(), "push": deque()}

    @property
    def is_free(self) -> bool:
        return not self._is_taken

    @asynccontextmanager
    async def turn(self, haste: Haste) -> AsyncIterator[None]:
        """Hold the lane inside the block."""
        if self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[haste].append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the lane to the next one that waits. It stays taken meanwhile."""
        for waiting in self._waiting.values():
            while waiting:
                if not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    return
        self._is_taken = False


PEER_OP = "relaqs_peer_letter"
SWEEP_SECONDS = 1.0
CONNECT_SECONDS = 3.0  # to reach a worker: one that died refuses, and is tried for so long
WRITE_SECONDS = 30.0  # for a letter to be taken, beside the time for its bytes
INSTALL_SECONDS = 2.0  # for workers to take the plugin; one that hangs takes it when it goes on

Told = TypeVar("Told")
Given = ParamSpec("Given")


class PeerAgent(WorkerPlugin):
    """Sends the letters of this worker's service, and hands it those that come. See `Peers`.

    Attributes:
        service: None: nobody has asked for it yet.
        sent_bytes: what it has put on the wire, by the length of all frames.
        array_bytes: those of them that are arrays, and so had to go.
    """

    name = "relaqs-peers"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self.sent_bytes = self.array_bytes = 0
        self._worker = worker
        self._lanes: dict[str, EgressLane] = {}  # by the worker that they lead to
        self._first_back = asyncio.Lock()
        self.service: PeerService | None = None
        self._kind: type[PeerService] | None = None  # of the service, also once it has ended
        worker.handlers[PEER_OP] = self.take_letter
        self._sweeper = asyncio.ensure_future(self._sweep())

    def teardown(self, worker: Worker) -> None:
        self._sweeper.cancel()
        self.service = None

    @property
    def address(self) -> str:
        return str(self._worker.address)

    # From a task's thread.

    def call(
        self, function: Callable[Given, Awaitable[Told]], *arguments: Given.args, **named: Given.kwargs
    ) -> Told:
        answer: Told = sync(self._worker.loop, partial(function, *arguments, **named))
        return answer

    def leave_core(self) -> None:
        """Let another task have the core of the calling one, which from now on sends and waits."""
        secede()

    def take_core(self) -> None:
        """Let the calling task, which left its core, have one again before all others, once a task here ends.

        Those who ask come in their order. Dask alone would let the last one in first.
        """
        self.call(self._first_back.acquire)
        try:
            rejoin()
        finally:
            self._worker.loop.add_callback(self._first_back.release)

    # On the event loop.

    async def serving(self, of: type[PeerService]) -> Any:
        """Return the service of this worker, which is of this class. Who asks first has it made."""
        if self.service is None:
            self.service, self._kind = of(self), of
        return self.service

    async def ask(self, address: str, letter: Letter, haste: Haste, limit_seconds: float) -> Letter:
        """Return the answer of another worker's service. Raises PeerLostError."""
        of = pickle.dumps(self._kind)
        to = {"op": PEER_OP, "reply": True, "service": of, "sender": self.address}
        comm: Comm | None = None
        is_whole = False
        try:
            async with asyncio.timeout(limit_seconds):
                comm = await self._worker.rpc.connect(address, timeout=CONNECT_SECONDS)
                await self._write(comm, address, to, letter, haste)
                reply = await comm.read()
                is_whole = True
        except OSError as error:  # of the connection, or of the time that is over
            raise PeerLostError(address, str(error) or "it did not answer in time") from error
        finally:
            if comm is not None:
                if not is_whole:
                    comm.abort()
                self._worker.rpc.reuse(address, comm)
        if not isinstance(reply, dict) or "said" not in reply:
            why = "it has no agent" if reply is None else f"it failed: {reply.get('text', reply)}"
            raise PeerLostError(address, why)
        return _unpacked(reply)

    async def take_letter(
        self, comm: Comm, service: bytes, sender: str, subject: str, said: bytes, arrays: list[Any]
    ) -> Status:
        """Answer a letter of another worker."""
        found = await self.serving(pickle.loads(service))
        answer, haste = await found.answer(_unpacked({"subject": subject, "said": said, "arrays": arrays}))
        with contextlib.suppress(OSError):  # who asked is gone, or hangs
            await self._write(comm, sender, {}, answer, haste)
        return Status.dont_reply

    async def _write(
        self, comm: Comm, address: str, to: dict[str, Any], letter: Letter, haste: Haste
    ) -> None:
        """Write a letter once the lane to its receiver is free, and hold the lane until it is there.

        One that nobody takes must not hold it for good. A small one needs no lane: it is there at once.
        """
        array_bytes = sum(array.nbytes for array in letter.arrays)
        is_small = array_bytes <= NEARLY_BYTES
        async with contextlib.nullcontext() if is_small else self._lane_to(address).turn(haste):
            try:
                async with asyncio.timeout(WRITE_SECONDS + array_bytes / LEAST_BYTES_PER_SECOND):
                    self.sent_bytes += await comm.write({**to, **_packed(letter)})
                    await departed(comm)
            except BaseException:
                comm.abort()  # half of a letter is on it
                raise
        self.array_bytes += array_bytes

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if self.service is not None:
                self.service.sweep()
            self._lanes = {address: lane for address, lane in self._lanes.items() if not lane.is_free}

    def _lane_to(self, address: str) -> EgressLane:
        return self._lanes.setdefault(address, EgressLane())


def peer_agent_here() -> PeerAgent:
    """Return the agent of the worker whose thread calls. Raises ClusterError where there is none."""
    try:
        agent = get_worker().plugins.get(PeerAgent.name)
    except ValueError:
        agent = None
    if not isinstance(agent, PeerAgent):
        raise ClusterError("this is no thread of a Dask worker that has an agent for its peers")
    return agent


async def install_agents(client: Client) -> None:
    """Give all workers an agent, those too that come later. Where they have one, nothing changes.

    The scheduler keeps the plugin first, and then tells the workers that are there. A worker that hangs or
    dies meanwhile is not waited for.
    """
    with contextlib.suppress(OSError):
        async with asyncio.timeout(INSTALL_SECONDS):
            await client.register_plugin(PeerAgent())


def _packed(letter: Letter) -> dict[str, Any]:
    arrays = [to_serialize(array) for array in letter.arrays]
    return {"subject": letter.subject, "said": pickle.dumps(letter.said), "arrays": arrays}


def _unpacked(message: dict[str, Any]) -> Letter:
    return Letter(message["subject"], pickle.loads(message["said"]), tuple(message["arrays"]))
