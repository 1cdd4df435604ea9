"""What the statements of a text ask for: an answer, a setting, a transaction, or what this server has not.

A statement may also ask about its own answer, in columns of which tools draw error bars:

    SELECT origin, avg(delay) AS delay, relaqs.low(avg(delay)) AS low, relaqs.high(avg(delay)) AS high,
        relaqs.error() AS error FROM flights GROUP BY origin

`relaqs.low(x)` and `relaqs.high(x)` are the ends of x's interval, both x itself once that is exact.
`relaqs.error()` is the error of the whole answer, `relaqs.is_exact()` says whether it has none, and
`relaqs.rows_read()` how many rows were read for it. They stand in the list of the outermost SELECT. Before
the statement is planned each gives its place to what it is about, so that all other places stay.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from relaqs_engine.postgres.wording import (
    SchemaCall,
    TextEdit,
    between_commas,
    edited,
    names_used,
    schema_calls,
    sorted_by,
    tokens_or_none,
)
from relaqs_engine.sql.read import Statement, check_text, statements_of

from relaqs.serve.column_types import BOOL, FLOAT8, INT8, ColumnType, is_number
from relaqs.serve.copy_out import CopyForm, copied
from relaqs.serve.failures import NOT_SUPPORTED, READ_ONLY, SYNTAX_ERROR, UNKNOWN_FUNCTION, RefusedError


@dataclass(frozen=True, slots=True)
class Explain:
    """How an answer comes is asked for. is_json: as JSON. is_timed: the query is to run, and is timed."""

    is_json: bool = False
    is_timed: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """A query. where: its place in the text, for errors. explained: set where how it is answered is asked."""

    sql: str
    where: Statement
    explained: Explain | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A query whose rows go out as one stream. form: how they are written."""

    select: Select
    form: CopyForm


@dataclass(frozen=True, slots=True)
class Set:
    """A setting's new value; None for the value at the start. tag: what the client is told at the end."""

    name: str
    value: str | None
    is_local: bool = False
    tag: str = "SET"


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET ALL and DISCARD ALL. tag: what the client is told at the end."""

    tag: str


@dataclass(frozen=True, slots=True)
class Show:
    """A setting's value; "all" for all of them."""

    name: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """The begin or end of a transaction, or how it is isolated. tag: BEGIN, COMMIT, ROLLBACK or SET.

    modes: settings and their values.
    """

    tag: str
    modes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A place in a transaction. tag: SAVEPOINT makes it, RELEASE forgets it, ROLLBACK goes back to it."""

    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class Deallocate:
    """A prepared statement is not needed any more; None for all of them."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """A query that is kept by a name. types: of its parameters, as they were written. text: all of it."""

    name: str
    types: tuple[str, ...]
    select: Select
    text: str


@dataclass(frozen=True, slots=True)
class Perform:
    """A prepared query is to run. given: the values of its parameters, as they were written."""

    name: str
    given: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listen:
    """What others say in a channel is to be told. channel: None is all of them. is_on: False ends it."""

    channel: str | None
    is_on: bool


@dataclass(frozen=True, slots=True)
class Notify:
    """Something is to be told to those who listen to a channel."""

    channel: str
    payload: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """A statement that changes nothing here. tag: what the client is told at its end."""

    tag: str


@dataclass(frozen=True, slots=True)
class Declare:
    """A cursor on a query. is_held: it outlives its transaction."""

    name: str
    select: Select
    is_held: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """The next rows of a cursor, None for all. is_sent: False only passes them over."""

    name: str
    most_rows: int | None
    is_sent: bool


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """A cursor is not needed any more; None for all of them."""

    name: str | None


@dataclass(frozen=True, slots=True)
class StopOther:
    """Another connection of the same user is to stop its query, or to end.

    given: by which number it is known; what a parameter says where it is None. function: that was called.
    """

    given: int | None
    function: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing is to happen for so many seconds; for as many as a parameter says where it is None."""

    given: float | None


