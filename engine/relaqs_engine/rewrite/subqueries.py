"""Rule: subqueries in conditions read static tables, or rows of the outer row's own sampling unit.

A subquery over static tables has its final value from the start. A subquery over streams has it too if it
reads only rows with the outer row's cluster key, because those lie in the outer row's partition. That is so
for EXISTS and correlated aggregates that equate the key, and for IN over the key.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from relaqs_engine.rewrite.draft import (
    ColumnPair,
    Draft,
    NotOnlineError,
    Source,
    conjuncts_of,
    pairs_of,
    relates_all_rows,
    tables_in,
)
from relaqs_engine.rewrite.sources import meet
from relaqs_engine.sql.parse import DIALECT


def check_subqueries(draft: Draft) -> Draft:
    """Return the draft with the sampled tables that its local subqueries read.

    >>> from relaqs_engine.planning.example import after, refusal
    >>> sql = "SELECT count(*) FROM orders WHERE EXISTS (SELECT * FROM items WHERE order_id = id)"
    >>> after(check_subqueries, sql).local_tables
    frozenset({'items'})
    >>> refusal(check_subqueries, "SELECT count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips)")
    'a subquery reads rows of the sampled table trips in all partitions'
    """
    read_before = {
        id(table)
        for node in (*(source.node for source in draft.sources), *draft.members_in(draft.select))
        for table in tables_in(node)
    }
    local = {
        draft.catalog.table(table.name).table
        for source in draft.streams
        if source.is_derived
        for table in source.node.find_all(exp.Table)
        if draft.catalog.table(table.name).is_sampled
    }
    for table in draft.select.find_all(exp.Table):
        if id(table) in read_before:
            continue
        if not isinstance(table.this, exp.Identifier):
            raise NotOnlineError(f"{table.sql(DIALECT)} is not a table of the catalog")
        layout = draft.catalog.table(table.name)
        if layout.is_sampled:
            query = table.find_ancestor(exp.Select)
            assert query is not None
            if not _is_local(draft, query, table):
                raise NotOnlineError(
                    f"a subquery reads rows of the sampled table {table.name} in all partitions"
                )
            local.add(layout.table)
    return replace(draft, local_tables=frozenset(local))


def is_local_query(draft: Draft, query: exp.Expr) -> bool:
    """Whether every sampled row that a subquery reads has the outer row's cluster key."""
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and draft.catalog.table(table.name).is_sampled:
            select = table.find_ancestor(exp.Select)
            if select is None or not _is_local(draft, select, table):
                return False
    return True


def _is_local(draft: Draft, query: exp.Select, table: exp.Table) -> bool:
    """Whether the subquery reads only those rows of this table that have the outer row's cluster key."""
    if relates_all_rows(query) or query.parent_select is not draft.select:
        return False
    layout = draft.catalog.table(table.name)
    inner = Source(table.alias_or_name, table, layout, key_columns=layout.cluster_key)
    conditions = conjuncts_of(where.this if (where := query.args.get("where")) else None)
    for join in query.args.get("joins") or []:
        if join.side:
            return False
        conditions += conjuncts_of(join.args.get("on"))
    pairs = pairs_of(conditions)
    if (membership := _membership(query)) and _has_no_null(draft, inner, membership):
        pairs.append(membership)
    own = {each.alias_or_name for each in query.find_all(exp.Table, exp.Subquery)}  # they hide names outside
    return any(meet(outer, inner, pairs) for outer in draft.streams if outer.alias not in own)


def _has_no_null(draft: Draft, inner: Source, membership: ColumnPair) -> bool:
    """Whether neither side of IN is ever NULL.

    A NULL among the inner keys makes IN unknown for outer rows of every partition. An outer NULL makes it
    unknown too, unless the set is empty, and it may be empty in one partition only.
    """
    outer = next((source for source in draft.sources if source.alias == membership[0].table), None)
    if outer is None or outer.nullable or membership[1].table != inner.alias:
        return False
    columns = outer.column(membership[0].name), inner.column(membership[1].name)
    return all(column is not None and not column.null_count for column in columns)


def _membership(query: exp.Select) -> ColumnPair | None:
    """Return (outer column, inner column) of `outer IN (SELECT inner …)`, which equates them row by row.

    If the subquery aggregates, the inner column must be a group key. Then each group lies within one key.
    """
    container = query.parent.parent if isinstance(query.parent, exp.Subquery) else query.parent
    if not isinstance(container, exp.In) or len(query.expressions) != 1:
        return None
    outer, inner = container.this.unnest(), query.expressions[0].unalias()
    if not isinstance(outer, exp.Column) or not isinstance(inner, exp.Column):
        return None
    group = query.args.get("group")
    if group is not None and inner not in group.expressions:
        return None
    return outer, inner
