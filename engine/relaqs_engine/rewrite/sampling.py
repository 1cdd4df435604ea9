"""Rules: which tables are sampled together (streams), and what is read whole beside them.

**Streams.** A join of two streams is sound when matching rows lie in the same partition. For that, both
tables must be co-clustered, and the join must equate their whole cluster keys. An outer join is sound when
the table whose unmatched rows it keeps is a stream. With any other join, the answer over the first
partitions would not be a sample of the whole answer.

**Subqueries** in conditions read static tables, or rows of the outer row's own sampling unit. Over static
tables they have their final values from the start. Over streams they have them too if they read only rows
with the outer row's cluster key, because those lie in the outer row's partition. That is so for EXISTS and
correlated aggregates that equate the key, and for IN over the key.

**Members.** EXISTS and IN over all partitions ask a table of members, which is read whole before the
sample.

    SELECT count(*) FROM items WHERE EXISTS (SELECT 1 FROM orders WHERE customer = part AND total > 9)

Items and orders do not meet by partition here: the order that an item asks for may lie anywhere. So the
*members*, the distinct values by which inner rows are found, are collected once. The outer rows are
sampled:

    members:  SELECT DISTINCT customer AS c0 FROM orders WHERE total > 9
    instead:  EXISTS (SELECT 1 FROM members WHERE c0 = part)

Members are the same in all mini-batches, so they are one more static side, and nothing else of the plan
differs. What they cost is time before the first mini-batch. It is predicted from the bytes and rows of the
columns that are read (`check_little_is_read_whole`). Where the members are most of the query, a sample of
the rest comes too late to be of use, and the query runs exactly.

Aggregates over all partitions are no members. They are estimated while they are read
(`scalar_subqueries.py`).

The decision: docs/decisions/0033-members.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from sqlglot import exp

from relaqs_engine.layouts.manifest import LAYOUT_MARK, Table, scan_core_seconds
from relaqs_engine.rewrite.draft import (
    AcrossPartitionsError,
    ColumnPair,
    Draft,
    NotOnlineError,
    Source,
    aliases_in,
    as_table,
    conjuncts_of,
    pairs_of,
    relates_all_rows,
    revive_rows,
    said,
    said_derived,
    tables_in,
)
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.parse import DIALECT

if TYPE_CHECKING:
    from relaqs_engine.plans.composite import PartPlan

_OUTER = ("LEFT", "RIGHT", "FULL")
_WHOLE_JOINS = {
    "ASOF": "takes the nearest row, which may lie in any partition",
    "POSITIONAL": "pairs rows by their places in whole tables",
}


def choose_streams(draft: Draft) -> Draft:
    """Return the draft with its sources, its streams marked, and the conditions that all rows must meet.

    Orders and items meet partition by partition on the order's id. On other columns, only the larger is
    sampled:

    >>> def streams(sql):
    ...     return [source.alias for source in after(choose_streams, sql).streams]
    >>> streams("SELECT count(*) FROM orders JOIN items ON id = order_id")
    ['orders', 'items']
    >>> streams("SELECT count(*) FROM orders JOIN items ON customer = part")
    ['items']
    >>> refusal(choose_streams, "SELECT count(*) FROM zones LEFT JOIN trips ON zones.zone = trips.zone")
    'LEFT JOIN trips keeps unmatched rows of a table that is not sampled, and a sample cannot tell which rows
    have no match'
    """
    select = draft.select
    joins: list[exp.Join] = select.args.get("joins") or []
    sources = tuple(_sources(draft, select, joins))
    conjuncts = conjuncts_of(where.this if (where := select.args.get("where")) else None)
    if not revive_rows(joins):  # so that an inner join's condition can stand in WHERE
        for join in joins:
            if join.side not in _OUTER:
                conjuncts += conjuncts_of(join.args.get("on"))
    sampled = [source for source in sources if source.table is not None and source.table.is_sampled]
    if not sampled:
        raise NotOnlineError(_why_nothing_is_sampled(draft))
    chosen = _largest_group(sampled, pairs_of(conjuncts) + _attaching_pairs(sampled, joins))
    sources = tuple(replace(source, streams=source.alias in chosen) for source in sources)
    if whole := next((s for s in sources if s.is_derived and s.table is not None and not s.streams), None):
        raise NotOnlineError(f"{said_derived(whole.alias)} reads a sampled table that is not streamed here")
    _check_outer_joins(sources, joins)
    return replace(draft, sources=sources, conjuncts=conjuncts)


def _why_nothing_is_sampled(draft: Draft) -> str:
    """Return why a query over static tables has no estimate, and what keeps a subquery from giving one."""
    reason = "no table of its FROM is sampled: static ones are read whole"
    inside = (table for each in find_all(draft.select, exp.Exists, exp.In) for table in tables_in(each))
    names = (table.name for table in inside if isinstance(table.this, exp.Identifier))
    sampled = sorted({name for name in names if draft.catalog.table(name).is_sampled})
    if not sampled:
        return reason
    return f"{reason}; and a sample of {' and '.join(sampled)} cannot tell which of their rows have no match"


def _sources(draft: Draft, select: exp.Select, joins: list[exp.Join]) -> Iterator[Source]:
    from_ = select.args.get("from_")
    if from_ is None:
        raise NotOnlineError("it reads no table")
    nullable = {id(join.this) for join in joins if join.side in ("LEFT", "FULL")}
    before: list[exp.Expr] = [from_.this]
    for join in joins:
        if join.method or join.kind in ("SEMI", "ANTI", "POSITIONAL", "ASOF") or join.args.get("using"):
            kind = join.method or join.kind or "USING"
            raise NotOnlineError(f"{kind} JOIN {_WHOLE_JOINS.get(kind, 'is not rewritten')}")
        if join.side in ("RIGHT", "FULL"):
            nullable.update(id(node) for node in before)
        before.append(join.this)
    for node in before:
        yield _source(draft, node, id(node) in nullable)


def _source(draft: Draft, node: exp.Expr, nullable: bool) -> Source:
    readable = isinstance(node, exp.Subquery) or isinstance(node.this, exp.Identifier)
    if readable and (alias := node.args.get("alias")) is not None and alias.columns:
        raise NotOnlineError(f"the columns of {node.alias} are renamed in FROM")
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("joins"):
        if node.args.get("sample"):
            raise NotOnlineError("TABLESAMPLE asks for a sample of its own")
        if more := sorted(key for key, value in node.args.items() if value and key not in ("this", "alias")):
            raise NotOnlineError(f"{', '.join(more)} of {node.alias_or_name} in FROM is not rewritten")
        layout = draft.catalog.table(node.name)
        return Source(node.alias_or_name, node, layout, nullable, key_columns=layout.cluster_key)
    if isinstance(node, exp.Subquery):
        sampled = [t for t in tables_in(node) if draft.catalog.table(t.name).is_sampled]
        if sampled:
            try:
                return _local_derived_table(draft, node, nullable, sampled[0].name)
            except AcrossPartitionsError:
                if not draft.may_read_derived_whole or not _is_the_same_everywhere(node):
                    raise
        return Source(node.alias, node, None, nullable, is_derived=True)
    raise NotOnlineError(f"{said(node)} is not a table of the catalog")


def _is_the_same_everywhere(node: exp.Subquery) -> bool:
    """Whether each worker gets the same rows of a derived table: no ties decide about them."""
    selects = find_all(node, exp.Select)
    return not find_first(node, exp.TableSample) and not any(map(relates_all_rows, selects))


def _local_derived_table(draft: Draft, node: exp.Subquery, nullable: bool, sampled: str) -> Source:
    """Return a derived table whose groups lie in one partition each, because it groups by a cluster key."""
    refusal = AcrossPartitionsError(
        f"{said_derived(node.alias)} groups, limits or selects distinct rows of the sampled table "
        f"{sampled} across partitions, before the outer query aggregates"
    )
    select, group = node.this, node.this.args.get("group")
    one_level = isinstance(select, exp.Select) and len(list(find_all(select, exp.Query))) == 1
    if not one_level or group is None or select.args.get("distinct") or relates_all_rows(select):
        raise refusal
    inner = query_inside(draft, node)
    if any(
        source.table is not None and source.table.is_sampled and not source.streams
        for source in inner.sources
    ):
        raise refusal
    grouped = grouped_columns(group.expressions, inner.conjuncts)
    for source in inner.streams:
        keys = [(source.alias, column.lower()) for column in source.key_columns]
        if keys and not source.nullable and all(key in grouped for key in keys):
            from relaqs_engine.rewrite.units import keys_beside, of_derived_table

            names = [_output_of(select, grouped[key]) for key in keys]
            held = tuple(name for name in names if name is not None)
            complete = held if len(held) == len(keys) else ()
            return Source(
                node.alias,
                node,
                source.table,
                nullable,
                is_derived=True,
                key_columns=complete,
                block_alias=source.alias,
                columns=of_derived_table(inner),
                keys_beside=keys_beside(inner, frozenset().union(*(grouped[key] for key in keys))),
                grouping_sets=len(group_keys(select)[1]) or 1,
            )
    raise refusal


def query_inside(draft: Draft, derived: exp.Expr) -> Draft:
    """Return the query inside of a derived table, with its own sources."""
    return choose_streams(replace(draft, tree=derived.this))


def groups_are_complete(draft: Draft) -> bool:
    """Whether the rows of each group lie in one partition, in each grouping set."""
    sets = draft.grouping_sets or (range(len(draft.keys)),)
    return all(groups_lie_in_partitions(draft, [draft.keys[i] for i in each]) for each in sets)


def groups_lie_in_partitions(draft: Draft, keys: Iterable[exp.Expr]) -> bool:
    """Whether each group's rows lie in one partition: the keys contain the cluster key of a stream."""
    grouped = grouped_columns(keys, draft.conjuncts)
    return any(
        bool(source.key_columns)
        and not source.nullable
        and all((source.alias, column.lower()) in grouped for column in source.key_columns)
        for source in draft.streams
    )


