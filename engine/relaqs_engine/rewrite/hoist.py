"""Rule: each worker prepares a static table once, with the columns that are used and the rows that can join.

A row of an inner-joined static table is kept if it passes the table's own conditions. It must also meet the
smaller static tables that it is equated with (a semi-join, which never multiplies rows). A condition that is
an OR over several tables implies one condition for each table: the part of every branch that is about that
table, joined by OR. Example: `(a.x = 1 AND b.y = 2) OR (a.x = 3 AND b.y = 4)` implies `a.x = 1 OR a.x = 3`.

A subquery in a condition that reads static tables alone, and no column from outside, is prepared as a whole.
Its rows are the same for every task. Example: `zone IN (SELECT zone FROM zones WHERE city LIKE 'O%')`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp

from relaqs_engine.duck import CivilTime
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, Layout
from relaqs_engine.layouts.reads import PlainRead, Read, read_of_table
from relaqs_engine.plans.streams import Hoist
from relaqs_engine.rewrite.draft import (
    Draft,
    NotOnlineError,
    Source,
    aliases_in,
    column_pair,
    conjuncts_of,
    own_nodes,
    revive_rows,
    tables_in,
)
from relaqs_engine.sql.parse import DIALECT
from relaqs_engine.sql.whole_table import find_greatest_floats_in_rows, rows_of, whole_table


@dataclass(slots=True)
class _Work:
    """The hoists made so far.

    Attributes:
        civil_time: by which they read moments.
        hoists: by their names.
        of_alias: by the alias of the table in the query.
        reduced: the aliases of tables that lost rows.
    """

    civil_time: CivilTime
    hoists: dict[str, Hoist] = field(default_factory=dict)
    of_alias: dict[str, Hoist] = field(default_factory=dict)
    reduced: set[str] = field(default_factory=set)


def hoist_statics(draft: Draft) -> Draft:
    """Return the draft with its hoists, and with FROM and WHERE of the partial query over them.

    >>> from relaqs_engine.planning.example import after, shown
    >>> sql = "SELECT sum(fare) FROM trips JOIN zones ON trips.zone = zones.zone WHERE city = 'Oslo'"
    >>> draft = after(hoist_statics, sql)
    >>> print(shown(draft.hoists[0].sql))
    SELECT zone, city FROM files AS zones WHERE zones.city = 'Oslo'
    >>> print(shown(draft.scan))
    SELECT FROM partitions_of_trips AS trips CROSS JOIN hoist_0 AS zones WHERE trips.zone = zones.zone
    """
    work = _Work(draft.binder.civil_time)
    pushed: set[int] = set()
    statics = [source for source in draft.sources if not source.streams]
    for source in sorted(statics, key=_row_count):
        reduces = source.layout is not None and not source.nullable
        own = [c for c in draft.conjuncts if _is_only_about(c, source)] if reduces else []
        pushed.update(id(condition) for condition in own)
        _hoist_source(draft, source, own, work)
    kept = tuple(condition for condition in draft.conjuncts if id(condition) not in pushed)
    scan = _scan(draft, kept, work)
    for query in _asked_by_values(draft):
        _read_hoists(draft, exp.select(query.copy()), work)
    return replace(draft, hoists=tuple(work.hoists.values()), scan=scan)


def _row_count(source: Source) -> int:
    return source.layout.row_count if source.layout else 0


def _is_only_about(condition: exp.Expr, source: Source) -> bool:
    return aliases_in(condition) == {source.alias} and not condition.find(exp.Query)


def _hoist_source(draft: Draft, source: Source, own: list[exp.Expr], work: _Work) -> None:
    if source.layout is None:
        body = source.node.copy()
        assert isinstance(body, exp.Subquery)
        reads = _read_files(draft, body)
        work.of_alias[source.alias] = _add(work, body.this.sql(DIALECT), (source.alias,), reads)
        return
    conditions = list(own)
    if not source.nullable:
        conditions += [c for whole in draft.conjuncts if (c := implied_by_or(whole, source.alias))]
        conditions += _semi_joins(draft, source, work)
    sql = projection(draft.select, source, source.layout, conditions)
    hoist = _add(work, sql, (source.layout.table,), (read_of_table(source.layout, draft.names),))
    work.of_alias[source.alias] = hoist
    if conditions:
        work.reduced.add(source.alias)


def implied_by_or(condition: exp.Expr, alias: str) -> exp.Expr | None:
    """Return what `(a and …) or (b and …)` implies for one source, None if a branch says nothing about it."""
    condition = condition.unnest()
    if not isinstance(condition, exp.Or) or aliases_in(condition) == {alias}:
        return None
    parts = []
    for branch in condition.flatten():
        own = [c for c in conjuncts_of(branch) if aliases_in(c) == {alias} and not c.find(exp.Query)]
        if not own:
            return None
        parts.append(exp.and_(*own, copy=True))
    return exp.or_(*parts, copy=True)


def _semi_joins(draft: Draft, source: Source, work: _Work) -> list[exp.Expr]:
    """Return `x IN (SELECT y FROM smaller)` for each smaller static table that itself lost rows."""
    found: list[exp.Expr] = []
    for condition in draft.conjuncts:
        pair = column_pair(condition)
        if pair is None or source.alias not in (pair[0].table, pair[1].table):
            continue
        mine, other = pair if pair[0].table == source.alias else (pair[1], pair[0])
        if other.table in work.reduced and not draft.source(other.table).nullable:
            inner = exp.select(exp.column(other.name, quoted=True)).from_(work.of_alias[other.table].name)
            found.append(exp.In(this=mine.copy(), query=inner.subquery()))
    return found


def projection(select: exp.Select, source: Source, layout: Layout, conditions: list[exp.Expr]) -> str:
    """Return the SELECT that reads the used columns of a table and the rows that meet the conditions."""
    used = {column.name.lower() for column in select.find_all(exp.Column) if column.table == source.alias}
    names = [exp.column(c.name, quoted=True) for c in layout.columns if c.name.lower() in used]
    query = exp.select(*names, *([] if names else ["1"])).from_(
        exp.alias_(rows_of(_whole(layout)), layout.table, quoted=True, table=True)
    )
    if conditions:
        query = query.where(*(_about_table(condition, source, layout) for condition in conditions))
    return query.sql(DIALECT)


def _about_table(condition: exp.Expr, source: Source, layout: Layout) -> exp.Expr:
    """Return the condition with the table's name for its alias, so that equal hoists have equal texts."""
    condition = condition.copy()
    for column in condition.find_all(exp.Column):
        if column.table == source.alias:
            column.set("table", exp.to_identifier(layout.table, quoted=True))
    return condition


