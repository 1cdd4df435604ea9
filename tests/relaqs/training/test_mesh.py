"""Sums and letters over real sockets: the same bits for any number of ranks, and nobody left hanging."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Security

from relaqs.training.elastic.course import subtrees
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.mesh import (
    Encryption,
    ExchangeBrokenError,
    Meeting,
    Mesh,
    PeerLine,
    RankAddress,
    meet,
    partners_of,
)
from relaqs.training.passes import add_sums, in_pairs
from relaqs.training.rows import Sums
from tests.relaqs.executors.certificates import signed

LIMIT_SECONDS = 20.0  # on a busy machine; nothing here waits for it
SHORT_SECONDS = 0.3


@contextmanager
def listeners(count: int, token: str = "token") -> Iterator[tuple[Membership, list[socket.socket]]]:
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        ranks = tuple(
            RankAddress(f"worker/{rank}", *listener.getsockname()) for rank, listener in enumerate(made)
        )
        yield Membership(0, ranks, token), made


def met(
    membership: Membership,
    rank: int,
    listener: socket.socket,
    limit_seconds: float = LIMIT_SECONDS,
    encryption: Encryption | None = None,
) -> Mesh:
    """Return the mesh of a rank of a gang."""
    limits, peers = (limit_seconds, limit_seconds), partners_of(rank, membership.size)
    return meet(membership.ranks, membership.token, rank, listener, encryption, limits, peers)


def on_ranks(
    size: int,
    act: Callable[[Mesh, int], Any],
    *,
    encryption: Encryption | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[Any]:
    """Return what each rank's act gave. Each rank is a thread."""
    with listeners(size) as (membership, made), ThreadPoolExecutor(size) as threads:

        def live(rank: int) -> Any:
            exchange = met(membership, rank, made[rank], limit_seconds, encryption)
            try:
                return act(exchange, rank)
            finally:
                exchange.free()

        return list(threads.map(live, range(size)))


def pieces(count: int) -> list[Sums]:
    draws = np.random.default_rng(count)
    return [
        (np.asarray(draws.normal()), draws.normal(size=(3, 5)) * 10.0 ** draws.integers(-9, 9))
        for _ in range(count)
    ]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 3, 8, 13])
def test_any_number_of_ranks_gives_the_bits_of_one(size: int, count: int) -> None:
    all_pieces = pieces(count)
    whole = in_pairs(all_pieces, add_sums)

    def add(exchange: Mesh, rank: int) -> Sums:
        mine = all_pieces[list(subtrees(count, size))[rank]]
        return exchange.all_reduce(in_pairs(mine, add_sums) if mine else None)

    for sums in on_ranks(size, add):
        assert all(map(np.array_equal, sums, whole))


def test_large_arrays_cross_each_other_and_arrive_writable() -> None:
    """Both sides send before either has received: more than the sockets' buffers hold."""

    def swap(exchange: Mesh, rank: int) -> float:
        (total,) = exchange.all_reduce((np.full(3_000_000, rank + 1.0),))
        total += 1.0
        return float(total.min() + total.max())

    assert on_ranks(2, swap) == [8.0, 8.0]


@pytest.mark.parametrize("root", range(4))
def test_the_state_of_one_rank_reaches_all(root: int) -> None:
    state = {"weights": np.arange(1000.0), "step": 7}

    def spread(exchange: Mesh, rank: int) -> tuple[float, int]:
        found = exchange.broadcast(state if rank == root else None, root)
        exchange.all_reduce((np.zeros(1),))
        return float(found["weights"].sum()), found["step"]

    assert on_ranks(4, spread) == [(499500.0, 7)] * 4


def test_partners_send_each_other_values() -> None:
    def talk(exchange: Mesh, rank: int) -> object:
        if rank == 0:
            exchange.send(1, ["a", b"", np.zeros(0)])
            return exchange.take(1)
        said = exchange.take(0)
        exchange.send(0, len(said))
        return said[:2]

    assert on_ranks(2, talk) == [3, ["a", b""]]