def grouped_columns(
    keys: Iterable[exp.Expr], conjuncts: Iterable[exp.Expr]
) -> dict[tuple[str, str], frozenset[tuple[str, str]]]:
    """Return the columns that are constant within a group, each with the columns that it is equated with.

    Columns are pairs (alias, name in lower case).
    """
    grouped = {
        (key.table, key.name.lower()): frozenset({(key.table, key.name.lower())})
        for key in keys
        if isinstance(key, exp.Column)
    }
    for pair in pairs_of(conjuncts):
        ends = frozenset((column.table, column.name.lower()) for column in pair)
        if known := next((grouped[end] for end in ends if end in grouped), None):
            for column in known | ends:
                grouped[column] = known | ends
    return grouped


def _output_of(select: exp.Select, columns: frozenset[tuple[str, str]]) -> str | None:
    """Return the name of the output that is one of these columns, None if there is none."""
    for item in select.expressions:
        value = item.unalias()
        if isinstance(value, exp.Column) and (value.table, value.name.lower()) in columns:
            return str(item.alias_or_name)
    return None


def _attaching_pairs(sampled: list[Source], joins: list[exp.Join]) -> list[ColumnPair]:
    """Return the equated columns by which the right side of each outer join meets one source on its left.

    It must be one source only. Rows of two left sources may be joined to each other without a match on the
    right, so a condition of the outer join does not say where they lie.
    """
    found: list[ColumnPair] = []
    for join in joins:
        if join.side not in _OUTER:
            continue
        pairs = pairs_of(conjuncts_of(join.args.get("on")))
        right = next((source for source in sampled if source.alias == join.this.alias_or_name), None)
        left = next((source for source in sampled if right and meet(source, right, pairs)), None)
        if left and right:
            found += [pair for pair in pairs if {c.table for c in pair} == {left.alias, right.alias}]
    return found


