"""A server of several processes: each user is in one of them, and clients cannot tell."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import psycopg
import pytest
from click.testing import CliRunner
from dask.typing import Key
from distributed import LocalCluster, Scheduler, SchedulerPlugin
from prometheus_client.parser import text_string_to_metric_families
from pygwire.messages import CancelRequest, Query, StartupMessage

from benchmarks.server_process import Running, serving
from relaqs.cli import program
from relaqs.serve.processes import Processes
from relaqs.serve.settings import Settings
from relaqs.serve.users import add_user
from tests.relaqs.executors.certificates import signed
from tests.relaqs.serve.questions import QUESTIONS, close, true_rows
from tests.relaqs.serve.test_exit import SOON_SECONDS
from tests.relaqs.serve.test_fairness import ENDLESS, WIDE, reading
from tests.relaqs.serve.test_operation import PASSWORD, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows hands no sockets to other processes")

PROCESSES = 2
COUNT = "SELECT count(*) FROM zones"


@pytest.fixture(scope="module")
def several(warehouse: Path) -> Iterator[Running]:
    with serving(warehouse, "--threads", "2", "--processes", str(PROCESSES)) as running:
        yield running


@pytest.fixture(scope="module")
def limited(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with passwords, TLS, limits, metrics and a log."""
    folder = tmp_path_factory.mktemp("guarded")
    users, certificate = folder / "users.toml", signed(folder / "tls")
    for name in ("ana", "ben"):
        add_user(users, name, PASSWORD)
    users.write_text(users.read_text(encoding="utf-8") + "running = 1\nqueued = 1\nconnections = 4\n")
    tls = ("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key), "--allow-plain")
    watched = ("--metrics-port", "0", "--query-log", str(folder / "queries.jsonl"))
    with serving(warehouse, "--users", str(users), *tls, *watched, "--processes", "2") as running:
        yield running


@pytest.fixture
def guarded(limited: Running) -> Running:
    """That server when it has seen that the connections of the test before are closed."""
    until(lambda: scrape(limited)["relaqs_connections", "entered"] == 0)
    return limited


def scrape(server: Running) -> dict[tuple[str, ...], float]:
    metrics = server.said[0].removeprefix("Metrics: ").strip()
    text = urllib.request.urlopen(metrics, timeout=30).read().decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, *each.labels.values()): each.value for each in samples}


def connect(server: Running, user: str, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(server.address(user), password=PASSWORD, autocommit=True, **more)


def place(connection: psycopg.Connection[Any]) -> int:
    """Return which process answers a connection."""
    return connection.info.backend_pid % PROCESSES


@contextmanager
def in_both_places(server: Running, *others: str) -> Iterator[list[psycopg.Connection[Any]]]:
    """Give a connection to each process, of two users who have none yet."""
    with ExitStack() as held:
        found = [held.enter_context(connect(server, user)) for user in others]
        assert {place(each) for each in found} == {0, 1}
        yield found


@contextmanager
def asking(*connections: psycopg.Connection[Any]) -> Iterator[list[Future[Any]]]:
    """Have all of them ask what takes minutes. Their queries are cancelled at the end of the block."""
    with ThreadPoolExecutor(len(connections)) as threads:
        asked = [threads.submit(each.execute, ENDLESS) for each in connections]
        try:
            time.sleep(0.5)
            yield asked
        finally:
            for connection, each in zip(connections, asked, strict=True):
                stop(connection, each)


def stop(connection: psycopg.Connection[Any], asked: Future[Any]) -> BaseException | None:
    """Cancel a query until it has ended, and return its error. A cancel that comes before it does nothing."""

    def has_ended() -> bool:
        if not asked.done():
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=10)
        return bool(wait([asked], 10).done)

    until(has_ended)
    return asked.exception()


def processes(server: Running) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children()


def test_users_are_spread_and_all_connections_of_one_are_together(several: Running) -> None:
    with in_both_places(several, "ana", "ben") as (ana, ben), ExitStack() as held:
        for user, first in (("ana", ana), ("ben", ben)):
            others = [held.enter_context(connect(several, user)) for _ in range(4)]
            assert {place(each) for each in others} == {place(first)}
        before = place(ana)
    with connect(several, "ben"), connect(several, "ana") as again:
        assert place(again) == before