def _whole(layout: Layout) -> Layout:
    """Return the layout, which is to be read whole. Raises NotOnlineError if not all of it is there."""
    if layout.is_first_part:
        raise NotOnlineError(f"only a first part of {layout.table} is laid out, and it is read whole")
    return layout


def _read_files(draft: Draft, node: exp.Expr) -> tuple[Read, ...]:
    """Put whole layouts in the place of the catalog tables below a node, and return what that reads."""
    reads: list[Read] = []
    layouts: list[Layout] = []
    for table in list(tables_in(node)):
        if isinstance(table.this, exp.Identifier):
            layout = _whole(draft.catalog.table(table.name))
            layouts.append(layout)
            reads.append(read_of_table(layout, draft.names))
            derived = whole_table(layout)
            derived.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)))
            table.replace(derived)
    find_greatest_floats_in_rows(node, layouts)
    return tuple(dict.fromkeys(reads))


def _add(work: _Work, sql: str, tables: tuple[str, ...], reads: tuple[Read, ...]) -> Hoist:
    name = hoist_name(sql, reads, work.civil_time)
    return work.hoists.setdefault(name, Hoist(name, sql, tables, reads))


def hoist_name(sql: str, reads: Sequence[Read], civil_time: CivilTime) -> str:
    """Return the name of a hoist, another one for another state of its data and for another time zone.

    A layout's files have another path after each write. A plain file has not, so its state is in the name.
    """
    plain = [repr(read.files) for read in reads if isinstance(read, PlainRead)]
    return "hoist_" + hashlib.sha256("".join([repr(civil_time), sql, *plain]).encode()).hexdigest()[:16]


def _scan(draft: Draft, kept: tuple[exp.Expr, ...], work: _Work) -> exp.Select:
    """Return FROM and WHERE, with stream tokens and hoists in the place of tables."""
    select = draft.select.copy()
    originals = [select.args["from_"].this] + [join.this for join in select.args.get("joins") or []]
    for source, node in zip(draft.sources, originals, strict=True):
        if source.streams and source.is_derived:
            node.this.select(_block_of_groups(source), copy=False)
        else:
            name = _name_in_partial(source, work)
            node.replace(exp.alias_(exp.to_table(name), source.alias, quoted=True, table=True))
    scan = exp.Select()
    scan.set("from_", select.args["from_"])
    joins = select.args.get("joins") or []
    moved = not revive_rows(joins)
    scan.set("joins", [_without_inner_condition(join) if moved else join for join in joins])
    if kept:
        scan = scan.where(*kept)
    _read_members(draft, scan, work)
    _hoist_subqueries(draft, scan, work)
    _read_tables(draft, scan, work)
    return scan


def _hoist_subqueries(draft: Draft, scan: exp.Select, work: _Work) -> None:
    """Put prepared tables in the place of subqueries that have the same rows for all tasks."""
    replaced = {*work.hoists, *(stream_token(layout.table) for layout in draft.catalog.layouts)}
    for query in list(scan.find_all(exp.Select)):
        is_inside = query is not scan and query.root() is scan  # and not in one that was prepared just now
        if is_inside and _is_same_for_all_rows(draft, query, replaced):
            query.replace(exp.select("*").from_(_prepared(draft, query, work)))