def _largest_group(sampled: list[Source], pairs: list[ColumnPair]) -> frozenset[str]:
    """Return the aliases of that group of co-clustered, key-joined sources which has the most rows."""
    groups: list[set[str]] = []
    for source in sampled:
        joined = [
            group for group in groups if any(meet(other, source, pairs) for other in _of(sampled, group))
        ]
        merged = {source.alias}.union(*joined)
        groups = [group for group in groups if group not in joined] + [merged]

    def rows(group: Iterable[str]) -> int:
        return sum(source.table.row_count for source in _of(sampled, group) if source.table)

    return frozenset(max(groups, key=lambda group: (rows(group), sorted(group))))


def _of(sources: list[Source], aliases: Iterable[str]) -> list[Source]:
    return [source for source in sources if source.alias in aliases]


def meet(a: Source, b: Source, pairs: list[ColumnPair]) -> bool:
    """Whether rows of a and b that join lie in the same partition."""
    if a.table is None or b.table is None or not a.table.is_co_clustered_with(b.table):
        return False
    if not a.key_columns or not b.key_columns:
        return False
    equated = {
        (left.name.lower(), right.name.lower())
        for one, two in pairs
        for left, right in ((one, two), (two, one))
        if (left.table, right.table) == (a.alias, b.alias)
    }
    return all((x.lower(), y.lower()) in equated for x, y in zip(a.key_columns, b.key_columns, strict=True))


