"""What a worker sends leaves letter by letter, whatever the system would take at once."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from distributed.comm.tcp import TCP
from tornado.iostream import IOStream

from relaqs.executors.dask.peer_agent import NEARLY_BYTES, PeerAgent
from relaqs.jobs.executor import Letter

LETTER_BYTES = 8_000_000
BUFFER_BYTES = 1 << 16  # of a receiver. Linux doubles it
LIMIT_SECONDS = 60.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a socket has left")


class Receiver:
    """The other end of a connection. It takes what comes in small parts."""

    def __init__(self, taker: socket.socket) -> None:
        self.taken_bytes = 0
        self._taker = taker

    async def take(self) -> None:
        while taken := await asyncio.get_running_loop().sock_recv(self._taker, BUFFER_BYTES):
            self.taken_bytes += len(taken)


@contextmanager
def connection() -> Iterator[tuple[TCP, Receiver]]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        sender = stack.enter_context(socket.create_connection(listener.getsockname()))
        taker = stack.enter_context(listener.accept()[0])
        taker.setblocking(False)
        comm = TCP(IOStream(sender), "tcp://here", "tcp://there")
        stack.callback(comm.abort)
        yield comm, Receiver(taker)


def agent() -> PeerAgent:
    made = PeerAgent()
    made.sent_bytes = made.array_bytes = 0
    made._lanes = {}
    return made


def letter() -> Letter:
    return Letter("push", None, (np.random.default_rng(0).integers(0, 255, LETTER_BYTES, np.uint8),))


def test_a_letter_to_a_worker_is_there_before_the_next_one_begins() -> None:
    async def run() -> int:
        made = agent()
        with connection() as (one, first), connection() as (other, second):
            takers = [asyncio.create_task(each.take()) for each in (first, second)]
            writes = [
                asyncio.create_task(made._write(comm, "tcp://there", {}, letter(), "push"))
                for comm in (one, other)
            ]
            async with asyncio.timeout(LIMIT_SECONDS):
                while not second.taken_bytes:
                    await asyncio.sleep(0)
                before = first.taken_bytes
                await asyncio.gather(*writes)
            for taker in takers:
                taker.cancel()
            return before

    assert asyncio.run(run()) >= LETTER_BYTES - NEARLY_BYTES - 2 * BUFFER_BYTES


def test_a_worker_that_takes_nothing_keeps_up_only_what_is_sent_to_it() -> None:
    async def run() -> list[bool]:
        made = agent()
        with connection() as (one, _), connection() as (other, second), connection() as (small, third):
            takers = [asyncio.create_task(each.take()) for each in (second, third)]
            hung = asyncio.create_task(made._write(one, "tcp://hung", {}, letter(), "push"))
            waits = asyncio.create_task(made._write(small, "tcp://hung", {}, letter(), "pull"))
            async with asyncio.timeout(LIMIT_SECONDS):
                await made._write(other, "tcp://there", {}, letter(), "push")
                await made._write(small, "tcp://hung", {}, Letter("pull"), "pull")
            are_done = [hung.done(), waits.done()]
            for task in (hung, waits, *takers):
                task.cancel()
            await asyncio.gather(hung, waits, return_exceptions=True)
            return are_done

    assert asyncio.run(run()) == [False, False]
