"""A session as PEP 249 has it: connections and cursors, types, makers of values, and exceptions.

- What the cursors of a connection start with stands in the connection. A cursor has one question at a time,
  and the rows of its answer.
- A column of an answer has DuckDB's name of its type, which equals the group that PEP 249 puts it into.
- Parameters are made by `Date`, `Timestamp`, `Binary` and so on. Python's own dates, times and bytes do as
  well.
- Each exception is a RelaqsError too, and its cause is the error it came from.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
from relaqs_engine.errors import (
    ClusterError,
    ExpressionError,
    LayoutError,
    RelaqsError,
    SqlError,
    UnsupportedError,
    named,
)
from relaqs_engine.errors import DataError as UnreadableError
from relaqs_engine.errors import InternalError as FaultError
from relaqs_engine.layouts.manifest import SOON_SECONDS
from relaqs_engine.layouts.sources import TableSource
from relaqs_engine.sql.binder import Parameters

from relaqs.arguments import ArgumentError, is_whole, relative_error, seconds_in
from relaqs.opening import connect as open_session
from relaqs.python_values import fetched_rows
from relaqs.queries.online_query import OnlineQuery, QueryTimeoutError
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session

_NAMES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "large_binary": "BLOB",
    "binary_view": "BLOB",
    "date32[day]": "DATE",
    "month_day_nano_interval": "INTERVAL",
    "null": "NULL",
}


class TypeGroup:
    """A group of types. A column's type code, a name such as "BIGINT", equals the group that it is in.

    >>> NUMBER == "DECIMAL(10,2)", NUMBER == "VARCHAR"
    (True, False)
    """

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeGroup):
            return self._names == other._names
        return isinstance(other, str) and other.partition("(")[0] in self._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"TypeGroup({', '.join(map(repr, sorted(self._names)))})"


STRING = TypeGroup("VARCHAR", "UUID", "ENUM")
BINARY = TypeGroup("BLOB", "BIT")
NUMBER = TypeGroup(
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
)
DATETIME = TypeGroup(
    "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"
)
ROWID = TypeGroup()


def type_name(kind: pa.DataType) -> str:
    """Return DuckDB's name of a type that an answer's column has.

    >>> type_name(pa.int64()), type_name(pa.list_(pa.decimal128(10, 2)))
    ('BIGINT', 'DECIMAL(10,2)[]')
    """
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    if pa.types.is_map(kind):
        return f"MAP({type_name(kind.key_type)}, {type_name(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{field.name} {type_name(field.type)}' for field in kind)})"
    if pa.types.is_fixed_size_list(kind):
        return f"{type_name(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{type_name(kind.value_type)}[]"
    return _NAMES.get(str(kind), str(kind).upper())


Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802  # PEP 249 gives the name
    """Return the local day at so many seconds since 1970.

    >>> DateFromTicks(86400 * 365).year
    1971
    """
    return datetime.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """Return the local time of day at so many seconds since 1970.

    >>> TimeFromTicks(90).second
    30
    """
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """Return the local moment at so many seconds since 1970.

    >>> TimestampFromTicks(86400 * 365).year
    1971
    """
    return datetime.datetime(*time.localtime(ticks)[:6])


class Warning(RelaqsError):  # noqa: N818  # PEP 249 gives the name
    """A warning of importance. Nothing raises it; PEP 249 asks for it."""


class Error(RelaqsError):
    """The base of this module's errors."""


class InterfaceError(Error):
    """The interface is misused, as by a closed cursor."""


class DatabaseError(Error):
    """A query failed."""


class DataError(DatabaseError):
    """An expression has no value for some row, as where a text is no number."""


class OperationalError(DatabaseError):
    """The data or the cluster cannot be used, memory is not enough, or no answer came in time."""


class IntegrityError(DatabaseError):
    """A constraint is broken. Nothing raises it, because nothing is written."""


class InternalError(DatabaseError):
    """A query failed by a fault in ReLAQS."""


class ProgrammingError(DatabaseError):
    """The SQL or an argument is wrong."""


class NotSupportedError(DatabaseError):
    """The request is understood and cannot be served."""


_KINDS: tuple[tuple[type[RelaqsError], type[DatabaseError]], ...] = (
    (SqlError, ProgrammingError),
    (ExpressionError, DataError),
    (ArgumentError, ProgrammingError),
    (UnsupportedError, NotSupportedError),
    (QueryTimeoutError, OperationalError),
    (UnreadableError, OperationalError),
    (LayoutError, OperationalError),
    (ClusterError, OperationalError),
    (FaultError, InternalError),
)