def _check_outer_joins(sources: tuple[Source, ...], joins: list[exp.Join]) -> None:
    for position, join in enumerate(joins, start=1):
        left, right = sources[:position], sources[position]
        on_keys = pairs_of(conjuncts_of(join.args.get("on")))
        both_meet = any(meet(source, right, on_keys) for source in left if source.streams)
        left_streams = any(source.streams for source in left)
        sound = {
            "LEFT": (left_streams and (not right.streams or both_meet)) or _no_stream((*left, right)),
            "RIGHT": (right.streams and (not left_streams or both_meet)) or _no_stream((*left, right)),
            "FULL": (left_streams and right.streams and both_meet) or _no_stream((*left, right)),
        }.get(join.side, True)
        if not sound:
            raise NotOnlineError(
                f"{join.side} JOIN {right.alias} keeps unmatched rows of a table that is not sampled, "
                "and a sample cannot tell which rows have no match"
            )


def _no_stream(sources: Iterable[Source]) -> bool:
    return not any(source.streams for source in sources)


# Before the alias of an outer table that is named where the subquery's own names hide none of it.
_OUTSIDE = "outside "


def check_subqueries(draft: Draft) -> Draft:
    """Return the draft with the sampled tables that its local subqueries read.

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
        for table in find_all(source.node, exp.Table)
        if draft.catalog.table(table.name).is_sampled
    }
    for table in find_all(draft.select, exp.Table):
        if id(table) in read_before:
            continue
        if not isinstance(table.this, exp.Identifier):
            raise NotOnlineError(f"{said(table)} is not a table of the catalog")
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
    for table in find_all(query, exp.Table):
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
    names = [each.alias_or_name for each in find_all(asked, exp.Table, exp.Subquery)]
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
    inside = [each for each in find_all(asked, exp.Table) if isinstance(each.this, exp.Identifier)]
    known = {each.alias_or_name: draft.catalog.table(each.name) for each in inside}
    known |= {each.alias: each.table for each in outer if each.table is not None}
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
        if outer is None or not is_plain or makes_groups or find_first(found[-1], exp.AggFunc):
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


def _with_what_follows(pairs: list[ColumnPair], known: Mapping[str, Table]) -> list[ColumnPair]:
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


def _types(columns: Iterable[tuple[str, str]], known: Mapping[str, Table]) -> set[str]:
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
    found = (table for table in find_all(query, exp.Table) if table.parent_select is query)
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


_DISTINCT_CORE_SECONDS = 4e-8  # for a row: 25 to 50 ns, measured with one and with two columns
_FEWER_BY = 4  # with fewer rows for a value, making them distinct costs more than it saves


MOST_READ_WHOLE = 0.5  # of what a query does; with more, a sample of the rest comes too late to be of use

# Each mini-batch joins with them anew. A row of them was measured to cost 15 to 140 ns each time.
MOST_ROWS_KEPT = 2_000_000


def check_little_is_read_whole(draft: Draft) -> Draft:
    """Return the draft. Raises NotOnlineError where reading tables whole is most of what the query does.

    >>> sql = "SELECT count(*) FROM orders WHERE customer IN (SELECT part FROM items)"
    >>> refusal(check_little_is_read_whole, sql)
    'it reads items whole, which is 91% of the work, so a sample of the rest would come late'
    """
    share = share_read_whole(draft)
    if share > MOST_READ_WHOLE:
        raise NotOnlineError(
            f"it reads {names_read_whole(draft)} whole, which is {share:.0%} of the work, so a sample of the "
            "rest would come late"
        )
    rows = max([_rows(draft, query) for query in _read_whole(draft)], default=0)
    if rows > MOST_ROWS_KEPT:
        raise NotOnlineError(
            f"it reads {names_read_whole(draft)} whole, and would join each mini-batch with about {rows:,} "
            f"rows of that; up to {MOST_ROWS_KEPT:,} are joined"
        )
    return draft


def check_parts_read_little_whole(
    draft: Draft, parts: Sequence[PartPlan], queries: Sequence[exp.Select]
) -> None:
    """Raise NotOnlineError where most of what a query's parts do is to read sampled tables whole."""
    all_of_it = whole = 0.0
    for part, query in zip(parts, queries, strict=True):
        tables = [table for table in tables_in(query) if draft.catalog.is_sampled(table.name)]
        seconds = sum(column_seconds(draft, query, table) for table in tables)
        all_of_it += seconds
        whole += 0.0 if part.is_estimated else seconds
    if whole > MOST_READ_WHOLE * all_of_it:
        raise NotOnlineError("most of it is read whole, so a sample of the rest would come late")


