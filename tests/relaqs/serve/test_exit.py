"""The end of a server: by SIGTERM and ctrl-C, busy or stuck. Clients are told, and nothing is left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from benchmarks.server_process import Running, serving
from tests.relaqs.serve.test_fairness import LARGE, reading
from tests.relaqs.serve.test_operation import LONG, Watched, until

SOON_SECONDS = 10.0
STUCK = """
import sys, threading, relaqs
from relaqs.cli import program
def plan(*given, **named):
    if sys.argv[2] == "a library's":  # the end of Python waits for it
        threading.Thread(target=threading.Event().wait, daemon=False).start()
    print("planning", flush=True)
    threading.Event().wait()
relaqs.Session.plan = plan
program(["serve", "--data", sys.argv[1], "--port", "0"])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_busy_server_ends_soon_and_tells_everybody(
    warehouse: Path, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "queries.jsonl"
    options = ("--threads", "2", "--metrics-port", "0", "--query-log", str(log))
    told: list[BaseException] = []
    with serving(warehouse, *options) as server:
        watched = Watched(server, server.said[0].removeprefix("Metrics: ").strip(), log)
        users = [f"user {number}" for number in range(5)]
        asking = [threading.Thread(target=refused, args=(server, user, told)) for user in users]
        for thread in asking:
            thread.start()
        until(lambda: {("relaqs_job_share_cores", user) for user in users} <= set(watched.scrape()))
        family = [
            server.process.pid,
            *(child.pid for child in psutil.Process(server.process.pid).children(True)),
        ]
        began = time.monotonic()
        server.process.send_signal(number)
        assert server.process.wait(SOON_SECONDS) == 0
        assert time.monotonic() - began < SOON_SECONDS
        for thread in asking:
            thread.join(SOON_SECONDS)
    assert not any(psutil.pid_exists(each) for each in family)
    assert len(told) == len(users)
    for error in told:
        assert isinstance(error, psycopg.errors.AdminShutdown), error
        assert "queries that ran were cancelled" in str(error)
    ends = [json.loads(line)["outcome"] for line in log.read_text(encoding="utf-8").splitlines()]
    assert ends == ["stopped"] * len(users)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind((server.host, server.port))
        again.listen()


def refused(server: Running, user: str, told: list[BaseException]) -> None:
    try:
        with psycopg.connect(
            f"host={server.host} port={server.port} user='{user}'", autocommit=True
        ) as asker:
            asker.execute(LONG)
    except psycopg.Error as error:
        told.append(error)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_server_ends_while_clients_take_rows(warehouse: Path) -> None:
    with serving(warehouse, "--threads", "2") as server, reading(server, LARGE) as readers:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SOON_SECONDS) == 0
        ends = [reader.communicate(timeout=SOON_SECONDS)[0] for reader in readers]
    assert all("the server is stopping" in end for end in ends), ends


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(
    ("thread", "status"), [("the server's", 0), ("a library's", 128 + signal.SIGTERM)], ids=["own", "other"]
)
def test_a_server_ends_whatever_does_not_let_go(warehouse: Path, thread: str, status: int) -> None:
    command = [sys.executable, "-c", STUCK, str(warehouse), thread]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()[2].rstrip(".").split(":")
        told: list[BaseException] = []
        asking = threading.Thread(target=refused, args=(Running(host, int(port), process), "ana", told))
        asking.start()
        assert process.stdout.readline() == "planning\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(2 * SOON_SECONDS) == status
        asking.join(SOON_SECONDS)
    assert isinstance(told[0], psycopg.errors.AdminShutdown)
