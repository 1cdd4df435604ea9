"""What went wrong, as clients of Postgres know it: an error of ours becomes a code, a message and a hint."""

from __future__ import annotations

import re
import sys
import traceback
from functools import partial

from relaqs_engine.errors import (
    ClusterError,
    DataError,
    ExpressionError,
    InternalError,
    LayoutError,
    MemoryLimitError,
    RelaqsError,
    SqlError,
    StoreError,
    UnsupportedError,
)
from relaqs_engine.postgres.meaning import DIVISION_BY_ZERO
from relaqs_engine.sql.read import offset_of

from relaqs.arguments import ArgumentError
from relaqs.queries.online_query import QueryTimeoutError

SYNTAX_ERROR, UNKNOWN_TABLE, UNKNOWN_SETTING, UNKNOWN_STATEMENT = "42601", "42P01", "42704", "26000"
UNKNOWN_PORTAL, UNKNOWN_FUNCTION = "34000", "42883"
DIVIDED_BY_ZERO, BAD_TEXT, BAD_BYTES, OUT_OF_RANGE = "22012", "22P02", "22P03", "22003"
BAD_VALUE, READ_ONLY, NOT_SUPPORTED, IN_FAILED_TRANSACTION = "22023", "25006", "0A000", "25P02"
WRONG_PASSWORD, NOT_LET_IN, NO_DATABASE, PROTOCOL_VIOLATION = "28P01", "28000", "3D000", "08P01"
FULL, TOO_LONG = "53000", "54000"
CRASHED, NOT_YET = "57P02", "57P03"
TOO_MANY, TOO_LARGE, CANCELED, SHUTTING_DOWN, INTERNAL = "53300", "53200", "57014", "57P01", "XX000"

# The first that fits counts: classes stand before those that they are kinds of.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (SqlError, SYNTAX_ERROR),
    (UnsupportedError, NOT_SUPPORTED),
    (ArgumentError, BAD_VALUE),
    (QueryTimeoutError, CANCELED),
    (MemoryLimitError, TOO_LARGE),
    (StoreError, "58030"),
    (DataError, "22000"),
    (LayoutError, "58030"),
    (ClusterError, "58000"),
    (RelaqsError, INTERNAL),
)


_CODES_BY_WORDS = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"^there is no (?:table|relation)\b", UNKNOWN_TABLE),
        (
            r"^Referenced table\b.* not found|^Cannot extract field .* because it is not a struct",
            UNKNOWN_TABLE,
        ),
        (r"^there is no column\b|^Referenced column\b.* not found|does not have a column named", "42703"),
        (r"^Ambiguous reference to column", "42702"),
        (
            r"\bGROUP BY clause\b|\bcannot contain aggregates\b|aggregate function calls cannot be nested",
            "42803",
        ),
        (r"^(?:ORDER|GROUP BY) term out of range", "42P10"),
        (
            r"^the function .* is not known|\bNo function matches\b|\bdoes not take\b|"
            r"Function with name .* does not exist|^Cannot (?:compare values|concatenate types)\b",
            UNKNOWN_FUNCTION,
        ),
        (r"\b[Dd]ivision by zero\b", DIVIDED_BY_ZERO),
        (r"\bnumber of array dimensions exceeds\b", TOO_LONG),
        (r"\b(?:date|time|timestamp) field value out of range\b", "22008"),
        (r"\binvalid (?:date|time|timestamp) field format\b|\bstring '.*' to INTERVAL\b", "22007"),
        (
            r"\bCould not convert string\b|\bMalformed JSON\b|\bcan't be cast to the destination type \w+\[",
            BAD_TEXT,
        ),
        (r"\bout of range\b|\bOut of Range Error\b|\bOverflow in\b", OUT_OF_RANGE),
        (r"\bMore than one row returned by a subquery\b", "21000"),
        (r"^LIMIT\b.* negative", "2201W"),
        (r"^Type with name .* does not exist", "42704"),
    )
)
"""Of errors in a statement and in its data, which tools tell apart by their codes."""


_NOT_THERE = re.compile(
    r"(?:there is no (?:table|relation|column)|Referenced (?:table|column)) [\"']?([\w.]+)"
    r"|Table \S+ does not have a column named \"([^\"]+)\""
)


class RefusedError(RelaqsError):
    """A request that the server does not serve, with the code by which clients know why.

    Attributes:
        code: SQLSTATE, five characters.
        is_fatal: whether the connection ends with it.
    """

    def __init__(self, code: str, message: str, *, is_fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_fatal = is_fatal

    def __reduce__(self) -> tuple[object, ...]:
        return partial(RefusedError, self.code, str(self), is_fatal=self.is_fatal), ()


def error_fields(error: BaseException, sql: str = "") -> dict[str, str]:
    """Return the fields of an error message: severity, code, message, hint, and the place in the SQL.

    An error that is none of ours is a fault of the server. Its traceback goes to standard error, and the
    client gets no part of it.
    """
    code = error.code if isinstance(error, RefusedError) else _code(error)
    severity = "FATAL" if isinstance(error, RefusedError) and error.is_fatal else "ERROR"
    fields = {"S": severity, "V": severity, "C": code, "M": _message(error)}
    if (own := _in_words_of_postgres(fields["C"], fields["M"])) is not None:
        fields |= {"M": own, "D": fields["M"]}
    if isinstance(error, SqlError) and error.candidates:
        fields["H"] = error.hint
    if isinstance(error, SqlError | ExpressionError) and (place := error.position) is not None:
        offset = offset_of(sql, place)
        fields |= {} if offset is None else {"P": str(offset + 1)}  # Postgres counts characters from 1
    return {key: value.replace("\0", " ") for key, value in fields.items()}


def _in_words_of_postgres(code: str, message: str) -> str | None:
    """Return what Postgres says of what is not there: some tools look for its words."""
    kind = {UNKNOWN_TABLE: "relation", "42703": "column"}.get(code)
    found = _NOT_THERE.match(message) if kind else None
    if found is None:
        return None
    return f'{kind} "{found[1] or found[2]}" does not exist'


def notice_fields(message: str, severity: str = "NOTICE", code: str = "00000") -> dict[str, str]:
    """Return the fields of a message that is no error."""
    return {"S": severity, "V": severity, "C": code, "M": message.replace("\0", " ")}


def _code(error: BaseException) -> str:
    said = error.message if isinstance(error, SqlError | ExpressionError) else str(error)
    if isinstance(error, SqlError | DataError | ExpressionError):
        for pattern, code in _CODES_BY_WORDS:
            if pattern.search(said) is not None:
                return code
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)


def _message(error: BaseException) -> str:
    if isinstance(error, RelaqsError) and _code(error) == DIVIDED_BY_ZERO:
        return DIVISION_BY_ZERO
    if isinstance(error, SqlError | ExpressionError):
        return error.message
    if isinstance(error, RelaqsError) and not isinstance(error, InternalError):
        return str(getattr(error, "outward", error))
    traceback.print_exception(error, file=sys.stderr)
    return "the server failed at this statement; its log has the reason"
