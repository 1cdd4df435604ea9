"""Cursors of SQL: DECLARE keeps an answer, FETCH sends some of its rows, CLOSE forgets it.

Drivers page through large answers in this way: psycopg2's named cursors, SQLAlchemy's `stream_results`.
A cursor goes forward only. It ends with its transaction unless it was declared WITH HOLD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from relaqs.serve.answering import Reply
from relaqs.serve.failures import FULL, RefusedError

_MOST = 16  # open at once on a connection: each holds an answer
_UNKNOWN, _TWICE, _NO_TRANSACTION = "34000", "42P03", "25P01"


@dataclass(slots=True)
class _Cursor:
    reply: Reply
    is_held: bool
    sent: int = 0


class Cursors:
    """The cursors of one connection."""

    def __init__(self) -> None:
        self._open: dict[str, _Cursor] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def check(self, name: str, *, is_held: bool, in_transaction: bool) -> None:
        """Raise RefusedError if no cursor of this name can be declared now."""
        if name in self._open:
            raise RefusedError(_TWICE, f"there is a cursor {name!r} already; close it, or take another name")
        if not is_held and not in_transaction:
            raise RefusedError(
                _NO_TRANSACTION, "a cursor needs a transaction; say BEGIN before, or declare it WITH HOLD"
            )
        if len(self._open) >= _MOST:
            raise RefusedError(FULL, f"{_MOST} cursors are open, the most allowed; close some")

    def keep(self, name: str, reply: Reply, *, is_held: bool) -> None:
        """Open a cursor on an answer."""
        self._open[name] = _Cursor(reply, is_held)

    def reply(self, name: str) -> Reply:
        """Return what a cursor keeps of its answer. Raises RefusedError where there is none."""
        return self._find(name).reply

    def fetch(self, name: str, most_rows: int | None) -> Reply:
        """Return the next rows, all that are left for None. After the last one no row is kept."""
        cursor = self._find(name)
        whole = cursor.reply
        rows = replace(whole, table=whole.table.slice(cursor.sent, most_rows))
        cursor.sent += rows.table.num_rows
        if cursor.sent == whole.table.num_rows:
            no_rows = pa.Table.from_batches([], whole.table.schema)
            cursor.reply, cursor.sent = replace(whole, table=no_rows, holding=None), 0
        return rows

    def close(self, name: str | None) -> None:
        """Forget a cursor, all for None."""
        if name is None:
            self._open.clear()
        else:
            self._find(name)
            del self._open[name]

    def names(self) -> frozenset[str]:
        """Return the names of those that are open."""
        return frozenset(self._open)

    def keep_only(self, names: frozenset[str]) -> None:
        """Forget those that have none of these names: they were declared after a savepoint."""
        self._open = {name: each for name, each in self._open.items() if name in names}

    def end_transaction(self) -> None:
        """Forget those that end with their transaction."""
        self._open = {name: each for name, each in self._open.items() if each.is_held}

    def _find(self, name: str) -> _Cursor:
        if name not in self._open:
            raise RefusedError(_UNKNOWN, f"there is no cursor {name!r}; declare it first")
        return self._open[name]