def _read_hoists(draft: Draft, node: exp.Expr, work: _Work) -> None:
    """Put hoists and stream tokens in the place of all that subqueries below a node read."""
    _read_members(draft, node, work)
    _read_tables(draft, node, work)


def _read_members(draft: Draft, node: exp.Expr, work: _Work) -> None:
    """Put hoists in the place of the tables of members below a node (see `rewrite/members.py`)."""
    for members in draft.members_in(node):
        prepared = _prepared(draft, members.this, work)
        members.replace(exp.alias_(prepared, members.alias, quoted=True, table=True))


def _read_tables(draft: Draft, node: exp.Expr, work: _Work) -> None:
    """Put hoists and stream tokens in the place of the tables of the catalog below a node."""
    tokens = {stream_token(layout.table) for layout in draft.catalog.layouts}
    for table in list(tables_in(node)):
        if table.name not in work.hoists and table.name not in tokens:
            _replace_table_of_subquery(draft, table, work)


def _asked_by_values(draft: Draft) -> list[exp.Expr]:
    """Return the subqueries in outputs and group keys."""
    group = draft.select.args.get("group")
    parts = [*draft.select.expressions, *([] if group is None else [group])]
    return [query for part in parts for query in own_nodes(part, exp.Query)]


def over_hoists(draft: Draft, values: str) -> str:
    """Return the values of a partial query whose EXISTS and IN read hoists and streams, not tables."""
    if not _asked_by_values(draft):
        return values
    select = sqlglot.parse_one(f"SELECT {values}", dialect=DIALECT)
    _read_hoists(draft, select, _Work(draft.binder.civil_time))
    return select.sql(DIALECT).removeprefix("SELECT ")


def _prepared(draft: Draft, query: exp.Expr, work: _Work) -> exp.Table:
    """Return the table that the rows of a query are prepared as. The query reads nothing from outside."""
    body = exp.Subquery(this=query.copy())
    tables = dict.fromkeys(draft.catalog.table(table.name).table for table in tables_in(body))
    reads = _read_files(draft, body)
    return exp.to_table(_add(work, body.this.sql(DIALECT), tuple(tables), reads).name)


def _is_same_for_all_rows(draft: Draft, query: exp.Select, replaced: set[str]) -> bool:
    """Whether a subquery reads static tables, and columns of its own alone.

    replaced: the names that stand for tables already.
    """
    names = [table.name for table in tables_in(query)]
    if not names or any(name in replaced for name in names):
        return False
    if any(draft.catalog.table(name).table in draft.local_tables for name in names):
        return False
    return all(_is_bound_within(query, column) for column in query.find_all(exp.Column))


def _is_bound_within(query: exp.Select, column: exp.Column) -> bool:
    """Whether a column belongs to a relation of the query, or of a subquery inside it."""
    select = column.parent_select
    while select is not None and column.table not in _relations(select):
        select = None if select is query else select.parent_select
    return select is not None


def _relations(select: exp.Select) -> set[str]:
    """Return the names of what a SELECT has in its FROM."""
    first = [select.args["from_"].this] if select.args.get("from_") else []
    return {node.alias_or_name for node in (*first, *(join.this for join in select.args.get("joins") or []))}


def _name_in_partial(source: Source, work: _Work) -> str:
    if not source.streams:
        return work.of_alias[source.alias].name
    assert source.layout is not None
    return stream_token(source.layout.table)


def _block_of_groups(source: Source) -> exp.Expr:
    """Return the block of the groups of a local derived table. All rows of a group have the same one."""
    block = exp.column(BLOCK_COLUMN, source.block_alias, quoted=True)
    return exp.alias_(exp.AnyValue(this=block), BLOCK_COLUMN, quoted=True)


def _without_inner_condition(join: exp.Join) -> exp.Join:
    """Return an inner join without its condition, which stands in WHERE. An outer join keeps its own."""
    if not join.side:
        join.set("on", None)
        join.set("kind", "CROSS")
    return join


def _replace_table_of_subquery(draft: Draft, table: exp.Table, work: _Work) -> None:
    layout = draft.catalog.table(table.name)
    source = Source(table.alias_or_name, table, layout)
    if layout.table in draft.local_tables:
        name = stream_token(layout.table)
    else:
        sql = projection(draft.select, source, layout, [])
        name = _add(work, sql, (layout.table,), (read_of_table(layout, draft.names),)).name
    table.replace(exp.alias_(exp.to_table(name), source.alias, quoted=True, table=True))


def stream_token(table: str) -> str:
    """Return the name that stands for a streamed table's files in the partial SQL."""
    return "stream_" + hashlib.sha256(table.encode()).hexdigest()[:12]
