"""Who is let in: passwords, TLS, limits of each user. Each refusal has its words and its code."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from benchmarks.server_process import Running, serving
from relaqs.arguments import ArgumentError
from relaqs.cli import program
from relaqs.serve.failures import RefusedError
from relaqs.serve.quotas import Limits, UserQuota
from relaqs.serve.users import Users
from tests.relaqs.executors.certificates import signed

PASSWORDS = {"ana": "a secret", "ben": "pässword; 'x'"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def users(folder: Path) -> Path:
    file = folder / "users.toml"
    for name, password in PASSWORDS.items():
        command = ["serve", "add-user", name, "--users", str(file), "--password-stdin"]
        said = CliRunner().invoke(program, command, input=f"{password}\n", catch_exceptions=False)
        assert said.output == f"{name} was added to {file}\n"
    text = file.read_text(encoding="utf-8")
    assert not any(password in text for password in PASSWORDS.values())
    assert file.stat().st_mode & 0o077 == 0
    file.write_text(text + "running = 1\nqueued = 1\nconnections = 3\nanswer = '1MB'\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def server(warehouse: Path, users: Path, folder: Path) -> Iterator[Running]:
    certificate = signed(folder / "tls")
    options = ("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key))
    with serving(warehouse, "--users", str(users), *options, "--threads", "2") as running:
        yield running


def connect(server: Running, user: str, password: str, **more: Any) -> psycopg.Connection[Any]:
    given = {"sslmode": "require", "connect_timeout": 20, **more}
    return psycopg.connect(server.address(user), password=password, **given)


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_user_comes_in_with_the_password_over_tls(server: Running, name: str) -> None:
    with connect(server, name, PASSWORDS[name]) as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.execute("SELECT current_user").fetchone() == (name,)


@pytest.mark.parametrize(("name", "password"), [("ana", "a secreT"), ("eve", "x"), ("ana", "")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(
    server: Running, name: str, password: str
) -> None:
    with pytest.raises(psycopg.OperationalError) as refused:
        connect(server, name, password or " ")
    assert f"password authentication failed for user {name!r}" in str(refused.value)


def test_a_client_without_tls_is_refused(server: Running) -> None:
    with pytest.raises(psycopg.OperationalError, match="this server demands TLS"):
        connect(server, "ana", PASSWORDS["ana"], sslmode="disable")


def test_a_client_that_checks_the_certificate_finds_it_wrong(server: Running, folder: Path) -> None:
    other = ssl.get_default_verify_paths().cafile
    if other is None or not Path(other).exists():
        pytest.skip("this machine has no list of authorities")
    with pytest.raises(psycopg.OperationalError, match="certificate"):
        connect(server, "ana", PASSWORDS["ana"], sslmode="verify-ca", sslrootcert=other)


def test_a_user_with_too_many_connections_is_refused(server: Running) -> None:
    held = [connect(server, "ben", PASSWORDS["ben"]) for _ in range(3)]
    try:
        with pytest.raises(
            psycopg.OperationalError, match="the user ben has 3 connections, the most allowed"
        ):
            connect(server, "ben", PASSWORDS["ben"])
        with connect(server, "ana", PASSWORDS["ana"]) as other:
            assert other.execute("SELECT 1").fetchone() == (1,)
    finally:
        for connection in held:
            connection.close()


def test_a_user_with_too_many_queries_is_refused_and_those_that_wait_have_their_turn() -> None:
    async def ask() -> list[str]:
        quota, told = UserQuota("ben", Limits(running=1, queued=1)), []

        async def wait() -> None:
            async with quota.running():
                told.append("second")

        async with quota.running():
            second = asyncio.create_task(wait())
            await asyncio.sleep(0)
            with pytest.raises(RefusedError, match="ben has 1 queries running and 1 waiting") as refused:
                async with quota.running():
                    told.append("third")
            assert refused.value.code == "53300"
            told.append("first")
        await second
        async with quota.running():
            return told

    assert asyncio.run(ask()) == ["first", "second"]


def test_an_answer_that_is_too_large_for_its_user_is_refused(server: Running) -> None:
    with (
        connect(server, "ben", PASSWORDS["ben"]) as connection,
        pytest.raises(psycopg.errors.OutOfMemory, match=r"and the user ben may have 1 MB; aggregate"),
    ):
        connection.execute("SELECT id, driver, distance FROM trips")


def test_what_would_let_strangers_in_must_be_said(warehouse: Path, users: Path) -> None:
    cases = (
        (["--host", "0.0.0.0"], "others can connect"),
        (["--host", "0.0.0.0", "--users", str(users)], "others can read what is sent"),
        (["--tls-cert", str(users)], "TLS needs both"),
        (["--tls-cert", str(users), "--tls-key", str(users)], "are no certificate and its key"),
        (["--users", str(warehouse / "none.toml")], "there is no file of users"),
    )
    for options, words in cases:
        said = CliRunner().invoke(program, ["serve", "--data", str(warehouse), "--port", "0", *options])
        assert said.exit_code in (1, 2), options
        assert words in said.output.replace("\n", " "), said.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "it may have tables"),
        ("[users.a]\npassword = 'x'", "password is not what relaqs serve add-user writes"),
        ("[users.a]\nwieght = 1", "there is no 'wieght'"),
        ("[users", "is no TOML"),
        ("", "has no user"),
    ],
)
def test_a_file_of_users_that_says_something_else_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "users.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError, match=words):
        Users.read(file)
