"""Nobody is kept waiting by what somebody else does: large answers, many connections, floods of questions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import psycopg
import pytest

from benchmarks.server_process import Running
from relaqs.serve.fair_pool import FairPool
from relaqs.serve.health import LATE_SECONDS, Health

READERS = 3
LARGE = "SELECT trips.* FROM trips, zones"  # 600,000 rows
WIDE = "SELECT id, repeat(driver, 100) AS text FROM trips"  # rows of 1 kB
ODD = "SELECT id, [fare, fare] AS list, picked_up::TIMESTAMPTZ AS moment FROM trips, zones"
READER = """
import socket, sys
from pygwire.messages import Query, StartupMessage
host, port, sql = sys.argv[1:]
with socket.create_connection((host, int(port))) as connection:
    connection.sendall(StartupMessage({"user": "eve"}).to_wire())
    while not connection.recv(1 << 20).endswith(b"Z\\0\\0\\0\\5I"):
        pass
    connection.sendall(Query(sql).to_wire())
    taken, last = 0, b""
    while not last.endswith(b"Z\\0\\0\\0\\5I") and (got := connection.recv(1 << 20)):
        if taken < 100_000 <= taken + len(got):
            print("reading", flush=True)
        taken, last = taken + len(got), (last + got)[-300:]
print(taken, last, flush=True)
"""


@contextmanager
def reading(server: Running, sql: str, readers: int = READERS) -> Iterator[list[subprocess.Popen[str]]]:
    """Give processes that take rows as fast as they come, once each has some."""
    command = [sys.executable, "-c", READER, server.host, str(server.port), sql]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(readers)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "reading\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def visit(server: Running) -> float:
    """Return how many seconds it takes to connect and to be answered a small question."""
    began = time.monotonic()
    with psycopg.connect(server.address("bob"), autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM zones").fetchone() == (5,)
    return time.monotonic() - began


@pytest.mark.parametrize("sql", [LARGE, WIDE, ODD])
def test_others_come_in_and_are_answered_while_rows_are_sent(server: Running, sql: str) -> None:
    alone = median(visit(server) for _ in range(5))
    with reading(server, sql) as readers:
        beside = [visit(server) for _ in range(8)]
        assert all(reader.poll() is None for reader in readers)  # they have rows to come
    assert median(beside) < 100 * alone


def test_a_client_of_many_rows_is_cancelled_and_goes_on(server: Running) -> None:
    with psycopg.connect(server.address("eve"), autocommit=True) as connection:
        taken = 0

        def take() -> None:
            nonlocal taken
            for _ in connection.cursor().stream(WIDE):
                taken += 1
                if taken == 10:
                    connection.cancel_safe()

        with pytest.raises(psycopg.errors.QueryCanceled):
            take()
        assert taken < 100_000
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_loop_that_is_held_is_found_late() -> None:
    async def hold() -> Health:
        health = Health()
        watching = asyncio.create_task(health.watch())
        await asyncio.sleep(0.2)
        time.sleep(0.3)
        await asyncio.sleep(0.2)
        watching.cancel()
        return health

    health = asyncio.run(hold())
    assert sum(health.late[LATE_SECONDS.index(0.1) + 1 :]) >= 1
    assert health.late_sum_seconds >= health.late_most_seconds >= 0.2


def test_users_take_turns_in_a_pool() -> None:
    async def ask() -> list[str]:
        pool, taken, may_begin = FairPool(1, 1, "turns"), [], threading.Event()
        first = asyncio.create_task(pool.run("eve", may_begin.wait))
        calls = [("eve", f"e{n}") for n in range(4)] + [("bob", "b0"), ("bob", "b1"), ("cid", "c0")]
        asked = [asyncio.create_task(pool.run(user, taken.append, name)) for user, name in calls]
        await asyncio.sleep(0.01)
        may_begin.set()
        await asyncio.gather(first, *asked)
        pool.shutdown()
        return taken

    assert asyncio.run(ask()) == ["e0", "b0", "c0", "e1", "b1", "e2", "e3"]


def test_a_user_has_some_threads_of_a_pool_and_no_more() -> None:
    async def ask() -> None:
        pool, may_end = FairPool(4, 2, "some"), threading.Event()
        held = [asyncio.create_task(pool.run("eve", may_end.wait)) for _ in range(6)]
        assert await pool.run("bob", int, "7") == 7
        held[5].cancel()  # it waits
        held[0].cancel()  # it runs, and keeps its thread
        await asyncio.sleep(0.01)
        assert [each.done() for each in held] == [True, False, False, False, False, True]
        assert await pool.run("bob", int, "8") == 8
        with pytest.raises(ValueError, match="x"):
            await pool.run("bob", int, "x")
        may_end.set()
        assert await asyncio.gather(*held[1:5]) == [True] * 4
        assert await pool.run("eve", int, "9") == 9
        pool.shutdown()

    asyncio.run(ask())
