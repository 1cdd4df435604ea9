"""What connections keep by names: prepared statements with and without values, cursors, savepoints, channels.

A cursor of SQL keeps an answer: DECLARE makes it, FETCH sends some of its rows, CLOSE forgets it. Drivers
page through large answers in this way: psycopg2's named cursors, SQLAlchemy's `stream_results`. A cursor goes
forward only. It ends with its transaction unless it was declared WITH HOLD.

A savepoint is a place in a transaction that a failed one goes back to, and then takes statements again.
Nothing is written here, so going back gives the settings of that time, and forgets later cursors. Drivers
make them where one transaction is opened inside of another: psycopg, SQLAlchemy's `begin_nested`, Django.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pygwire.messages import FieldDescription, NotificationResponse, RowDescription
from relaqs_engine.duck import quote_text

from relaqs.serve import values
from relaqs.serve.answering import Reply, ReplyColumn
from relaqs.serve.column_types import type_name
from relaqs.serve.encoded_rows import AnswerRows
from relaqs.serve.failures import BAD_VALUE, FULL, PROTOCOL_VIOLATION, RefusedError
from relaqs.serve.quotas import Holding
from relaqs.serve.settings import KeptSettings
from relaqs.serve.statements import Request

_MOST_CURSORS = 16  # open at once on a connection: each holds an answer
_UNKNOWN_CURSOR, _TWICE, _NO_TRANSACTION = "34000", "42P03", "25P01"
_MOST_SAVEPOINTS = 1000
_UNKNOWN_SAVEPOINT = "3B001"
_MOST_SAID, _MOST_SAID_BYTES = 1000, 8000  # notifications that wait, and the text of one
_Pending: TypeAlias = NotificationResponse | tuple[str | None, bool]
_MOST_UNSENT_BYTES = 1 << 18  # to a client that reads nothing


class Channels:
    """Who of the connections of one process listens to what: LISTEN and NOTIFY."""

    def __init__(self) -> None:
        self.listeners: dict[str, set[ChannelMember]] = {}


class ChannelMember:
    """What one connection says in channels, and hears there.

    Args:
        channels: of its process.
        process_id: by which others know it.
        may_tell: returns whether its client may be told now: it has no transaction, and nothing runs.
        send: tells the client.
        unsent_bytes: returns how much of what was sent the client has not taken.
    """

    def __init__(
        self,
        channels: Channels,
        process_id: int,
        may_tell: Callable[[], bool],
        send: Callable[[NotificationResponse], None],
        unsent_bytes: Callable[[], int],
    ) -> None:
        self._listeners, self._process_id = channels.listeners, process_id
        self._may_tell, self._send, self._unsent_bytes = may_tell, send, unsent_bytes
        self._tells_again = False
        self._heard: list[NotificationResponse] = []  # and not told
        self.pending: list[_Pending] = []  # till the transaction ends: NOTIFY, and (un)LISTEN

    def listen(self, channel: str | None, *, is_on: bool) -> None:
        """Begin or end to hear what is said in a channel, or in all."""
        for each in [*self._listeners] if channel is None else [channel]:
            listeners = self._listeners.setdefault(each, set())
            (listeners.add if is_on else listeners.discard)(self)
            if not listeners:
                del self._listeners[each]

    def say(self, channel: str, payload: str) -> None:
        """Say something when the transaction ends. Raises RefusedError where it is too long or too much."""
        if not 0 < len(channel.encode()) < 64 or len(payload.encode()) >= _MOST_SAID_BYTES:
            limits = f"a channel has up to 63 bytes, and what is said there {_MOST_SAID_BYTES - 1:,}"
            raise RefusedError(BAD_VALUE, limits)
        for listener in self._listeners.get(channel, ()):
            if len(listener._heard) + len(self.pending) >= _MOST_SAID:
                raise RefusedError("54000", f"{_MOST_SAID} notifications wait for a listener of {channel!r}")
        self.at_end(NotificationResponse(self._process_id, channel, payload))

    def at_end(self, what: _Pending) -> None:
        """Say, or begin or end to hear, when the transaction ends."""
        if len(self.pending) >= _MOST_SAID:
            raise RefusedError(FULL, f"{_MOST_SAID} notifications wait for COMMIT, the most allowed")
        if isinstance(what, tuple) or what not in self.pending:
            self.pending.append(what)

    def end_transaction(self, *, is_rolled_back: bool = False) -> None:
        """Listen and say what waits for it, unless it is rolled back, and tell what was heard."""
        pending, self.pending = [] if is_rolled_back else self.pending, []
        for each in sorted(pending, key=lambda each: not isinstance(each, tuple)):
            if isinstance(each, tuple):
                self.listen(each[0], is_on=each[1])
                continue
            for listener in tuple(self._listeners.get(each.channel, ())):
                listener._heard.append(each)
                listener.tell()
        self.tell()

    def tell(self, *, is_again: bool = False) -> None:
        """Tell the client what was heard, if it may be told now. Where it reads nothing, look again."""
        self._tells_again &= not is_again
        while self._heard and self._may_tell():
            if self._unsent_bytes() > _MOST_UNSENT_BYTES:
                if not self._tells_again:
                    again = partial(self.tell, is_again=True)
                    asyncio.get_running_loop().call_later(0.2, again)  # seconds
                self._tells_again = True
                return
            self._send(self._heard.pop(0))


@dataclass(slots=True)
class Prepared:
    """A statement that a client may run again and again.

    Attributes:
        request: None where the text is empty.
        type_oids: of its parameters.
        columns: of its answer, once the client was told.
        holding: of the memory of its text.
        sql: its text.
        is_of_sql: whether PREPARE made it.
        made_at: the seconds since 1970 when it was prepared.
    """

    request: Request | None
    type_oids: tuple[int, ...] = ()
    columns: tuple[ReplyColumn, ...] | None = None
    holding: Holding | None = None
    sql: str = ""
    is_of_sql: bool = False
    made_at: float = field(default_factory=time.time)


def select_of(prepared: Mapping[str, Prepared]) -> str | None:
    """Return what pg_prepared_statements has, as a SELECT; None where nothing is prepared by a name."""
    rows = [
        f"({quote_text(name)}, {quote_text(each.sql)}, to_timestamp({each.made_at}), "
        f"CAST([{', '.join(quote_text(type_name(oid)) for oid in each.type_oids)}] AS VARCHAR[]), "
        f"{each.is_of_sql}, 0, 0)"
        for name, each in prepared.items()
        if name
    ]
    names = "name, statement, prepare_time, parameter_types, from_sql, generic_plans, custom_plans"
    return f"SELECT * FROM (VALUES {', '.join(rows)}) AS v({names})" if rows else None


@dataclass(slots=True)
class Portal:
    """A prepared statement with values for its parameters.

    Attributes:
        formats: of the answer's columns, as the client gave them.
        holding: of the memory of the values.
        rows: of the answer, once it runs.
        rows_holding: of their memory.
        sent: how many of them were sent.
    """

    prepared: Prepared
    bound: tuple[Any, ...]
    formats: tuple[int, ...]
    holding: Holding | None = None
    rows: AnswerRows | None = None
    rows_holding: Holding | None = None
    sent: int = 0

    def pass_over(self, most_rows: int | None) -> int:
        """Leave out the next rows, all that are left for None. Return how many they are."""
        assert self.rows is not None
        left = max(0, self.rows.row_count - self.sent)
        passed = left if most_rows is None else min(left, most_rows)
        self.sent += passed
        return passed

    def forget_rows(self) -> None:
        """Keep no row of the answer any more: all were sent."""
        assert self.rows is not None
        self.rows.forget()
        self.rows_holding = None


def formats_of(given: Sequence[int], count: int) -> tuple[int, ...]:
    """Return a format for each of so many values: none given is text, one given is for all."""
    if not given:
        return (values.TEXT,) * count
    if len(given) == 1:
        return (given[0],) * count
    if len(given) != count:
        raise RefusedError(PROTOCOL_VIOLATION, f"{len(given)} formats were given for {count} values")
    return tuple(given)


def row_description(columns: Sequence[ReplyColumn], formats: Sequence[int]) -> RowDescription:
    return RowDescription(
        [
            FieldDescription(
                name=column.name.replace("\0", " "),
                type_oid=column.kind.oid,
                type_size=column.kind.size_bytes,
                type_modifier=column.kind.modifier,
                format_code=format_,
            )
            for column, format_ in zip(columns, formats_of(formats, len(columns)), strict=True)
        ]
    )


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
        if len(self._open) >= _MOST_CURSORS:
            raise RefusedError(FULL, f"{_MOST_CURSORS} cursors are open, the most allowed; close some")

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
            raise RefusedError(_UNKNOWN_CURSOR, f"there is no cursor {name!r}; declare it first")
        return self._open[name]


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A place in a transaction: its name, and the settings, cursors and notifications of that time."""

    name: str
    settings: KeptSettings
    cursors: frozenset[str]
    pending_count: int


