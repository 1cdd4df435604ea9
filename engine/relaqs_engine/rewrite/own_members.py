"""Conditions that every row meets, because the row itself is among those that they ask about.

    SELECT shop, sum(paid) FROM sales JOIN shops ON shop = id WHERE year = 2000 AND state IN (
        SELECT state FROM (
            SELECT state, rank() OVER (PARTITION BY state ORDER BY sum(paid)) AS place
            FROM sales JOIN shops ON shop = id WHERE year = 2000 GROUP BY state)
        WHERE place <= 5)

A partition by all group keys has one group, so its rank is 1, and 1 <= 5. What is left of the subquery are
the states of the rows outside. So IN is true wherever the state is not NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sqlglot import exp
from sqlglot.optimizer.merge_subqueries import merge_subqueries

from relaqs_engine.rewrite.draft import conjuncts_of, own_nodes
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.dialect import DIALECT

_RANKS = (exp.Rank, exp.DenseRank, exp.RowNumber)
_COMPARED: dict[type[exp.Expr], Callable[[int, int], bool]] = {
    exp.EQ: int.__eq__,
    exp.NEQ: int.__ne__,
    exp.LT: int.__lt__,
    exp.LTE: int.__le__,
    exp.GT: int.__gt__,
    exp.GTE: int.__ge__,
}
# What a SELECT of plain rows may have.
_OF_ROWS = frozenset({"expressions", "from_", "joins", "where"})
_MORE_THAN_VALUES = (exp.Query, exp.AggFunc, exp.Window, exp.UDTF)


def without_own_members(tree: exp.Query) -> exp.Query:
    """Return a qualified query without each IN that asks for its own rows. NULL is left out as before.

    >>> import sqlglot
    >>> asked = "SELECT u.k AS k FROM t AS u WHERE u.year = 2000 GROUP BY u.k"
    >>> sql = f"SELECT sum(t.x) FROM t WHERE t.year = 2000 AND t.x > 1 AND t.k IN ({asked})"
    >>> print(without_own_members(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb"))
    SELECT SUM(t.x) FROM t WHERE t.year = 2000 AND t.x > 1 AND NOT t.k IS NULL
    """
    if not any(_asked(each) for each in tree.find_all(exp.In)):
        return tree
    tree = tree.copy()
    for asked in list(tree.find_all(exp.In)):
        select, inner = asked.parent_select, _asked(asked)
        if select is not None and inner is not None and not outer_columns(inner):
            rows = _as_rows(inner)
            if rows is not None and _asks_own_rows(asked, rows, select):
                asked.replace(exp.not_(asked.this.is_(exp.null())))
    return tree


def _as_rows(query: exp.Select) -> exp.Select | None:
    """Return a query of plain rows with the same set of values, None where it is not known.

    How often a value is there is no matter.

    >>> import sqlglot
    >>> ranked = "SELECT t.k AS k, rank() OVER (PARTITION BY t.k ORDER BY sum(t.x)) AS r FROM t GROUP BY t.k"
    >>> sql = f"SELECT s.k AS k FROM ({ranked}) AS s WHERE s.r <= 5"
    >>> print(_as_rows(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb"))
    SELECT t.k AS k FROM t WHERE CAST(1 AS BIGINT) <= 5
    """
    query = query.copy()
    for select in _chain(query):
        _set_ranks_alone(select)
        if _has_keys_alone(select):
            select.set("group", None)
    if any(_sources(select) is None for select in query.find_all(exp.Select)):
        return None
    found = merge_subqueries(query)
    return found if isinstance(found, exp.Select) else None


def _asked(condition: exp.In) -> exp.Select | None:
    query = condition.args.get("query")
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    return query if isinstance(query, exp.Select) else None


def _chain(select: exp.Select | None) -> Iterator[exp.Select]:
    """Yield a SELECT, and each one that is all of the FROM of the one before, where that keeps the set."""
    while select is not None:
        yield select
        from_ = select.args.get("from_")
        source = from_.this if from_ and not select.args.get("joins") else None
        is_plain = not _more_than(select, _OF_ROWS | {"group"}) and not _own(select, exp.AggFunc, exp.Window)
        if not is_plain or not isinstance(source, exp.Subquery) or source.args.get("sample"):
            return
        select = source.this if isinstance(source.this, exp.Select) else None


def _set_ranks_alone(select: exp.Select) -> None:
    """Write 1 in the place of each rank in a partition by all group keys, in place."""
    keys = _plain_keys(select)
    if not keys:
        return
    for window in [node for item in select.expressions for node in own_nodes(item, exp.Window)]:
        partition = window.args.get("partition_by") or []
        if isinstance(window.this, _RANKS) and all(key in partition for key in keys):
            window.replace(exp.cast(exp.Literal.number(1), "BIGINT"))


def _has_keys_alone(select: exp.Select) -> bool:
    """Whether a SELECT groups by keys, and nothing else depends on the groups."""
    more = _more_than(select, _OF_ROWS | {"group"}) or _own(select, exp.AggFunc, exp.Window, exp.UDTF)
    return bool(_plain_keys(select)) and not more


def _plain_keys(select: exp.Select) -> list[exp.Expr]:
    """Return the keys of GROUP BY, none where there are several sets of them, or `()`."""
    group = select.args.get("group")
    if group is None or any(value for name, value in group.args.items() if name != "expressions"):
        return []
    keys: list[exp.Expr] = group.expressions
    return [] if any(isinstance(key, exp.Tuple) for key in keys) else keys


def _more_than(select: exp.Select, parts: frozenset[str]) -> bool:
    return any(value for name, value in select.args.items() if name not in parts)


def _own(select: exp.Select, *kinds: type[exp.Expr]) -> bool:
    return any(own_nodes(item, kind) for item in select.expressions for kind in kinds)


def _asks_own_rows(asked: exp.In, inner: exp.Select, select: exp.Select) -> bool:
    """Whether each row of a SELECT that meets its other conditions is among those that one of them asks.

    inner: what that one asks, as plain rows.
    """
    where = select.args.get("where")
    if where is None or len(inner.expressions) != 1 or _more_than(inner, _OF_ROWS):
        return False
    others = [each for each in conjuncts_of(where.this) if each is not asked]
    if len(others) == len(conjuncts_of(where.this)) or (names := _same_tables(inner, select)) is None:
        return False
    conditions = [each for each in _conditions(inner) if not _is_true(each)]
    value = inner.expressions[0].unalias()
    if any(each.find(*_MORE_THAN_VALUES) for each in (value, *conditions)):
        return False
    met = {_text(each, {}) for each in (*others, *_joined(select))}
    is_same = _text(value, names) == _text(asked.this, {})
    return is_same and all(_text(each, names) in met for each in conditions)


def _same_tables(inner: exp.Select, outer: exp.Select) -> dict[str, str] | None:
    """Return the outer name of each table that the inner SELECT reads, by its inner name.

    None where either is no inner join, or a table is not there once in both.
    """
    inside, outside = _sources(inner), _sources(outer)
    if inside is None or outside is None or any(_is_no_table(each) for each in inside):
        return None
    found: dict[str, str] = {}
    for source in inside:
        of_inner, of_outer = (
            [each for each in sources if isinstance(each, exp.Table) and each.name == source.name]
            for sources in (inside, outside)
        )
        if len(of_inner) != 1 or len(of_outer) != 1 or _is_no_table(of_outer[0]):
            return None
        found[source.alias_or_name] = of_outer[0].alias_or_name
    return found


def _sources(select: exp.Select) -> list[exp.Expr] | None:
    """Return what an inner join reads, None where it is another join."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or []
    if from_ is None or select.args.get("laterals") or any(map(_is_no_inner_join, joins)):
        return None
    return [from_.this, *(join.this for join in joins)]


def _is_no_table(source: exp.Expr) -> bool:
    more = {name for name, value in source.args.items() if value} - {"this", "alias"}
    return not isinstance(source, exp.Table) or bool(more)


def _is_no_inner_join(join: exp.Join) -> bool:
    return bool(join.side or join.method or join.args.get("using")) or join.kind not in ("", "INNER", "CROSS")


def _conditions(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return [*conjuncts_of(where.this if where else None), *_joined(select)]


def _joined(select: exp.Select) -> list[exp.Expr]:
    joins = select.args.get("joins") or []
    return [each for join in joins for each in conjuncts_of(join.args.get("on"))]


def _is_true(condition: exp.Expr) -> bool:
    """Whether a comparison of two whole numbers is true."""
    compare = _COMPARED.get(type(condition))
    if compare is None or not isinstance(condition, exp.Binary):
        return False
    left, right = (_whole(side.unnest()) for side in (condition.left, condition.right))
    return left is not None and right is not None and compare(left, right)


def _whole(value: exp.Expr) -> int | None:
    if isinstance(value, exp.Cast) and value.to.is_type("BIGINT"):
        value = value.this
    return int(value.name) if isinstance(value, exp.Literal) and value.is_int else None


def _text(condition: exp.Expr, names: Mapping[str, str]) -> str:
    """Return a condition as text, with other names of its tables. Both sides of = may change places."""
    condition = exp.paren(condition.copy()).unnest()
    for column in condition.find_all(exp.Column):
        column.set("table", exp.to_identifier(names.get(column.table, column.table), quoted=True))
    if isinstance(condition, exp.EQ):
        return " = ".join(sorted(side.unnest().sql(DIALECT) for side in (condition.left, condition.right)))
    return condition.sql(DIALECT)
