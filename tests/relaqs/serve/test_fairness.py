"""Nobody is kept waiting by what somebody else does: large answers, many connections, floods of questions."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pygwire.messages import SSLRequest, StartupMessage
from relaqs_engine.sql.dialect import pausing
from relaqs_engine.sql.read import tree_of

from benchmarks.server_process import Running, serving
from relaqs.jobs import executor
from relaqs.jobs.executor import PRECEDENCE
from relaqs.serve import entry, quotas
from relaqs.serve.column_types import INT8
from relaqs.serve.encoded_rows import AnswerRows
from relaqs.serve.entry import MOST_STRANGERS_EACH
from relaqs.serve.failures import RefusedError
from relaqs.serve.health import LATE_SECONDS, Health
from relaqs.serve.quotas import FairPool
from relaqs.serve.server import MOST_CONNECTIONS
from relaqs.serve.users import add_user
from tests.relaqs.serve.test_operation import until

PASSWORD = "a secret"
STARTUP = StartupMessage({"user": "ana", "database": "relaqs"}).to_wire()
READERS, FLOODS = 3, 12
SUMS = f"SELECT {', '.join(f'sum(id + {number}) AS s{number}' for number in range(300))} FROM trips"
CATALOG = f"SELECT count(*) FROM {', '.join(f'pg_attribute AS a{number}' for number in range(10))}"
ENDLESS = "SELECT count(*) FROM trips AS a, trips AS b WHERE hash(a.id, b.id) % 7 = 1"  # minutes
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
    taken, last = 0, b"Z\\0\\0\\0\\5I"
    while True:
        if last.endswith(b"Z\\0\\0\\0\\5I"):
            connection.sendall(Query(sql).to_wire())
        if not (got := connection.recv(1 << 20)):
            break
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


@pytest.mark.parametrize("sql", [CATALOG, f"EXPLAIN {SUMS}", SUMS])
def test_a_flood_of_one_user_keeps_no_other_waiting(server: Running, sql: str) -> None:
    with ExitStack() as held:
        floods = [held.enter_context(psycopg.connect(server.address("eve"))) for _ in range(FLOODS)]
        for flood in floods:
            held.callback(flood.cancel_safe)
        with ThreadPoolExecutor(FLOODS) as threads:
            asked = [threads.submit(flood.execute, sql) for flood in floods]
            time.sleep(0.5)
            for _ in range(3):
                visit(server)
            assert sum(each.done() for each in asked) < FLOODS / 2  # they have turns to come
            for flood in floods:
                flood.cancel_safe()
            ends = [each.exception() for each in asked]
    assert all(end is None or isinstance(end, psycopg.errors.QueryCanceled) for end in ends), ends


@contextmanager
def asking(connections: Sequence[psycopg.Connection[Any]], sql: str) -> Iterator[None]:
    """Have all of them ask at once during a block. Their queries are cancelled at its end."""
    with ThreadPoolExecutor(len(connections)) as threads:
        asked = [threads.submit(connection.execute, sql) for connection in connections]
        try:
            time.sleep(0.5)
            yield
            assert not any(each.done() for each in asked)
        finally:
            for connection in connections:
                connection.cancel_safe()
        ends = [each.exception() for each in asked]
    assert all(isinstance(end, psycopg.errors.QueryCanceled) for end in ends), ends


@pytest.mark.parametrize(("long_ones", "user"), [(2, "bob"), (4, "bob"), (2, "eve")])
def test_long_queries_keep_nobody_waiting(server: Running, long_ones: int, user: str) -> None:
    with ExitStack() as held:
        longs = [held.enter_context(psycopg.connect(server.address("eve"))) for _ in range(long_ones)]
        small = held.enter_context(psycopg.connect(server.address(user), autocommit=True))
        held.enter_context(asking(longs, ENDLESS))
        for setting in ("SET relaqs.target = off", "SET relaqs.exact_below = off; SET relaqs.target = '20%'"):
            small.execute(setting)
            assert small.execute("SELECT count(*) FROM zones").fetchone() == (5,)
            assert small.execute("SELECT avg(fare) FROM trips").fetchone()


def giving_way(server: Running) -> int:
    """Return how many threads of a server have less weight than its first one."""
    process = server.process.pid
    threads = [int(each) for each in os.listdir(f"/proc/{process}/task")]
    usual, below = os.getpriority(os.PRIO_PROCESS, process), 0
    for each in threads:
        with suppress(ProcessLookupError):  # it has ended
            below += os.getpriority(os.PRIO_PROCESS, each) > usual
    return below


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has a priority for each thread")
def test_what_takes_long_gives_way_to_what_comes_and_no_thread_keeps_on_doing_so(server: Running) -> None:
    with (
        psycopg.connect(server.address("eve")) as long,
        psycopg.connect(server.address("bob"), autocommit=True) as small,
    ):

        def is_long_behind() -> bool:
            assert small.execute("SELECT avg(fare) FROM trips").fetchone()
            return giving_way(server) > of_database

        small.execute("SET relaqs.target = off; SELECT avg(fare) FROM trips")
        of_database = 1  # of the two threads of its statements
        until(lambda: giving_way(server) == of_database)  # questions about the server of before have ended
        with asking([long], ENDLESS):
            until(is_long_behind)
        until(lambda: giving_way(server) == of_database)
        assert not is_long_behind()


@dataclass(frozen=True)
class Guarded:
    """A server that asks for passwords. said: the file of what it says on standard error."""

    running: Running
    said: Path

    def visit(self, user: str = "ana", password: str = PASSWORD) -> float:
        """Return how many seconds it takes to log in and to be answered."""
        began = time.monotonic()
        with psycopg.connect(self.running.address(user), password=password) as connection:
            assert connection.execute("SELECT count(*) FROM zones").fetchone() == (5,)
        return time.monotonic() - began

    def metrics(self) -> dict[str, float]:
        """Return the samples by name and labels, as they are written."""
        address = self.running.said[0].removeprefix("Metrics: ").strip()
        text = urllib.request.urlopen(address, timeout=30).read().decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def socket(self, sent: bytes = b"") -> socket.socket:
        """Return a connection over which something was sent. It ends by a reset."""
        connection = socket.create_connection((self.running.host, self.running.port), timeout=30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(sent)
        return connection


@pytest.fixture(scope="module")
def guarded(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    users, said = folder / "users.toml", folder / "said"
    for user in ("ana", "ben"):
        add_user(users, user, PASSWORD)
    options = ("--users", str(users), "--threads", "2", "--metrics-port", "0")
    with said.open("w") as file, serving(warehouse, *options, stderr=file.fileno()) as running:
        yield Guarded(running, said)


@pytest.mark.parametrize("sent", [b"", b"\0\0\0\x08", SSLRequest().to_wire(), STARTUP[:20], STARTUP])
def test_who_says_nothing_keeps_nobody_out(guarded: Guarded, sent: bytes) -> None:
    with ExitStack() as held:
        for _ in range(MOST_CONNECTIONS + 20):
            held.enter_context(guarded.socket(sent))
        for _ in range(3):
            guarded.visit()
        assert guarded.metrics()['relaqs_connections{state="entering"}'] <= MOST_STRANGERS_EACH


def test_many_who_know_their_passwords_come_in_at_once(guarded: Guarded) -> None:
    with ThreadPoolExecutor(60) as threads:
        visits = [threads.submit(guarded.visit, user) for user in ("ana", "ben") * 60]
        assert all(visit.result() > 0 for visit in visits)


def test_wrong_passwords_are_told_and_counted_and_wait_alone(guarded: Guarded) -> None:
    guarded.visit("ben")
    name = 'relaqs_logins_total{outcome="wrong password"}'
    before = guarded.metrics()[name]
    began = time.monotonic()
    for user in ("eve", "eve\x1b[2J", "bob", "ana", "zoe"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            guarded.visit(user, "wrong")
    assert time.monotonic() - began > 0.1 + 0.2 + 0.4  # ana has a count of her own
    assert guarded.metrics()[name] == before + 5
    with ThreadPoolExecutor(8) as threads:
        guesses = [threads.submit(guarded.visit, "eve", "wrong") for _ in range(16)]
        for _ in range(5):
            guarded.visit("ben")
        assert not all(guess.done() for guess in guesses)  # they wait
        assert all(isinstance(guess.exception(), psycopg.OperationalError) for guess in guesses)
    said = guarded.said.read_text(encoding="utf-8")
    assert "wrong password for user 'eve' from 127.0.0.1\n" in said
    assert r"wrong password for user 'eve\x1b[2J' from 127.0.0.1" in said


def test_a_client_that_leaves_makes_no_traceback(guarded: Guarded) -> None:
    guarded.socket(STARTUP).close()
    guarded.socket(SSLRequest().to_wire() * 2).close()
    with ExitStack() as held:
        connections = [
            held.enter_context(psycopg.connect(guarded.running.address("ana"), password=PASSWORD))
            for _ in range(6)
        ]
        for number, connection in enumerate(connections):
            connection.pgconn.send_query(LARGE.encode())
            leaving = socket.socket(fileno=os.dup(connection.pgconn.socket))
            leaving.settimeout(30)
            for _ in range(number % 3):
                assert leaving.recv(10_000)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            leaving.close()
    until(lambda: guarded.metrics()['relaqs_connections{state="entered"}'] == 0)
    guarded.visit()
    assert "Traceback" not in guarded.said.read_text(encoding="utf-8")


def test_strangers_have_some_seconds_and_the_oldest_of_a_crowd_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ENTRY_SECONDS", 0.2), ("MOST_STRANGERS", 4), ("MOST_STRANGERS_EACH", 3)):
        monkeypatch.setattr(entry, name, value)

    async def come(here: entry.Strangers, address: str, seconds: float) -> str:
        try:
            async with here.coming(address):
                await asyncio.sleep(seconds)
        except RefusedError as refusal:
            return str(refusal)
        return "in"

    async def ask() -> list[str]:
        here = entry.Strangers()
        comes = [("a", 9.0), ("a", 9.0), ("a", 9.0), ("a", 0.1), ("b", 9.0), ("c", 0.1)]
        coming = [asyncio.create_task(come(here, address, seconds)) for address, seconds in comes]
        found = await asyncio.gather(*coming)
        assert len(here) == 0
        return found

    crowd, late = "too many connections came that do not log in", "nobody said who they are within 0.2 s"
    assert asyncio.run(ask()) == [crowd, crowd, late, "in", late, "in"]


def test_the_delay_of_wrong_passwords_grows_for_their_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, slept = 1000.0, []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))

    async def wait(guesses: entry.Guesses, address: str, user: str) -> float:
        slept.clear()
        await guesses.turn(address, user)
        return sum(slept)

    async def ask() -> None:
        nonlocal now
        guesses = entry.Guesses(lambda: now)
        guesses.was_right("a", "ben")
        waits = []
        for number in range(8):
            waits.append(await wait(guesses, "a", f"user {number}"))
            now += waits[-1]
            guesses.was_wrong("a", f"user {number}")
        assert waits == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0]
        assert await wait(guesses, "a", "ben") == 0.0
        assert await wait(guesses, "b", "eve") == 0.0
        assert await wait(guesses, "a", "eve") == 3.0
        with pytest.raises(RefusedError, match="too many wrong passwords came from this address; try again"):
            await wait(guesses, "a", "eve")  # beside the one that waits
        now += entry.FORGET_SECONDS + 1
        guesses.was_wrong("a", "eve")
        assert await wait(guesses, "a", "eve") == 0.1

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(ask())


def test_users_take_turns_in_a_pool() -> None:
    async def ask() -> list[str]:
        pool, taken, may_begin = FairPool(1, 1, "turns"), [], threading.Event()
        first = asyncio.create_task(pool.run("eve", may_begin.wait))
        calls = [("eve", f"e{n}") for n in range(4)] + [("bob", "b0"), ("bob", "b1"), ("cid", "c0")]
        asked = [asyncio.create_task(pool.run(user, taken.append, name)) for user, name in calls]
        await asyncio.sleep(0.01)
        may_begin.set()
        await asyncio.gather(first, *asked)
        return taken

    assert asyncio.run(ask()) == ["e0", "b0", "c0", "e1", "b1", "e2", "e3"]


def test_what_a_cancelled_call_returns_is_undone() -> None:
    async def ask() -> list[bool]:
        pool, may_end, undone = FairPool(1, 1, "undone"), threading.Event(), []
        runs = asyncio.create_task(pool.run("eve", may_end.wait, undo=undone.append))
        waits = asyncio.create_task(pool.run("eve", may_end.wait, undo=undone.append))
        await asyncio.sleep(0.01)
        runs.cancel()
        waits.cancel()
        await asyncio.wait([runs, waits])
        may_end.set()
        assert await pool.run("eve", may_end.wait, undo=undone.append)
        return undone

    assert asyncio.run(ask()) == [True]


def test_a_user_has_some_threads_of_a_pool_and_no_more() -> None:
    async def ask() -> None:
        pool, may_end = FairPool(4, 2, "some"), threading.Event()
        held = [asyncio.create_task(pool.run("eve", may_end.wait)) for _ in range(6)]
        assert await pool.run("bob", int, "7") == 7
        held[5].cancel()  # it waits
        held[0].cancel()  # it runs, and keeps its thread
        await asyncio.sleep(0.01)
        assert [each.done() for each in held] == [True, False, False, False, False, True]
        assert not pool.is_idle
        assert await pool.run("bob", int, "8") == 8
        with pytest.raises(ValueError, match="x"):
            await pool.run("bob", int, "x")
        may_end.set()
        assert await asyncio.gather(*held[1:5]) == [True] * 4
        assert await pool.run("eve", int, "9") == 9
        deadline = time.monotonic() + 10.0
        while not pool.is_idle and time.monotonic() < deadline:  # the thread of what was cancelled ends last
            await asyncio.sleep(0.001)
        assert pool.is_idle

    asyncio.run(ask())


def test_who_had_far_more_of_late_waits_while_somebody_else_asks_and_pauses_while_planning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "FIRST_SECONDS", 60.0)
    taken: list[str] = []

    async def ask() -> None:
        pool = FairPool(2, 2, "calls")
        with PRECEDENCE.asking("first of ann"):
            PRECEDENCE.charge("second of dan", 60.0)
            heavy = [asyncio.create_task(pool.run("second of dan", taken.append, "dan")) for _ in range(2)]
            await pool.run("first of ann", taken.append, "ann")
            await asyncio.sleep(0.01)
            assert (taken, pool.is_idle) == (["ann"], False)
        await asyncio.gather(*heavy)
        assert taken == ["ann", "dan", "dan"]
        PRECEDENCE.charge("third of dan", 60.0)
        planning, may_plan = threading.Event(), threading.Event()

        def plan() -> None:
            planning.set()
            may_plan.wait()
            tree_of("SELECT 1 + 1 AS x")
            taken.append("planned")

        heavy = [asyncio.create_task(pool.run("third of dan", plan))]
        await asyncio.to_thread(planning.wait)
        with PRECEDENCE.asking("first of ann"):
            may_plan.set()
            waits, key = PRECEDENCE._waits, ("third of dan", True)
            await asyncio.to_thread(until, lambda: key in waits and waits[key].is_behind)
            assert taken[3:] == []
        await asyncio.gather(*heavy)
        assert taken[3:] == ["planned"]

    asyncio.run(ask())


@pytest.mark.parametrize("who_asks_anew", ["fifth of dan", "sixth of dan"])
def test_what_was_asked_before_waits_while_somebody_else_asks_anew(
    who_asks_anew: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    async def ask() -> None:
        pool = FairPool(2, 2, "encoding")
        for user in ("fifth of ann", "fifth of dan"):
            PRECEDENCE.charge(user, 1.0)
        with PRECEDENCE.asking("fifth of dan"):
            await asyncio.sleep(executor.FIRST_SECONDS)
            begun = copy_context()
        monkeypatch.setattr(executor, "FIRST_SECONDS", 60.0)
        with PRECEDENCE.asking("fifth of ann"):
            rests = [
                asyncio.create_task(pool.run("fifth of dan", taken.append, "rest"), context=begun)
                for _ in range(2)
            ]
            await asyncio.sleep(0)
            rests[1].cancel()
            with PRECEDENCE.asking(who_asks_anew):
                await asyncio.wait_for(pool.run(who_asks_anew, taken.append, "new"), 20.0)
            assert taken == ["new"]
        await rests[0]
        assert taken == ["new", "rest"]
        assert pool.is_idle

    asyncio.run(ask())


def test_rows_are_encoded_in_pieces_between_which_others_have_the_interpreter() -> None:
    paused: list[int] = []
    table = pa.table({name: pa.array(range(5000), pa.int64()) for name in "abc"})
    rows = AnswerRows(table, [INT8] * 3, [0] * 3, "UTC")
    with pausing(lambda: paused.append(len(paused))):
        count, _ = rows.messages(0)
    assert (count, len(paused)) == (5000, 3)


def test_all_turns_of_who_gave_way_are_given_where_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "FIRST_SECONDS", 60.0)
    both = threading.Barrier(2, timeout=30)

    async def ask() -> None:
        pool = FairPool(2, 2, "both")
        PRECEDENCE.charge("fourth of dan", 60.0)
        with PRECEDENCE.asking("first of ann"):
            calls = [asyncio.create_task(pool.run("fourth of dan", both.wait)) for _ in range(2)]
            await asyncio.sleep(0)
        assert sorted(await asyncio.gather(*calls)) == [0, 1]

    asyncio.run(ask())


def test_a_thread_that_cannot_be_started_leaves_its_place_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def ask() -> str:
        pool = FairPool(1, 1, "refused")
        with monkeypatch.context() as system:
            system.setattr(quotas, "run_in_background", refused)
            with pytest.raises(RuntimeError, match="can't start"):
                await pool.run("ann", str, "never")
        return await pool.run("dan", str, "made")

    assert asyncio.run(ask()) == "made"


def test_what_is_returned_in_the_moment_of_the_cancel_is_undone() -> None:
    undone: list[str] = []

    async def ask() -> None:
        pool, may_end = FairPool(1, 1, "moment"), threading.Event()

        def query() -> str:
            may_end.wait()
            return "query"

        call = asyncio.create_task(pool.run("ann", query, undo=undone.append))
        await asyncio.sleep(0.01)
        may_end.set()
        time.sleep(0.1)  # the answer waits for the loop, which hears of the cancel first
        asyncio.get_running_loop().call_soon(call.cancel)
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(ask())
    assert undone == ["query"]
