"""The exceptions that PEP 249 names. Each is a RelaqsError too, and its cause is the error it came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
