"""Words of Postgres that DuckDB's SQL has not, taken out of a text before it is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.sql.dialect import tokens_of

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_SCHEMAS = {"public", "main"}
_SCHEMA_WORD = re.compile("|".join(_SCHEMAS), re.IGNORECASE)
_WORDS_AS_NAMES = {TokenType.SELECT, TokenType.INSERT, TokenType.UPDATE, TokenType.DELETE}
_METADATA = re.compile(
    r"\b(pg_\w+|txid_current_if_assigned|information_schema|current_(schema|schemas|database|catalog|user|role|setting)|session_user|"
    r"set_config|version|has_\w+_privilege|format_type|\w+_description|quote_ident|quote_literal|to_reg\w+|"
    r"reg(class|type|proc|namespace|role)|getdatabaseencoding|acl(default|explode)|txid_current|inet_\w+)\b",
    re.IGNORECASE,
)

_DEPTHS = {
    **dict.fromkeys((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE), 1),
    **dict.fromkeys((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE), -1),
}
_OF_SETS = {TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT}
_AFTER_KEYS = {TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH, TokenType.FOR, TokenType.SEMICOLON}
_AFTER_OUTPUTS = {
    *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.LIMIT),
    *(TokenType.HAVING, TokenType.OFFSET, TokenType.WINDOW, TokenType.QUALIFY, TokenType.SEMICOLON),
}
TextEdit: TypeAlias = tuple[int, int, str]  # from, to, and what stands there instead

DATABASE = "relaqs"
"""The name of the one database that there is."""


def may_ask_metadata(sql: str) -> bool:
    """Return whether the text has a name that only questions about the server itself have."""
    return _METADATA.search(sql) is not None


def without_schema(sql: str, tables: Collection[str]) -> str:
    """Return the SQL with tables named without their schema, which tools write and DuckDB has not."""
    if _SCHEMA_WORD.search(sql) is None:
        return sql
    tokens = tokens_or_none(sql)
    names = {name.lower() for name in tables}
    return edited(sql, _schema_prefixes(tokens, names))


def _commas(tokens: Sequence[Token], opened: int) -> tuple[list[Token], int | None]:
    """Return the commas between the arguments of a call, and the place of the bracket that closes it."""
    depth, commas = 0, list[Token]()
    for i in range(opened, len(tokens)):  # a slice would be a copy for each call
        token = tokens[i]
        depth += _DEPTHS.get(token.token_type, 0)
        if not depth:
            return commas, i
        if depth == 1 and token.token_type is TokenType.COMMA:
            commas.append(token)
    return commas, None


def between_commas(brackets: str | None) -> tuple[str, ...]:
    """Return what stands between the commas of a list in brackets, as it was written. None has nothing."""
    if brackets is None or not brackets.strip()[1:-1].strip():
        return ()
    tokens = tokens_of(brackets)
    commas, closed = _commas(tokens, 0)
    if closed is None:
        return ()
    ends = [*(each.start for each in commas), tokens[closed].start]
    begins = [brackets.index("(") + 1, *(each.end + 1 for each in commas)]
    return tuple(brackets[begin:end].strip() for begin, end in zip(begins, ends, strict=True))


@dataclass(frozen=True, slots=True)
class SchemaCall:
    """A call of a function of a schema, as `relaqs.low(x)`.

    Attributes:
        name: of the function, in lower case.
        begin: where the schema's name begins.
        arguments: where they begin and end.
        end: behind the bracket that closes it.
        place: of the output that is this call alone, counted from 0; None where it stands elsewhere.
        alias: the output's name, "" where it has none.
    """

    name: str
    begin: int
    arguments: tuple[int, int]
    end: int
    place: int | None
    alias: str


def schema_calls(tokens: Sequence[Token], schema: str) -> tuple[SchemaCall, ...]:
    """Return the calls of a schema's functions. Places are those in the list of the outermost SELECT.

    Behind a star none is known.
    """
    outputs = _outputs(tokens)
    star = next(
        (n for n, (_, end) in enumerate(outputs) if tokens[end - 1].token_type is TokenType.STAR), None
    )
    numbered = {begin: (number, end) for number, (begin, end) in enumerate(outputs[:star])}
    found = []
    for i, token in enumerate(tokens[:-3]):
        is_call = tokens[i + 1].token_type is TokenType.DOT and tokens[i + 3].token_type is TokenType.L_PAREN
        if not (is_call and _is_name(token, {schema})):
            continue
        _, closed = _commas(tokens, i + 3)
        if closed is None:
            continue
        number, end = numbered.get(i, (None, closed))
        alias = None if number is None else _alias(tokens[closed + 1 : end])
        found.append(
            SchemaCall(
                tokens[i + 2].text.lower(),
                token.start,
                (tokens[i + 3].end + 1, tokens[closed].start),
                tokens[closed].end + 1,
                None if alias is None else number,
                alias or "",
            )
        )
    return tuple(found)


def words_of(sql: str) -> frozenset[str]:
    """Return the names and words of a text, in lower case."""
    return frozenset(token.text.lower() for token in tokens_or_none(sql))


def names_used(tokens: Sequence[Token]) -> Counter[str]:
    """Return how often each name or word stands in a text, in lower case; not those behind a point."""
    behind = (None, *(token.token_type for token in tokens))
    return Counter(
        token.text.lower()
        for token, before in zip(tokens, behind, strict=False)
        if before is not TokenType.DOT
    )


def sorted_by(tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return what the rows of the outermost SELECT are sorted by, where that is a name or a number."""
    outside = [*_outside_brackets(tokens)]
    place = next((i for i, token in enumerate(outside) if token.token_type is TokenType.ORDER_BY), None)
    keys = () if place is None else outside[place + 1 :]
    return tuple(
        token.text.lower() for token in takewhile(lambda each: each.token_type not in _AFTER_KEYS, keys)
    )