def test_many_users_are_answered_as_by_one_process(several: Running) -> None:
    def ask(number: int) -> list[bool]:
        with connect(several, f"user-{number % 8}") as connection:
            return [close(connection.execute(sql).fetchall(), true_rows(sql)) for sql in QUESTIONS]

    for sql in QUESTIONS:
        true_rows(sql)
    with ThreadPoolExecutor(16) as threads:
        assert all(all(right) for right in threads.map(ask, range(24)))


def test_settings_at_the_start_arrive(several: Running) -> None:
    options = "-c relaqs.target=5% -c statement_timeout=7s -c TimeZone=America/New_York"
    with connect(several, "ana", options=options, application_name="a tool") as connection:
        shown = (
            "relaqs.target",
            "statement_timeout",
            "timezone",
            "application_name",
            "session_authorization",
        )
        values = [connection.execute(f"SHOW {name}").fetchone() for name in shown]
    assert values == [("5%",), ("7000",), ("America/New_York",), ("a tool",), ("",)]
    assert dict(Settings(dict(Settings({})))) == dict(Settings({}))


def test_statements_that_come_with_the_login_are_answered(several: Running) -> None:
    startup = StartupMessage({"user": "early", "database": "relaqs"}).to_wire()
    with socket.create_connection((several.host, several.port), timeout=30) as early:
        early.sendall(startup + Query(COUNT).to_wire() + Query("SELECT 'the en").to_wire()[:9])
        received = b""
        while received.count(b"Z\0\0\0\5I") < 2:
            received += early.recv(1 << 16)
        assert b"\0\1\0\0\0\x015" in received
        early.sendall(Query("SELECT 'the en").to_wire()[9:])
        while b"SERROR\0" not in received:
            received += early.recv(1 << 16)


def test_a_key_cancels_in_its_own_process_alone(several: Running) -> None:
    with in_both_places(several, "cid", "dan") as connections, asking(*connections) as asked:
        for connection in connections:
            with socket.create_connection((several.host, several.port)) as guess:
                guess.sendall(CancelRequest(connection.info.backend_pid, b"none").to_wire())
                assert guess.recv(1) == b""
        time.sleep(0.5)
        assert not any(each.done() for each in asked)
        connections[1].cancel_safe()
        assert isinstance(asked[1].exception(30), psycopg.errors.QueryCanceled)
        assert not asked[0].done()
        with connect(several, "cid") as other:
            stopped = other.execute(f"SELECT pg_terminate_backend({connections[0].info.backend_pid})")
            assert stopped.fetchone() == (True,)
        assert isinstance(asked[0].exception(30), psycopg.errors.AdminShutdown)


def test_limits_of_a_user_hold_over_all_connections(guarded: Running) -> None:
    with in_both_places(guarded, "ana", "ben"), ExitStack() as held:
        for _ in range(3):
            held.enter_context(connect(guarded, "ben"))
        with pytest.raises(psycopg.OperationalError, match="ben has 4 connections, the most allowed"):
            connect(guarded, "ben")
        for _ in range(4):
            held.enter_context(connect(guarded, "ana"))  # who has no such limit


def test_one_query_of_a_user_runs_and_one_waits(guarded: Running) -> None:
    with ExitStack() as held:
        bens = [held.enter_context(connect(guarded, "ben")) for _ in range(3)]
        asked = held.enter_context(asking(*bens))  # whichever comes last is refused
        wait(asked, 30, FIRST_COMPLETED)
        (refused,) = (number for number, each in enumerate(asked) if each.done())
        assert "ben has 1 queries running and 1 waiting" in str(asked[refused].exception())
        with connect(guarded, "ana") as ana:
            assert ana.execute(COUNT).fetchone() == (5,)
        for number in {0, 1, 2} - {refused}:
            assert isinstance(stop(bens[number], asked[number]), psycopg.errors.QueryCanceled)


