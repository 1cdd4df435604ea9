"""What a terminal shows while there is no answer yet, and how ctrl-C ends that.

Commands that take a while have a progress bar on standard error, where a person watches. While files are
read for a first answer, a line says how far that is.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_engine.layouts.file_kinds import kind_by_name
from relaqs_engine.layouts.plain import PlainTable

if TYPE_CHECKING:
    from relaqs_engine.layouts.manifest import Layout

    from relaqs.queries.online_query import OnlineQuery
    from relaqs.queries.snapshot import Snapshot
    from relaqs.session import Session


@contextmanager
def progress_bar(*, is_measured: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Yield a function that shows which share of the whole, in 0..1, is done, and what is being done.

    is_measured: whether the share is known. If not, the bar shows only that something is done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:28}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0 if is_measured else None)
        yield lambda share, doing: bar.update(task, description=doing, completed=share)


_QUIET_SECONDS = 0.5  # what takes less time needs no bar
_REDRAW_SECONDS = 0.1
_PATIENCE_SECONDS = 0.5
_MOST_SHOWN = 0.99  # the last percent is the answer
_COUNTERS = Path("/proc/self/io")  # Linux has it; elsewhere no share is shown


@contextmanager
def opening_shown(data: str | Path) -> Iterator[None]:
    """Show inside the block that tables are opened. Ctrl-C then ends the program within a second.

    DuckDB does not hear it while it looks for the types of all rows of a file.
    """
    with _shown(f"opening {data}") as end, _leaving_at_once(end):
        yield


def shown_until_first(running: OnlineQuery, session: Session) -> Iterator[Snapshot]:
    """Yield the snapshots of a query. Until the first is there, show how much of its text files was read."""
    snapshots = iter(running)
    byte_count = _text_bytes(session.tables.get(name) for name in running.plan.plain_tables)
    with _shown("reading", byte_count):
        first = list(islice(snapshots, 1))
    yield from first
    yield from snapshots


def _text_bytes(tables: Iterable[Layout | None]) -> int:
    """Return the bytes of the CSV and JSON files among those of tables."""
    states = {state for table in tables if isinstance(table, PlainTable) for state in table.states}
    kinds = ((kind_by_name(Path(path)), byte_count) for path, byte_count, _ in states)
    return sum(byte_count for kind, byte_count in kinds if kind is not None and kind.is_text)


@contextmanager
def _shown(doing: str, byte_count: int = 0) -> Iterator[Callable[[], None]]:
    """Show a bar inside the block, on a terminal, once it takes a while. Yield what ends it before.

    byte_count: how many bytes will be read, 0 where nothing is known of them.
    """
    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(doing, byte_count, ended), daemon=True)

    def end() -> None:
        ended.set()
        drawing.join()

    if not sys.stderr.isatty():
        yield ended.set
        return
    drawing.start()
    try:
        yield end
    finally:
        end()


def _draw(doing: str, byte_count: int, ended: threading.Event) -> None:
    begun = _bytes_read()
    if ended.wait(_QUIET_SECONDS):
        return

    with progress_bar(is_measured=byte_count > 0 and begun is not None) as show:
        while not ended.wait(_REDRAW_SECONDS):
            share = ((_bytes_read() or 0) - (begun or 0)) / max(1, byte_count)
            show(min(_MOST_SHOWN, share), doing)


def _bytes_read() -> int | None:
    """Return how many bytes this process has read from files so far, None where nothing says so."""
    try:
        counters = _COUNTERS.read_text(encoding="ascii")
    except OSError:
        return None
    return int(counters.split()[1])


@contextmanager
def _leaving_at_once(end: Callable[[], None]) -> Iterator[None]:
    """Leave the process if the block does not end soon after ctrl-C or SIGTERM. `end` is called before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left = threading.Event()
    heard, signals = socket.socketpair()  # Windows takes no pipe
    signals.setblocking(False)
    before = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
    listening = threading.Thread(target=_leave, args=(heard, left, end), daemon=True)
    listening.start()
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(before)
        signals.close()
        listening.join()
        heard.close()


def _leave(heard: socket.socket, left: threading.Event, end: Callable[[], None]) -> None:
    """Wait for a signal. What is half made is known by its name, and the next start removes it."""
    while numbers := heard.recv(1):
        if numbers[0] in (signal.SIGINT, signal.SIGTERM) and not left.wait(_PATIENCE_SECONDS):
            end()
            os._exit(128 + numbers[0])
