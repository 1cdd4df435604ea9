"""The database of merged states can be closed at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from relaqs_engine.duck import Cursor, DatabaseConfig, Interrupted
from relaqs_engine.errors import DataError

from relaqs.queries.state_database import StateDatabase


@pytest.mark.parametrize("of", [lambda cursor: cursor, Cursor.another])
def test_closing_interrupts_what_runs(of: Callable[[Cursor], Cursor]) -> None:
    states = StateDatabase(DatabaseConfig((), memory_limit_bytes=64 << 20))
    first = states.cursor()
    cursor, began = of(first), threading.Event()
    cursor.run("CREATE TABLE numbers AS FROM range(1000000)")
    ends: list[type[Exception]] = []

    def run() -> None:
        began.set()
        try:
            cursor.rows("SELECT sum(a.range * b.range) FROM numbers a, numbers b")
        except Exception as error:
            ends.append(type(error))

    running = threading.Thread(target=run, daemon=True)
    running.start()
    began.wait()
    states.close()
    running.join(30)
    assert not running.is_alive()
    assert ends in ([Interrupted], [DataError])  # DataError: it was closed before the statement began
    states.close()
