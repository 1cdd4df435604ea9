"""What operators see and bound: metrics and the log with users' names, their cores and memory."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.server_process import Running, serving
from relaqs.arguments import ArgumentError
from relaqs.cli import program
from relaqs.serve.users import Users
from tests.relaqs.serve.questions import true_rows

PASSWORD = "a secret"
LONG = "SELECT count(*) FROM trips AS a, trips AS b WHERE a.fare * b.distance + a.id < b.id"
LARGE = "SELECT median(a.id * b.distance) FROM trips AS a, trips AS b WHERE b.id < 400"
LIMITS = "cores = 0.5\nmemory = '300MB'\nheld = '12MB'"
QUICK = "SELECT count(*) AS n FROM trips WHERE shared"
TOTAL = "SELECT zone, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"


@dataclass
class Watched:
    """A server with metrics and a log."""

    running: Running
    metrics: str
    log: Path

    def connect(self, user: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self.running.address(user), password=PASSWORD, autocommit=True)

    def scrape(self) -> dict[tuple[str, str], float]:
        """Return the samples by name and user."""
        text = urllib.request.urlopen(self.metrics, timeout=30).read().decode()
        return {
            (sample.name, sample.labels.get("user", "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("users") / "users.toml"
    for name in ("ana", "ben"):
        command = ["serve", "add-user", name, "--users", str(file), "--password-stdin"]
        CliRunner().invoke(program, command, input=f"{PASSWORD}\n", catch_exceptions=False)
    file.write_text(file.read_text(encoding="utf-8") + f"{LIMITS}\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def watched(warehouse: Path, users: Path) -> Iterator[Watched]:
    log = users.with_name("queries.jsonl")
    options = ("--users", str(users), "--threads", "2", "--memory-limit", "2GB")
    with serving(warehouse, *options, "--metrics-port", "0", "--query-log", str(log)) as running:
        yield Watched(running, running.said[0].removeprefix("Metrics: ").strip(), log)


def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_metrics_and_the_log_say_who_asked(watched: Watched) -> None:
    with watched.connect("ana") as connection:
        assert connection.execute(QUICK).fetchall() == true_rows(QUICK)
        asking = threading.Thread(target=cancelled, args=(connection, LONG))
        asking.start()
        until(lambda: ("relaqs_job_share_cores", "ana") in watched.scrape())
        connection.cancel_safe()
        asking.join(30)
    until(lambda: len([line for line in watched.lines() if line["who"] == "ana"]) >= 2)
    first, second = (line for line in watched.lines() if line["who"] == "ana")
    assert (first["sql"], first["outcome"]) == (QUICK, "exact")
    assert (second["sql"], second["outcome"]) == (LONG, "stopped")
    assert watched.scrape()["relaqs_queries_total", "ana"] >= 1
    assert watched.scrape()["relaqs_loop_late_seconds_count", ""] >= 1


def test_a_user_of_half_a_core_takes_one_at_most(watched: Watched) -> None:
    pid = watched.running.process.pid
    with ExitStack() as held:
        connections = [held.enter_context(watched.connect("ben")) for _ in range(3)]
        asking = [threading.Thread(target=cancelled, args=(each, LONG)) for each in connections]
        for each in asking:
            each.start()
        until(lambda: ("relaqs_job_share_cores", "ben") in watched.scrape())
        began, used = time.monotonic(), cpu_seconds(pid)
        time.sleep(1.5)
        cores = (cpu_seconds(pid) - used) / (time.monotonic() - began)
        for connection in connections:
            connection.cancel_safe()
        for each in asking:
            each.join(30)
    assert 0 < cores < 1.4


@pytest.mark.parametrize("kept", ["cursors", "portals", "statements", "values"])
def test_what_the_connections_of_a_user_keep_has_one_bound(watched: Watched, kept: str) -> None:
    """Whoever is refused is told what to close, and is answered again after that."""
    host, port = watched.running.host, watched.running.port

    async def keep(connection: asyncpg.Connection[Any], number: int) -> object:
        match kept:
            case "cursors":
                return await connection.execute(f"DECLARE c{number} CURSOR FOR SELECT * FROM trips")
            case "portals":
                return await (await connection.cursor("SELECT * FROM trips")).fetch(5)
            case "statements":
                return await connection.prepare(f"SELECT {number} AS n /* {'😀' * 130_000} */")
            case _:
                values = [str(each) for each in range(1000, 101_000)]
                return await connection.cursor("SELECT id FROM trips WHERE driver = ANY($1)", values)

    async def keep_all(connections: list[asyncpg.Connection[Any]], done: list[object]) -> None:
        for number in range(40):
            done.append(await keep(connections[number % 3], number))

    async def ask() -> int:
        done: list[object] = []
        async with AsyncExitStack() as held:
            connections = []
            for _ in range(3):
                connections.append(
                    await asyncpg.connect(host=host, port=port, user="ben", password=PASSWORD, timeout=30)
                )
                held.push_async_callback(connections[-1].close)
                await connections[-1].execute("BEGIN")
            with pytest.raises(asyncpg.OutOfMemoryError, match="close cursors and portals, read") as refused:
                await keep_all(connections, done)
            assert "the connections of the user ben keep" in str(refused.value)
            with watched.connect("ana") as other:
                assert other.execute(QUICK).fetchall() == true_rows(QUICK)
        return len(done)

    first = asyncio.run(ask())
    assert 1 <= first <= 25
    until(lambda: asyncio.run(ask()) == first)  # the server hears later that connections have gone


def test_what_was_read_to_its_end_is_not_kept(watched: Watched) -> None:
    with watched.connect("ben") as connection:
        connection.execute("BEGIN")
        for number in range(6):
            connection.execute(f"DECLARE c{number} CURSOR FOR SELECT * FROM trips")
            connection.execute(f"MOVE 119990 FROM c{number}")
            assert len(connection.execute(f"FETCH ALL FROM c{number}").fetchall()) == 10
            assert connection.execute(f"FETCH 5 FROM c{number}").fetchall() == []


def cpu_seconds(pid: int) -> float:
    """Return what a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cancelled(connection: psycopg.Connection[Any], sql: str) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        connection.execute(sql)


def test_a_user_without_the_memory_for_a_query_is_told_and_others_go_on(watched: Watched) -> None:
    with watched.connect("ben") as connection, watched.connect("ana") as other:
        with pytest.raises(psycopg.errors.OutOfMemory, match="300 MB that the user ben may have"):
            connection.execute(LARGE)
        assert connection.execute(TOTAL).fetchall() == true_rows(TOTAL)
        assert other.execute(TOTAL).fetchall() == true_rows(TOTAL)


def test_the_memory_of_users_comes_out_of_that_of_all(warehouse: Path, users: Path) -> None:
    command = ["serve", "--data", str(warehouse), "--users", str(users), "--memory-limit", "500MB"]
    said = CliRunner().invoke(program, [*command, "--port", "0"])
    assert said.exit_code == 2
    assert "users have 0.3 GB of their own" in said.output.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("cores = 0", "cores is 0; it must be a number of at least 0.1"),
        ("cores = 'two'", "cores is 'two'"),
        ("memory = '1MB'", "at least 256 MiB"),
    ],
)
def test_a_limit_that_is_none_is_refused(users: Path, tmp_path: Path, entry: str, words: str) -> None:
    kept = users.read_text(encoding="utf-8").split("cores")[0]
    file = tmp_path / "users.toml"
    file.write_text(f"{kept}{entry}\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match=words):
        Users.read(file)
