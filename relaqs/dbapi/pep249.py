"""What PEP 249 names beside connections and cursors: types, makers of values, and exceptions.

- A column of an answer has DuckDB's name of its type, which equals the group that PEP 249 puts it into.
- Parameters are made by `Date`, `Timestamp`, `Binary` and so on. Python's own dates, times and bytes do as
  well.
- Each exception is a RelaqsError too, and its cause is the error it came from.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import contextmanager

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

from relaqs.arguments import ArgumentError
from relaqs.queries.online_query import QueryTimeoutError

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
