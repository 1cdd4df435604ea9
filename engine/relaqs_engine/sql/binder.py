"""What DuckDB is asked about a statement before it runs: its types, its constants, and how it reads it.

DuckDB's own parser and binder decide, over empty tables with the catalog's schema. No data is read.

- **Types and names.** `TypesByName` has the types of the catalog's columns by the names that sqlglot
  compares. A `Binder` asks DuckDB for what it does not know.
- **Constants** (`with_values`, `at_one_moment`). Parameters and now() are known when a SELECT is
  submitted. A plan needs their values: zone maps are compared with them, and bounds of a sum follow from
  them. So they stand in the SQL as constants. DuckDB turns each value into its type and text, and the text
  is quoted. No value is read as SQL.
- **Readings** (`check_reading`). sqlglot knows most of DuckDB's SQL. Where it does not, it may take a word
  for an alias, or drop it, and say nothing. So DuckDB parses the user's text and what we wrote from our
  tree, and its two trees are compared. Two names of one function or type are the same, and so are a
  default and what it stands for. All else is an error.

    SELECT corr(x, y) EXPORT_STATE FROM t       what the user wrote
    SELECT CORR(x, y) AS EXPORT_STATE FROM t    what we would have run

- **Failures** (`placed_in`). Where an expression fails in the statement that DuckDB ran, this tells where
  it stands in what the user wrote. The two texts differ: the rewriter names tables in full, splits
  aggregates and writes constants for parameters. But an expression over a row stays what it is. So DuckDB
  parses both texts, and the expression that failed is looked for among those of the user.

>>> ran = Underlined("SELECT sum(CAST(trips.km AS INT)) AS b0 FROM trips", position=(1, 12), width=21)
>>> placed_in(ExpressionError("no number", ran=ran), "SELECT avg(fare),\\n  sum(km::INT) FROM trips").position
(2, 9)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.schema import MappingSchema, normalize_name
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import (
    CivilTime,
    Cursor,
    Database,
    DatabaseConfig,
    function_aliases,
    parse_tree,
    quote_name,
    quote_text,
    serialized,
    syntax_error,
    type_aliases,
    written_from,
)
from relaqs_engine.errors import ExpressionError, SqlError, Underlined
from relaqs_engine.sql.dialect import DIALECT, tokens_of
from relaqs_engine.sql.read import Edit, Effort, WrittenSql, offset_of, position_of

_PLACE = re.compile(r'"query_location":\d+,"query_location_length":\d+')
_FAILED = '{"error":true'
_NO_PLACE = 2**64 - 1
_MOST_QUOTED = 60  # characters of SQL in an error
_SAID_TWICE = frozenset({"is_operator", "named_param_map", "qualified_name"})
_NEGATIONS = {
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
    "COMPARE_NOT_IN": "COMPARE_IN",
    "COMPARE_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM",
}
_NO_WHOLE_DIGIT = re.compile(r"^(-?)\.")
_DEFAULT_DECIMAL = ("18", "3")


def check_reading(sql: str, written: str, constants: Container[str] = ()) -> None:
    """Raise SqlError where DuckDB reads what we wrote otherwise than the user's SQL. Comments do not count.

    Args:
        sql: what the user wrote.
        written: what stands in its place. It may have anything in the place of a parameter.
        constants: the names, such as now, of what may have anything in its place, too.
    """
    theirs, ours = serialized(sql), serialized(written)
    if theirs.startswith(_FAILED):
        raise syntax_error(sql) or SqlError(
            "this is no SELECT that DuckDB can take apart; write it otherwise"
        )
    if _PLACE.sub("", theirs) == _PLACE.sub("", ours):
        return
    difference = _apart(_tree(theirs), _tree(ours), constants)
    if difference is not None:
        raise _misread(sql, written, difference)


class _Node(dict[str, Any]):
    """A node of DuckDB's tree without what is empty in it.

    Attributes:
        place: where it begins and ends in its text, in bytes; None: it has no place.
    """

    place: tuple[int, int] | None = None


def _tree(text: str) -> _Node:
    """Return a tree of DuckDB's in which what means the same is the same."""
    tree: _Node = json.loads(text, object_hook=_node)
    return tree


