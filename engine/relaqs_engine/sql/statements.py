"""The statements of a text, told apart as the parser does: by semicolons outside of quotes and comments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.errors import ExpressionError, SqlError
from relaqs_engine.sql.dialect import tokens_of
from relaqs_engine.sql.read import UNCLOSED
from relaqs_engine.sql.written import position_of

_SPACES = " \t\n\r"
# What is read without tokens: one statement of plain characters and texts, without a comment or a semicolon.
_ONE_PLAIN = re.compile(r"(?:[A-Za-z0-9_ \t\n\r.,()\[\]<>=!*+%:|]|'[^'\\]*'|\"[^\"\\]*\")*")

PlacedError: TypeAlias = SqlError | ExpressionError


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text.

    Attributes:
        sql: without the semicolon at its end, and without the comments around it.
        line: where it begins in the text, from 1.
        column: where it begins in that line, from 1.
        is_ended: whether a semicolon ends it.
    """

    sql: str
    line: int
    column: int
    is_ended: bool

    def placed(self, error: PlacedError, before: str = "") -> PlacedError:
        """Return an error of this statement with the position that it has in the whole text.

        before: words that stand before it.
        """
        if error.position is None:
            return error.at(None, before)
        line, column = error.position
        place = (self.line + line - 1, column if line > 1 else self.column + column - 1)
        return error.at(place, before)


def statements_of(text: str) -> tuple[Statement, ...]:
    """Return the statements of a text, in order. Empty ones are left out.

    Raises:
        SqlError: a quote or a comment is not closed.

    >>> for each in statements_of("-- how many\\nSELECT ';' AS mark; /* then */ SELECT 2"):
    ...     print(each.line, each.sql, each.is_ended)
    2 SELECT ';' AS mark True
    2 SELECT 2 False
    """
    return _by_tokens(text) if _ONE_PLAIN.fullmatch(text) is None else _only(text)


def _by_tokens(text: str) -> tuple[Statement, ...]:
    try:
        tokens = tokens_of(text)
    except TokenError:
        raise SqlError(UNCLOSED) from None
    found: list[Statement] = []
    own: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            own.append(token)
        elif own:
            found.append(_statement(text, own, is_ended=True))
            own = []
    return (*found, _statement(text, own, is_ended=False)) if own else tuple(found)


def _only(text: str) -> tuple[Statement, ...]:
    """Return the statement of a text that has one at most, and no comment."""
    sql = text.strip(_SPACES)
    if not sql:
        return ()
    line, column = position_of(text, text.index(sql[0]))
    return (Statement(sql, line, column, is_ended=False),)


def is_finished(text: str) -> bool:
    """Return whether nothing is left open: the last statement has its semicolon, or there is none.

    >>> is_finished("SELECT 1"), is_finished("SELECT 1;"), is_finished("SELECT ';")
    (False, True, False)
    """
    try:
        found = statements_of(text)
    except SqlError:
        return False
    return not found or found[-1].is_ended


def _statement(text: str, tokens: list[Token], *, is_ended: bool) -> Statement:
    begin, end = tokens[0].start, tokens[-1].end + 1
    line, column = position_of(text, begin)
    return Statement(text[begin:end], line, column, is_ended)
