"""SEMI and ANTI JOIN as EXISTS and NOT EXISTS: they join no rows, and leave some out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.rewrite.draft import revive_rows
from relaqs_engine.sql.parse import referenced_cte

_KINDS = ("SEMI", "ANTI")
_NATURAL = "NATURAL"


def semi_joins_as_exists(tree: exp.Query, catalog: Catalog) -> exp.Query:
    """Return a query with a condition in the place of each SEMI and ANTI JOIN, where that has one meaning.

    A RIGHT or FULL JOIN later on revives rows that were left out. The join stays where there is one.

    >>> import sqlglot
    >>> from relaqs_engine.planning.example import CATALOG
    >>> sql = "SELECT count(*) FROM orders ANTI JOIN items ON id = order_id WHERE total > 9"
    >>> print(semi_joins_as_exists(sqlglot.parse_one(sql, dialect="duckdb"), CATALOG).sql("duckdb"))
    SELECT COUNT(*) FROM orders WHERE total > 9 AND NOT EXISTS(SELECT 1 FROM items WHERE id = order_id)
    >>> sql = "SELECT avg(fare) FROM trips SEMI JOIN zones USING (zone)"
    >>> print(semi_joins_as_exists(sqlglot.parse_one(sql, dialect="duckdb"), CATALOG).sql("duckdb"))
    SELECT AVG(fare) FROM trips WHERE EXISTS(SELECT 1 FROM zones WHERE trips.zone = zones.zone)
    """
    tree = tree.copy()
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        for position in reversed(range(len(joins))):
            if joins[position].kind in _KINDS and not revive_rows(joins[position + 1 :]):
                _replace(select, position, catalog)
    return tree


def _replace(select: exp.Select, position: int, catalog: Catalog) -> None:
    """Replace one join by a condition, if it is known which columns it compares."""
    joins = select.args["joins"]
    join = joins[position]
    condition = join.args.get("on")
    if condition is None:
        before = [select.args["from_"].this, *(each.this for each in joins[:position])]
        condition = _equal_names(join, before, catalog)
    if condition is None:
        return
    found: exp.Expr = exp.Exists(this=exp.select("1").from_(join.this.copy()).where(condition.copy()))
    select.set("joins", [*joins[:position], *joins[position + 1 :]])
    select.where(found if join.kind == "SEMI" else exp.not_(found), copy=False)


def _equal_names(join: exp.Join, before: Sequence[exp.Expr], catalog: Catalog) -> exp.Expr | None:
    """Return the condition of USING or NATURAL. None where a column may be one of two tables."""
    of_right = _columns(join.this, catalog)
    of_left = [(node.alias_or_name, _columns(node, catalog)) for node in before]
    if of_right is None or any(columns is None for _, columns in of_left):
        return None
    named = [identifier.name for identifier in join.args.get("using") or ()]
    if join.method == _NATURAL:
        everywhere = {name for _, columns in of_left for name in columns or ()}
        named = sorted(of_right & everywhere)
    equal = []
    for name in named:
        owners = [alias for alias, columns in of_left if name.lower() in (columns or ())]
        if len(owners) != 1:
            return None
        left, right = (exp.column(name, table) for table in (owners[0], join.this.alias_or_name))
        equal.append(exp.EQ(this=left, expression=right))
    return exp.and_(*equal) if equal else None


def _columns(node: exp.Expr, catalog: Catalog) -> frozenset[str] | None:
    """Return the columns of a table of the catalog in lower case, None for what is anything else."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        return None
    alias = node.args.get("alias")
    if node.args.get("joins") or (alias is not None and alias.columns) or referenced_cte(node) is not None:
        return None
    return frozenset(column.name.lower() for column in catalog.table(node.name).columns)
