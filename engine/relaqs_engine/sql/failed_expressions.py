"""Where an expression stands in what the user wrote, if it failed in the statement that DuckDB ran.

The two texts differ: the rewriter names tables in full, splits aggregates and writes constants for
parameters. But an expression over a row stays what it is. So DuckDB parses both texts, and the expression
that failed is looked for among those of the user.

>>> ran = Underlined("SELECT sum(CAST(trips.km AS INT)) AS b0 FROM trips", position=(1, 12), width=21)
>>> placed_in(ExpressionError("no number", ran=ran), "SELECT avg(fare),\\n  sum(km::INT) FROM trips").position
(2, 9)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relaqs_engine.duck import parse_tree
from relaqs_engine.errors import ExpressionError, Underlined
from relaqs_engine.sql.written import offset_of, position_of

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
    place = _byte(ran.sql, offset_of(ran.sql, ran.position))
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


def _byte(text: str, offset: int | None) -> int:
    """Return where a character stands in bytes of UTF-8, as DuckDB counts."""
    return -1 if offset is None else len(text[:offset].encode())


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
