"""Layouts that are made behind the questions: of large plain tables that are asked about again.

One thread lays out one table after another, with one DuckDB thread, at the lowest priority that the system
has. Nothing waits for it. It can be stopped at any moment, and then leaves nothing behind.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from relaqs_engine.duck import Cursor, Interrupted
from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts.cache import LayingOut, lay_out
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.plain import NOTABLE_SECONDS, PlainTable

from relaqs.jobs.background import background_thread

QUESTIONS = 2  # about a table, before it is laid out
MEMORY_LIMIT_BYTES = 1 << 30
_LOWEST_PRIORITY = 19
_REPEAT_SECONDS = 0.01  # between two interruptions of one statement


class BackgroundLayouts:
    """Counts the questions about plain tables, and lays out those that are large and asked about again.

    Args:
        cores: how many cores read a table whole. A table that they read in no time is left as it is.
        announce: called with a sentence when a layout is begun, and when it is there.
        adopt: called with each layout, on the thread that made it.
    """

    def __init__(self, cores: int, announce: Callable[[str], None], adopt: Callable[[Layout], None]) -> None:
        self._cores = cores
        self._announce = announce
        self._adopt = adopt
        self._changed = threading.Condition()
        self._questions: Counter[str] = Counter()  # by table
        self._due: deque[PlainTable] = deque()
        self._thread: threading.Thread | None = None
        self._cursor: Cursor | None = None
        self._is_stopped = False
        _OPEN.add(self)

    def asked(self, tables: Iterable[PlainTable]) -> None:
        """Count a question about these tables."""
        with self._changed:
            for table in tables:
                self._questions[table.table] += 1
                if self._questions[table.table] == QUESTIONS and self._is_large(table):
                    self._due.append(table)
            if self._due and self._thread is None and not self._is_stopped:
                self._thread = background_thread(self._work, "relaqs-layouts")
                self._thread.start()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no table is being laid out any more; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_seconds)

    def stop(self) -> None:
        """Lay out no more. What is being laid out ends now, and leaves nothing."""
        with self._changed:
            self._is_stopped = True
            while self._thread is not None and self._thread is not threading.current_thread():
                if self._cursor is not None:
                    self._cursor.interrupt()  # DuckDB forgets one that comes just before a statement begins
                self._changed.wait(_REPEAT_SECONDS)

    def _is_large(self, table: PlainTable) -> bool:
        return not table.is_remote and table.scan_core_seconds / self._cores > NOTABLE_SECONDS

    def _work(self) -> None:
        with suppress(AttributeError, OSError):  # where a thread has no priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        while (table := self._next()) is not None:
            self._lay_out(table)

    def _next(self) -> PlainTable | None:
        with self._changed:
            if self._due and not self._is_stopped:
                return self._due.popleft()
            self._thread = None
            self._changed.notify_all()
            return None

    def _lay_out(self, table: PlainTable) -> None:
        how = LayingOut(
            announce=lambda message: self._announce(f"{message}, while queries go on"),
            waits=False,
            threads=1,
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            begun=self._begun,
            ended=self._ended,
            progress=lambda share, doing: self._check_wanted(),
        )
        try:
            layout = lay_out(table, how)
            self._check_wanted()
        except Interrupted:
            return
        except RelaqsError as error:
            self._announce(f"{table.table} was not laid out: {error}")
            return
        self._adopt(layout)
        self._announce(f"{table.table} is laid out: from now on it has estimates before the end")

    def _begun(self, cursor: Cursor) -> None:
        with self._changed:
            self._cursor = cursor
        self._check_wanted()

    def _ended(self) -> None:
        with self._changed:
            self._cursor = None

    def _check_wanted(self) -> None:
        if self._is_stopped:
            raise Interrupted("the session is closed")


_OPEN: weakref.WeakSet[BackgroundLayouts] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop the threads before the interpreter goes: a daemon thread inside DuckDB would abort the process."""
    for layouts in list(_OPEN):
        layouts.stop()
