"""Words of Postgres that DuckDB's SQL has not, taken out of a text before it is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_SCHEMAS = {"public", "main"}
_METADATA = re.compile(
    r"\b(pg_\w+|information_schema|current_(schema|schemas|database|catalog|user|role|setting)|session_user|"
    r"set_config|version|has_\w+_privilege|format_type|\w+_description|quote_ident|quote_literal|to_reg\w+|"
    r"reg(class|type|proc|namespace))\b",
    re.IGNORECASE,
)

DATABASE = "relaqs"
"""The name of the one database that there is."""


def may_ask_metadata(sql: str) -> bool:
    """Return whether the text has a name that only questions about the server itself have."""
    return _METADATA.search(sql) is not None


def without_schema(sql: str, tables: Collection[str]) -> str:
    """Return the SQL with tables named without their schema, which tools write and DuckDB has not.

    >>> without_schema('SELECT "public"."trips".fare FROM relaqs.public.trips', ["trips"])
    'SELECT "trips".fare FROM trips'
    """
    tokens = _tokens(sql)
    names = {name.lower() for name in tables}
    return _without(sql, _schema_prefixes(tokens, names))


def without_postgres_words(sql: str) -> str:
    """Return the SQL without the schema pg_catalog, `OPERATOR(…)` and collations.

    >>> without_postgres_words("SELECT oid::pg_catalog.text FROM pg_class WHERE a OPERATOR(pg_catalog.~) 'x'")
    "SELECT oid::text FROM pg_class WHERE a ~ 'x'"
    """
    return _without(sql, _postgres_words(_tokens(sql)))


def _tokens(sql: str) -> Sequence[Token]:
    """Return the tokens, none where the text cannot be cut into any. The parser then says why."""
    try:
        return DuckDB().tokenize(sql)
    except TokenError:
        return ()


def _schema_prefixes(tokens: Sequence[Token], tables: Collection[str]) -> Iterator[tuple[int, int]]:
    for i, token in enumerate(tokens[:-2]):
        if not _is_name(token, _SCHEMAS) or tokens[i + 1].token_type is not TokenType.DOT:
            continue
        if tokens[i + 2].text.lower() not in tables:
            continue
        begin = i
        if i >= 1 and tokens[i - 1].token_type is TokenType.DOT:
            if i < 2 or not _is_name(tokens[i - 2], {DATABASE}):
                continue
            begin = i - 2
        yield tokens[begin].start, tokens[i + 2].start


def _postgres_words(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    i = 0
    while i < len(tokens):
        after = tokens[i + 1 : i + 4]
        is_prefix = bool(after) and after[0].token_type is TokenType.DOT
        if tokens[i].token_type is TokenType.COLLATE:
            end = i + (3 if len(after) > 1 and after[1].token_type is TokenType.DOT else 1)
            yield tokens[i].start, tokens[min(end, len(tokens) - 1)].end + 1
            i = end + 1
        elif _is_name(tokens[i], {"pg_catalog"}) and is_prefix:
            yield tokens[i].start, after[0].end + 1
            i += 2
        elif tokens[i].text.lower() == "operator" and after and after[0].text == "(":
            yield tokens[i].start, after[0].end + 1
            i += 2
            while i < len(tokens) and tokens[i].text != ")":
                if tokens[i].text in ("pg_catalog", "."):
                    yield tokens[i].start, tokens[i].end + 1
                i += 1
            if i < len(tokens):
                yield tokens[i].start, tokens[i].end + 1
            i += 1
        else:
            i += 1


def _is_name(token: Token, names: Collection[str]) -> bool:
    return token.token_type in _NAMES and token.text.lower() in names


def _without(sql: str, places: Iterator[tuple[int, int]]) -> str:
    kept, at = [], 0
    for begin, end in places:
        kept.append(sql[at:begin])
        at = end
    return "".join([*kept, sql[at:]])
