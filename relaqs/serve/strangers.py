"""Who is at the door: connections that have not logged in, and addresses that guess passwords.

A stranger has some seconds. Where too many come, the oldest of the address that sent most goes, so that
somebody who knows a password is always heard. A wrong password makes all further ones of its address wait,
longer each time. Who has logged in from there before has a count of their own, and does not wait with them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from relaqs.serve.failures import PROTOCOL_VIOLATION, TOO_MANY, RefusedError

ENTRY_SECONDS = 5.0  # from connecting to being let in
MOST_STRANGERS, MOST_STRANGERS_EACH = 400, 200  # in all, and of one address
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 3.0
FORGET_SECONDS = 600.0
_MOST_KEPT = 10_000

Guesser: TypeAlias = tuple[str, str]
"""An address, and a user's name or "" for all who have not logged in from there."""


def network(host: str) -> str:
    """Return whom an address belongs to: itself, or the network of one that has many in IPv6.

    >>> network("192.0.2.7"), network("::ffff:192.0.2.7"), network("2001:db8::1:2:3:4")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
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
