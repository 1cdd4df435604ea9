"""Witnesses: what hears of each query of a session, and takes no part in it.

A query log writes a line of each query, metrics count them, and tracing draws their spans. Example of the
calls for one query that runs for three mini-batches:

    began(asking)        planned, and about to run; on the thread of whoever asked
    folded(id, report)   three times, on the query's own thread, as is all that follows
    answered(id, 0.2)    after the first of them
    ended(record)

An exception in a witness is logged, and the query goes on.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relaqs.jobs.executor import client_name
from relaqs.jobs.feed import End
from relaqs.jobs.job import StepReport
from relaqs.queries.options import asking_user
from relaqs.queries.snapshot import Snapshot

logger = logging.getLogger("relaqs.witness")


@dataclass(frozen=True, slots=True)
class Asking:
    """A query that is about to run.

    Attributes:
        id: of its job, as in `JobStatus`.
        sql: the SELECT as it runs, with the values of parameters.
        asked_sql: the SELECT as it was written, without them.
        kind: how it is answered, such as "mergeable" or "exact".
        who: asked it; the process where no user was named.
        submitted_at: seconds since 1970.
        user: who asked it, "" where no user was named.
    """

    id: str
    sql: str
    asked_sql: str
    kind: str
    submitted_at: float
    who: str = field(default_factory=lambda: asking_user().name or client_name())
    user: str = field(default_factory=lambda: asking_user().name)


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What became of a query. All seconds count from its submission.

    Attributes:
        asking: the query.
        outcome: "exact", "stopped" or "failed".
        first_answer_seconds: when the first snapshot was there, None without one.
        seconds: when it was over.
        error: the relative error of the last snapshot, 0.0 of an exact one, None without one.
        fraction: of the rows that were read, as the last snapshot says.
        core_seconds: of the mini-batches that were folded.
        failure: the error that ended it, in words.
    """

    asking: Asking
    outcome: End
    first_answer_seconds: float | None
    seconds: float
    error: float | None
    fraction: float
    core_seconds: float
    failure: str | None


class Witness:
    """Hears of each query. Does nothing at any event: a witness of yours overrides what it cares for."""

    def began(self, asking: Asking) -> None:
        """Hear that a query is about to run. Runs on the thread of whoever asked."""

    def folded(self, id: str, report: StepReport) -> None:
        """Hear that a mini-batch was folded."""

    def answered(self, asking: Asking, seconds: float) -> None:
        """Hear that the first snapshot is there. seconds: since the submission."""

    def ended(self, record: QueryRecord) -> None:
        """Hear that a query is over."""


class Telling:
    """Tells the witnesses of one query. Without any it does nothing.

    Args:
        witnesses: of the session. Those that come later hear of the queries that come later.
        asking: the query.
        seconds: says how long ago it was submitted.
    """

    def __init__(
        self, witnesses: Sequence[Witness], asking: Callable[[], Asking], seconds: Callable[[], float]
    ) -> None:
        self._witnesses = tuple(witnesses)
        self._asking = asking
        self._told: Asking | None = None
        self._seconds = seconds
        self._first_seconds: float | None = None
        self._core_seconds = 0.0

    def began(self) -> None:
        if self._witnesses:
            self._told = asking = self._asking()
            self._tell(lambda witness: witness.began(asking))

    def folded(self, report: StepReport, has_answer: bool) -> None:
        if (asking := self._told) is None:
            return
        self._core_seconds += report.core_seconds
        self._tell(lambda witness: witness.folded(asking.id, report))
        if has_answer and self._first_seconds is None:
            self._first_seconds = seconds = self._seconds()
            self._tell(lambda witness: witness.answered(asking, seconds))

    def ended(self, outcome: End, latest: Snapshot | None, error: BaseException | None) -> None:
        if (asking := self._told) is None:
            return
        record = QueryRecord(
            asking,
            outcome,
            self._first_seconds,
            self._seconds(),
            None if latest is None or math.isnan(latest.error) else latest.error,
            0.0 if latest is None else latest.fraction,
            self._core_seconds,
            None if error is None else f"{type(error).__name__}: {error}",
        )
        self._tell(lambda witness: witness.ended(record))

    def _tell(self, say: Callable[[Witness], None]) -> None:
        for witness in self._witnesses:
            try:
                say(witness)
            except Exception:
                logger.exception("%s did not take what it was told of a query", type(witness).__name__)


def unix_seconds_of(seconds_ago: float) -> float:
    """Return when that was, in seconds since 1970."""
    return time.time() - seconds_ago
