"""Who asks a query, and what all the queries of one user may use together.

A server says so with `asked_by` around what it submits. Logs, metrics and the status of jobs have the name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from relaqs.arguments import refusal
from relaqs.memory import memory_bytes

SMALLEST_CORES = 0.1


@dataclass(frozen=True, slots=True)
class AskingUser:
    """A user who asks.

    Attributes:
        name: "" where nobody was named.
        cores_most: what all their queries may use together.
        memory_bytes: of the databases that answer them, apart from those of others. None: they share these.
    """

    name: str = ""
    cores_most: float = math.inf
    memory_bytes: int | None = None


_ASKER: ContextVar[AskingUser] = ContextVar("relaqs-asker", default=AskingUser())  # noqa: B039 - it is frozen


def asking_user() -> AskingUser:
    """Return who asks now: the innermost `asked_by` of this thread or task says so."""
    return _ASKER.get()


@contextmanager
def asked_by(who: str, *, cores: float | None = None, memory: int | str | None = None) -> Iterator[None]:
    """Say who asks the queries that are submitted inside the block, for logs, metrics, traces and status.

    A server says so of its users. Without it, the process is named.

    Args:
        who: their name.
        cores: how many cores all their queries may use together. On threads of this process they have no
            more at once, rounded up. On a cluster they still have what nobody else asks for.
        memory: of the databases in which their queries run, apart from those of other users; in bytes or as
            "1GB". A query that needs more spills to disk, or fails. Without it they share the session's.

    Raises:
        ArgumentError: cores or memory is not accepted.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
    >>> with relaqs.connect("data", threads=1) as db, relaqs.metrics.asked_by("ann", cores=0.5):
    ...     db.online_sql("SELECT sum(x) AS total FROM numbers").result().is_exact
    True
    """
    asker = AskingUser(who, checked_cores(cores), None if memory is None else memory_bytes(memory))
    before = _ASKER.set(asker)
    try:
        yield
    finally:
        _ASKER.reset(before)


def checked_cores(cores: float | None) -> float:
    """Return how many cores a user may have, inf for None. Raises ArgumentError for what is no number."""
    if cores is None:
        return math.inf
    if isinstance(cores, bool) or not isinstance(cores, int | float) or not cores >= SMALLEST_CORES:
        raise refusal("cores", cores, f"a number of at least {SMALLEST_CORES}, such as 2 or 0.5")
    return float(cores)