def tables_read_whole(draft: Draft) -> tuple[str, ...]:
    """Return the layouts that could be sampled and are read whole below the query, each once."""
    tables = (table for query in _read_whole(draft) for table in tables_in(query))
    layouts = (draft.catalog.table(table.name) for table in tables)
    return tuple(dict.fromkeys(layout.table for layout in layouts if layout.is_sampled))


def names_read_whole(draft: Draft) -> str:
    """Return the names of these tables as a query has them, for people."""
    return " and ".join(name.partition(LAYOUT_MARK)[0] for name in tables_read_whole(draft))


def share_read_whole(draft: Draft) -> float:
    """Return the share in what a query does of what is read whole, by predicted time."""
    whole = sum(_whole_seconds(draft, each) for each in set(_read_whole(draft)))  # equal ones are made once
    tables = (table for source in draft.streams for table in tables_in(source.node))
    streamed = sum(column_seconds(draft, draft.select, table) for table in tables)
    return whole / max(whole + streamed, 1e-9)


def repeats_values(draft: Draft, query: exp.Select) -> bool:
    """Return whether the rows of a query are so much fewer once each is there only once.

    Only a query over one table says so by what is known of its columns. Of a join it is taken for granted.
    """
    tables = tables_in(query)
    if len(tables) != 1:
        return True
    layout = draft.catalog.table(tables[0].name)
    return _combinations(layout, query.expressions) * _FEWER_BY <= layout.row_count


def _read_whole(draft: Draft) -> list[exp.Query]:
    """Return the queries of members, and those of derived tables over tables that could be sampled."""
    derived = [
        source.node.this
        for source in draft.sources
        if source.is_derived
        and source.table is None
        and any(draft.catalog.table(table.name).is_sampled for table in tables_in(source.node))
    ]
    return [*(each.this for each in draft.members_in(draft.select)), *derived]


def _rows(draft: Draft, query: exp.Query) -> int:
    """Return about how many rows a query that is read whole has at most, filters left aside."""
    rows = max(draft.catalog.table(table.name).row_count for table in tables_in(query))
    group = query.args.get("group")
    values = group.expressions if group else query.expressions if query.args.get("distinct") else []
    if not values or len(tables_in(query)) > 1:
        return rows
    return min(rows, _combinations(draft.catalog.table(tables_in(query)[0].name), values))


def _combinations(layout: Table, values: Iterable[exp.Expr]) -> int:
    """Return about how many combinations there are of the columns in these values of a table's rows."""
    found = {column.name.lower() for value in values for column in find_all(value, exp.Column)}
    return prod(max(each.distinct_count, 1) for each in layout.columns if each.name.lower() in found)


def _whole_seconds(draft: Draft, query: exp.Query) -> float:
    tables = tables_in(query)
    read = sum(column_seconds(draft, query, table) for table in tables)
    if not query.args.get("distinct") and not query.args.get("group"):
        return read
    rows = max(draft.catalog.table(table.name).row_count for table in tables)
    return read + rows * _DISTINCT_CORE_SECONDS


def column_seconds(draft: Draft, query: exp.Expr, table: exp.Table) -> float:
    """Return how long reading the columns takes that a query uses of a table in it."""
    layout = draft.catalog.table(table.name)
    columns = find_all(query, exp.Column)
    used = {column.name.lower() for column in columns if column.table == table.alias_or_name}
    byte_count = sum(column.byte_count for column in layout.columns if column.name.lower() in used)
    return scan_core_seconds(byte_count, layout.row_count)


_ALIAS = "relaqs_members_"
_A_ROW_IS_THERE = exp.Literal.number(1)  # what members say where nothing of them is compared


def read_members_whole(draft: Draft) -> Draft:
    """Return the draft with each EXISTS and IN over all partitions asking a table of members.

    >>> sql = "SELECT count(*) AS n FROM items WHERE EXISTS (SELECT * FROM orders WHERE customer = part)"
    >>> print(shown(after(read_members_whole, sql).select.args["where"].this))
    EXISTS(SELECT relaqs_members_0.c0 FROM (SELECT DISTINCT orders.customer AS c0 FROM orders AS orders)
    AS relaqs_members_0 WHERE relaqs_members_0.c0 = items.part)
    """
    tree = copied(draft.select)
    own = replace(draft, tree=tree)
    aliases: dict[exp.Query, str] = {}  # equal queries have one, so that a group key stays equal to an output
    made: set[str] = set()
    for query in [each for each in _asked(tree) if not is_local_query(own, each)]:
        alias = aliases.setdefault(query.copy(), f"{_ALIAS}{len(aliases)}")
        if _put_members(draft, query, alias):
            made.add(alias)
    if not made:
        return draft
    return replace(choose_streams(own), members=frozenset(made))


