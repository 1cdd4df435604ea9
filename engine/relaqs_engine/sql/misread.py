"""Whether we read a statement as DuckDB does.

sqlglot knows most of DuckDB's SQL. Where it does not, it may take a word for an alias, or drop it, and say
nothing. So DuckDB parses the user's text and what we wrote from our tree, and its two trees are compared. Two
names of one function or type are the same, and so are a default and what it stands for. All else is an error.

    SELECT corr(x, y) EXPORT_STATE FROM t       what the user wrote
    SELECT CORR(x, y) AS EXPORT_STATE FROM t    what we would have run
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable
from typing import Any, TypeAlias

from relaqs_engine.duck import function_aliases, serialized, syntax_error, type_aliases
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.edits import position_of

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

    >>> check_reading("select x::varchar, len(x) from t", "SELECT CAST(x AS TEXT), LENGTH(x) FROM t")
    >>> check_reading("SELECT corr(x, y) EXPORT_STATE FROM t", "SELECT CORR(x, y) AS EXPORT_STATE FROM t")
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: ReLAQS takes `corr(x, y) EXPORT_STATE` for `CORR(x, y)`, which is not what
    DuckDB reads there; write it otherwise; at line 1, column 8
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
        arguments.insert(0, _Node(expression=_constant("INTEGER", "0")))
    if name == "string_agg" and len(values) == 1:
        arguments.append(_Node(expression=_constant("STRING", ",")))
    return call


def _plain_type(type_: _Node) -> _Node:
    name = type_["type_name"] = type_aliases().get(type_["type_name"].lower(), type_["type_name"].lower())
    if name == "VARCHAR":
        type_.pop("children", None)  # VARCHAR(5) has no limit
    if name == "DECIMAL":
        type_.setdefault("children", [_constant("INTEGER", digits) for digits in _DEFAULT_DECIMAL])
    return type_


def _constant(kind: str, text: str) -> _Node:
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
        f"ReLAQS takes {said} for {taken_for}, which is not what DuckDB reads there; write it otherwise",
        place,
    )


def _quoted(text: str, place: tuple[int, int]) -> str:
    part = " ".join(text.encode()[place[0] : place[1]].decode(errors="ignore").split())
    return f"`{part if len(part) <= _MOST_QUOTED else f'{part[:_MOST_QUOTED]} …'}`"
