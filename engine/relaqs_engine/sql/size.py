"""How large a statement may be: its text, its tokens, the depth of their nesting, its tree.

Each limit is far above what people and their tools write. Of 1,268 queries of five suites, the longest has
19,154 characters and 1,591 tokens, and the deepest tree has 29 levels. Within the limits DuckDB binds and
optimises in about a second, which nothing can interrupt.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.errors import SqlError
from relaqs_engine.sql.written import position_of

MOST_CHARACTERS = 131_072
MOST_TOKENS = 40_000
MOST_OPEN = 30
MOST_DEPTH = 200
MOST_WEIGHT = 20_000_000
MOST_CONDITIONS = 1000
MOST_JOINED = 50
LONGEST_INTERVAL = 100

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SPLIT = "split it, or load long lists into a table"


def check_text(sql: str) -> None:
    """Raise SqlError for a text that is too long, or has characters that are not Unicode text."""
    if len(sql) > MOST_CHARACTERS:
        raise too_large(f"the SQL has {len(sql):,} characters", MOST_CHARACTERS, _SPLIT)
    odd = next(
        (place for place, each in enumerate(sql) if each == "\0" or "\ud800" <= each <= "\udfff"), None
    )
    if odd is not None:
        raise SqlError(
            f"the SQL has the character U+{ord(sql[odd]):04X}, which is no text; take it out",
            position_of(sql, odd),
        )


def check_tokens(tokens: list[Token]) -> None:
    """Raise SqlError for too many tokens, or brackets and CASEs that nest too deeply."""
    if len(tokens) > MOST_TOKENS:
        raise too_large(f"the SQL has {len(tokens):,} words and signs", MOST_TOKENS, _SPLIT)
    depth = 0
    for before, token in pairwise(tokens):
        is_interval = before.token_type is TokenType.INTERVAL and token.token_type is TokenType.STRING
        if is_interval and len(token.text) > LONGEST_INTERVAL:  # read in time that grows with the square
            said = f"the text of an INTERVAL has {len(token.text):,} characters"
            raise too_large(said, LONGEST_INTERVAL, "write a number and a unit")
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > MOST_OPEN:
            raise too_deep(f"more than {MOST_OPEN} brackets and CASEs", (token.line, token.col))


def check_tree(tree: exp.Expr) -> None:
    """Raise SqlError for an expression that is too deep, or for too many deep ones.

    DuckDB goes through an expression once for each of its levels, and again for each node. So the cost grows
    with the squares of the depths. A chain of ANDs or ORs is one level.
    """
    weight = conditions = 0
    pending = deque([(tree, 1)])
    while pending:
        node, depth = pending.pop()
        if depth > MOST_DEPTH:
            raise too_deep(f"more than {MOST_DEPTH} operators or functions", None)
        weight += depth * depth
        conditions += isinstance(node, exp.And)
        if (joined := len(node.args.get("joins") or [])) > MOST_JOINED:
            raise too_large(f"a FROM joins {joined:,} tables", MOST_JOINED, "join some of them in a WITH")
        for child in node.iter_expressions():
            chained = isinstance(node, exp.Connector) and type(child) is type(node)
            pending.append((child, depth if chained else 1 if isinstance(child, exp.Query) else depth + 1))
    if conditions > MOST_CONDITIONS:
        raise too_large(
            f"the SQL joins {conditions:,} conditions by AND", MOST_CONDITIONS, "use IN, or a table"
        )
    if weight > MOST_WEIGHT:
        raise too_large(
            f"the SQL's expressions come to {weight:,} by the squares of their nodes' depths",
            MOST_WEIGHT,
            "name their inner parts in a WITH, or ask for fewer of them",
        )


def too_large(said: str, most: int, advice: str) -> SqlError:
    return SqlError(f"{said}; up to {most:,} are accepted: {advice}")


def too_deep(said: str, position: tuple[int, int] | None) -> SqlError:
    return SqlError(f"the SQL is nested {said} deep; name its inner parts in a WITH", position)
