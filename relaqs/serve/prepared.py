"""Statements that a client has prepared, with and without values, and the formats it wants them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pygwire.messages import FieldDescription, RowDescription

from relaqs.serve import values
from relaqs.serve.answering import ReplyColumn
from relaqs.serve.failures import PROTOCOL_VIOLATION, RefusedError
from relaqs.serve.quotas import Holding
from relaqs.serve.rows import AnswerRows
from relaqs.serve.statements import Request


@dataclass(slots=True)
class Prepared:
    """A statement that a client may run again and again.

    Attributes:
        request: None where the text is empty.
        type_oids: of its parameters.
        columns: of its answer, once the client was told.
        holding: of the memory of its text.
    """

    request: Request | None
    type_oids: tuple[int, ...] = ()
    columns: tuple[ReplyColumn, ...] | None = None
    holding: Holding | None = None


@dataclass(slots=True)
class Portal:
    """A prepared statement with values for its parameters.

    Attributes:
        prepared: the statement.
        bound: the values.
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
