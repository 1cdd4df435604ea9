"""Waits until what was written to a connection is at its other end.

Dask's `Comm.write` returns as soon as a message is queued, and the system takes megabytes of it at once. Then
it sends what several connections have at the same time. So to send one message before another, one must wait
until the first one is there.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import sys

from distributed.comm.core import Comm
from distributed.comm.tcp import TCP

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