def _outside_brackets(tokens: Sequence[Token]) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        change = _DEPTHS.get(token.token_type, 0)
        if not depth and not change:
            yield token
        depth += change


def _outputs(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Return where the outputs of the outermost SELECT begin and end; none where it is not one alone."""
    depth = 0
    found: list[tuple[int, int]] = []
    begin = end = None
    for i, token in enumerate(tokens):
        depth += (change := _DEPTHS.get(token.token_type, 0))
        if depth or change:
            continue
        if token.token_type in _OF_SETS:
            return []
        if begin is None:
            begin = i + 1 if token.token_type is TokenType.SELECT else None
            continue
        if end is None and token.token_type in (TokenType.DISTINCT, TokenType.ALL) and begin == i:
            begin = i + 1
        elif end is None and token.token_type is TokenType.COMMA:
            found.append((begin, i))
            begin = i + 1
        elif end is None and token.token_type in _AFTER_OUTPUTS:
            end = i
    return [] if begin is None else [*found, (begin, len(tokens) if end is None else end)]


def _alias(tokens: Sequence[Token]) -> str | None:
    """Return the name that stands behind an output, "" for none; None where something else does."""
    match [token.token_type is TokenType.ALIAS for token in tokens]:
        case []:
            return ""
        case [True, False]:
            return tokens[1].text
        case [False] if tokens[0].token_type in _NAMES:
            return tokens[0].text
    return None


def without_postgres_words(sql: str) -> str:
    """Return the SQL without the schema pg_catalog, `OPERATOR(…)`, collations and words
    that are names there.
    """
    return edited(sql, _postgres_words(tokens_or_none(sql)))


def tokens_or_none(sql: str) -> Sequence[Token]:
    """Return the tokens, none where the text cannot be cut into any. The parser then says why."""
    try:
        return tokens_of(sql)
    except TokenError:
        return ()


def _schema_prefixes(tokens: Sequence[Token], tables: Collection[str]) -> Iterator[TextEdit]:
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
        yield tokens[begin].start, tokens[i + 2].start, ""


def _postgres_words(tokens: Sequence[Token]) -> Iterator[TextEdit]:
    i = 0
    while i < len(tokens):
        after = tokens[i + 1 : i + 4]
        is_prefix = bool(after) and after[0].token_type is TokenType.DOT
        if tokens[i].token_type is TokenType.COLLATE:
            end = i + (3 if len(after) > 1 and after[1].token_type is TokenType.DOT else 1)
            yield tokens[i].start, tokens[min(end, len(tokens) - 1)].end + 1, ""
            i = end + 1
        elif (is_prefix and _is_name(tokens[i], {"pg_catalog"})) or _is_function_of_schema(tokens[i : i + 3]):
            yield tokens[i].start, after[0].end + 1, ""
            i += 2
        elif tokens[i].token_type is TokenType.ALIAS and after and after[0].token_type in _WORDS_AS_NAMES:
            yield after[0].start, after[0].end + 1, f'"{after[0].text}"'
            i += 2
        elif tokens[i].text.lower() == "operator" and after and after[0].text == "(":
            yield tokens[i].start, after[0].end + 1, ""
            i += 2
            while i < len(tokens) and tokens[i].text != ")":
                if tokens[i].text in ("pg_catalog", "."):
                    yield tokens[i].start, tokens[i].end + 1, ""
                i += 1
            if i < len(tokens):
                yield tokens[i].start, tokens[i].end + 1, ""
            i += 1
        else:
            i += 1


def _is_function_of_schema(tokens: Sequence[Token]) -> bool:
    """Whether it is information_schema._pg_…, a function. Relations keep their schema."""
    if len(tokens) < 3 or not _is_name(tokens[0], {"information_schema"}):
        return False
    return tokens[1].token_type is TokenType.DOT and tokens[2].text.lower().startswith("_pg_")


def _is_name(token: Token, names: Collection[str]) -> bool:
    return token.token_type in _NAMES and token.text.lower() in names


def edited(sql: str, edits: Iterator[TextEdit]) -> str:
    """Return a text with parts of it replaced, which are given in their order."""
    kept, at = [], 0
    for begin, end, instead in edits:
        kept += [sql[at:begin], instead]
        at = end
    return "".join([*kept, sql[at:]])