_OfCursor: TypeAlias = Declare | Fetch | CloseCursor
_OfTransaction: TypeAlias = Transaction | Savepoint
Request: TypeAlias = (
    Select
    | Copy
    | _OfCursor
    | StopOther
    | Sleep
    | Set
    | Reset
    | Show
    | _OfTransaction
    | Prepare
    | Perform
    | Deallocate
    | Listen
    | Notify
    | Nothing
)
_Read: TypeAlias = Callable[[str, Statement], Request]

_NAME = r'[\w.$]+|"(?:[^"]|"")+"'
_SET = re.compile(rf"set\s+(?:(session|local)\s+)?({_NAME})\s*(?:=|\bto\b)\s*(.+)", re.I | re.S)
_SET_ZONE = re.compile(r"set\s+(?:(session|local)\s+)?time\s+zone\s+(.+)", re.I | re.S)
_SET_NAMES = re.compile(r"set\s+names\s+(.+)", re.I | re.S)
_SET_TRANSACTION = re.compile(
    r"set\s+(?:(?:session|local)\s+)?(?:transaction|session\s+characteristics|constraints)\b", re.I
)
_ISOLATION = re.compile(r"isolation\s+level\s+(read\s+(?:un)?committed|repeatable\s+read|serializable)", re.I)
_DEFERRABLE = re.compile(r"(\bnot\s+)?\bdeferrable\b", re.I)
_SET_ROLE = re.compile(r"set\s+(?:(?:session|local)\s+)?(role|session\s+authorization)\s+(.+)", re.I | re.S)
_EXPLAIN = re.compile(r"explain\b\s*(\([^)]*\)|(?:(?:analyze|verbose)\b\s*)*)\s*(.*)", re.I | re.S)
_EXPLAIN_OPTION = re.compile(r"\s*(\w+)(?:\s+(\w+))?\s*", re.I)
_EXPLAIN_WORDS = {
    *("analyze", "verbose", "costs", "settings", "generic_plan", "buffers", "serialize", "wal", "timing"),
    *("summary", "memory", "format"),
}
_PREPARE = re.compile(rf"prepare\s++({_NAME})\s*+(\((?:[^()]|\([^()]*+\))*+\))?\s*+as\s++(.*)", re.I | re.S)
_PERFORM = re.compile(rf"execute\s+({_NAME})\s*(\(.*\))?", re.I | re.S)
_DECLARE = re.compile(
    rf"declare\s+({_NAME})\s+(?:(?:binary|insensitive|asensitive|no\s+scroll|scroll)\s+)*cursor\s+"
    r"(?:(with|without)\s+hold\s+)?for\s+(.*)",
    re.I | re.S,
)
_FETCH = re.compile(
    rf"(?:fetch|move)\s++(?:(?:(forward|next|relative)\b\s*+)?(?:\(?(\d+)\)?|(all))?\s*+(?:(?:from|in)\s++)?)?"
    rf"({_NAME})",
    re.I,
)
_SAVEPOINT = re.compile(
    rf"(savepoint|release(?:\s+savepoint)?|(?:rollback|abort)(?:\s+(?:work|transaction))?\s+to(?:\s+savepoint)?)\s+"
    rf"({_NAME})",
    re.I,
)
_STOP_OTHER = re.compile(
    r"select\s+(?:pg_catalog\.)?(pg_terminate_backend|pg_cancel_backend)\s*\(\s*(?:(?:(\d+)|\$1(?:::\w+)?)\s*\)|(?:pid|procpid)\s*\)"
    r"\s+from\s+(?:pg_catalog\.)?pg_stat_activity\s+where\s+(?:pid|procpid)\s*=\s*'?(\d+)'?)",
    re.I,
)

_SLEEP = re.compile(
    r"select\s+(?:\*\s+from\s+)?(?:pg_catalog\.)?pg_sleep\s*\(\s*(?:(\d*\.?\d+)|\$1(?:::[\w ]+)?)\s*\)", re.I
)

