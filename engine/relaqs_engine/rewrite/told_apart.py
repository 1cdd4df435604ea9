"""Whether the sides of a UNION have no row in common, so that it is a UNION ALL.

    SELECT zone, 0 AS level, sum(km) … GROUP BY zone UNION SELECT NULL, 1, sum(km) …

Subtotals are often written like this. No side has a row twice, because its group keys are among its columns.
No two sides share a row, because their constants differ. So UNION drops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeAlias

from sqlglot import exp

from relaqs_engine.rewrite.draft import own_nodes
from relaqs_engine.rewrite.flatten import with_explicit_keys

_EXACT_DIGITS = 15  # of a whole number that a double holds
TypesOf: TypeAlias = Callable[[exp.Query], Sequence[str]]


def without_distinct(query: exp.SetOperation, types_of: TypesOf) -> None:
    """Make a UNION whose sides have no row in common a UNION ALL. In place.

    `types_of` gives the types of a query's columns.
    """
    if isinstance(query, exp.Union) and query.args.get("distinct") and sides_are_apart(query, types_of):
        _keep_all(query)


def _keep_all(query: exp.Expr) -> None:
    if isinstance(union := query.unnest(), exp.Union):
        union.set("distinct", False)
        _keep_all(union.this)
        _keep_all(union.expression)


def sides_are_apart(query: exp.Union, types_of: TypesOf) -> bool:
    """Whether a UNION of plain SELECTs, qualified, could as well be a UNION ALL.

    >>> import sqlglot
    >>> def apart(sql):
    ...     types = lambda query: ["INTEGER"] * len(query.selects)
    ...     return sides_are_apart(sqlglot.parse_one(sql, dialect="duckdb"), types)
    >>> groups = "SELECT t.a AS a, 0 AS level, SUM(t.x) AS s FROM t GROUP BY t.a"
    >>> apart(f"{groups} UNION SELECT NULL, 1, SUM(t.x) FROM t")
    True
    >>> apart(f"{groups} UNION {groups}"), apart(f"{groups} UNION SELECT t.a, 1, t.x FROM t")
    (False, False)
    """
    sides = _sides(query)
    if sides is None or not all(_rows_differ(side, query, types_of) for side in sides):
        return False
    values = [[_value(item.unalias(), side) for item in side.expressions] for side in sides]
    return all(any(map(_differ, one, two)) for one, two in combinations(values, 2))


def _rows_differ(side: exp.Select, query: exp.Union, types_of: TypesOf) -> bool:
    """Whether no two rows of a side are alike, also in the types that the whole UNION gives them."""
    identity = _identity(side)
    if identity is None:
        return False
    columns = zip(side.expressions, types_of(side), types_of(query), strict=True)
    return all(own == common for item, own, common in columns if item.alias_or_name.lower() in identity)


def _value(item: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return an output's expression, that of the derived table where it only hands a column on."""
    inner = _derived(select)
    if not isinstance(item, exp.Column) or inner is None:
        return item
    found = (each for each in inner.expressions if each.alias_or_name.lower() == item.name.lower())
    return next((_value(each.unalias(), inner) for each in found), item)


def _derived(select: exp.Select) -> exp.Select | None:
    """Return the query of the one derived table that is all of FROM, None where FROM has more."""
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins") or not isinstance(from_.this, exp.Subquery):
        return None
    return from_.this.this if isinstance(from_.this.this, exp.Select) else None


def _sides(query: exp.Expr) -> list[exp.Select] | None:
    """Return the SELECTs of a set operation made of UNION and UNION ALL, None where it has others."""
    query = query.unnest()
    if isinstance(query, exp.Select):
        limited = any(query.args.get(part) for part in ("limit", "offset"))
        return None if limited else [query]
    parts = ("by_name", "order", "limit", "offset")
    if not isinstance(query, exp.Union) or any(query.args.get(part) for part in parts):
        return None
    left, right = _sides(query.this), _sides(query.expression)
    return None if left is None or right is None else left + right


def _identity(select: exp.Select) -> frozenset[str] | None:
    """Return output columns by which the rows of a query differ, None where rows may be alike."""
    if select.find(exp.UDTF, exp.Explode):
        return None
    select = with_explicit_keys(select)
    names = {item.unalias(): item.alias_or_name.lower() for item in select.expressions}
    if (group := select.args.get("group")) is not None:
        plain = all(
            not isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in group.expressions
        )
        plain &= not any(group.args.get(part) for part in ("rollup", "cube", "grouping_sets", "all"))
        found = [names.get(key) for key in group.expressions]
        return frozenset(filter(None, found)) if plain and all(found) else None
    if any(own_nodes(item, exp.AggFunc) for item in select.expressions) and not select.find(exp.Window):
        return frozenset()
    inner = _derived(select)
    below = None if inner is None else _identity(inner)
    if below is None:
        return None
    columns = {value.name.lower(): name for value, name in names.items() if isinstance(value, exp.Column)}
    return frozenset(columns[name] for name in below) if below <= columns.keys() else None


def _differ(one: exp.Expr, two: exp.Expr) -> bool:
    """Whether two constants are not the same. Only whole numbers, text and NULL are compared."""
    kinds = [_kind(one), _kind(two)]
    if "" in kinds:
        return False
    if kinds[0] != kinds[1]:
        return "null" in kinds
    if kinds[0] == "number":
        return int(one.this) != int(two.this)
    return kinds[0] == "text" and one.this.casefold() != two.this.casefold()


def _kind(node: exp.Expr) -> str:
    if isinstance(node, exp.Null):
        return "null"
    if isinstance(node, exp.Literal):
        is_whole = node.this.isdecimal() and len(node.this) <= _EXACT_DIGITS
        return "text" if node.is_string else "number" if is_whole else ""
    return ""
