"""What a terminal shows while there is no answer yet, and how ctrl-C ends that.

Commands that take a while have a progress bar on standard error, where a person watches. While files are
read for a first answer, a line says how far that is.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_engine.layouts.file_kinds import kind_by_name

from relaqs.cli.parameters import DataPath, said
from relaqs.rendering.rounding import show_percent

if TYPE_CHECKING:
    from relaqs_engine.layouts.manifest import Table

    from relaqs.queries.online_query import OnlineQuery
    from relaqs.queries.snapshot import Snapshot
    from relaqs.session import Session


@contextmanager
def progress_bar() -> Iterator[Callable[[float, str], None]]:
    """Yield a function that shows which share of the whole, in 0..1, is done, and what is being done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:28}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda share, doing: bar.update(task, description=doing, completed=share)


_EXACT = 1e-9  # an error that the exact answer alone has
QUIET_SECONDS = 0.5  # what takes less time needs no line
_REDRAW_SECONDS = 0.1
_PATIENCE_SECONDS = 0.5
_MOST_SHOWN = 0.99  # the last percent is the answer
_COUNTERS = Path("/proc/self/io")  # Linux has it; elsewhere no share is shown


@contextmanager
def opening_shown(data: DataPath) -> Iterator[None]:
    """Show inside the block that tables are opened. Ctrl-C then ends the program within a second.

    DuckDB does not hear it while it looks for the types of all rows of a file.
    """
    with _shown(_Clock(f"opening {said(data)}")) as end, _leaving_at_once(end):
        yield


def shown_until_first(snapshots: Iterable[Snapshot], doing: Doing) -> Iterator[Snapshot]:
    """Yield the snapshots of a query. Until the first is there, show what the query does."""
    coming = iter(snapshots)
    with _shown(doing):
        first = list(islice(coming, 1))
    yield from first
    yield from coming


class _Clock:
    """A line that says what is done, and for how long."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._begun_seconds = time.perf_counter()

    def __str__(self) -> str:
        return f"{_clock(time.perf_counter() - self._begun_seconds)} · {self._doing}"


class Doing:
    """What a running query does, in a line that is true when it is asked for: `0.3 s · reading numbers`."""

    def __init__(self, running: OnlineQuery, session: Session) -> None:
        self._running = running
        self._begun_seconds = time.perf_counter()
        self._byte_count = _text_bytes(session.tables.get(name) for name in running.plan.plain_tables)
        self._begun_bytes = _bytes_read()

    @property
    def seconds(self) -> float:
        """For how long it has been running."""
        return time.perf_counter() - self._begun_seconds

    def __str__(self) -> str:
        return " · ".join(filter(None, (_clock(self.seconds), self._what(), self._left())))

    def _what(self) -> str:
        plan = self._running.plan
        names = [stream.table for stream in plan.streams] or list(plan.plain_tables)
        what = f"reading {', '.join(names)}" if names and self._running.latest is None else ""
        if not plan.is_estimated and self._running.latest is not None:
            what = "running the whole query"
        return " ".join(filter(None, (what, self._share_of_texts())))

    def _share_of_texts(self) -> str:
        now = _bytes_read()
        if not self._byte_count or now is None or self._begun_bytes is None:
            return ""
        return f"{min(_MOST_SHOWN, (now - self._begun_bytes) / self._byte_count):.0%}"

    def _left(self) -> str:
        """Return when the answer is as good as it is to be, as far as that is known."""
        newest, target = self._running.latest, self._running.target
        if newest is None or newest.is_exact:
            return ""
        left = newest.expected(target or _EXACT).seconds - (self.seconds - newest.elapsed_seconds)
        goal = f"± {show_percent(target)}" if target else "exact"
        return f"{goal} in about {_rounded(left)}" if 0.0 < left < math.inf else ""


def _clock(seconds: float) -> str:
    return f"{seconds:.{1 if seconds < 60 else 0}f} s"


def _rounded(seconds: float) -> str:
    """Return a time to one digit or two, since it is a guess."""
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"


def _text_bytes(tables: Iterable[Table | None]) -> int:
    """Return the bytes of the CSV and JSON files among those of tables."""
    states = {state for table in tables if table is not None for state in table.states}
    kinds = ((kind_by_name(Path(path)), byte_count) for path, byte_count, _ in states)
    return sum(byte_count for kind, byte_count in kinds if kind is not None and kind.is_text)


@contextmanager
def _shown(doing: object) -> Iterator[Callable[[], None]]:
    """Show a line inside the block, on a terminal, once it takes a while. Yield what ends it before."""
    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(doing, ended), daemon=True)

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


def _draw(doing: object, ended: threading.Event) -> None:
    if ended.wait(QUIET_SECONDS):
        return
    from rich.console import Console
    from rich.live import Live  # what is there soon needs no line
    from rich.text import Text

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        while not ended.wait(_REDRAW_SECONDS):
            live.update(Text(str(doing), style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)


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