_LISTEN = re.compile(rf"(un)?listen\s+(\*|{_NAME})", re.I)
_NOTIFY = re.compile(rf"notify\s+({_NAME})\s*(?:,\s*'((?:[^']|'')*)')?", re.I | re.S)
_READ_ONLY_WORDS = (
    *("insert", "update", "delete", "merge", "truncate", "create", "alter", "drop", "grant", "revoke"),
    *("comment", "vacuum", "analyze", "reindex", "refresh", "cluster", "import", "reassign", "security"),
)
_TEMPORARY = re.compile(r"create\s+(?:(?:local|global)\s+)?temp(?:orary)?\b", re.I)
_NOT_HERE = (
    *("call", "do"),
    *("load", "checkpoint", "attach", "detach", "install", "pragma", "use", "export"),
)


def requests(text: str) -> tuple[Request, ...]:
    """Return what a text asks for, statement by statement.

    Raises:
        SqlError: it is too long, or a quote or a comment is not closed.
        RefusedError: a statement is one that this server has not.
    """
    check_text(text)
    return tuple(_request(each) for each in statements_of(text))


def _request(statement: Statement) -> Request:
    sql = statement.sql.strip()
    word = (re.match(r"\w*", sql) or [""])[0].lower()
    if _TEMPORARY.match(sql):
        raise RefusedError(
            READ_ONLY, "no temporary table can be made here; name a SELECT by WITH name AS (SELECT …)"
        )
    if word in _READ_ONLY_WORDS:
        raise RefusedError(
            READ_ONLY, f"{word.upper()} would change data, and this server only reads; give a SELECT"
        )
    if word in _NOT_HERE:
        raise RefusedError(
            NOT_SUPPORTED, f"{word.upper()} is not served; give a SELECT, SET, SHOW or EXPLAIN"
        )
    return _READERS.get(word, _select)(sql, statement)


def _select(sql: str, statement: Statement) -> Select:
    return Select(statement.sql, statement)


def _select_or_stop(sql: str, statement: Statement) -> Request:
    if (found := _STOP_OTHER.fullmatch(sql)) is not None:
        return StopOther(int(number) if (number := found[2] or found[3]) else None, found[1].lower())
    if (sleep := _SLEEP.fullmatch(sql)) is not None:
        return Sleep(None if sleep[1] is None else float(sleep[1]))
    return _select(sql, statement)


def _copy(sql: str, statement: Statement) -> Copy:
    query, form = copied(sql)
    return Copy(Select(query, statement), form)


def _declare(sql: str, statement: Statement) -> Request:
    if (found := _DECLARE.fullmatch(sql)) is None:
        raise RefusedError(
            SYNTAX_ERROR, f"{sql[:80]!r} declares nothing; write DECLARE name CURSOR FOR SELECT …"
        )
    is_held = found[2] is not None and found[2].lower() == "with"
    return Declare(_identifier(found[1]), Select(found[3], statement), is_held)


def _fetch(sql: str, statement: Statement) -> Request:
    if (found := _FETCH.fullmatch(sql)) is None or ((found[1] or "").lower() == "next" and found[2]):
        raise RefusedError(
            NOT_SUPPORTED, f"{sql[:80]!r} is not served; a cursor goes forward: FETCH 100 FROM name"
        )
    is_all = found[3] is not None
    count = None if is_all else int(found[2] or 1)
    return Fetch(_identifier(found[4]), count, is_sent=sql[:5].lower() == "fetch")


def _close_cursor(sql: str, statement: Statement) -> Request:
    name = sql[len("close") :].strip()
    return CloseCursor(None if name.lower() == "all" else _identifier(name))


def _listen(sql: str, statement: Statement) -> Request:
    if (found := _LISTEN.fullmatch(sql)) is None or (not found[1] and found[2] == "*"):
        raise RefusedError(SYNTAX_ERROR, f"{sql[:80]!r} names no channel; write LISTEN name")
    return Listen(None if found[2] == "*" else _identifier(found[2]), is_on=not found[1])


