"""Messages over one connection: bytes become messages, and messages bytes. What is kept has a bound."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

from pygwire import ConnectionPhase, FrontendMessageDecoder
from pygwire.exceptions import PygwireError
from pygwire.messages import PGMessage

from relaqs.serve.failures import PROTOCOL_VIOLATION, RefusedError

_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 18
_MOST_BYTES_BEFORE_ENTRY = 10_000
_MOST_BYTES = 16 << 20  # of one message: a statement is smaller, and so are its parameters


class ClientGoneError(Exception):
    """Nobody is there any more who takes what is sent."""


class Stream:
    """One connection's messages. `phase` says how the next one is read; whoever knows it sets it.

    Args:
        received: what came of it before.
        note: told whether all messages that were begun are with the system, before and after each is sent.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: bytes = b"",
        note: Callable[[bool], object] = bool,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrontendMessageDecoder()
        self._early = bytearray(received)  # what came before the client was let in
        self._decoder.feed(received)
        self._note = note

    @property
    def host(self) -> str:
        """The client's address, "" where it has none."""
        peer = self._writer.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def descriptor(self) -> int:
        """The system's number for the connection."""
        return int(self._writer.get_extra_info("socket").fileno())

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is in use."""
        return self._writer.get_extra_info("ssl_object") is not None

    @property
    def phase(self) -> ConnectionPhase:
        """How the next message is read."""
        return self._decoder.phase

    @phase.setter
    def phase(self, phase: ConnectionPhase) -> None:
        self._decoder.phase = phase

    async def next(self) -> PGMessage | None:
        """Return the next message, None where the client has gone.

        Raises:
            RefusedError: the bytes are no message of the protocol, or too many.
        """
        while (message := self._decoded()) is None:
            received = await self._received()
            if not received:
                return None
            self._decoder.feed(received)
            if self.phase is not ConnectionPhase.READY:
                self._early += received
        return message

    def send(self, *messages: PGMessage) -> None:
        """Send messages, as soon as the client takes them."""
        if not self._writer.is_closing():
            self._note(False)
            self._writer.write(b"".join(message.to_wire() for message in messages))
            self._note_whole()

    def unsent_bytes(self) -> int:
        """Return how much of what was sent the client has not taken."""
        return self._writer.transport.get_write_buffer_size()

    def _note_whole(self) -> None:
        if not self.unsent_bytes():
            self._note(True)

    async def send_large(self, wire: bytes) -> None:
        """Send messages as fast as the client takes them. Others have their turn between parts of them.

        Whoever is cancelled meanwhile sends the rest all the same: half a message would end the connection.
        """
        self._note(False)
        parts = [wire[first : first + _WRITE_BYTES] for first in range(0, len(wire), _WRITE_BYTES)]
        try:
            while parts and not self._writer.is_closing():
                self._writer.write(parts.pop(0))
                await self._drained()
        finally:
            if parts and not self._writer.is_closing():
                self._writer.writelines(parts)
            self._note_whole()

    async def flushed(self) -> None:
        """Wait until the client has taken most of what was sent. Raises ClientGoneError where it has gone."""
        await self._drained()
        self._note_whole()

    async def _drained(self) -> None:
        try:
            await self._writer.drain()
        except (OSError, ssl.SSLError) as error:
            raise ClientGoneError from error

    async def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on. Raises RefusedError if the client has sent something before."""
        if self._decoder.buffered:
            raise RefusedError(PROTOCOL_VIOLATION, "there are bytes after the request for TLS", is_fatal=True)
        self._writer.write(b"S")
        await self._writer.start_tls(context)

    async def refuse_encryption(self) -> None:
        """Tell the client that it is not encrypted."""
        self._writer.write(b"N")
        await self.flushed()

    async def let_go(self) -> bytes:
        """Read no more of a connection that others answer, and return what came and was not read yet.

        Raises:
            RefusedError: more came than is kept of somebody who was just let in.
            ClientGoneError: the client has gone.
        """
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        unread = bytes(self._early[len(self._early) - self._decoder.buffered :])
        if self.is_encrypted:
            return unread
        transport.set_write_buffer_limits(0)
        await self._drained()
        if transport.is_closing():
            raise ClientGoneError
        if not transport.is_reading():
            raise RefusedError(PROTOCOL_VIOLATION, "too much came before the login was over", is_fatal=True)
        transport.pause_reading()
        self._reader.feed_eof()
        return unread + await self._reader.read()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on all bytes between the client and another connection until that ends."""

        async def hand_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(OSError, ssl.SSLError):
                while received := await source.read(_READ_BYTES):
                    target.write(received)
                    await target.drain()
                if target is writer:
                    target.write_eof()

        inward = asyncio.create_task(hand_on(self._reader, writer))
        try:
            await hand_on(reader, self._writer)
        finally:
            inward.cancel()
            writer.close()

    def close(self) -> None:
        """End the connection when what was sent has arrived."""
        self._writer.close()

    async def closed(self, most_seconds: float) -> None:
        """End the connection, and wait until the system has what was sent, if the client takes it in time."""
        self._writer.close()
        with suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(most_seconds):
                await self._writer.wait_closed()
                return
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()

    async def _received(self) -> bytes:
        has_entered = self._decoder.phase is ConnectionPhase.READY
        if self._decoder.buffered > (_MOST_BYTES if has_entered else _MOST_BYTES_BEFORE_ENTRY):
            raise RefusedError(PROTOCOL_VIOLATION, "a message is too large", is_fatal=True)
        try:
            return await self._reader.read(_READ_BYTES)
        except (OSError, ssl.SSLError):
            return b""

    def _decoded(self) -> PGMessage | None:
        try:
            return next(iter(self._decoder), None)
        except PygwireError as error:
            raise RefusedError(PROTOCOL_VIOLATION, f"this is no message: {error}", is_fatal=True) from None


def is_loopback(host: str) -> bool:
    """Return whether an address is one of this machine alone."""
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
