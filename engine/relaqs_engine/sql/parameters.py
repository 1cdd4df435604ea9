"""Constants in the place of what is known when a SELECT is submitted: its parameters, and the moment.

A plan needs these values: zone maps are compared with them, and bounds of a sum follow from them. So they
stand in the SQL as constants. DuckDB itself turns each value into its type and text, and the text is
quoted. No value is read as SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import parse_tree, quote_text, written_from
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.dialect import tokens_of
from relaqs_engine.sql.edits import Edit, WrittenSql, position_of
from relaqs_engine.sql.misread import check_reading

Parameters: TypeAlias = Sequence[Any] | Mapping[Any, Any]
"""Values by position, for `?` and `$1`, or by name, for `$name`."""

TypedText: TypeAlias = tuple[str, str | None]
"""A value as DuckDB has it: its type, and its text. None is NULL."""

_CALLED_MOMENTS = frozenset(
    {
        *("now", "today", "transaction_timestamp", "get_current_time", "get_current_timestamp"),
        *("current_localtime", "current_localtimestamp"),
    }
)
_BARE_MOMENTS = frozenset(
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
)
_MOMENT = re.compile(rf"\b(?:{'|'.join(sorted(_CALLED_MOMENTS | _BARE_MOMENTS))})\b", re.IGNORECASE)
_WRITTEN_AS_THEY_ARE = re.compile(r"BOOLEAN|TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|DECIMAL\(.*\)")
_DIGITS = re.compile(r"[0-9.e+-]+")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a constant is to stand in a text. key: a parameter's position or name, or a moment's text."""

    begin: int
    end: int
    key: int | str


def may_have_parameters(sql: str, parameters: Parameters | None) -> bool:
    """Return whether values are given for parameters, or the text has a character that begins one."""
    return parameters is not None or "?" in sql or "$" in sql


def with_values(
    written: WrittenSql, parameters: Parameters | None, typed_text: Callable[[Any], TypedText]
) -> WrittenSql:
    """Return the SQL with values in the place of its parameters `?`, `$1` and `$name`.

    Args:
        written: the SQL with parameters.
        parameters: their values; None for none.
        typed_text: returns the type and text of a value. It is called once for each parameter.

    Raises:
        SqlError: a parameter has no value or one that DuckDB has no type for, or a value has no parameter.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> from relaqs_engine.sql.binder import Binder
    >>> binder = Binder(CATALOG)
    >>> binder.with_constants("SELECT avg(fare) FROM trips WHERE zone = $zone", {"zone": "it's"}).sql
    "SELECT avg(fare) FROM trips WHERE zone = 'it''s'"
    >>> binder.with_constants("SELECT 1 WHERE 2 < ?")
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: the query has the parameter ? and no value for it; give one with
    params=[…], in the shell with --param 1=…; at line 1, column 20
    """
    sql = written.sql
    if not may_have_parameters(sql, parameters):
        return written
    places = _places(sql)
    values = _by_key(parameters)
    for place in places:
        if place.key not in values:
            said = sql[place.begin : place.end]
            name = place.key if isinstance(place.key, int) else said.removeprefix("$").strip('" ')
            shape = "[…]" if isinstance(place.key, int) else f"{{{name!r}: …}}"
            raise SqlError(
                f"the query has the parameter {said} and no value for it; give one "
                f"with params={shape}, in the shell with --param {name}=…",
                position_of(sql, place.begin),
            )
    if extra := [key for key in values if key not in {place.key for place in places}]:
        names = ", ".join(dict.fromkeys(sql[place.begin : place.end] for place in places)) or "none"
        raise SqlError(f"params has a value for ${extra[0]}; the query's parameters are: {names}")
    constants: dict[int | str, str] = {}
    for place in places:
        if place.key not in constants:
            constants[place.key] = _constant(_typed(values[place.key], place, sql, typed_text))
    return written.edited(
        Edit(place.begin, place.end, constants[place.key] + _gap(sql[place.end : place.end + 1]))
        for place in places
    )


def _gap(after: str) -> str:
    """Return what keeps a constant apart from the word behind it: $1e5 is $1 AS e5."""
    return " " if after.isalnum() or after == "_" else ""


def _typed(value: Any, place: _Place, sql: str, typed_text: Callable[[Any], TypedText]) -> TypedText:
    try:
        return typed_text(value)
    except SqlError as error:
        raise SqlError(error.message, position_of(sql, place.begin)) from None


def parameter_count(sql: str) -> int:
    """Return how many values the parameters `?` and `$1` need: the highest place among them.

    >>> parameter_count("SELECT $2, '$3'"), parameter_count("SELECT ? + ?"), parameter_count("SELECT 1")
    (2, 2, 0)
    """
    if "?" not in sql and "$" not in sql:
        return 0
    return max((place.key for place in _places(sql) if isinstance(place.key, int)), default=0)


def tells_the_time(sql: str) -> bool:
    """Return whether the text has the name of a function such as now(), be it in a comment."""
    return _MOMENT.search(sql) is not None


def at_one_moment(
    written: WrittenSql,
    typed_texts: Callable[[Sequence[str]], Sequence[TypedText]],
    columns: Container[str] = (),
) -> WrittenSql:
    """Return the SQL with constants in the place of `now()`, `current_date` and the like.

    Args:
        written: the SQL that may call them.
        typed_texts: returns the types and texts of such functions, all of one moment.
        columns: names of the tables' columns, in lower case. If one is called current_date, this word means
            the column.
    """
    sql = written.sql
    if not tells_the_time(sql):
        return written
    tokens = _tokens(sql)
    named = {
        token.text.lower()
        for before, token in pairwise(tokens)
        if before.token_type is TokenType.ALIAS or token.token_type is TokenType.IDENTIFIER
    }
    bare = frozenset(word for word in _BARE_MOMENTS if word not in named and word not in columns)
    places = list(_moments(sql, tokens, bare))
    functions = list(dict.fromkeys(str(place.key) for place in places))
    texts = typed_texts(functions) if functions else ()
    values = dict(zip(functions, texts, strict=True))
    return written.edited(Edit(each.begin, each.end, _constant(values[str(each.key)])) for each in places)