def _asked(tree: exp.Select) -> list[exp.Query]:
    """Return the queries of EXISTS and IN, but for those inside other subqueries."""
    found = [
        node.this if isinstance(node, exp.Exists) else node.args.get("query")
        for node in find_all(tree, exp.Exists, exp.In)
    ]
    queries = [node.this if isinstance(node, exp.Subquery) else node for node in found]
    return [each for each in queries if isinstance(each, exp.Query) and each.parent_select is tree]


def _put_members(draft: Draft, query: exp.Query, alias: str) -> bool:
    """Let a query ask its members. False where more than the values of its single rows decides."""
    found = members_and_asking(query, alias, lambda members: repeats_values(draft, members))
    if found is None:
        return False
    members, asking = found
    draft.binder.describe(members.sql(DIALECT))  # a name may mean another table where the members stand
    query.replace(asking)
    return True


def members_and_asking(
    query: exp.Query, alias: str, repeats: Callable[[exp.Select], bool]
) -> tuple[exp.Query, exp.Select] | None:
    """Return the members that a query of EXISTS or IN asks, and the query over them that takes its place.

    None where more than the values of its single rows decides.

    Args:
        query: the query, qualified. It stays as it is.
        alias: the name of the table of members.
        repeats: whether members are to be made distinct.
    """
    if find_first(query, exp.AggFunc, exp.TableSample) or any(
        map(relates_all_rows, find_all(query, exp.Select))
    ):
        return None
    if not all(isinstance(table.this, exp.Identifier) for table in tables_in(query)):
        return None
    found = _of_select(query, alias, repeats) if isinstance(query, exp.Select) else _of_whole(query, alias)
    return None if found is None or outer_columns(found[0]) else found


def _of_whole(query: exp.Query, alias: str) -> tuple[exp.Query, exp.Select]:
    """Return a set operation as members, and the query over them."""
    columns = [exp.column(name, alias, quoted=True) for name in query.named_selects]
    return query, exp.select(*columns).from_(query.subquery(alias))


def _of_select(
    query: exp.Select, alias: str, repeats: Callable[[exp.Select], bool]
) -> tuple[exp.Query, exp.Select] | None:
    """Return the members of a SELECT, and the query over them with the conditions that name outer rows.

    None where other parts of it name outer rows, or could not stand over members.
    """
    outside = {column.table for column in outer_columns(query)}
    conditions = conjuncts_of(where.this if (where := query.args.get("where")) else None)
    correlated = [each for each in conditions if outside & aliases_in(each)]
    is_grouped = query.args.get("group") or query.args.get("having")
    if correlated and (is_grouped or any(find_first(each, exp.Query) for each in correlated)):
        return None
    outputs = [] if isinstance(query.parent, exp.Exists) else [each.unalias() for each in query.expressions]
    columns = (column for condition in correlated for column in find_all(condition, exp.Column))
    values = dict.fromkeys([*outputs, *(column for column in columns if column.table not in outside)])
    names = {
        value: exp.column(f"c{i}", alias, quoted=True) for i, value in enumerate(values or [_A_ROW_IS_THERE])
    }
    members = _with_outputs(query, names)
    members = members.where(*(each.copy() for each in conditions if each not in correlated))
    if repeats(members):
        members = members.distinct()
    asking = exp.select(*(names[each].copy() for each in outputs or list(names)[:1]))
    asking = asking.from_(as_table(members, alias))
    return members, asking.where(*(_over(names, each) for each in correlated))


def _with_outputs(query: exp.Select, names: dict[exp.Expr, exp.Column]) -> exp.Select:
    """Return the query without WHERE and order, with the values under their names."""
    members = query.copy()
    members.set("order", None)
    members.set("where", None)
    outputs = [exp.alias_(value.copy(), column.name, quoted=True) for value, column in names.items()]
    members.set("expressions", outputs)
    return members


def _over(names: dict[exp.Expr, exp.Column], condition: exp.Expr) -> exp.Expr:
    """Return a condition with the columns of members in the place of the columns that they were."""
    return condition.transform(lambda node: names[node].copy() if node in names else node)
