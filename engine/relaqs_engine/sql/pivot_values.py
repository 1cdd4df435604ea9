"""A PIVOT that names no values: which columns it gives depends on the data, so the data are asked first.

    PIVOT trips ON zone USING sum(fare)
    FROM trips SELECT DISTINCT CAST(zone AS VARCHAR) AS value ORDER BY 1
    PIVOT trips ON (zone) IN ('A', 'B') USING sum(fare)

DuckDB does the same: it makes an ENUM of the values, and NULL is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import quote_text
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.tokens import (
    first_word,
    outside_brackets,
    statement_tokens,
    until_closed,
    verb_place,
)
from relaqs_engine.sql.written import Edit, WrittenSql

MOST_VALUES = 10_000  # of one PIVOT: each is a column

_HAS_PIVOT = re.compile(r"\(\s*pivot\b", re.IGNORECASE)
_AFTER_ON = frozenset({"using", "group", "order", "limit"})
_OPERATORS = frozenset({"not", "and", "or", "is", "like", "ilike", "between"})


@dataclass(frozen=True, slots=True)
class _OpenValues:
    """What a PIVOT turns to columns without naming its values.

    Attributes:
        begin, end: where the expression is.
        asked: a SELECT of the values, as texts in their order. It is the statement with edits, so that an
            error in it is placed in what the user wrote.
    """

    begin: int
    end: int
    asked: WrittenSql


def with_pivot_values(written: WrittenSql, values_of: Callable[[WrittenSql], Sequence[str]]) -> WrittenSql:
    """Return the statement with the values that each of its PIVOTs takes from the data.

    A PIVOT behind a WITH inside of brackets, or of joined tables without brackets, is left as it is.

    Args:
        written: one SELECT, in which each PIVOT is in brackets.
        values_of: returns the texts that such a SELECT gives.

    Raises:
        SqlError: there are too many values.

    >>> asked = []
    >>> def values_of(written):
    ...     asked.append(written.sql)
    ...     return ["A", "B"]
    >>> sql = "SELECT * FROM (PIVOT trips ON zone USING sum(fare))"
    >>> with_pivot_values(WrittenSql(sql), values_of).sql
    "SELECT * FROM (PIVOT trips ON (zone) IN ('A', 'B') USING sum(fare))"
    >>> asked
    ['FROM trips SELECT DISTINCT CAST(zone AS VARCHAR) AS value ORDER BY 1']
    """
    if not _HAS_PIVOT.search(written.sql):
        return written
    edits = []
    for each in _open_values(written):
        values = values_of(each.asked)
        if len(values) > MOST_VALUES:
            raise SqlError(
                f"{written.sql[each.begin : each.end]} has {len(values):,} values, and this PIVOT would give "
                f"as many columns; at most {MOST_VALUES:,} are given. Name some, as in ON x IN ('a', 'b')"
            )
        if values:
            edits.append(Edit(each.begin, each.begin, "("))
            edits.append(Edit(each.end, each.end, f") IN ({', '.join(map(quote_text, values))})"))
    return written.edited(edits)


def _open_values(written: WrittenSql) -> Iterator[_OpenValues]:
    """Yield what each PIVOT of a statement turns to columns without naming values."""
    tokens = statement_tokens(written.sql)
    for place in range(len(tokens) - 1):
        if place and first_word(tokens[place]) == "with":
            return
        is_open = tokens[place].token_type is TokenType.L_PAREN
        if is_open and first_word(tokens[place + 1]) == "pivot":
            pivot = list(until_closed(tokens, place + 1))
            outside = [(at, first_word(token)) for at, token in outside_brackets(pivot, 1)]
            on = next((at for at, word in outside if word == "on"), None)
            if on is not None and not any(word == "join" for at, word in outside if at < on):
                yield from _open_of(written, pivot, on, _common_end(tokens, place))


def _common_end(tokens: Sequence[Token], place: int) -> int:
    """Return where the WITH ends that has all queries that a token of the statement can name."""
    verb = verb_place(tokens)
    if place >= verb:
        return tokens[verb].start if verb else 0
    outside = (token for at, token in outside_brackets(tokens, 0) if at < place)
    return max((token.start for token in outside if token.token_type is TokenType.COMMA), default=0)


def _open_of(written: WrittenSql, pivot: Sequence[Token], on: int, common_end: int) -> Iterator[_OpenValues]:
    """Yield the expressions behind an ON that have no IN.

    Args:
        written: the statement.
        pivot: the tokens of the PIVOT.
        on: which of them is ON. Before it is what is pivoted.
        common_end: where the WITH ends that belongs to it.
    """
    outside = list(outside_brackets(pivot, on + 1))
    end = next((at for at, token in outside if first_word(token) in _AFTER_ON), len(pivot))
    commas = [at for at, token in outside if at < end and token.token_type is TokenType.COMMA]
    for first, after in zip([on + 1, *(comma + 1 for comma in commas)], [*commas, end], strict=True):
        if first < after and not _names_values(pivot[first:after]):
            begin, stop = pivot[first].start, pivot[after - 1].end + 1
            edits = (
                Edit(common_end, pivot[1].start, " FROM " if common_end else "FROM "),
                Edit(pivot[on - 1].end + 1, begin, " SELECT DISTINCT CAST("),
                Edit(stop, len(written.sql), " AS VARCHAR) AS value ORDER BY 1"),
            )
            yield _OpenValues(begin, stop, written.edited(edits))


def _names_values(tokens: Sequence[Token]) -> bool:
    """Whether an expression behind ON names its values.

    Without brackets around n % 2, DuckDB reads `n % 2 IN (0, 1)` as one expression, which is true or false.
    """
    outside = [token for _, token in outside_brackets(tokens, 0)]
    words = list(map(first_word, outside))
    if "in" not in words:
        return False
    return words[0] == "case" or not any(map(_is_operator, outside[: words.index("in")]))


def _is_operator(token: Token) -> bool:
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER):
        return False
    is_sign = not token.text[0].isalnum() and token.text[0] not in "_()." and token.text != "::"
    return is_sign or first_word(token) in _OPERATORS