@contextmanager
def as_database_errors() -> Iterator[None]:
    """Raise what PEP 249 names in the place of every other RelaqsError."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        told = named(error, "answering")
        kind = next((ours for theirs, ours in _KINDS if isinstance(told, theirs)), DatabaseError)
        raise kind(str(told)) from error


_AT_ONCE_ROWS = 4096  # so many become Python's values together

FetchedRow: TypeAlias = tuple[Any, ...]
ColumnDescription: TypeAlias = tuple[str, str, None, None, int | None, int | None, None]


class Cursor:
    """Answers one SELECT after another, and gives the rows. An iterator and a context manager.

    Attributes:
        connection: where it asks.
        arraysize: how many rows `fetchmany` returns where it is not told.
        intervals: whether rows have `x_low`, `x_high` and `x_certified` for each approximate column `x`.
        description: name, type, size, size, precision, scale and nullability of each column, as PEP 249 has
            them. The type is DuckDB's name of it. None before the first `execute`.
        rowcount: how many rows the answer has, -1 before the first `execute`.

    >>> import relaqs.dbapi
    >>> cursor = relaqs.dbapi.connect("data", threads=1).cursor()
    >>> cursor.target = "5%"
    >>> cursor.execute("SELECT avg(x) AS mean FROM numbers").snapshot.error <= 0.05
    True
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.intervals = connection.intervals
        self.description: list[ColumnDescription] | None = None
        self.rowcount = -1
        self._target = connection.target
        self._within = connection.within
        self._snapshot: Snapshot | None = None
        self._rows: Iterator[FetchedRow] | None = None
        self._table, self._fetched = pa.table({}), 0  # the answer, and how many of its rows were fetched
        self._is_closed = False

    @property
    def target(self) -> float | None:
        """The relative error that is good enough, such as 0.05 or "5%"; None for exact answers."""
        return self._target

    @target.setter
    def target(self, target: float | str | None) -> None:
        with as_database_errors():
            self._target = relative_error(target)

    @property
    def within(self) -> float | None:
        """The seconds after which the best answer so far is returned, such as 2 or "500ms"; or None."""
        return self._within

    @within.setter
    def within(self, within: float | str | None) -> None:
        with as_database_errors():
            self._within = None if within is None else seconds_in("within", within)

    @property
    def snapshot(self) -> Snapshot | None:
        """The whole answer, with its intervals and its error. None before the first `execute`."""
        return self._snapshot

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Answer one SELECT, and return the cursor.

        Args:
            operation: the SELECT.
            parameters: values for `?` as a list, for `$name` as a dictionary; never read as SQL.

        Raises:
            ProgrammingError: the SQL is wrong.
            NotSupportedError: the query is refused.
            OperationalError: it failed, or there was no answer within the time.
        """
        self._check_open()
        self._forget()
        with as_database_errors(), self._started(operation, parameters) as query:
            self._take(query.result(until=self._target))
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Parameters]) -> None:
        """Raise NotSupportedError: PEP 249 has this for writing, and nothing can be written."""
        raise NotSupportedError(
            "executemany is for writing, and nothing can be written here; call execute once for each SELECT"
        )

    def fetchone(self) -> FetchedRow | None:
        """Return the next row, or None after the last."""
        return next(self._left(), None)

    def fetchmany(self, size: int | None = None) -> list[FetchedRow]:
        """Return the next `size` rows, or `arraysize` of them; fewer at the end.

        Raises:
            ProgrammingError: the size is no whole number from 0 on.
        """
        name, most = ("arraysize", self.arraysize) if size is None else ("size", size)
        if not is_whole(most) or most < 0:
            raise ProgrammingError(f"{name} is {most!r}; it must be a whole number from 0 on")
        return list(islice(self._left(), most))

    def fetchall(self) -> list[FetchedRow]:
        """Return all rows that were not fetched yet."""
        return list(self._left())

    def fetch_arrow_table(self) -> pa.Table:
        """Return all rows that were not fetched yet as Arrow data, which polars and pandas read at once."""
        self._left()
        rows = self._table.slice(self._fetched)
        self._rows, self._fetched = iter(()), self._table.num_rows
        return rows

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Do nothing: values need no sizes."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: columns need no sizes."""

    def close(self) -> None:
        """Let the rows go; the snapshot stays. The second call does nothing."""
        self._rows, self._table = None, pa.table({})
        self._is_closed = True

    def _started(self, operation: str, parameters: Parameters | None) -> OnlineQuery:
        options = QueryOptions(target=self._target, timeout=self._within)
        return self.connection.session.submit(
            operation, options, params=parameters or None, shows_estimates=not options.wants_the_end_only
        )

    def _take(self, snapshot: Snapshot) -> None:
        table = snapshot.table if self.intervals else snapshot.estimate
        self._snapshot = snapshot
        self._table, self._fetched = table, 0
        self._rows = self._counted(_rows_of(table))
        self.rowcount = table.num_rows
        self.description = [_described(field) for field in table.schema]

    def _counted(self, rows: Iterator[FetchedRow]) -> Iterator[FetchedRow]:
        for row in rows:
            self._fetched += 1
            yield row

    def _forget(self) -> None:
        self._snapshot = self._rows = self.description = None
        self._table = pa.table({})
        self.rowcount = -1

    def _left(self) -> Iterator[FetchedRow]:
        self._check_open()
        if self._rows is None:
            raise InterfaceError("there is no answer to fetch rows of; call execute first")
        return self._rows

    def _check_open(self) -> None:
        if self._is_closed or self.connection.is_closed:
            what = "cursor" if self._is_closed else "connection"
            raise InterfaceError(f"the {what} is closed; make another")

    def __iter__(self) -> Cursor:
        return self

    def __next__(self) -> FetchedRow:
        return next(self._left())

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows_of(table: pa.Table) -> Iterator[FetchedRow]:
    for start in range(0, table.num_rows, _AT_ONCE_ROWS):
        yield from fetched_rows(table.slice(start, _AT_ONCE_ROWS))