def _notify(sql: str, statement: Statement) -> Request:
    if (found := _NOTIFY.fullmatch(sql)) is None:
        raise RefusedError(SYNTAX_ERROR, f"{sql[:80]!r} says nothing; write NOTIFY name, 'a text'")
    return Notify(_identifier(found[1]), (found[2] or "").replace("''", "'"))


def _explain(sql: str, statement: Statement) -> Select:
    how, query = _EXPLAIN.fullmatch(sql).groups()  # type: ignore[union-attr]  # it begins with the word
    given = how.strip("() ").split(",") if how.startswith("(") else how.split()
    options = dict[str, str]()
    for each in filter(None, given):
        found = _EXPLAIN_OPTION.fullmatch(each)
        if found is None or (name := found[1].lower()) not in _EXPLAIN_WORDS:
            raise RefusedError(
                SYNTAX_ERROR, f"EXPLAIN does not take {each.strip()!r}; write EXPLAIN (FORMAT JSON) SELECT …"
            )
        options[name] = (found[2] or "on").lower()
    form = options.get("format", "text")
    if form not in ("text", "json"):
        raise RefusedError(NOT_SUPPORTED, f"EXPLAIN (FORMAT {form.upper()}) is not served; take TEXT or JSON")
    is_timed = options.get("analyze", "off") in ("on", "true", "1")
    return Select(query, statement, Explain(is_json=form == "json", is_timed=is_timed))


def _prepare(sql: str, statement: Statement) -> Request:
    if (found := _PREPARE.fullmatch(sql)) is None:
        raise RefusedError(
            SYNTAX_ERROR, f"{sql[:80]!r} prepares nothing; write PREPARE name AS SELECT … $1 …"
        )
    word = (re.match(r"[\s(]*(\w*)", found[3]) or ["", ""])[1].lower()
    if word not in ("select", "with", "values", "table", "from"):
        raise RefusedError(
            READ_ONLY if word in _READ_ONLY_WORDS else SYNTAX_ERROR,
            f"{word.upper() or 'this'} cannot be prepared here; only a SELECT can",
        )
    return Prepare(_identifier(found[1]), between_commas(found[2]), Select(found[3], statement), sql)


def _perform(sql: str, statement: Statement) -> Request:
    if (found := _PERFORM.fullmatch(sql)) is None:
        raise RefusedError(SYNTAX_ERROR, f"{sql[:80]!r} runs nothing; write EXECUTE name (value, …)")
    return Perform(_identifier(found[1]), between_commas(found[2]))


def _identifier(text: str) -> str:
    """Return a name as Postgres reads it: in lower case where it has no quotes."""
    text = text.strip()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()


def _set(sql: str, statement: Statement) -> Request:
    if _SET_TRANSACTION.match(sql):
        prefix = "default_" if re.search(r"\bcharacteristics\b", sql, re.I) else ""
        return Transaction("SET", tuple((prefix + name, value) for name, value in _modes(sql)))
    if (zone := _SET_ZONE.fullmatch(sql)) is not None:
        return Set("timezone", _value(zone[2]), is_local=(zone[1] or "").lower() == "local")
    if (role := _SET_ROLE.fullmatch(sql)) is not None and not re.match(r"to\b|=", role[2], re.I):
        return _set_role("role" if role[1].lower() == "role" else "session_authorization", role[2])
    if (names := _SET_NAMES.fullmatch(sql)) is not None:
        return Set("client_encoding", _value(names[1]))
    if (found := _SET.fullmatch(sql)) is None:
        raise RefusedError(SYNTAX_ERROR, f"{sql[:80]!r} sets nothing; write SET relaqs.target = '5%'")
    return Set(found[2].strip('"'), _value(found[3]), is_local=(found[1] or "").lower() == "local")


