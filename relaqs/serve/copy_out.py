r"""COPY (SELECT …) TO STDOUT: an answer as one stream of text, CSV or binary rows, as loaders ask for.

    COPY (SELECT zone, avg(fare) FROM trips GROUP BY zone) TO STDOUT (FORMAT csv, HEADER)
    COPY trips (zone, fare) TO STDOUT WITH CSV HEADER

In text, fields stand between tabs, NULL is `\N`, and backslashes mark what would end a field. In CSV, NULL is
empty and a text that is empty stands in quotes. A binary row has the bytes that a row of the protocol has.

Source: PostgreSQL 15, COPY, "File Formats".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from relaqs.serve import column_types as types
from relaqs.serve.column_types import ColumnType
from relaqs.serve.encoded_rows import (
    AnswerRows,
    RowPart,
    joined,
    lengths_of,
    prefix,
    row_bytes,
    total,
    without_nulls,
)
from relaqs.serve.failures import NOT_SUPPORTED, SYNTAX_ERROR, RefusedError
from relaqs.serve.values import BINARY, TEXT

_BINARY_BEGIN, _BINARY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_DATA = struct.Struct("!ci")
_ESCAPED = {
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
    b"\v": b"\\v",
}
_OPTION = re.compile(r"\s*(\w+)\s*((?:'(?:[^']|'')*')|\*|[\w.]+|\([^()]*\))?\s*(?:,|$)")
_WORD = re.compile(
    r"\s*(?:(csv|binary|header)|(delimiter|null|quote|escape|force\s+quote)\s+(?:as\s+)?"
    r"('(?:[^']|'')*'|\*|\w+(?:\s*,\s*\w+)*))\s*",
    re.I,
)
_COPY = re.compile(
    r'copy\s+(\(.*\)|(?:[\w.]|"[^"]+")+(?:\s*\([^()]*\))?)\s+to\s+(stdout|program\b.*|\'.*)\b\s*(.*)',
    re.I | re.S,
)

_NEVER_MARKED = {
    kind.oid
    for kind in (
        *(types.INT2, types.INT4, types.INT8, types.OID, types.FLOAT4, types.FLOAT8, types.NUMERIC),
        *(types.BOOL, types.DATE, types.TIMESTAMP, types.TIMESTAMPTZ, types.UUID),
    )
}
"""Types whose texts have no delimiter that is usual, no quote, and are no NULL."""

_Value: TypeAlias = bytes | None


@dataclass(frozen=True, slots=True)
class CopyForm:
    """How rows are written. kind: text, csv or binary. null: what NULL is written as.

    is_forced: every value of CSV stands in quotes, but for NULL.
    """

    kind: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    escape: str = '"'
    is_headed: bool = False
    is_forced: bool = False

    @property
    def format(self) -> int:
        """Of the fields: TEXT or BINARY."""
        return BINARY if self.kind == "binary" else TEXT


def copied(sql: str) -> tuple[str, CopyForm]:
    """Return the SELECT of a COPY … TO STDOUT, and how its rows are written.

    Raises:
        RefusedError: it copies from somewhere, to a file, or has an option that is not served.
    """
    found = _COPY.fullmatch(sql.strip())
    if found is None or found[2].lower() != "stdout":
        raise RefusedError(
            NOT_SUPPORTED,
            f"{sql[:60]!r} is not served; rows go out by COPY (SELECT …) TO STDOUT, and none come in",
        )
    form = _form(found[3].strip())
    if found[1].startswith("("):
        return found[1][1:-1], form
    name, bracket, columns = found[1].partition("(")
    return f"SELECT {columns.rstrip(')').strip() if bracket else '*'} FROM {name.strip()}", form


def _form(text: str) -> CopyForm:
    text = re.sub(r"^with\b\s*", "", text, flags=re.I)
    given: dict[str, str] = {}
    if text.startswith("(") and text.endswith(")"):
        inner, at = text[1:-1], 0
        while at < len(inner):
            option = _OPTION.match(inner, at)
            if option is None:
                raise _unread(text)
            given[option[1].lower()] = _unquoted(option[2] or "true")
            at = option.end()
    else:
        at = 0
        while at < len(text):
            word = _WORD.match(text, at)
            if word is None:
                raise _unread(text)
            if word[1]:
                given |= {"header": "true"} if word[1].lower() == "header" else {"format": word[1]}
            else:
                given["_".join(word[2].lower().split())] = _unquoted(word[3])
            at = word.end()
    return _with_options(given)


def _unread(options: str) -> RefusedError:
    return RefusedError(
        SYNTAX_ERROR, f"COPY's options {options[:60]!r} do not read; write (FORMAT csv, HEADER)"
    )


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _with_options(given: dict[str, str]) -> CopyForm:
    kind = given.pop("format", "text").lower()
    if kind not in ("text", "csv", "binary"):
        raise RefusedError(SYNTAX_ERROR, f'COPY format "{kind}" not recognized; it is text, csv or binary')
    form = CopyForm(kind) if kind != "csv" else CopyForm(kind, ",", "")
    if "quote" in given:
        form = replace(form, escape=given["quote"])
    for name, value in given.items():
        match name:
            case "header":
                form = replace(form, is_headed=value.lower() in ("true", "on", "1", "match"))
            case "delimiter" | "quote" | "escape":
                if len(value.encode()) != 1:
                    raise RefusedError(SYNTAX_ERROR, f"COPY {name} must be a single one-byte character")
                form = replace(form, **dict[str, Any]({name: value}))
            case "null":
                form = replace(form, null=value)
            case "force_quote":
                if value != "*":
                    raise RefusedError(NOT_SUPPORTED, "COPY takes FORCE_QUOTE *, for all columns")
                form = replace(form, is_forced=True)
            case "encoding":
                if value.upper().replace("-", "") != "UTF8":
                    raise RefusedError(NOT_SUPPORTED, f"COPY writes UTF8, not {value}")
            case "freeze" | "oids":
                pass
            case _:
                raise RefusedError(SYNTAX_ERROR, f'COPY option "{name}" not recognized')
    return form


class CopiedRows(AnswerRows):
    """An answer's rows as messages of COPY.

    Args:
        names: of its columns, for the header.
        kinds: the types that its columns have.
        form: how rows are written.
        timezone: in which moments are written as texts.
    """

    def __init__(
        self,
        table: pa.Table,
        names: Sequence[str],
        kinds: Sequence[ColumnType],
        form: CopyForm,
        timezone: str,
    ) -> None:
        super().__init__(table, kinds, [form.format] * len(kinds), timezone)
        self._form = form
        self._names = names
        self._begin = _BINARY_BEGIN
        self._null = form.null.encode()
        self._delimiter = form.delimiter.encode()
        quote = re.escape((form.quote + form.delimiter).encode())
        self._to_quote = re.compile(b"[" + quote + rb"\r\n]")
        self._marks = {self._delimiter: b"\\" + self._delimiter} | _ESCAPED
        self._to_mark = re.compile(b"[" + re.escape(b"".join(self._marks)) + b"]")
        self._marks_in_order = sorted(self._marks.items(), key=lambda mark: mark[0] != b"\\")
        self._to_mark_as_re2 = _any_of(b"".join(self._marks))
        self._to_quote_as_re2 = _any_of((form.quote + form.delimiter).encode() + b"\r\n")
        is_usual = form.delimiter in ",\t;|" and form.quote == '"'
        self._is_usual = is_usual and form.null in ("", "\\N")

    def first(self) -> bytes:
        """Return what stands before the rows: the header."""
        if not self._form.is_headed or self._form.kind == "binary":
            return b""
        return self._row([self._text(name.encode(), is_forced=False) for name in self._names])

    def last(self) -> bytes:
        """Return what stands after the rows."""
        return self._binary(_BINARY_END) if self._form.kind == "binary" else b""

    def messages(self, first_row: int, most_rows: int | None = None) -> tuple[int, bytes]:
        if self._begin and self._form.kind == "binary":  # it stands in the message of the first row
            most_rows = 1
        return super().messages(first_row, most_rows)

    def _joined(self, columns: Sequence[pa.Array]) -> bytes:
        parts: list[RowPart] = []
        if self._form.kind == "binary":
            sizes = [lengths_of(column) for column in columns]
            size = total(sizes) + 6 + 4 * len(columns)
            for column, each in zip(columns, sizes, strict=True):
                parts += [prefix(each), without_nulls(column)]
            return joined(b"d", prefix(size), struct.pack("!h", len(columns)), *parts)
        texts = [self._texts(column, kind) for column, kind in zip(columns, self._kinds, strict=True)]
        size = total(list(map(lengths_of, texts))) + 4 + len(self._delimiter) * (len(texts) - 1) + 1
        for text in texts:
            parts += [self._delimiter, text]
        return joined(b"d", prefix(size), *parts[1:], b"\n")

    def _texts(self, column: pa.Array, kind: ColumnType) -> pa.Array:
        """Return values as they stand between the delimiters."""
        if not self._form.is_forced and self._is_usual and kind.oid in _NEVER_MARKED:
            return without_nulls(column, self._null)
        if self._form.kind == "text":
            if pc.any(pc.match_substring_regex(column, self._to_mark_as_re2)).as_py():
                for plain, marked in self._marks_in_order:
                    column = pc.replace_substring(column, plain, marked)
            return without_nulls(column, self._null)
        if self._form.is_forced:
            return without_nulls(self._quoted(column), self._null)
        to_quote = pc.or_(
            pc.match_substring_regex(column, self._to_quote_as_re2),
            pc.equal(column, pa.scalar(self._null, pa.binary())),
        )
        if len(self._names) == 1:
            to_quote = pc.or_(to_quote, pc.equal(column, pa.scalar(b"\\.", pa.binary())))
        if pc.any(to_quote).as_py():
            column = pc.if_else(to_quote, self._quoted(column), column)
        return without_nulls(column, self._null)

    def _quoted(self, column: pa.Array) -> pa.Array:
        quote, escape = self._form.quote.encode(), self._form.escape.encode()
        if escape != quote:
            column = pc.replace_substring(column, escape, escape * 2)
        return row_bytes(quote, pc.replace_substring(column, quote, escape + quote), quote)

    def _field(self, value: _Value) -> bytes:
        if self._form.kind == "binary":
            return super()._field(value)
        return self._null if value is None else self._text(value, is_forced=self._form.is_forced)

    def _text(self, value: bytes, *, is_forced: bool) -> bytes:
        if self._form.kind == "text":
            return self._to_mark.sub(lambda found: self._marks[found[0]], value)
        if (
            is_forced
            or value == self._null
            or (value == b"\\." and len(self._names) == 1)  # alone in its line it would be the end
            or self._to_quote.search(value) is not None
        ):
            quote, escape = self._form.quote.encode(), self._form.escape.encode()
            if escape != quote:
                value = value.replace(escape, escape * 2)
            return quote + value.replace(quote, escape + quote) + quote
        return value

    def _row(self, fields: Sequence[bytes]) -> bytes:
        if self._form.kind == "binary":
            return self._binary(struct.pack("!h", len(fields)) + b"".join(fields))
        return _message(self._delimiter.join(fields) + b"\n")

    def _binary(self, data: bytes) -> bytes:
        """Return a message of the binary format. The first begins with the format's signature."""
        begin, self._begin = self._begin, b""
        return _message(begin + data)


def _any_of(characters: bytes) -> str:
    """Return the pattern of any of these, as Arrow reads patterns."""
    return "[" + "".join(f"\\x{{{each:x}}}" for each in sorted(set(characters))) + "]"


def _message(data: bytes) -> bytes:
    """Return the message CopyData."""
    return _DATA.pack(b"d", len(data) + 4) + data