class Savepoints:
    """The savepoints of one transaction. The later of two with one name hides the earlier, as in Postgres."""

    def __init__(self) -> None:
        self._places: list[KeptPlace] = []

    def keep(self, place: KeptPlace) -> None:
        """Add a place. Raises RefusedError if there are too many."""
        if len(self._places) >= _MOST_SAVEPOINTS:
            raise RefusedError(
                FULL, f"{_MOST_SAVEPOINTS} savepoints are kept, the most allowed; release some"
            )
        self._places.append(place)

    def release(self, name: str) -> None:
        """Forget a place and all after it. Raises RefusedError where there is none of this name."""
        del self._places[self._find(name) :]

    def back_to(self, name: str) -> KeptPlace:
        """Return a place, and forget all after it. Raises RefusedError where there is none of this name."""
        position = self._find(name)
        del self._places[position + 1 :]
        return self._places[position]

    def clear(self) -> None:
        """Forget all, at the end of the transaction."""
        self._places.clear()

    def _find(self, name: str) -> int:
        for position in reversed(range(len(self._places))):
            if self._places[position].name == name:
                return position
        raise RefusedError(_UNKNOWN_SAVEPOINT, f"there is no savepoint {name!r}; say SAVEPOINT {name} before")


def check_transaction(tag: str, *, in_transaction: bool) -> None:
    """Raise RefusedError for a statement about savepoints outside of a transaction."""
    if not in_transaction:
        raise RefusedError(_NO_TRANSACTION, f"{tag} of a savepoint needs a transaction; say BEGIN before")