def _described(field: pa.Field) -> ColumnDescription:
    is_decimal = pa.types.is_decimal(field.type)
    precision, scale = (field.type.precision, field.type.scale) if is_decimal else (None, None)
    return (field.name, type_name(field.type), None, None, precision, scale, None)


class Connection:
    """Tables, and cursors to ask about them. A context manager; `relaqs.dbapi.connect` makes one.

    Attributes:
        session: what answers. A session that `connect` was given stays open when the connection is closed.
        target: the `target` of new cursors.
        within: their `within`, in seconds.
        intervals: their `intervals`.

    >>> import relaqs.dbapi
    >>> connection = relaqs.dbapi.connect("data", target="5%", threads=1)
    >>> connection.cursor().target
    0.05
    """

    # PEP 249 wants the exceptions here too: a program with several databases then catches the right ones.
    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(
        self,
        session: Session,
        *,
        target: float | str | None = None,
        within: float | str | None = None,
        intervals: bool = False,
        closes_session: bool = False,
    ) -> None:
        self.session = session
        self.target = relative_error(target)
        self.within = None if within is None else seconds_in("within", within)
        self.intervals = intervals
        self._closes_session = closes_session
        self._is_closed = False

    def cursor(self) -> Cursor:
        """Return a new cursor.

        >>> import relaqs.dbapi
        >>> cursor = relaqs.dbapi.connect("data", threads=1).cursor()
        >>> cursor.execute("SELECT count(*) FROM numbers").fetchall()
        [(1000,)]
        """
        self._check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Return a new cursor that has answered one SELECT.

        >>> import relaqs.dbapi
        >>> connection = relaqs.dbapi.connect("data", threads=1)
        >>> connection.execute("SELECT count(*) FROM numbers").fetchone()
        (1000,)
        """
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Do nothing: there is nothing to commit."""
        self._check_open()

    def rollback(self) -> None:
        """Do nothing: there is nothing to undo."""
        self._check_open()

    def close(self) -> None:
        """Let the session go. The second call does nothing."""
        if not self._is_closed and self._closes_session:
            self.session.close()
        self._is_closed = True

    @property
    def is_closed(self) -> bool:
        """Whether it can be used no more."""
        return self._is_closed

    def _check_open(self) -> None:
        if self._is_closed:
            raise InterfaceError("the connection is closed; open another with relaqs.dbapi.connect")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    data: TableSource | Session | None = None,
    *,
    target: float | str | None = None,
    within: float | str | None = None,
    intervals: bool = False,
    **opening: Any,
) -> Connection:
    """Return a connection to tables. Its answers are exact unless `target` or `within` is given.

    Args:
        data: as `relaqs.connect` takes it; or a session, which stays open when the connection is closed.
        target: the relative error that is good enough, such as "5%". The first answer within it is returned.
        within: seconds, or "2s" or "500ms": the best answer by then is returned.
        intervals: whether rows have `x_low`, `x_high` and `x_certified` for each approximate column `x`,
            after the columns of the SELECT.
        opening: the other arguments of `relaqs.connect`.

    Raises:
        ProgrammingError: an argument is not accepted.
        OperationalError: the tables cannot be opened.

    >>> import relaqs.dbapi
    >>> with relaqs.dbapi.connect("data", threads=1) as connection:
    ...     connection.execute("SELECT count(*) FROM numbers").fetchall()
    [(1000,)]
    """
    with as_database_errors():
        wanted: dict[str, Any] = {"target": relative_error(target), "within": within, "intervals": intervals}
        if isinstance(data, Session):
            return Connection(data, **wanted)
        if opening.get("cluster") is None:
            opening = {"exact_below_seconds": SOON_SECONDS, **opening}
        return Connection(open_session(data, **opening), closes_session=True, **wanted)
