"""Edits of a statement's text before it is planned, and where each place of it was in what the user wrote.

Some statements must be written anew before sqlglot can parse them: a PIVOT without values, a DESCRIBE.
Their tokens are found by sqlglot's tokenizer, and texts are put in the place of tokens. `WrittenSql` keeps
both texts and each edit, so that an error after all of the edits still names the user's own line and
column:

    FROM trips PIVOT …                     the user's text, an error at column 12
    SELECT * FROM (FROM trips PIVOT …)     what is parsed, the same error at column 27
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.errors import SqlError
from relaqs_engine.sql.dialect import tokens_of


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands in the place of a part of a text.

    Attributes:
        begin: where the part begins, in characters from 0.
        end: where it ends. It is `begin` where something is only put in.
        text: what stands there instead.
    """

    begin: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Step:
    """A text, and its edits in order, none of which overlap. None: it was written anew."""

    before: str
    edits: tuple[Edit, ...] | None


@dataclass(frozen=True, slots=True)
class WrittenSql:
    """A statement as it is planned. Errors in it can be placed in what the user wrote.

    >>> written = WrittenSql("SELECT $a, fair").edited([Edit(7, 9, "'some text'")])
    >>> written.sql
    "SELECT 'some text', fair"
    >>> print(written.placed(SqlError("there is no fair", (1, 21))))
    there is no fair; at line 1, column 12
    """

    sql: str
    _steps: tuple[_Step, ...] = ()

    @property
    def asked(self) -> str:
        """Return what the user wrote."""
        return self._steps[0].before if self._steps else self.sql

    def edited(self, edits: Iterable[Edit]) -> WrittenSql:
        """Return it with these edits of its text, which are in order and do not overlap."""
        edits = tuple(edits)
        if not edits:
            return self
        parts, kept_from = [], 0
        for edit in edits:
            parts += [self.sql[kept_from : edit.begin], edit.text]
            kept_from = edit.end
        text = "".join([*parts, self.sql[kept_from:]])
        return WrittenSql(text, (*self._steps, _Step(self.sql, edits)))

    def anew(self, sql: str) -> WrittenSql:
        """Return another text for it, in which no place of the text before is known."""
        return self if sql == self.sql else WrittenSql(sql, (*self._steps, _Step(self.sql, None)))

    def placed(self, error: SqlError) -> SqlError:
        """Return an error of this text with its place in what the user wrote, or without one.

        An error inside of what was put in is placed where that stands.
        """
        position = error.position
        for step in reversed(self._steps):
            if position is not None:
                position = None if step.edits is None else _before(position, step.before, step.edits)
        return SqlError(error.message, position, error.candidates)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Place the errors that a block raises about this text."""
        try:
            yield
        except SqlError as error:
            if self._steps:
                raise self.placed(error) from error.__cause__
            raise


def position_of(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column, both from 1, of a character counted from 0.

    >>> position_of("SELECT 1,\\n  x", 12)
    (2, 3)
    """
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def offset_of(text: str, position: tuple[int, int]) -> int | None:
    """Return the character, counted from 0, of a line and a column; None where the text has no such place.

    >>> offset_of("SELECT 1,\\n  x", (2, 3)), offset_of("SELECT 1,\\n  x", (1, 11))
    (12, None)
    """
    line, column = position
    begin = 0
    for _ in range(line - 1):
        begin = text.find("\n", begin) + 1
        if begin == 0:
            return None
    end = text.find("\n", begin)
    offset = begin + column - 1
    return offset if begin <= offset <= (len(text) if end < 0 else end) else None


def _before(position: tuple[int, int], before: str, edits: tuple[Edit, ...]) -> tuple[int, int] | None:
    """Return where a place of the edited text was in the text before, None where it lies beyond the text."""
    after = WrittenSql(before).edited(edits).sql
    offset = offset_of(after, position)
    if offset is None:
        return None
    moved = 0  # how much further to the right the part after an edit stands
    for edit in edits:
        begin = edit.begin + moved
        if offset < begin:
            break
        if offset < begin + len(edit.text):
            return position_of(before, edit.begin)
        moved += len(edit.text) - (edit.end - edit.begin)
    return position_of(before, offset - moved)


def statement_tokens(sql: str) -> list[Token]:
    """Return the tokens of one statement, none where the text is not one. The parser then says why."""
    try:
        tokens = tokens_of(sql)
    except TokenError:
        return []
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return [] if any(token.token_type is TokenType.SEMICOLON for token in tokens) else tokens


def first_word(token: Token) -> str:
    """Return the first word of a keyword in lower case, "" for a text or a name in quotes."""
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return ""
    return token.text.lower().split(" ")[0]


def verb_place(tokens: Sequence[Token]) -> int:
    """Return which token says what a statement does: the one behind its WITH, the first without a WITH."""
    if not tokens or first_word(tokens[0]) != "with":
        return 0
    for place, token in outside_brackets(tokens, 0):
        if place and token.token_type is not TokenType.R_PAREN:
            is_after_brackets = tokens[place - 1].token_type is TokenType.R_PAREN
            if is_after_brackets and first_word(token) not in (",", "as", "using"):
                return place
    return 0


def outside_brackets(tokens: Sequence[Token], begin: int) -> Iterator[tuple[int, Token]]:
    """Yield the tokens, with their places, that are in no brackets which open at `begin` or later."""
    depth = 0
    for place in range(begin, len(tokens)):
        depth -= tokens[place].token_type is TokenType.R_PAREN
        if depth == 0:
            yield place, tokens[place]
        depth += tokens[place].token_type is TokenType.L_PAREN


def until_closed(tokens: Sequence[Token], begin: int) -> Iterator[Token]:
    """Yield the tokens up to the bracket that closes what is open at `begin`."""
    depth = 0
    for token in tokens[begin:]:
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        if depth < 0:
            return
        yield token