def _node(found: dict[str, Any]) -> _Node:
    begin, length = found.pop("query_location", _NO_PLACE), found.pop("query_location_length", 0)
    kept = {key: value for key, value in found.items() if key not in _SAID_TWICE and not _is_empty(value)}
    node = _Node(kept)
    if begin != _NO_PLACE:
        node.place = (begin, begin + length)
    return _plain(node, str(node.get("class", "")), str(node.get("type", "")))


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [])


def _plain(node: _Node, kind: str, type_: str) -> _Node:
    """Return a node in the one of its forms that is compared. The nodes inside of it have theirs."""
    if type_ in _NEGATIONS:
        denied = _like(node, alias="", type_=_NEGATIONS[type_])
        return _like(node, only=True, kind="OPERATOR", type_="OPERATOR_NOT", children=[denied])
    if kind in ("FUNCTION", "WINDOW"):
        return _plain_call(node)
    if kind == "TYPE":
        return _plain_type(node)
    if kind == "COLUMN_REF":
        node["column_names"] = [name.lower() for name in node["column_names"]]
    elif "null_order" in node:  # of ORDER BY
        node["null_order"] = node["null_order"].replace("ORDER_DEFAULT", "NULLS LAST")
        node["type"] = node["type"].replace("ORDER_DEFAULT", "ASCENDING")
    elif node.get("kind") in ("INTEGER", "NUMERIC"):
        node["text"] = _NO_WHOLE_DIGIT.sub(r"\g<1>0.", node["text"].replace("_", ""))
    elif type_ == "SUBQUERY" and node.get("alias") == "_values":  # as sqlglot writes VALUES
        values = node["subquery"]["node"]["from_table"]
        return _like(values, alias="valueslist")
    return node


def _plain_call(call: _Node) -> _Node:
    """Return a call by DuckDB's name of its function, with the arguments that it takes by default."""
    name = call["function_name"] = function_aliases().get(call["function_name"], call["function_name"])
    arguments = call.get("arguments", [])
    values = [argument["expression"] for argument in arguments]
    if name == "list_value":
        return _like(call, only=True, kind="OPERATOR", type_="ARRAY_CONSTRUCTOR", children=values)
    if name == "if" and len(values) == 3:
        check = _Node(when_expr=values[0], then_expr=values[1])
        return _like(
            call, only=True, kind="CASE", type_="CASE_EXPR", case_checks=[check], else_expr=values[2]
        )
    if name in ("range", "generate_series") and len(values) == 1:
        arguments.insert(0, _Node(expression=_constant_node("INTEGER", "0")))
    if name == "string_agg" and len(values) == 1:
        arguments.append(_Node(expression=_constant_node("STRING", ",")))
    return call


def _plain_type(type_: _Node) -> _Node:
    name = type_["type_name"] = type_aliases().get(type_["type_name"].lower(), type_["type_name"].lower())
    if name == "VARCHAR":
        type_.pop("children", None)  # VARCHAR(5) has no limit
    if name == "DECIMAL":
        type_.setdefault("children", [_constant_node("INTEGER", digits) for digits in _DEFAULT_DECIMAL])
    return type_


def _constant_node(kind: str, text: str) -> _Node:
    literal = _Node(kind=kind, text=text)
    return _Node({"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": literal})


def _like(node: _Node, *, only: bool = False, kind: str = "", type_: str = "", **parts: Any) -> _Node:
    """Return a node at the place of another. only: of its parts it has the alias alone."""
    kept = {key: value for key, value in node.items() if key == "alias" or not only}
    changed = _Node(kept | ({"class": kind} if kind else {}) | ({"type": type_} if type_ else {}) | parts)
    changed.place = node.place
    for name in [name for name, value in parts.items() if value in ("", [])]:
        del changed[name]
    return changed


