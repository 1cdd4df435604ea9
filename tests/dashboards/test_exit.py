"""A signal ends the server within seconds, whatever is planned or runs; no user's plans stop another's."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import connect

import relaqs
from tests.dashboards.conftest import Page, Serve, panel

MODES = "SELECT l_shipmode, count(*) AS lines FROM lineitem GROUP BY l_shipmode"
LONGEST_SECONDS = 20.0
BLOCKED = "lambda *args, **entries: threading.Event().wait()"
# What never ends, and how the process is made to do it.
STUCK = {
    "nothing": "",
    "planning": f"relaqs.Session.plan = {BLOCKED}",
    "starting": f"relaqs.Session.start = {BLOCKED}",
    "a task": f"relaqs.executors.duck_process.QueryWork.run = {BLOCKED}",
    "the status": f"relaqs.Session.status = {BLOCKED}",
}
ENDLESS = (
    "SELECT sum((a.l_orderkey * b.l_partkey * c.l_suppkey) % 7) AS n FROM lineitem a, lineitem b, lineitem c"
)


@contextmanager
def program(tmp_path: Path, data: Path, stuck: str, sql: str = MODES) -> Iterator[subprocess.Popen[str]]:
    """Run `relaqs dashboard` until its page is open and its twelve panels want to run."""
    (tmp_path / "test.toml").write_text("".join(panel(f"{sql} -- {i}", id=f"p{i}") for i in range(12)))
    lines = [
        "import relaqs, relaqs.cli, relaqs.executors.duck_process, sys, threading",
        stuck,
        "sys.argv[0] = 'relaqs'",
    ]
    arguments = ["dashboard", "--data", data, "--port", "0", "--page", tmp_path / "test.toml"]
    command = [sys.executable, "-c", "\n".join([*lines, "relaqs.cli.main()"]), *map(str, arguments)]
    with subprocess.Popen(
        [*command, "--state", str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def opened(process: subprocess.Popen[str]) -> Iterator[Page]:
    import http.client

    assert process.stdout is not None
    address = urlsplit(process.stdout.readline().removeprefix("Open ").strip())
    asking = http.client.HTTPConnection(address.netloc, timeout=30)
    asking.request("GET", f"{address.path}?{address.query}")
    cookie = asking.getresponse().headers["set-cookie"].split(";")[0]
    asking.close()
    headers = {"Cookie": cookie}
    url = f"ws://{address.netloc}/ws?page=test"
    with connect(url, origin=f"http://{address.netloc}", additional_headers=headers, max_size=None) as socket:
        page = Page(socket)
        page.next()
        yield page


@pytest.mark.parametrize(
    ("stuck", "signal_number"),
    [
        ("nothing", signal.SIGTERM),
        ("planning", signal.SIGTERM),
        ("a task", signal.SIGTERM),
        pytest.param("planning", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("starting", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("the status", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("a task", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_server_whatever_does_not(
    tmp_path: Path, tpch_warehouse: Path, stuck: str, signal_number: int
) -> None:
    with program(tmp_path, tpch_warehouse, STUCK[stuck]) as process, opened(process):
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 128 + signal_number, errors
        assert "Traceback" not in errors


def test_a_signal_ends_the_server_while_statements_run(tmp_path: Path, tpch_warehouse: Path) -> None:
    with program(tmp_path, tpch_warehouse, "", ENDLESS) as process, opened(process) as page:
        page.until(lambda page: all(each["reason"] != "planning the query" for each in page.panels.values()))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LONGEST_SECONDS)
        assert process.returncode == 128 + signal.SIGTERM, errors
        assert "Traceback" not in errors


@pytest.mark.slow
def test_one_users_plans_stop_nobody_elses(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve plans that do not end, of which two are under way; edits do not make them more."""
    plan, blocked, let = relaqs.Session.plan, threading.Semaphore(0), threading.Event()
    under_way: list[str] = []

    def plan_or_block(session: relaqs.Session, sql: str, *, params: Any, timeout: float) -> object:
        if "stuck" in sql:
            under_way.append(sql)
            blocked.release()
            let.wait()
        return plan(session, sql, params=params, timeout=timeout)

    monkeypatch.setattr(relaqs.Session, "plan", plan_or_block)
    text = "".join(panel(f"{MODES} -- stuck {i}", id=f"p{i}") for i in range(12))
    served = serve(text, users=("ada", "bob"))
    with served.page(user="ada") as page, served.page("tpch", user="bob") as other:
        for _ in range(2):
            blocked.acquire()
        for number in range(12):
            page.say("edit", panel="p0", sql=f"{MODES} -- stuck again {number}")
        other.until_panel("pricing", state="exact")
        assert len(under_way) == 2
        let.set()
        page.until_panel("p11", state="exact")


def test_a_failure_that_nobody_thought_of_is_said(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(session: relaqs.Session, sql: str, *, params: Any, timeout: float) -> object:
        raise RecursionError

    monkeypatch.setattr(relaqs.Session, "plan", fail)
    with serve(panel(MODES)).page() as page:
        failed = page.until_panel("p1", state="failed")
        assert failed["failure"]["message"] == "the query failed inside (RecursionError)"
