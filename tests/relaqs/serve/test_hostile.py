"""Odd statements and odd bytes, from somebody who means harm. Another user is not disturbed by them."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from pygwire.messages import Bind, Execute, Parse, Query, SSLRequest, StartupMessage, Sync

from benchmarks import hostile_server
from benchmarks.hostile_statements import statement
from benchmarks.server_process import Running, serving
from relaqs.cli import program

PASSWORD = "a secret"
STARTUP = StartupMessage({"user": "eve", "database": "relaqs"}).to_wire()
MESSAGES = (
    STARTUP,
    SSLRequest().to_wire(),
    Query("SELECT 1").to_wire(),
    Parse("s", "SELECT $1::INTEGER", [23]).to_wire(),
    Bind("", "s", [1], [b"\0\0\0\1"], [1]).to_wire(),
    Execute("", 0).to_wire(),
    Sync().to_wire(),
)
REACHING_OUT = (
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT getenv('HOME'), version()",
    "SELECT * FROM duckdb_settings(), pg_class",
    "SELECT current_setting('home_directory')",
    "COPY t TO '/tmp/t.csv'",
    "ATTACH '/tmp/x.db'",
    "SELECT * FROM main.shown_user, duckdb_tables()",
    "SELECT repeat('x', 1000000000) FROM pg_class",
    "SELECT set_config('relaqs.target', '5%', false)",
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    hostile_server.lay_out(folder)
    with serving(folder, "--threads", "2", "--memory-limit", "1GB") as running:
        yield running


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose user eve has a memory of her own: what she fills would else be missing to others."""
    folder: Path = tmp_path_factory.mktemp("walled")
    hostile_server.lay_out(folder / "data")
    users = folder / "users.toml"
    for name in ("ben", "eve"):
        command = ["serve", "add-user", name, "--users", str(users), "--password-stdin"]
        CliRunner().invoke(program, command, input=f"{PASSWORD}\n", catch_exceptions=False)
    with users.open("a", encoding="utf-8") as file:
        file.write("memory = '500MB'\n")
    options = ("--users", str(users), "--threads", "2", "--memory-limit", "1GB")
    with serving(folder / "data", *options) as running:
        yield running


@contextmanager
def somebody_else(server: Running) -> Iterator[list[object]]:
    """Let another user ask again and again meanwhile. Give what came of it that should not have come."""
    wrong: list[object] = []
    is_over = threading.Event()
    asked = threading.Event()

    def ask() -> None:
        try:
            with psycopg.connect(server.address("ben"), password=PASSWORD, autocommit=True) as connection:
                while not is_over.is_set():
                    found = connection.execute(hostile_server.ORDINARY).fetchone()
                    if found != (50, 1225):
                        wrong.append(found)
                    asked.set()
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(60), wrong
    try:
        yield wrong
    finally:
        is_over.set()
        thread.join(60)


def test_what_reaches_out_is_refused(target: Running) -> None:
    with psycopg.connect(target.address("eve"), autocommit=True) as connection:
        for sql in REACHING_OUT:
            if sql.startswith("SELECT current_setting"):
                assert connection.execute(sql).fetchone() == (None,)
                continue
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(sql)
            assert refused.value.sqlstate not in (None, "XX000"), sql


def test_an_answer_takes_an_eighth_of_the_memory_at_most(target: Running) -> None:
    rows = "SELECT range AS x, 'a text of thirty characters or so ' || range AS t FROM range({})"
    with psycopg.connect(target.address("eve"), autocommit=True) as connection:
        assert len(connection.execute(rows.format(100_000).encode()).fetchall()) == 100_000
        with pytest.raises(psycopg.errors.OutOfMemory, match="119 MiB, the most allowed here"):
            connection.execute(rows.format(4_000_000).encode())
        assert connection.execute(hostile_server.ORDINARY).fetchone() == (50, 1225)


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_hostile_statements_are_answered_or_refused(walled: Running, count: int) -> None:
    odd = []
    with (
        somebody_else(walled) as wrong,
        psycopg.connect(walled.address("eve"), password=PASSWORD, autocommit=True) as connection,
    ):
        connection.execute("SET statement_timeout = '3s'")
        for number in range(count):
            sql = statement(3, number).sql.replace("\0", " ").encode("utf-8", "replace").decode()
            try:
                with psycopg.ClientCursor(connection) as cursor:
                    cursor.execute(sql)
            except psycopg.Error as error:
                if error.sqlstate in (None, "XX000"):
                    odd.append((number, repr(error)[:200]))
                    break
    assert odd == []
    assert wrong == []
    assert walled.process.poll() is None


@pytest.mark.slow
def test_hostile_packets_end_their_connection_alone(target: Running) -> None:
    rng = random.Random(11)
    with somebody_else(target) as wrong:
        for _ in range(100):
            send(target, packets(rng))
    assert wrong == []
    assert target.process.poll() is None
    with psycopg.connect(target.address("ben")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def packets(rng: random.Random) -> bytes:
    """Return bytes that are nearly messages: cut, changed, repeated, with lengths that lie, or noise."""
    good = (STARTUP if rng.random() < 0.7 else b"") + b"".join(rng.choices(MESSAGES[2:], k=rng.randint(1, 5)))
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.choice((1, 8, 100, 20_000)))
        case 1:
            return good[: rng.randrange(len(good))]
        case 2:
            changed = bytearray(good)
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)
        case 3:
            return good + b"Q" + rng.choice((0, 3, 2**31, 2**32 - 1)).to_bytes(4, "big") + rng.randbytes(50)
        case _:
            return rng.randrange(2**32).to_bytes(4, "big") + rng.randbytes(30)


def send(server: Running, sent: bytes) -> None:
    """Send bytes, say that there are no more, and read until the server has ended the connection."""
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