def named_as_before(written: WrittenSql, asked: str) -> WrittenSql:
    """Return the SQL with constants, its columns called as DuckDB calls them without: count_if((id = $1)).

    Args:
        written: the SQL with constants.
        asked: the SQL that it was written from.

    Raises:
        SqlError: DuckDB does not read one as the other.

    >>> print(named_as_before(WrittenSql("SELECT max(x + 5) FROM t"), "SELECT max(x + $1) FROM t").sql)
    SELECT max((x + 5)) AS "max((x + $1))" FROM t
    """
    if written.sql == asked:
        return written
    if (before := parse_tree(asked)) is None:  # as of a PIVOT without values, and of ? beside $name
        return written
    check_reading(asked, written.sql, _CALLED_MOMENTS | _BARE_MOMENTS)
    tree = parse_tree(written.sql)
    unnamed = list(_unnamed(before, tree))
    for item, value in unnamed:
        value["alias"] = _name(item)
    if not unnamed:
        return written
    named = written_from(tree)
    return written.anew(named) if _said(parse_tree(named)) == _said(tree) else written


def _unnamed(before: Any, tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the outputs without a name that have constants in them: as they were before, and as they are."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(before, dict) and isinstance(tree, dict):
        for item, value in zip(before.get("select_list", ()), tree.get("select_list", ()), strict=False):
            if not item["alias"] and _said(item) != _said(value) and not _has_star(item):
                yield item, value
        pairs = [(before[key], tree[key]) for key in before.keys() & tree.keys()]
    elif isinstance(before, list) and isinstance(tree, list):
        pairs = list(zip(before, tree, strict=False))
    for pair in pairs:
        yield from _unnamed(*pair)


def _said(tree: Any) -> Any:
    """Return a tree of DuckDB's without places."""
    if isinstance(tree, dict):
        return {key: _said(value) for key, value in tree.items() if not key.startswith("query_location")}
    return [_said(each) for each in tree] if isinstance(tree, list) else tree


def _has_star(item: Any) -> bool:
    """Whether an output stands for several columns, as COLUMNS(*) + $1."""
    if isinstance(item, dict):
        return item.get("class") == "STAR" or any(map(_has_star, item.values()))
    return isinstance(item, list) and any(map(_has_star, item))


def _name(item: Any) -> str:
    """Return what DuckDB calls an output that has no name."""
    only = parse_tree("SELECT 1")
    only["statements"][0]["node"]["select_list"] = [item]
    return written_from(only).removeprefix("SELECT ")


def _tokens(sql: str) -> Sequence[Token]:
    """Return the tokens of a text, none where it cannot be cut into tokens. The parser then says why."""
    try:
        return tokens_of(sql)
    except TokenError:
        return ()


@lru_cache(maxsize=256)
def _places(sql: str) -> tuple[_Place, ...]:
    """Return where a text has parameters. The same text is asked again and again, with other values."""
    return tuple(_parameters(_tokens(sql)))


def _parameters(tokens: Sequence[Token]) -> Iterator[_Place]:
    unnamed = 0
    for i, token in enumerate(tokens):
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        if token.token_type is TokenType.PLACEHOLDER and token.text == "?":
            if after is not None and after.token_type is TokenType.NUMBER:  # ?1 is $1
                yield _Place(token.start, after.end + 1, int(after.text))
                continue
            unnamed += 1
            yield _Place(token.start, token.end + 1, unnamed)
        elif token.token_type is TokenType.PARAMETER and after is not None:
            key = int(after.text) if after.token_type is TokenType.NUMBER else after.text.lower()
            yield _Place(token.start, after.end + 1, key)


def _moments(sql: str, tokens: Sequence[Token], bare: frozenset[str]) -> Iterator[_Place]:
    for i, token in enumerate(tokens):
        word = token.text.lower()
        is_text = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        if is_text or (i and tokens[i - 1].token_type is TokenType.DOT):
            continue
        end = token.end + 1
        if [each.token_type for each in tokens[i + 1 : i + 3]] == [TokenType.L_PAREN, TokenType.R_PAREN]:
            end = tokens[i + 2].end + 1
        elif word not in bare:
            continue
        if word in _CALLED_MOMENTS or word in bare:
            yield _Place(token.start, end, sql[token.start : end].lower())


def _by_key(parameters: Parameters | None) -> dict[int | str, Any]:
    if isinstance(parameters, Mapping):
        return {key.lower() if isinstance(key, str) else key: value for key, value in parameters.items()}
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | None):
        raise SqlError(
            f"params is {parameters!r}; give a list of values for ? and $1, or a dictionary for $name"
        )
    return dict(enumerate(parameters or (), 1))


def _constant(value: TypedText) -> str:
    """Return SQL for a value of DuckDB."""
    type_, text = value
    if text is None:
        return "NULL"
    if type_ == "VARCHAR":
        return quote_text(text)
    if _WRITTEN_AS_THEY_ARE.fullmatch(type_):
        return f"({text})" if text.startswith("-") else text
    if type_ == "DOUBLE" and _DIGITS.fullmatch(text):
        number = text if "e" in text else f"{text}e0"  # a number with an exponent is a DOUBLE
        return f"({number})" if text.startswith("-") else number
    return f"CAST({quote_text(text)} AS {type_})"
