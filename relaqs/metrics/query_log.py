"""A log of queries: one line of JSON for each that is over.

    {"version": 1, "id": "5f…", "who": "ann", "sql": "SELECT …", "submitted_at": "2026-01-31T12:00:00.000Z" …

The fields are those of `LINE_FIELDS`, in this order. A version may get more fields. None changes its
meaning, or goes, without a new version.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import threading
from datetime import UTC, datetime
from typing import Self

from relaqs.queries.online_query import QueryRecord, Witness

logger = logging.getLogger("relaqs.metrics")

LINE_VERSION = 1
LINE_FIELDS = (
    "version",
    "id",
    "who",
    "sql",
    "submitted_at",
    "kind",
    "outcome",
    "first_answer_seconds",
    "seconds",
    "error",
    "fraction",
    "core_seconds",
    "failure",
)


class QueryLog(Witness):
    """Writes a line to a file for each query of a session. A context manager.

    Several processes may write to one file. Only its owner may read a file that it makes.

    Args:
        path: the file. Lines are added at its end.
        with_values: write the values of parameters, too. Without it, SQL is as it was written, and so is the
            error's message left out of a query that had parameters.

    >>> import json
    >>> from relaqs.metrics import QueryLog
    >>> with relaqs.connect("data", threads=1) as db, QueryLog("asked.jsonl") as log:
    ...     db.witnesses.append(log)
    ...     query = db.online_sql("SELECT sum(x) AS total FROM numbers WHERE x > ?", params=[7])
    ...     done = query.result(), query.wait()
    >>> line = json.loads(open("asked.jsonl").readline())
    >>> line["sql"], line["outcome"], line["error"]
    ('SELECT sum(x) AS total FROM numbers WHERE x > ?', 'exact', 0.0)
    """

    def __init__(self, path: str | os.PathLike[str], *, with_values: bool = False) -> None:
        self._with_values = with_values
        self._lock = threading.Lock()
        self._is_lossy = False
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def ended(self, record: QueryRecord) -> None:
        """Write the line, whole or not at all. Where lines are lost, that is said once."""
        line = (json.dumps(_line(record, with_values=self._with_values), allow_nan=False) + "\n").encode()
        with self._lock:
            if self._file is None:
                return
            failure = _append(self._file, line)
        if failure is not None and not self._is_lossy:
            logger.warning("the query log cannot be written, and lines are lost: %s", failure)
        self._is_lossy = failure is not None

    def close(self) -> None:
        """Write no more. Queries that are not over leave no line. The second call does nothing."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _append(file: int, line: bytes) -> OSError | None:
    """Add a line to a file, by one call, so that lines of several processes do not mix.

    Return why it could not be done. A disk that is full has taken a part of it then, which is cut off.
    """
    try:
        written = os.write(file, line)
        if written == len(line):
            return None
        end = os.lseek(file, 0, os.SEEK_CUR)
        if os.fstat(file).st_size == end:  # nobody has written behind it
            os.ftruncate(file, end - written)
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        return error


def _line(record: QueryRecord, *, with_values: bool) -> dict[str, object]:
    asking = record.asking
    has_values = asking.sql != asking.asked_sql
    moment = datetime.fromtimestamp(asking.submitted_at, UTC)
    values = (
        LINE_VERSION,
        asking.id,
        asking.who,
        asking.sql if with_values else asking.asked_sql,
        moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        asking.kind,
        record.outcome,
        _rounded(record.first_answer_seconds),
        _rounded(record.seconds),
        None if record.error is None or math.isinf(record.error) else record.error,
        record.fraction,
        _rounded(record.core_seconds),
        _told(record.failure, hide=has_values and not with_values),
    )
    return dict(zip(LINE_FIELDS, values, strict=True))


def _told(failure: str | None, *, hide: bool) -> str | None:
    """Return why it failed. hide: tell the kind of error alone, since messages quote values."""
    return failure.partition(":")[0] if failure is not None and hide else failure


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
