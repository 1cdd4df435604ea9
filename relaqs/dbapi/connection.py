"""Connection: a session as PEP 249 has it. What its cursors start with stands here."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from relaqs_engine.layouts.manifest import SOON_SECONDS
from relaqs_engine.layouts.sources import TableSource
from relaqs_engine.sql.binder import Parameters

from relaqs.arguments import relative_error, seconds_in
from relaqs.dbapi.cursor import Cursor
from relaqs.dbapi.errors import (
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
)
from relaqs.opening import connect as open_session
from relaqs.session import Session


class Connection:
    """Tables, and cursors to ask about them. A context manager; `relaqs.dbapi.connect` makes one.

    Attributes:
        session: what answers. A session that `connect` was given stays open when the connection is closed.
        target: the `target` of new cursors.
        within: their `within`, in seconds.
        intervals: their `intervals`.

    >>> import duckdb, relaqs, relaqs.dbapi
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
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

        >>> import duckdb, relaqs, relaqs.dbapi
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> cursor = relaqs.dbapi.connect("data", threads=1).cursor()
        >>> cursor.execute("SELECT count(*) FROM numbers").fetchall()
        [(1000,)]
        """
        self._check_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Return a new cursor that has answered one SELECT.

        >>> import duckdb, relaqs, relaqs.dbapi
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    >>> import duckdb, relaqs, relaqs.dbapi
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
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
