"""Letters between places, over real sockets: any order, any size, and what happens when a place goes away."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from relaqs.training.elastic.exchange import ExchangeBrokenError, MailLine, SocketMail, met
from relaqs.training.elastic.membership import RankAddress

LIMITS_SECONDS = (20.0, 20.0)
NUMBERS = 1 << 20  # 8 MB, more than sockets hold


@contextmanager
def places(count: int) -> Iterator[list[SocketMail]]:
    """Give the mail of each of some places, which have met."""
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(count)
        ]
        there = [RankAddress(str(i), *each.getsockname()) for i, each in enumerate(listeners)]

        def meet(here: int) -> SocketMail:
            return met(there, "token", here, listeners[here], None, LIMITS_SECONDS)

        found = at_once(count, meet)
        for mail in found:
            stack.callback(mail.free)
        yield found


def at_once(count: int, act: Callable[[int], SocketMail]) -> list[SocketMail]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(act, range(count)))


def test_all_send_all_more_than_sockets_hold_before_anybody_reads() -> None:
    with places(3) as mails, ThreadPoolExecutor(3) as threads:

        def talk(here: int) -> dict[int, float]:
            for other in {0, 1, 2} - {here}:
                mails[here].send(other, (here, np.full(NUMBERS, float(10 * here + other))))
            said = dict(mails[here].take() for _ in range(2))
            mails[here].flush()
            assert all(len(values) == NUMBERS and np.ptp(values) == 0 for values in said.values())
            return {sender: values[0] for sender, values in said.items()}

        heard = list(threads.map(talk, range(3)))
    assert heard == [{1: 10.0, 2: 20.0}, {0: 1.0, 2: 21.0}, {0: 2.0, 1: 12.0}]


def test_letters_of_one_place_come_in_their_order() -> None:
    with places(2) as (one, other):
        for number in range(5):
            one.send(1, ("number", number))
        assert [other.take()[1] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_letter_that_leaves_slowly_is_waited_for_as_long_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock goes on with what is read: 4 seconds in all, and the limit is one without a movement."""
    near, far = socket.socketpair()
    read = bytearray()

    def drain() -> None:
        while part := far.recv(1 << 16):
            read.extend(part)

    monkeypatch.setattr(
        "relaqs.training.elastic.exchange.time", SimpleNamespace(monotonic=lambda: len(read) / 2e7)
    )
    mail = SocketMail({1: MailLine(near, 1)}, limit_seconds=1.0)
    with closing(far), ThreadPoolExecutor(1) as threads:
        drained = threads.submit(drain)
        mail.send(1, ("large", np.zeros(10_000_000)))
        mail.flush()
        mail.free()
        drained.result()
    assert len(read) > 80_000_000


def test_a_place_that_goes_away_frees_those_who_wait() -> None:
    with places(3) as (one, other, _), ThreadPoolExecutor(1) as threads:
        waits = threads.submit(one.take)
        other.close()
        with pytest.raises(ExchangeBrokenError, match="rank 1"):
            waits.result(LIMITS_SECONDS[1] / 2)