def test_encrypted_by_the_certificates_of_the_cluster(tmp_path: Path) -> None:
    certificate = signed(tmp_path / "ours")
    ours = Security(
        tls_ca_file=str(certificate.ca),
        tls_worker_cert=str(certificate.cert),
        tls_worker_key=str(certificate.key),
    )
    encryption = Encryption(
        ours.get_connection_args("worker")["ssl_context"], ours.get_listen_args("worker")["ssl_context"]
    )

    def swap(exchange: Mesh, rank: int) -> float:
        return float(exchange.all_reduce((np.full(500_000, rank + 1.0),))[0].sum())

    assert on_ranks(2, swap, encryption=encryption) == [1.5e6, 1.5e6]


def test_a_rank_that_does_not_come_is_named_in_time() -> None:
    with listeners(2) as (membership, made):
        began = time.monotonic()
        with pytest.raises(ExchangeBrokenError, match="rank 1: it did not come") as caught:
            met(membership, 0, made[0], SHORT_SECONDS)
        with pytest.raises(ExchangeBrokenError, match="rank 0: it did not come"):
            met(membership, 1, made[1], SHORT_SECONDS)
    assert caught.value.peer == 1
    assert time.monotonic() - began < LIMIT_SECONDS


def test_a_peer_that_dies_frees_the_others_at_once() -> None:
    def live(exchange: Mesh, rank: int) -> object:
        if rank == 1:
            return None  # its links are closed
        with pytest.raises(ExchangeBrokenError) as caught:
            exchange.all_reduce((np.ones(10),))
        return "in time" in str(caught.value)

    assert on_ranks(2, live) == [False, None]


def test_a_peer_that_hangs_is_told_within_the_limit() -> None:
    over = threading.Event()

    def live(exchange: Mesh, rank: int) -> object:
        if rank == 1:
            assert over.wait(LIMIT_SECONDS)
            return None
        exchange.limit_seconds = SHORT_SECONDS
        with pytest.raises(ExchangeBrokenError) as caught:
            exchange.all_reduce((np.ones(10),))
        over.set()
        return "in time" in str(caught.value), caught.value.peer

    assert on_ranks(2, live) == [(True, 1), None]


