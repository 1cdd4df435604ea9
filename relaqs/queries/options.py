"""What a query may be asked for, checked before anything starts.

Who asks a query, and what all the queries of one user may use together.

A server says so with `asked_by` around what it submits. Logs, metrics and the status of jobs have the name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

from relaqs_engine.errors import SqlError
from relaqs_engine.execution.estimate import Judge, Weighting
from relaqs_engine.plans.plan import OnlinePlan, OutputKind

from relaqs.arguments import (
    ArgumentError,
    check_budget,
    check_count,
    check_priority,
    check_seconds,
    is_number,
    is_whole,
    refusal,
    share_of_weight,
)
from relaqs.memory import memory_bytes
from relaqs.queries.snapshot import ConfidenceFor, Interval, Snapshot

SMALLEST_CORES = 0.1


@dataclass(frozen=True, slots=True)
class AskingUser:
    """A user who asks.

    Attributes:
        name: "" where nobody was named.
        cores_most: what all their queries may use together.
        memory_bytes: of the databases that answer them, apart from those of others. None: they share these.
        budget: the most that each query may ask costly functions, as `online_sql` takes it; 0 for nothing.
    """

    name: str = ""
    cores_most: float = math.inf
    memory_bytes: int | None = None
    budget: float | str | None = None


_ASKER: ContextVar[AskingUser] = ContextVar("relaqs-asker", default=AskingUser())  # noqa: B039 - it is frozen


def asking_user() -> AskingUser:
    """Return who asks now: the innermost `asked_by` of this thread or task says so."""
    return _ASKER.get()


@contextmanager
def asked_by(
    who: str,
    *,
    cores: float | None = None,
    memory: int | str | None = None,
    budget: float | str | None = None,
) -> Iterator[None]:
    """Say who asks the queries that are submitted inside the block, for logs, metrics, traces and status.

    A server says so of its users. Without it, the process is named.

    Args:
        who: their name.
        cores: how many cores all their queries may use together. On threads of this process they have no
            more at once, rounded up. On a cluster they still have what nobody else asks for.
        memory: of the databases in which their queries run, apart from those of other users; in bytes or as
            "1GB". A query that needs more spills to disk, or fails. Without it they share the session's.
        budget: the most that each query may ask costly functions: a number of calls, or money such as "$3";
            0 for nothing.

    Raises:
        ArgumentError: cores, memory or budget is not accepted.

    >>> with relaqs.connect("data", threads=1) as db, relaqs.metrics.asked_by("ann", cores=0.5):
    ...     db.online_sql("SELECT sum(x) AS total FROM numbers").result().is_exact
    True
    """
    memory = None if memory is None else memory_bytes(memory)
    if budget != 0:
        check_budget(budget)
    asker = AskingUser(who, checked_cores(cores), memory, budget)
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


Fallback = Literal["exact", "error"]
ErrorFunction = Callable[[Snapshot, Snapshot], float]
Watch = str | Sequence[str] | ErrorFunction
_CHOICES = {
    "interval": Interval,
    "confidence_for": ConfidenceFor,
    "fallback": Fallback,
    "judged_by": Weighting,
}


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The keyword arguments of `Session.online_sql`, which describes them. They are checked when it is made.

    Raises:
        ArgumentError: naming the first argument that is not accepted.

    >>> QueryOptions(confidence=1.5)
    Traceback (most recent call last):
        ...
    relaqs.arguments.ArgumentError: confidence is 1.5; it must be a number between 0.5 and 1, such as 0.95
    """

    target: float | None = None
    confidence: float = 0.95
    interval: Interval = "pointwise"
    priority: float = 1.0
    watch: tuple[str, ...] | ErrorFunction | None = None
    timeout: float | None = None
    seed: int = 0
    batches: int | None = None
    fallback: Fallback = "exact"
    chart_pixels: int | None = None
    judged_by: Weighting = "rows"
    share: float = 0.95
    within: float | None = None
    confidence_for: ConfidenceFor = "cell"
    budget: float | str | None = None

    @property
    def judge(self) -> Judge:
        """How the cells' errors become one."""
        return Judge(self.judged_by, self.share, together=self.confidence_for == "table")

    @property
    def wants_the_end_only(self) -> bool:
        """Whether nothing is asked that estimates before the exact answer are needed for."""
        asked = (self.target, self.within, self.watch, self.timeout, self.batches, self.chart_pixels)
        usual = (self.interval, self.confidence_for, self.fallback) == ("pointwise", "cell", "exact")
        return usual and all(each is None for each in asked)

    def __post_init__(self) -> None:
        if not is_number(self.confidence) or not 0.5 < self.confidence < 1:
            raise refusal("confidence", self.confidence, "a number between 0.5 and 1, such as 0.95")
        if self.target is not None and not is_number(self.target):
            raise refusal("target", self.target, "a number, such as 0.01 for 1 %")
        share_of_weight(self.share)
        for name, kind in _CHOICES.items():
            choices = get_args(kind)
            if getattr(self, name) not in choices:
                raise refusal(name, getattr(self, name), " or ".join(map(repr, choices)))
        check_priority(self.priority)
        for name in ("timeout", "within"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        if self.within is not None and self.target is None:
            raise ArgumentError(
                f"within is {self.within!r}, but there is no target to reach by then; give target=0.01, "
                f"or timeout={self.within!r} to stop with the best answer there is"
            )
        check_budget(self.budget)
        if not is_whole(self.seed) or self.seed < 0:
            raise refusal("seed", self.seed, "a whole number from 0 on")
        for name in ("batches", "chart_pixels"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))


def watched(watch: Watch | None) -> tuple[str, ...] | ErrorFunction | None:
    """Return column names as a tuple (one name stands for itself); a function and None as they are."""
    if watch is None or callable(watch):
        return watch
    names = (watch,) if isinstance(watch, str) else tuple(watch)
    if not names or not all(isinstance(name, str) for name in names):
        raise refusal("watch", watch, "names of approximate columns, or a function of two snapshots")
    return names


def watched_columns(
    plan: OnlinePlan, watch: tuple[str, ...] | ErrorFunction | None
) -> tuple[str, ...] | None:
    """Return the names as the answer has them; None where all columns or a function are watched."""
    if watch is None or callable(watch):
        return None
    known = {
        output.name.lower(): output.name
        for output in plan.outputs
        if not plan.is_estimated or output.kind is not OutputKind.KEY
    }
    for name in watch:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, cutoff=0.5)
            raise SqlError(
                f"watch names {name!r}; the approximate columns are {', '.join(known.values()) or 'none'}",
                candidates=tuple(known[each] for each in near),
            )
    return tuple(known[name.lower()] for name in watch)
