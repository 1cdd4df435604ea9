"""Rule: subqueries in conditions read static tables, or rows of the outer row's own sampling unit.

A subquery over static tables has its final value from the start. A subquery over streams has it too if it
reads only rows with the outer row's cluster key, because those lie in the outer row's partition. That is so
for EXISTS and correlated aggregates that equate the key, and for IN over the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from sqlglot import exp

from relaqs_engine.layouts.manifest import Layout
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

# Before the alias of an outer table that is named where the subquery's own names hide none of it.
_OUTSIDE = "outside "


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
    levels = list(_levels(draft, query))
    if not levels or any(map(relates_all_rows, levels)):
        return False
    layout = draft.catalog.table(table.name)
    inner = Source(table.alias_or_name, table, layout, key_columns=layout.cluster_key)
    asked = levels[-1]
    names = [each.alias_or_name for each in asked.find_all(exp.Table, exp.Subquery)]
    pairs = [pair for level in levels[:-1] for pair in _handed_on(level)]
    if any(join.side for level in levels for join in level.args.get("joins") or []):
        return False
    if pairs and len(set(names)) < len(names):
        return False  # names on different levels that say different things
    pairs += [pair for level in levels for pair in pairs_of(_conditions(level))]
    if (membership := _membership(asked)) and _has_no_null(draft, asked, membership):
        outside, value = membership
        pairs.append((exp.column(outside.name, _OUTSIDE + outside.table), value))
    outer = [each for each in draft.streams if each.alias not in names]  # the names inside hide others
    outer += [replace(each, alias=_OUTSIDE + each.alias) for each in draft.streams]
    inside = [each for each in asked.find_all(exp.Table) if isinstance(each.this, exp.Identifier)]
    known = {each.alias_or_name: draft.catalog.table(each.name) for each in inside}
    known |= {each.alias: each.layout for each in outer if each.layout is not None}
    equal = _with_what_follows(pairs, known)
    return any(meet(each, inner, equal) for each in outer)


def _levels(draft: Draft, query: exp.Select) -> Iterator[exp.Select]:
    """Yield a query and those whose FROM it stands in, up to the subquery itself.

    Nothing where one of them makes groups. Of other derived tables each row is part of the subquery's rows.
    """
    found = [query]
    while (outer := found[-1].parent_select) is not draft.select:
        derived = found[-1].parent
        is_plain = isinstance(derived, exp.Subquery) and isinstance(derived.parent, exp.From | exp.Join)
        makes_groups = any(found[-1].args.get(part) for part in ("group", "distinct"))
        if outer is None or not is_plain or makes_groups or found[-1].find(exp.AggFunc):
            return
        found.append(outer)
    yield from found


def _conditions(query: exp.Select) -> Iterator[exp.Expr]:
    """Yield the conditions that each row of a query with inner joins alone meets."""
    where = query.args.get("where")
    for condition in (where and where.this, *(join.args.get("on") for join in query.args.get("joins") or [])):
        yield from conjuncts_of(condition)


def _handed_on(query: exp.Select) -> Iterator[ColumnPair]:
    """Yield the columns of a derived table, each with the column that it is inside."""
    assert query.parent is not None
    for item in query.expressions:
        if isinstance(value := item.unalias(), exp.Column):
            yield exp.column(item.alias_or_name, query.parent.alias), value


def _with_what_follows(pairs: list[ColumnPair], known: Mapping[str, Layout]) -> list[ColumnPair]:
    """Return the pairs of equal columns, and those that are equal because both are equal to a third one.

    That follows among columns of one type alone: '1' = 1 and 1 = '01'. `known` are the tables by alias.
    """
    found: list[dict[tuple[str, str], exp.Column]] = []
    for pair in pairs:
        merged = {(column.table, column.name.lower()): column for column in pair}
        for each in [each for each in found if each.keys() & merged.keys()]:
            found.remove(each)
            merged |= each
        found.append(merged)
    alike = [each.values() for each in found if len(_types(each, known)) <= 1]
    return [*pairs, *(pair for each in alike for pair in combinations(each, 2))]


def _types(columns: Iterable[tuple[str, str]], known: Mapping[str, Layout]) -> set[str]:
    """Return the types of those columns, as (alias, name in lower case), that are a table's own."""
    return {
        column.type
        for alias, name in columns
        if alias in known
        for column in known[alias].columns
        if column.name.lower() == name
    }


def _has_no_null(draft: Draft, query: exp.Select, membership: ColumnPair) -> bool:
    """Whether neither side of IN is ever NULL.

    A NULL among the inner keys makes IN unknown for outer rows of every partition. An outer NULL makes it
    unknown too, unless the set is empty, and it may be empty in one partition only.
    """
    outer = next((source for source in draft.sources if source.alias == membership[0].table), None)
    found = (table for table in query.find_all(exp.Table) if table.parent_select is query)
    inner = next((table for table in found if table.alias_or_name == membership[1].table), None)
    if outer is None or outer.nullable or inner is None or not isinstance(inner.this, exp.Identifier):
        return False
    layout = draft.catalog.table(inner.name)
    source = Source(inner.alias_or_name, inner, layout, key_columns=layout.cluster_key)
    columns = outer.column(membership[0].name), source.column(membership[1].name)
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