def test_a_value_that_comes_slowly_is_waited_for_as_long_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock goes on with what is read: 4 seconds in all, and the limit is one without a movement."""
    near, far = socket.socketpair()
    read = bytearray()

    def drain() -> None:
        while part := far.recv(1 << 16):
            read.extend(part)

    monkeypatch.setattr(
        "relaqs.training.elastic.mesh.time", SimpleNamespace(monotonic=lambda: len(read) / 2e7)
    )
    mesh = Mesh(0, 2, {1: PeerLine(near, peer=1)}, limit_seconds=1.0)
    with closing(far), ThreadPoolExecutor(1) as threads:
        drained = threads.submit(drain)
        mesh.send(1, np.zeros(10_000_000))
        mesh.flush()
        mesh.free()
        drained.result()
    assert len(read) > 80_000_000


def test_closing_from_another_thread_frees_a_rank_that_waits() -> None:
    def live(exchange: Mesh, rank: int) -> object:
        if rank == 1:
            return exchange.take(0)  # that the other one is about to wait
        exchange.send(1, "now")
        closing = threading.Timer(0.05, exchange.close)
        closing.start()
        with pytest.raises(ExchangeBrokenError, match="closed"):
            exchange.take(1)
        return "freed"

    with listeners(2) as (membership, made), ThreadPoolExecutor(2) as threads:
        ranks = [threads.submit(met, membership, rank, made[rank]) for rank in (0, 1)]
        exchanges = [rank.result() for rank in ranks]
        answers = [threads.submit(live, exchange, rank) for rank, exchange in enumerate(exchanges)]
        assert [each.result() for each in answers] == ["freed", "now"]
        for exchange in exchanges:
            exchange.free()


def test_strangers_are_cut_off_and_the_meeting_goes_on() -> None:
    with listeners(2) as (membership, made), ThreadPoolExecutor(3) as threads:
        first = threads.submit(met, membership, 0, made[0])
        for said in (b"", os.urandom(64)):
            with socket.create_connection(made[0].getsockname()) as stranger:
                stranger.sendall(said)
        other = Membership(1, membership.ranks, "wrong")
        with pytest.raises(ExchangeBrokenError, match="did not come"):
            met(other, 1, made[1], SHORT_SECONDS)
        second = threads.submit(met, membership, 1, made[1])
        for exchange in (first.result(), second.result()):
            exchange.free()


def test_no_descriptor_is_left() -> None:
    on_ranks(4, lambda exchange, rank: exchange.all_reduce((np.zeros(1),)))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        on_ranks(4, lambda exchange, rank: exchange.all_reduce((np.zeros(1),)))
    assert len(os.listdir("/proc/self/fd")) <= before


LIMITS_SECONDS = (20.0, 20.0)
NUMBERS = 1 << 20  # 8 MB, more than sockets hold


@contextmanager
def places(count: int) -> Iterator[list[Mesh]]:
    """Give the mesh of each of some places, which have met, each with all."""
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(count)
        ]
        there = [RankAddress(str(i), *each.getsockname()) for i, each in enumerate(listeners)]

        def meet_all(here: int) -> Mesh:
            return meet(there, "token", here, listeners[here], None, LIMITS_SECONDS)

        found = at_once(count, meet_all)
        for mail in found:
            stack.callback(mail.free)
        yield found


def at_once(count: int, act: Callable[[int], Mesh]) -> list[Mesh]:
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


def test_a_place_that_goes_away_frees_those_who_wait() -> None:
    with places(3) as (one, other, _), ThreadPoolExecutor(1) as threads:
        waits = threads.submit(one.take)
        other.close()
        with pytest.raises(ExchangeBrokenError, match="rank 1"):
            waits.result(LIMITS_SECONDS[1] / 2)


def test_who_waits_for_one_peer_minds_no_other_that_leaves() -> None:
    """A rank may be in the next generation already while others make the last step of this one."""
    with places(3) as (one, other, third):
        third.send(0, "said before it left")
        third.flush()
        third.close()
        other.send(0, "here")
        assert [one.take(1), one.take(2)] == ["here", "said before it left"]
        with pytest.raises(ExchangeBrokenError, match="rank 2: the connection ended"):
            one.take(2)


class Answered(PeerLine):
    """A line to a peer that sends again each time one looks."""

    def __init__(self, connection: socket.socket, peer: int, sender: Mesh) -> None:
        super().__init__(connection, peer)
        self._sender = sender
        self.looked = 0

    def advance(self) -> bool:
        self.looked += 1
        assert self.looked < 100, "who waits looks on"
        self._sender.send(0, self.looked)
        return super().advance()


def test_a_place_that_goes_away_is_told_of_while_another_one_keeps_sending() -> None:
    (gone, gone_far), (well, well_far) = socket.socketpair(), socket.socketpair()
    sender = Mesh(2, 3, {0: PeerLine(well_far, peer=0)}, LIMIT_SECONDS)
    line = Answered(well, peer=2, sender=sender)
    mesh = Mesh(0, 3, {1: PeerLine(gone, peer=1), 2: line}, LIMIT_SECONDS)
    gone_far.close()
    with closing(well_far), pytest.raises(ExchangeBrokenError, match="rank 1: the connection ended"):
        mesh.take(1)
    assert list(line.arrived) == [1]
    sender.free()
    mesh.free()


@pytest.mark.parametrize("is_called", [False, True])
def test_a_connection_is_closed_where_no_time_is_left_to_greet(is_called: bool) -> None:
    one, other = socket.socketpair()
    with listeners(2) as (membership, made), closing(other):
        meeting = Meeting(membership.ranks, "token", 1, made[1], None, deadline=0.0)
        with pytest.raises(ExchangeBrokenError, match="rank 0: it did not come"):
            meeting._greeted(one, None, 0, is_called=is_called)
        assert one.fileno() < 0
