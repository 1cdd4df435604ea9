"""Aggregates without groups inside a query: each has one row, and those over the same rows are one query.

    SELECT (SELECT count(*) FROM t WHERE a) AS n, (SELECT sum(x) FROM t WHERE b) AS s

One scan gives both, with what differs in WHERE as FILTER:

    SELECT one.n, one.s FROM (SELECT count(*) FILTER (WHERE a) AS n, sum(x) FILTER (WHERE b) AS s
                              FROM t WHERE a OR b) AS one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from relaqs_engine.rewrite.draft import conjuncts_of, own_nodes, relates_all_rows, revive_rows
from relaqs_engine.rewrite.existence_by_key import as_aggregate
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.parse import DIALECT

_ONE = "relaqs_one_"
_OF_ROWS = (exp.In, exp.Any, exp.All, exp.Exists)


def with_one_row_tables(query: exp.Select) -> exp.Select:
    """Return a query with one table for all inner aggregates over the same rows. It has none of its own.

    Changes the query in place.

    >>> import sqlglot
    >>> counts = [f"(SELECT COUNT(*) FROM t WHERE t.a = {i} AND t.b > 0)" for i in (1, 2)]
    >>> query = sqlglot.parse_one(f"SELECT {counts[0]} / {counts[1]} AS ratio", dialect="duckdb")
    >>> print(with_one_row_tables(query).sql("duckdb", pretty=True).replace('"', ""))
    SELECT
      relaqs_one_0.c0 / relaqs_one_0.c1 AS ratio
    FROM (
      SELECT
        COUNT(*) FILTER(WHERE
          t.a = 1) AS c0,
        COUNT(*) FILTER(WHERE
          t.a = 2) AS c1
      FROM t
      WHERE
        t.b > 0 AND (
          t.a = 1 OR t.a = 2
        )
    ) AS relaqs_one_0
    """
    _ask_as_values(query)
    for number, subquery in enumerate(list(_one_row_values(query))):
        table = f"{_ONE}{number}"
        inner = subquery.this
        column = exp.column("c0", table, quoted=True)
        inner.set("expressions", [exp.alias_(inner.expressions[0].unalias(), "c0", quoted=True)])
        subquery.replace(column)
        query = _joined(query, exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(table))))
    return _merged(query)


def _ask_as_values(query: exp.Select) -> None:
    """Put a value in the place of each EXISTS that is the same for all rows. In place."""
    for exists in _own(query, exp.Exists):
        if (value := as_aggregate(exists.this)) is not None and not outer_columns(value):
            exists.replace(value.subquery())


def _own(query: exp.Select, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the nodes of a kind among outputs, in WHERE and in ORDER BY."""
    parts = (*query.expressions, query.args.get("where"), query.args.get("order"))
    return [node for part in parts if part is not None for node in own_nodes(part, kind)]


def _one_row_values(query: exp.Select) -> Iterator[exp.Subquery]:
    """Yield the subqueries among outputs and in WHERE that have one row, whatever row they stand in."""
    for inner in _own(query, exp.Subquery):
        assert isinstance(inner, exp.Subquery)
        if not isinstance(inner.parent, _OF_ROWS) and _has_one_row(inner.this) and not outer_columns(inner):
            yield inner


def _has_one_row(query: exp.Expr) -> bool:
    if not isinstance(query, exp.Select) or relates_all_rows(query) or query.args.get("from_") is None:
        return False
    grouped = any(query.args.get(part) for part in ("group", "having", "distinct"))
    return not grouped and all(own_nodes(item, exp.AggFunc) for item in query.expressions)


def _joined(query: exp.Select, table: exp.Subquery) -> exp.Select:
    if query.args.get("from_") is None:
        return query.from_(table, copy=False)
    return query.join(table, join_type="cross", copy=False)


