"""Connection and cursor: a session as PEP 249 has it.

What the cursors of a connection start with stands in the connection. A cursor has one question at a time,
and the rows of its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
from relaqs_engine.layouts.manifest import SOON_SECONDS
from relaqs_engine.layouts.sources import TableSource
from relaqs_engine.sql.binder import Parameters

from relaqs.arguments import is_whole, relative_error, seconds_in
from relaqs.dbapi.pep249 import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
    as_database_errors,
    type_name,
)
from relaqs.opening import connect as open_session
from relaqs.python_values import python_values
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session

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
        some = table.slice(start, _AT_ONCE_ROWS)
        yield from zip(*map(python_values, some.columns), strict=True)


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
