"""Python's database API, PEP 249, for programs that know databases through it.

A plain `execute` gives exact rows. With a `target` or `within` a connection or a cursor gives the first
answer that is good enough, and its intervals as `cursor.snapshot`. Threads may share a connection, and each
has cursors of its own. Nothing can be written, so `commit` and `rollback` do nothing.

>>> import relaqs.dbapi
>>> with relaqs.dbapi.connect("data", threads=1) as connection:
...     cursor = connection.execute("SELECT max(x) FROM numbers WHERE x < ?", [500])
...     print(cursor.fetchone())
(499,)
"""

from __future__ import annotations

from typing import Final

from relaqs.dbapi.connection import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Connection,
    Cursor,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    Warning,
    connect,
)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel: Final = "2.0"
threadsafety: Final = 2  # threads may share the module and connections
paramstyle: Final = "qmark"