_Difference: TypeAlias = tuple[_Node, _Node] | tuple[None, None]


def _apart(meant: Any, read: Any, constants: Container[str]) -> _Difference | None:
    """Return the innermost nodes with a place in which two trees differ. None: they do not differ."""
    if meant == read or (_is_constant(meant, constants) and meant.get("alias") == read.get("alias")):
        return None
    for one, other in _parts(meant, read):
        if (inside := _apart(one, other, constants)) is not None:
            are_placed = isinstance(meant, _Node) and meant.place and isinstance(read, _Node) and read.place
            return (meant, read) if inside == (None, None) and are_placed else inside
    return None if _are_alike(meant, read) else (None, None)


def _parts(meant: Any, read: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(meant, _Node) and isinstance(read, _Node):
        return [(meant.get(key), read.get(key)) for key in {**meant, **read}]
    return list(zip(meant, read, strict=True)) if _are_alike(meant, read) else []


def _are_alike(meant: Any, read: Any) -> bool:
    """Whether two parts of trees are told apart by their own parts alone."""
    if isinstance(meant, list) and isinstance(read, list):
        return len(meant) == len(read)
    return isinstance(meant, _Node) and isinstance(read, _Node)


def _is_constant(node: Any, constants: Container[str]) -> bool:
    """Whether it is a parameter, a function such as now(), or minus one, as -$1, which may be 5."""
    if not isinstance(node, _Node):
        return False
    kind, names, arguments = node.get("class"), node.get("column_names", []), node.get("arguments", [])
    if kind == "COLUMN_REF":
        return len(names) == 1 and names[0] in constants
    if kind != "FUNCTION":
        return kind == "PARAMETER"
    if node["function_name"] == "-" and len(arguments) == 1:
        return _is_constant(arguments[0]["expression"], constants)
    return not arguments and node["function_name"] in constants


def _misread(sql: str, written: str, difference: _Difference) -> SqlError:
    meant, read = difference
    if meant is None or read is None or meant.place is None or read.place is None:
        return SqlError("ReLAQS does not read this SQL as DuckDB does; write it otherwise")
    said, taken_for = _quoted(sql, meant.place), _quoted(written, read.place)
    place = position_of(sql, len(sql.encode()[: meant.place[0]].decode()))
    return SqlError(
        f"ReLAQS takes {said} for {taken_for}, and DuckDB does not; put parentheses, or write it otherwise",
        place,
    )


def _quoted(text: str, place: tuple[int, int]) -> str:
    part = " ".join(text.encode()[place[0] : place[1]].decode(errors="ignore").split())
    return f"`{part if len(part) <= _MOST_QUOTED else f'{part[:_MOST_QUOTED]} …'}`"


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
_WRITTEN_AS_THEY_ARE = re.compile(r"BOOLEAN|TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|DECIMAL\(\d+,[1-9]\d*\)")
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


_UNTYPED = '"NULL"'
_OPEN_PART = re.compile(rf"{_UNTYPED}(?! )")  # a type, and no field of this name, which has one behind it


@dataclass(frozen=True, slots=True)
class Constant:
    """A parameter's value as DuckDB writes it, of one of its types. text: None is NULL."""

    type: str
    text: str | None = None


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
        return (value.type, value.text) if isinstance(value, Constant) else typed_text(value)
    except SqlError as error:
        raise SqlError(error.message, position_of(sql, place.begin)) from None


def parameter_count(sql: str) -> int:
    """Return how many values the parameters `?` and `$1` need: the highest place among them."""
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
        return "NULL" if type_ == _UNTYPED else f"CAST(NULL AS {_OPEN_PART.sub('INTEGER', type_)})"
    if type_ == "VARCHAR":
        return quote_text(text)
    if type_.rstrip("[]") == _UNTYPED:  # [], [NULL]
        return text
    if _WRITTEN_AS_THEY_ARE.fullmatch(type_):
        return f"({text})" if text.startswith("-") else text
    if type_ == "DOUBLE" and _DIGITS.fullmatch(text):
        number = text if "e" in text else f"{text}e0"  # a number with an exponent is a DOUBLE
        return f"({number})" if text.startswith("-") else number
    return f"CAST({quote_text(text)} AS {_OPEN_PART.sub('INTEGER', type_)})"


class TypesByName:
    """Knows the types of all columns. Names are normalized once, which takes 10 ms for 400 columns."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def schema(self) -> MappingSchema:
        """Return a new schema for one statement. It remembers each name that it is asked for."""
        schema = MappingSchema(dict(self._types), dialect=DIALECT, normalize=False)
        schema.normalize = True  # of the names that are looked up
        return schema

    @cached_property
    def _types(self) -> dict[str, object]:
        return {
            _normalized(name, is_table=True): {
                _normalized(column.name): column.type for column in layout.columns
            }
            for name, layout in self._catalog.tables.items()
        }


def _normalized(name: str, *, is_table: bool = False) -> str:
    """Return a name as it is compared. As text, sqlglot would read `delay ` as `delay`."""
    identifier = exp.to_identifier(name, quoted=True)
    return normalize_name(identifier, dialect=DIALECT, is_table=is_table).name


_MEMORY_LIMIT_BYTES = 256 << 20
_MOST_DESCRIBED = 1_000  # texts: a plan has about ten, and most of them hold no value of its parameters


class Binder:
    """Tells which columns a SELECT would give. Its tables are empty, because planning never reads data."""

    def __init__(self, catalog: Catalog, civil_time: CivilTime | None = None) -> None:
        """civil_time: of all statements that name no other. None: that of the process."""
        self._database = Database(
            DatabaseConfig(readable=(), memory_limit_bytes=_MEMORY_LIMIT_BYTES, civil_time=civil_time)
        )
        self._cursor: Cursor = self._database.cursor()
        self.civil_time = self._cursor.civil_time
        self.effort = Effort()
        self._described: dict[str, list[tuple[str, str]]] = {}
        self._types = TypesByName(catalog)
        self._column_names = frozenset(
            column.name.lower() for layout in catalog.tables.values() for column in layout.columns
        )
        for name, layout in catalog.tables.items():
            columns = ", ".join(f"{quote_name(column.name)} {column.type}" for column in layout.columns)
            self._cursor.run(f"CREATE TABLE {quote_name(name)} ({columns})")

    def at(self, civil_time: CivilTime | None) -> Binder:
        """Return this binder for statements by another zone and calendar. None: itself."""
        if civil_time in (None, self.civil_time):
            return self
        other = copy(self)
        other.civil_time = civil_time
        return other

    @contextmanager
    def spending(self, effort: Effort) -> Iterator[Binder]:
        """Yield this binder for one statement, with a cursor of its own, so that many can be planned at once.

        Args:
            effort: counts the cost of each call, and may end the planning between two calls.
        """
        own = copy(self)
        own.effort, own._cursor = effort, self._database.cursor(self.civil_time)
        try:
            yield own
        finally:
            own._cursor.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each output column. Raises SqlError where DuckDB would."""
        self.effort.spend(len(sql))
        if (found := self._described.get(sql)) is None:
            found = self._cursor.describe(sql)
            if len(self._described) >= _MOST_DESCRIBED:
                self._described.clear()
            self._described[sql] = found
        return found

    @cached_property
    def schema(self) -> MappingSchema:
        """Return the tables and columns as sqlglot looks them up, with a memory for one statement."""
        return self._types.schema()

    def with_constants(self, sql: str | WrittenSql, parameters: Parameters | None = None) -> WrittenSql:
        """Return the SQL with its parameters and the moment written as constants (see `sql/binder.py`).

        Its columns keep their names. Safe to call from any thread.
        """
        given = sql if isinstance(sql, WrittenSql) else WrittenSql(sql)
        if not (may_have_parameters(given.sql, parameters) or tells_the_time(given.sql)):
            return given
        with self.spending(self.effort) as own, given.placing():
            valued = with_values(given, parameters, own._cursor.typed_text)
            frozen = at_one_moment(valued, own._cursor.typed_texts_of, self._column_names)
            named = named_as_before(frozen, given.sql)
            if named is not frozen:
                try:
                    own.describe(frozen.sql)
                except SqlError:  # the planner says what is wrong with it, and where
                    return frozen
            return named

    def functions(self) -> frozenset[str]:
        """Return the names of DuckDB's scalar functions, aggregates and macros, in lower case."""
        rows = self._cursor.rows(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE function_type IN ('scalar', 'aggregate', 'macro')"
        )
        return frozenset(name for (name,) in rows)


_LOCATION, _LENGTH = "query_location", "query_location_length"  # in bytes
_NAMES_AND_PLACES = frozenset((_LOCATION, _LENGTH, "alias", "catalog", "schema"))

Node = dict[str, Any]


def placed_in(error: ExpressionError, sql: str) -> ExpressionError:
    """Return the error with the place of its expression in the SQL, without one where that cannot be told.

    Args:
        error: of a statement that DuckDB ran.
        sql: what the user wrote.
    """
    if error.ran is None or error.position is not None:
        return error
    try:
        begin = _begin(error.ran, sql)
    except RecursionError:  # one of the texts is nested very deeply
        return error
    return error if begin is None else error.at(position_of(sql, len(sql.encode()[:begin].decode())))


def _begin(ran: Underlined, sql: str) -> int | None:
    """Return at which byte of the SQL the expression begins that is underlined in a statement."""
    offset = offset_of(ran.sql, ran.position)
    place = -1 if offset is None else len(ran.sql[:offset].encode())  # in bytes of UTF-8
    failed = [node for node in _nodes(parse_tree(ran.sql)) if node[_LOCATION] == place]
    failed.sort(key=lambda node: abs(int(node[_LENGTH]) - ran.width))
    own = list(_nodes(parse_tree(sql))) if failed else []
    for alike in (_as_it_is, _in_outline):
        for node in failed:
            wanted = alike(node)
            if wanted is not None and (found := next((each for each in own if alike(each) == wanted), None)):
                return int(found[_LOCATION])
    return None


@contextmanager
def placing_failures(sql: str) -> Iterator[None]:
    """Place the errors that a block raises about expressions of this SQL."""
    try:
        yield
    except ExpressionError as error:
        raise placed_in(error, sql) from error.__cause__


def _nodes(tree: Any) -> Iterator[Node]:
    """Yield the expressions of a tree that have a place in its text, outer ones before those inside."""
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str) and _LOCATION in tree:
            yield tree
        for child in tree.values():
            yield from _nodes(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from _nodes(child)


def _as_it_is(node: Any) -> Any:
    """Return an expression without places, aliases, and the tables of its columns."""
    if isinstance(node, list):
        return [_as_it_is(child) for child in node]
    if isinstance(node, str):
        return node.lower()
    if not isinstance(node, dict):
        return node
    kept = {key: _as_it_is(child) for key, child in node.items() if key not in _NAMES_AND_PLACES}
    if names := kept.get("column_names"):
        kept["column_names"] = names[-1:]
    return kept


def _in_outline(node: Node) -> Any:
    """Return what is told of an expression that was written anew: its kind, its type, its columns."""
    columns = sorted(
        str(each["column_names"][-1]).lower() for each in _nodes(node) if each.get("column_names")
    )
    return (node["class"], node.get("type"), _as_it_is(node.get("type_expr")), columns) if columns else None
