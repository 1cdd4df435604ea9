"""The end of a program waits for its threads: none may be inside DuckDB when the interpreter goes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from weakref import WeakSet

import pytest

from relaqs.jobs import executor
from relaqs.jobs.executor import background_thread, join_all


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test waits for its own threads, and not for those of others that ran in its process before it."""
    monkeypatch.setattr(executor, "_MADE", WeakSet())


@pytest.mark.usefixtures("own_threads")
def test_threads_and_those_they_start_are_joined() -> None:
    let_go, ended = threading.Event(), threading.Event()

    def first() -> None:
        let_go.wait()
        background_thread(ended.set, "relaqs-second").start()

    background_thread(first, "relaqs-first").start()
    assert not join_all(timeout_seconds=0.01)
    let_go.set()
    assert join_all(timeout_seconds=20)
    assert ended.is_set()


@pytest.mark.usefixtures("own_threads")
def test_a_thread_that_never_started_is_not_waited_for() -> None:
    waiting = background_thread(threading.Event().wait, "relaqs-idle")
    assert join_all(timeout_seconds=20)
    assert waiting.daemon


def test_a_program_may_end_while_queries_and_sessions_are_being_dropped(tpch_warehouse: Path) -> None:
    program = f"""
import relaqs
for _ in range(4):
    answer = relaqs.online_sql("SELECT sum(l_quantity) FROM lineitem", data={str(tpch_warehouse)!r}).result()
session = relaqs.connect({str(tpch_warehouse)!r})
print(next(iter(session.online_sql("SELECT avg(l_quantity) FROM lineitem"))))
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
