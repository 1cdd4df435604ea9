"""Ranks that exchange sums over sockets: the same bits for any number, and no rank left hanging."""

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
from relaqs.training.elastic.exchange import Encryption, ExchangeBrokenError, PeerLink, SocketExchange, meet
from relaqs.training.elastic.membership import Membership, RankAddress
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
        yield Membership(0, ranks, 64, token), made


def on_ranks(
    size: int,
    act: Callable[[SocketExchange, int], Any],
    *,
    encryption: Encryption | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[Any]:
    """Return what each rank's act gave. Each rank is a thread."""
    with listeners(size) as (membership, made), ThreadPoolExecutor(size) as threads:

        def live(rank: int) -> Any:
            exchange = meet(membership, rank, made[rank], encryption, limit_seconds)
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

    def add(exchange: SocketExchange, rank: int) -> Sums:
        mine = all_pieces[list(subtrees(count, size))[rank]]
        return exchange.all_reduce(in_pairs(mine, add_sums) if mine else None)

    for sums in on_ranks(size, add):
        assert all(map(np.array_equal, sums, whole))


def test_large_arrays_cross_each_other_and_arrive_writable() -> None:
    """Both sides send before either has received: more than the sockets' buffers hold."""

    def swap(exchange: SocketExchange, rank: int) -> float:
        (total,) = exchange.all_reduce((np.full(3_000_000, rank + 1.0),))
        total += 1.0
        return float(total.min() + total.max())

    assert on_ranks(2, swap) == [8.0, 8.0]


@pytest.mark.parametrize("root", range(4))
def test_the_state_of_one_rank_reaches_all(root: int) -> None:
    state = {"weights": np.arange(1000.0), "step": 7}

    def spread(exchange: SocketExchange, rank: int) -> tuple[float, int]:
        found = exchange.broadcast(state if rank == root else None, root)
        exchange.all_reduce((np.zeros(1),))
        return float(found["weights"].sum()), found["step"]

    assert on_ranks(4, spread) == [(499500.0, 7)] * 4


def test_partners_send_each_other_values() -> None:
    def talk(exchange: SocketExchange, rank: int) -> object:
        if rank == 0:
            exchange.send(1, ["a", b"", np.zeros(0)])
            return exchange.receive(1)
        said = exchange.receive(0)
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

    def swap(exchange: SocketExchange, rank: int) -> float:
        return float(exchange.all_reduce((np.full(500_000, rank + 1.0),))[0].sum())

    assert on_ranks(2, swap, encryption=encryption) == [1.5e6, 1.5e6]


def test_a_rank_that_does_not_come_is_named_in_time() -> None:
    with listeners(2) as (membership, made):
        began = time.monotonic()
        with pytest.raises(ExchangeBrokenError, match="rank 1: it did not come") as caught:
            meet(membership, 0, made[0], None, SHORT_SECONDS)
        with pytest.raises(ExchangeBrokenError, match="rank 0: it did not come"):
            meet(membership, 1, made[1], None, SHORT_SECONDS)
    assert caught.value.peer == 1
    assert caught.value.is_late
    assert time.monotonic() - began < LIMIT_SECONDS


def test_a_peer_that_dies_frees_the_others_at_once() -> None:
    def live(exchange: SocketExchange, rank: int) -> object:
        if rank == 1:
            return None  # its links are closed
        with pytest.raises(ExchangeBrokenError) as caught:
            exchange.all_reduce((np.ones(10),))
        return caught.value.is_late

    assert on_ranks(2, live) == [False, None]


def test_a_peer_that_hangs_is_told_within_the_limit() -> None:
    over = threading.Event()

    def live(exchange: SocketExchange, rank: int) -> object:
        if rank == 1:
            assert over.wait(LIMIT_SECONDS)
            return None
        exchange.limit_seconds = SHORT_SECONDS
        with pytest.raises(ExchangeBrokenError) as caught:
            exchange.all_reduce((np.ones(10),))
        over.set()
        return caught.value.is_late, caught.value.peer

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
        "relaqs.training.elastic.exchange.time", SimpleNamespace(monotonic=lambda: len(read) / 2e7)
    )
    link = PeerLink(near, peer=1)
    with closing(far), ThreadPoolExecutor(1) as threads:
        drained = threads.submit(drain)
        link.send(np.zeros(10_000_000), limit_seconds=1.0)
        link.free()
        drained.result()
    assert len(read) > 80_000_000


def test_closing_from_another_thread_frees_a_rank_that_waits() -> None:
    def live(exchange: SocketExchange, rank: int) -> object:
        if rank == 1:
            return exchange.receive(0)  # that the other one is about to wait
        exchange.send(1, "now")
        closing = threading.Timer(0.05, exchange.close)
        closing.start()
        with pytest.raises(ExchangeBrokenError, match="closed"):
            exchange.receive(1)
        return "freed"

    with listeners(2) as (membership, made), ThreadPoolExecutor(2) as threads:
        ranks = [threads.submit(meet, membership, rank, made[rank], None, LIMIT_SECONDS) for rank in (0, 1)]
        exchanges = [rank.result() for rank in ranks]
        answers = [threads.submit(live, exchange, rank) for rank, exchange in enumerate(exchanges)]
        assert [each.result() for each in answers] == ["freed", "now"]
        for exchange in exchanges:
            exchange.free()


def test_strangers_are_cut_off_and_the_meeting_goes_on() -> None:
    with listeners(2) as (membership, made), ThreadPoolExecutor(3) as threads:
        first = threads.submit(meet, membership, 0, made[0], None, LIMIT_SECONDS)
        for said in (b"", os.urandom(64)):
            with socket.create_connection(made[0].getsockname()) as stranger:
                stranger.sendall(said)
        other = Membership(1, membership.ranks, 64, "wrong")
        with pytest.raises(ExchangeBrokenError, match="did not come"):
            meet(other, 1, made[1], None, SHORT_SECONDS)
        second = threads.submit(meet, membership, 1, made[1], None, LIMIT_SECONDS)
        for exchange in (first.result(), second.result()):
            exchange.free()


def test_no_descriptor_is_left() -> None:
    on_ranks(4, lambda exchange, rank: exchange.all_reduce((np.zeros(1),)))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        on_ranks(4, lambda exchange, rank: exchange.all_reduce((np.zeros(1),)))
    assert len(os.listdir("/proc/self/fd")) <= before
