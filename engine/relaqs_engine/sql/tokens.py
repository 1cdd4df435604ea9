"""The tokens of a statement: its first word, and what is in brackets. sqlglot cannot parse all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.sql.dialect import tokens_of


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
