"""The process that hostile statements are asked of: one session, and somebody else who asks a small query.

It is like a server: a session over a tiny warehouse. While a statement runs, another thread asks an ordinary
query every tenth of a second, and notes how long it had to wait.
"""

from __future__ import annotations

import faulthandler
import resource
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts import add_static, shuffle

from relaqs.opening import connect
from relaqs.queries.online_query import OnlineQuery
from relaqs.session import Session

ORDINARY = "SELECT count(*) AS n, sum(i) AS total FROM u"
MEMORY_LIMIT = "1GB"
MEMORY_BYTES = 12 << 30  # of addresses, far more than is used: what is over it fails in the process itself
_PAUSE_SECONDS = 0.1
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a statement. kind: answered, refused, timed out, or fault.

    late_seconds: the longest that the other query took meanwhile. peak_bytes: of the process so far.
    """

    kind: str
    said: str
    seconds: float
    late_seconds: float
    peak_bytes: int


def lay_out(folder: Path) -> None:
    """Write the tables t, of 20,000 rows in 8 partitions, and u, of 50."""
    rng = np.random.default_rng(0)
    rows = 20_000
    words = np.array(["alpha", "beta", "gamma ray", "delta", "", "épsilon"])
    table = pa.table(
        {
            "i": pa.array(np.arange(rows), pa.int32()),
            "g": pa.array(rng.integers(0, 50, rows), pa.int32()),
            "x": rng.integers(0, 100, rows),
            "d": rng.lognormal(size=rows),
            "s": words[rng.integers(0, len(words), rows)],
            "l": pa.array([[int(each), 1] for each in rng.integers(0, 9, rows)]),
        }
    )
    shuffle(table, folder / "t", partitions=8)
    add_static(pa.table({"i": np.arange(50), "name": [f"n{i}" for i in range(50)]}), folder / "u")


def serve(folder: Path, pipe: Connection, timeout_seconds: float) -> None:
    """Answer each text that comes through the pipe with its Outcome, until None comes."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with connect(folder, threads=2, memory_limit=MEMORY_LIMIT, result_limit="64MB") as session:
        other = _Other(session)
        pipe.send(None)
        while (sql := pipe.recv()) is not None:
            pipe.send(_outcome(session, other, sql, timeout_seconds))
        other.stop()


class _Other:
    """Somebody who asks one small query again and again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_over = threading.Event()
        self._begun_at: float | None = None
        self._worst = 0.0
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.ask()
        self._thread.start()

    def worst_seconds(self) -> float:
        """Return the longest wait since it was asked last; one that goes on counts too."""
        begun_at, worst = self._begun_at, self._worst
        self._worst = 0.0
        return max(worst, 0.0 if begun_at is None else time.perf_counter() - begun_at)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._is_over.wait(_PAUSE_SECONDS):
            try:
                self.ask()
            except BaseException as error:
                self.fault = error

    def ask(self) -> None:
        """Ask once, from any thread."""
        begun_at = self._begun_at = time.perf_counter()
        # A comment of its own: a plan that is kept would not be planned again.
        self._session.online_sql(f"{ORDINARY} -- {begun_at}").result(timeout=60)
        self._begun_at = None
        self._worst = max(self._worst, time.perf_counter() - begun_at)


def _outcome(session: Session, other: _Other, sql: str, timeout_seconds: float) -> Outcome:
    other.worst_seconds()
    begun_at = time.perf_counter()
    query: OnlineQuery | None = None
    try:
        query = session.online_sql(sql, timeout=timeout_seconds)
        snapshot = query.result()
        kind, said = "answered", f"{snapshot.table.num_rows} rows"
    except RelaqsError as error:
        kind, said = ("timed out" if isinstance(error, TimeoutError) else "refused"), str(error)
    except BaseException as error:
        kind, said = "fault", f"{type(error).__name__}: {error}"
    if query is not None and not query.wait(_END_SECONDS):
        kind, said = "fault", f"its work goes on after {_END_SECONDS:.0f} s"
    seconds = time.perf_counter() - begun_at
    other.ask()  # whatever goes on somewhere would be in its way
    late = other.worst_seconds()
    if other.fault is not None:
        kind, said, other.fault = "fault", f"the other query failed: {other.fault!r}", None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Outcome(kind, said, seconds, late, peak)
