"""Rule: choose the tables that are sampled together (streams), and check that joins keep the sample sound.

A join of two streams is sound when matching rows lie in the same partition. For that, both tables must be
co-clustered, and the join must equate their whole cluster keys. An outer join is sound when the table whose
unmatched rows it keeps is a stream. With any other join, the answer over the first partitions would not be a
sample of the whole answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.rewrite.draft import (
    AcrossPartitionsError,
    ColumnPair,
    Draft,
    NotOnlineError,
    Source,
    conjuncts_of,
    pairs_of,
    relates_all_rows,
    revive_rows,
    tables_in,
)
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.units import keys_beside, of_derived_table
from relaqs_engine.sql.parse import DIALECT

_OUTER = ("LEFT", "RIGHT", "FULL")
_WHOLE_JOINS = {
    "ASOF": "takes the nearest row, which may lie in any partition",
    "POSITIONAL": "pairs rows by their places in whole tables",
}


def choose_streams(draft: Draft) -> Draft:
    """Return the draft with its sources, its streams marked, and the conditions that all rows must meet.

    Orders and items meet partition by partition on the order's id. On other columns, only the larger is
    sampled:

    >>> from relaqs_engine.planning.example import after, refusal
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
    sampled = [source for source in sources if source.layout is not None and source.layout.is_sampled]
    if not sampled:
        raise NotOnlineError(_why_nothing_is_sampled(draft))
    chosen = _largest_group(sampled, pairs_of(conjuncts) + _attaching_pairs(sampled, joins))
    sources = tuple(replace(source, streams=source.alias in chosen) for source in sources)
    if whole := next((s for s in sources if s.is_derived and s.layout is not None and not s.streams), None):
        raise NotOnlineError(
            f"the derived table {whole.alias} reads a sampled table that is not streamed here"
        )
    _check_outer_joins(sources, joins)
    return replace(draft, sources=sources, conjuncts=conjuncts)


def _why_nothing_is_sampled(draft: Draft) -> str:
    """Return why a query over static tables has no estimate, and what keeps a subquery from giving one."""
    reason = "no table of its FROM is sampled: static ones are read whole"
    inside = (table for each in draft.select.find_all(exp.Exists, exp.In) for table in tables_in(each))
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
    raise NotOnlineError(f"{node.sql(DIALECT)} is not a table of the catalog")


def _is_the_same_everywhere(node: exp.Subquery) -> bool:
    """Whether each worker gets the same rows of a derived table: no ties decide about them."""
    selects = node.find_all(exp.Select)
    return not node.find(exp.TableSample) and not any(map(relates_all_rows, selects))


def _local_derived_table(draft: Draft, node: exp.Subquery, nullable: bool, sampled: str) -> Source:
    """Return a derived table whose groups lie in one partition each, because it groups by a cluster key."""
    refusal = AcrossPartitionsError(
        f"the derived table {node.alias} groups, limits or selects distinct rows of the sampled table "
        f"{sampled} across partitions, before the outer query aggregates"
    )
    select, group = node.this, node.this.args.get("group")
    one_level = isinstance(select, exp.Select) and len(list(select.find_all(exp.Query))) == 1
    if not one_level or group is None or select.args.get("distinct") or relates_all_rows(select):
        raise refusal
    inner = query_inside(draft, node)
    if any(
        source.layout is not None and source.layout.is_sampled and not source.streams
        for source in inner.sources
    ):
        raise refusal
    grouped = grouped_columns(group.expressions, inner.conjuncts)
    for source in inner.streams:
        keys = [(source.alias, column.lower()) for column in source.key_columns]
        if keys and not source.nullable and all(key in grouped for key in keys):
            names = [_output_of(select, grouped[key]) for key in keys]
            held = tuple(name for name in names if name is not None)
            complete = held if len(held) == len(keys) else ()
            return Source(
                node.alias,
                node,
                source.layout,
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
        return sum(source.layout.row_count for source in _of(sampled, group) if source.layout)

    return frozenset(max(groups, key=lambda group: (rows(group), sorted(group))))


def _of(sources: list[Source], aliases: Iterable[str]) -> list[Source]:
    return [source for source in sources if source.alias in aliases]


def meet(a: Source, b: Source, pairs: list[ColumnPair]) -> bool:
    """Whether rows of a and b that join lie in the same partition."""
    if a.layout is None or b.layout is None or not a.layout.is_co_clustered_with(b.layout):
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