def _modes(sql: str) -> tuple[tuple[str, str], ...]:
    """Return what a transaction is to be: nobody writes, so that it makes no difference."""
    found = [("transaction_isolation", " ".join(each[1].split())) for each in _ISOLATION.finditer(sql)]
    found += [("transaction_deferrable", "off" if each[1] else "on") for each in _DEFERRABLE.finditer(sql)]
    return tuple(found)


def _set_role(name: str, role: str) -> Request:
    """Everybody stays who they are."""
    if (value := _value(role)) is not None and (name, value.lower()) != ("role", "none"):
        raise RefusedError("42501", f"nobody can become {value} here; connect as {value}")
    return Set(name, None)


def _value(text: str) -> str | None:
    """Return a value without its quotes, None for DEFAULT."""
    text = text.strip()
    if text.lower() in ("default", "local"):
        return None
    if re.fullmatch(r"'(?:[^']|'')*'", text):
        return text[1:-1].replace("''", "'")
    return text


def _reset(sql: str, statement: Statement) -> Request:
    name = "_".join(sql[len("reset") :].strip().strip('"').split())
    if name.lower() == "time_zone":
        name = "timezone"
    return Reset("RESET") if name.lower() == "all" else Set(name, None, tag="RESET")


def _show(sql: str, statement: Statement) -> Request:
    name = re.sub(r"\s+", " ", sql[len("show") :].strip().strip('"').lower())
    if name == "tables":
        return _select(sql, statement)
    names = {"transaction isolation level": "transaction_isolation", "time zone": "timezone"}
    return Show(names.get(name, name))


def _rollback(sql: str, statement: Statement) -> Request:
    return _savepoint(sql, statement) if re.search(r"\bto\b", sql, re.I) else Transaction("ROLLBACK")


def _savepoint(sql: str, statement: Statement) -> Request:
    if (found := _SAVEPOINT.fullmatch(sql)) is None:
        raise RefusedError(SYNTAX_ERROR, f"{sql[:80]!r} names no savepoint; write SAVEPOINT name")
    tag = found[1].split()[0].upper()
    return Savepoint(_identifier(found[2]), "ROLLBACK" if tag == "ABORT" else tag)


def _deallocate(sql: str, statement: Statement) -> Request:
    name = re.sub(r"^deallocate\s+(prepare\s+)?", "", sql, flags=re.I)
    return Deallocate(None if name.strip().lower() == "all" else _identifier(name))


def _discard(sql: str, statement: Statement) -> Request:
    return (
        Reset("DISCARD ALL") if sql.lower().split()[1:] == ["all"] else Nothing(" ".join(sql.upper().split()))
    )


def _always(request: Request) -> _Read:
    return lambda sql, statement: request


def _lock(sql: str, statement: Statement) -> Request:
    """Rows that only are read need no lock, and each transaction has the weakest one of each table."""
    if re.search(r"\bin\s+(?!access\s+share\b)", sql, re.I) or not re.search(r"\bin\s", sql, re.I):
        raise RefusedError(
            READ_ONLY, f"{sql[:60]!r} would keep others from writing, and nobody writes; leave it out"
        )
    return Nothing("LOCK TABLE")


_READERS: dict[str, _Read] = {
    "copy": _copy,
    "lock": _lock,
    "explain": _explain,
    "set": _set,
    "reset": _reset,
    "show": _show,
    # Drivers say READ WRITE of every transaction. What would write is refused by itself.
    **dict.fromkeys(("begin", "start"), lambda sql, statement: Transaction("BEGIN", _modes(sql))),
    **dict.fromkeys(("commit", "end"), _always(Transaction("COMMIT"))),
    **dict.fromkeys(("rollback", "abort"), _rollback),
    **dict.fromkeys(("savepoint", "release"), _savepoint),
    "prepare": _prepare,
    "execute": _perform,
    "deallocate": _deallocate,
    "discard": _discard,
    **dict.fromkeys(("listen", "unlisten"), _listen),
    "notify": _notify,
    "close": _close_cursor,
    "declare": _declare,
    **dict.fromkeys(("fetch", "move"), _fetch),
    "select": _select_or_stop,
}