def _merged(query: exp.Select) -> exp.Select:
    """Return the query with one table in the place of those with one row each, over the same rows."""
    found: dict[str, list[exp.Subquery]] = {}
    for source in _crossed(query):
        if _has_one_row(source.this) and _can_be_filtered(source.this):
            found.setdefault(_rows(source), []).append(source)
    for same in (each for each in found.values() if len(each) > 1):
        _merge(query, same)
    return query


def _rows(source: exp.Subquery) -> str:
    """Return the tables that a derived table reads, and what relates them: in FILTER, all would meet all."""
    joins: list[exp.Join] = source.this.args.get("joins") or []
    parts = [source.this.args["from_"], *joins]
    if joins:
        parts += [each for each in _conjuncts(source) if not _reads_one_table(each)]
    return " ".join(part.sql(DIALECT) for part in parts)


def _reads_one_table(condition: exp.Expr) -> bool:
    names = {column.table for column in condition.find_all(exp.Column)}
    return len(names) < 2 and "" not in names


def _crossed(query: exp.Select) -> list[exp.Subquery]:
    """Return the derived tables that are joined without a condition, so that each row meets theirs."""
    from_ = query.args.get("from_")
    joins: list[exp.Join] = query.args.get("joins") or []
    if from_ is None or revive_rows(joins) or any(join.method for join in joins):
        return []
    plain = [join.this for join in joins if not join.side and join.kind in ("", "CROSS", "INNER")]
    return [
        source
        for source in (from_.this, *plain)
        if isinstance(source, exp.Subquery) and not (source.parent and source.parent.args.get("on"))
    ]


def _can_be_filtered(query: exp.Select) -> bool:
    """Whether FILTER can stand for WHERE: no subquery in it, no cast that other rows could fail."""
    where = query.args.get("where")
    calls = [node for item in query.expressions for node in own_nodes(item, exp.AggFunc)]
    apart = any(call.find(exp.Distinct, exp.Order, exp.Cast) for call in calls)
    return not apart and (where is None or where.find(exp.Query, exp.Cast) is None)


def _merge(query: exp.Select, same: Sequence[exp.Subquery]) -> None:
    """Put all columns of the tables into the first one. In place."""
    conditions = [_conjuncts(each) for each in same]
    common = [c for c in conditions[0] if all(c in others for others in conditions)]
    own = [[c.copy() for c in each if c not in common] for each in conditions]
    items: list[exp.Expr] = []
    places: dict[tuple[str, str], str] = {}
    for table, conjuncts in zip(same, own, strict=True):
        for item in table.this.expressions:
            places[table.alias_or_name, item.alias_or_name] = name = f"c{len(items)}"
            items.append(exp.alias_(_filtered(item.unalias(), conjuncts), name, quoted=True))
    first = same[0]
    first.this.set("expressions", items)
    first.this.set("where", None)
    either = [exp.or_(*(exp.and_(*each) for each in own))] if all(own) else []
    if common or either:
        first.this.where(*(c.copy() for c in common), *either, copy=False)
    for table in same[1:]:
        assert table.parent is not None
        table.parent.pop()
    for column in list(query.find_all(exp.Column)):
        if (place := places.get((column.table, column.name))) is not None:
            column.replace(exp.column(place, first.alias_or_name, quoted=True))


def _conjuncts(table: exp.Subquery) -> tuple[exp.Expr, ...]:
    where = table.this.args.get("where")
    return conjuncts_of(where.this if where else None)


def _filtered(item: exp.Expr, conjuncts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the expression with the conditions in the FILTER of its aggregates."""
    if not conjuncts:
        return item.copy()
    holder = exp.paren(item)
    for call in own_nodes(holder, exp.AggFunc):
        around = call.parent if isinstance(call.parent, exp.Filter) else None
        given = [around.expression.this] if around else []
        condition = exp.Where(this=exp.and_(*(c.copy() for c in (*given, *conjuncts))))
        (around or call).replace(exp.Filter(this=call.copy(), expression=condition))
    found: exp.Expr = holder.this
    return found