@pytest.mark.parametrize("tls", ["require", "disable"])
def test_passwords_rows_and_cancelling_with_and_without_tls(guarded: Running, tls: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed for user 'ana'"):
        psycopg.connect(guarded.address("ana"), password="wrong", sslmode=tls)
    with connect(guarded, "ana", sslmode=tls) as connection:
        assert connection.pgconn.ssl_in_use == (tls == "require")
        assert len(connection.execute(WIDE).fetchall()) == 120_000
        with asking(connection) as (asked,):
            assert isinstance(stop(connection, asked), psycopg.errors.QueryCanceled)
        assert connection.execute("SELECT current_user").fetchone() == ("ana",)


def test_another_driver_is_answered_over_tls(guarded: Running) -> None:
    async def ask() -> list[Any]:
        connection = await asyncpg.connect(
            host=guarded.host, port=guarded.port, user="ana", password=PASSWORD, ssl="require"
        )
        try:
            return [
                await connection.fetchval("SELECT count(*) FROM trips WHERE zone = $1", n) for n in (1, 9)
            ]
        finally:
            await connection.close()

    assert asyncio.run(ask()) == [24_000, 0]


def test_metrics_are_those_of_all_processes_and_the_log_is_one(guarded: Running) -> None:
    before = scrape(guarded)
    with in_both_places(guarded, "ana", "ben") as connections:
        for connection in connections:
            connection.execute(COUNT)
        counted = [("relaqs_queries_total", "exact", "exact", user) for user in ("ana", "ben")]
        until(lambda: all(scrape(guarded).get(each, 0) > before.get(each, 0) for each in counted))
        until(lambda: scrape(guarded)["relaqs_connections", "entered"] == 2)
        after = scrape(guarded)
    assert after["relaqs_up",] == 1
    assert after["relaqs_capacity_cores",] == PROCESSES * (os.cpu_count() or 1)
    assert after["relaqs_logins_total", "let in"] == before.get(("relaqs_logins_total", "let in"), 0) + 2
    first = [after[name] for name in after if name[0] == "relaqs_first_answer_seconds_count"]
    assert sum(first) >= after["relaqs_queries_total", "exact", "exact", "ana"] + 1
    log = Path(guarded.process.args[guarded.process.args.index("--query-log") + 1])  # type: ignore[arg-type, index, union-attr]
    until(lambda: {"ana", "ben"} <= {line["who"] for line in lines_of(log) if line["sql"] == COUNT})


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("tls", ["require", "disable"])
def test_users_of_a_process_that_dies_are_told_and_come_again(guarded: Running, tls: str) -> None:
    with ExitStack() as held:
        both = [held.enter_context(connect(guarded, user, sslmode=tls)) for user in ("ana", "ben")]
        idle = [held.enter_context(connect(guarded, user, sslmode=tls)) for user in ("ana", "ben")]
        asked = held.enter_context(asking(*both))
        processes(guarded)[0].send_signal(signal.SIGKILL)
        wait(asked, 30, FIRST_COMPLETED)
        (dead,) = (number for number, each in enumerate(asked) if each.done())
        told = asked[dead].exception()
        assert isinstance(told, psycopg.errors.CrashShutdown)
        assert "has died, and is started again; what ran is lost; connect again" in str(told)
        with pytest.raises(psycopg.errors.CrashShutdown):
            idle[dead].execute(COUNT)
        with connect(guarded, ("ana", "ben")[dead], sslmode=tls) as again:
            assert again.execute(COUNT).fetchone() == (5,)
        alive = 1 - dead
        assert not asked[alive].done()
        both[alive].cancel_safe()
        assert isinstance(asked[alive].exception(30), psycopg.errors.QueryCanceled)
        assert idle[alive].execute(COUNT).fetchone() == (5,)
    until(lambda: len(processes(guarded)) == PROCESSES)


@pytest.mark.slow
def test_nothing_is_written_into_the_middle_of_a_row(warehouse: Path) -> None:
    """Where a process dies while a client is slow to take rows, the connection just ends."""
    with (
        serving(warehouse, "--processes", "2") as server,
        socket.create_connection((server.host, server.port), timeout=30) as slow,
    ):
        slow.sendall(StartupMessage({"user": "eve"}).to_wire() + Query(WIDE).to_wire())
        received = b""
        while received.count(b"driver") < 1000:  # rows come, after the login
            received += (got := slow.recv(1 << 16))
            assert got
        time.sleep(1.0)  # the system has taken all that it takes
        for process in processes(server):
            process.kill()
        while got := slow.recv(1 << 20):
            received += got
    assert b"CSERROR" not in received
    assert b"has died" not in received
    assert received.count(b"driver") > 1000


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_all_processes_end_with_the_server(warehouse: Path, number: signal.Signals) -> None:
    with serving(warehouse, "--processes", "2", stderr=subprocess.PIPE) as server:
        there = processes(server)
        with (
            in_both_places(server, "ana", "ben") as connections,
            asking(*connections) as asked,
            reading(server, WIDE, 1),
        ):
            server.process.send_signal(number)
            status = server.process.wait(SOON_SECONDS)
            told = [each.exception(SOON_SECONDS) for each in asked]
        assert status == (0 if number != signal.SIGKILL else -number)
        until(lambda: not any(each.is_running() for each in there), SOON_SECONDS)
        assert server.process.stderr is not None
        said = server.process.stderr.read()
    for error in told:
        assert isinstance(error, psycopg.errors.AdminShutdown), (error, said)
        assert "queries that ran were cancelled" in str(error)
    assert said == ""


def test_a_server_that_cannot_open_its_tables_says_so_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "relaqs", "serve", "--data", str(tmp_path / "none"), "--port", "0"]
    ended = subprocess.run([*command, "--processes", "2"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.count("Error") == 1
    assert "none" in ended.stderr


def test_memory_that_is_too_little_for_all_processes_is_refused(warehouse: Path) -> None:
    command = ["serve", "--data", str(warehouse), "--port", "0", "--memory-limit", "800MB"]
    said = CliRunner().invoke(program, [*command, "--processes", "4"])
    assert said.exit_code == 2
    assert "leave at least 0.268 GB for all others in each of 4 processes" in said.output.replace("\n", " ")


def test_a_process_that_cannot_be_started_now_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def keep() -> int:
        several, tries = Processes(1, {}), list[object]()
        (process,) = several._all
        process.timezone = "UTC"  # it was there once

        async def live(*told: object) -> int:
            tries.append(told)
            if len(tries) == 1:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            several._ending.set()
            return 0

        monkeypatch.setattr(process, "live", live)
        await asyncio.wait_for(several._keep(process), 30)
        return len(tries)

    assert asyncio.run(keep()) == 2
    assert "process 1 of 1 cannot be started" in caplog.text


class Computed(SchedulerPlugin):
    """The clients of a scheduler that had tasks computed, and the workers that did."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.clients, self.workers = set[str](), set[str]()
        scheduler.add_plugin(self, name="computed")

    def transition(self, key: Key, start: str, finish: str, *args: Any, **of: Any) -> None:
        if (start, finish) == ("processing", "memory"):
            task = self.scheduler.tasks[key]
            self.clients |= {client.client_key for client in task.who_wants or ()}
            self.workers |= {worker.address for worker in task.who_has or ()}


@pytest.mark.slow
def test_processes_compute_on_one_cluster(warehouse: Path) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        serving(warehouse, "--cluster", cluster.scheduler_address, "--processes", str(PROCESSES)) as running,
        in_both_places(running, "ana", "ben") as both,
    ):
        computed = Computed(cluster.scheduler)
        for count, connection in enumerate(both, 1):
            assert all(close(connection.execute(sql).fetchall(), true_rows(sql)) for sql in QUESTIONS)
            assert len(computed.clients) == count  # each process is a client of its own
        assert computed.clients <= set(cluster.scheduler.clients)
        assert len(computed.workers) == 1
        with asking(both[0]):
            assert both[1].execute(COUNT).fetchone() == true_rows(COUNT)[0]