ENDS = ("low", "high")
_SCHEMA = "relaqs"
_OF_ANSWER: dict[str, tuple[str, ColumnType]] = {
    "error": ("CAST(NULL AS DOUBLE)", FLOAT8),
    "is_exact": ("CAST(NULL AS BOOLEAN)", BOOL),
    "rows_read": ("CAST(NULL AS BIGINT)", INT8),
}
_MAY_ASK = re.compile(rf'\b{_SCHEMA}"?\s*\.', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AboutAnswer:
    """A statement without what it asks about its answer.

    Attributes:
        asked: the functions, by the places of their outputs.
        names: what outputs are called that have no name of their own, by their places.
    """

    sql: str
    asked: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def kind(self, place: int, kind: ColumnType) -> ColumnType:
        """Return the type of an output that would have this one if nothing was asked."""
        function = self.asked.get(place)
        if function is None:
            return kind
        return (FLOAT8 if is_number(kind) else kind) if function in ENDS else _OF_ANSWER[function][1]


def steered(sql: str, *, is_exact: bool) -> AboutAnswer:
    """Return a statement without what it asks about its answer.

    is_exact: whether there are no estimates, so that the ends of an interval are the value itself.

    Raises:
        RefusedError: there is no such function, or it cannot stand where it does.
    """
    if _MAY_ASK.search(sql) is None:
        return AboutAnswer(sql)
    tokens = tokens_or_none(sql)
    calls = schema_calls(tokens, _SCHEMA)
    by_name, used = ((), Counter[str]()) if is_exact or not calls else (sorted_by(tokens), names_used(tokens))
    edits: list[TextEdit] = []
    for call in calls:
        begin, end = call.arguments
        argument = sql[begin:end].strip()
        place = _checked(call, argument)
        if call.name in ENDS and not {call.alias.lower() or call.name, str(place + 1)}.isdisjoint(by_name):
            raise RefusedError(
                NOT_SUPPORTED,
                f"rows cannot be sorted by an estimate's relaqs.{call.name}; sort by {argument}",
            )
        if call.name in ENDS and (used[call.alias.lower()] > 1 or "all" in by_name):
            raise RefusedError(
                NOT_SUPPORTED,
                f"{call.alias or call.name} is known when the answer is there, so that nothing else of the "
                f"statement can use it; write {argument} there, or no ORDER BY ALL",
            )
        instead = f"({argument})" if call.name in ENDS else _OF_ANSWER[call.name][0]
        edits.append((call.begin, call.end, instead))
    asked = {int(call.place or 0): call.name for call in calls}
    names = {int(call.place or 0): call.name for call in calls if not call.alias}
    return AboutAnswer(edited(sql, iter(edits)), asked, names)


def _checked(call: SchemaCall, argument: str) -> int:
    """Return the place of a call. Raises RefusedError where it is none of ours, or stands elsewhere."""
    if call.name not in (*ENDS, *_OF_ANSWER):
        raise RefusedError(
            UNKNOWN_FUNCTION,
            f"there is no function relaqs.{call.name}; there are relaqs.low(x), relaqs.high(x), "
            "relaqs.error(), relaqs.is_exact() and relaqs.rows_read()",
        )
    if bool(argument) != (call.name in ENDS):
        takes = "an output, as in relaqs.low(avg(x))" if call.name in ENDS else "nothing"
        raise RefusedError(SYNTAX_ERROR, f"relaqs.{call.name} takes {takes}")
    if call.place is None:
        raise RefusedError(
            NOT_SUPPORTED,
            f"relaqs.{call.name} is a column of an answer: it stands alone in the list of the outermost "
            "SELECT, and no star before it",
        )
    return call.place
