"""What a task reads: the columns and rows of its streams, and static tables that a worker prepares once.

**Static tables** are prepared with the columns that are used and the rows that can join. A row of an
inner-joined static table is kept if it passes the table's own conditions. It must also meet the smaller
static tables that it is equated with (a semi-join, which never multiplies rows). A condition that is an OR
over several tables implies one condition for each table: the part of every branch that is about that
table, joined by OR. Example: `(a.x = 1 AND b.y = 2) OR (a.x = 3 AND b.y = 4)` implies `a.x = 1 OR a.x =
3`.

A subquery in a condition that reads static tables alone, and no column from outside, is prepared as a whole.
Its rows are the same for every task. Example: `zone IN (SELECT zone FROM zones WHERE city LIKE 'O%')`.

**Streams** are read with the columns that the partial query's tree names, as often as it reads each.
`met_several_times` says of which other tables a row of theirs may meet more than one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod

import sqlglot
from sqlglot import exp

from relaqs_engine.duck import CivilTime
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.column_statistics import NEARLY_ALL
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    FirstPart,
    Layout,
    PlainRead,
    Read,
    Table,
    columns_named,
)
from relaqs_engine.plans.aggregate import StreamScan
from relaqs_engine.plans.plan import Hoist, Stream
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
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.sql.columns import find_greatest_floats_in_rows, rows_of, whole_table
from relaqs_engine.sql.dialect import copied, find_all, find_first
from relaqs_engine.sql.parse import DIALECT


@dataclass(slots=True)
class _Work:
    """The hoists made so far.

    Attributes:
        civil_time: by which they read moments.
        of_alias: by the alias of the table in the query.
        reduced: the aliases of tables that lost rows.
    """

    civil_time: CivilTime
    hoists: dict[str, Hoist] = field(default_factory=dict)
    of_alias: dict[str, Hoist] = field(default_factory=dict)
    reduced: set[str] = field(default_factory=set)


def hoist_statics(draft: Draft) -> Draft:
    """Return the draft with its hoists, and with FROM and WHERE of the partial query over them.

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
        reduces = source.table is not None and not source.nullable
        own = [c for c in draft.conjuncts if _is_only_about(c, source)] if reduces else []
        pushed.update(id(condition) for condition in own)
        _hoist_source(draft, source, own, work)
    kept = tuple(condition for condition in draft.conjuncts if id(condition) not in pushed)
    scan = _scan(draft, kept, work)
    for query in _asked_by_values(draft):
        _read_hoists(draft, exp.select(query.copy()), work)
    return replace(draft, hoists=tuple(work.hoists.values()), scan=scan)


def _row_count(source: Source) -> int:
    return source.table.row_count if source.table else 0


def _is_only_about(condition: exp.Expr, source: Source) -> bool:
    return aliases_in(condition) == {source.alias} and not find_first(condition, exp.Query)


def _hoist_source(draft: Draft, source: Source, own: list[exp.Expr], work: _Work) -> None:
    if source.table is None:
        body = source.node.copy()
        assert isinstance(body, exp.Subquery)
        reads = _read_files(draft, body)
        work.of_alias[source.alias] = _add(work, body.this.sql(DIALECT), (source.alias,), reads)
        return
    conditions = list(own)
    if not source.nullable:
        conditions += [c for whole in draft.conjuncts if (c := implied_by_or(whole, source.alias))]
        conditions += _semi_joins(draft, source, work)
    sql = projection(draft.select, source, source.table, conditions)
    hoist = _add(work, sql, (source.table.table,), (source.table.whole_read(draft.names),))
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
        own = [c for c in conjuncts_of(branch) if aliases_in(c) == {alias} and not find_first(c, exp.Query)]
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


def projection(select: exp.Select, source: Source, table: Table, conditions: list[exp.Expr]) -> str:
    """Return the SELECT that reads the used columns of a table and the rows that meet the conditions."""
    used = {column.name.lower() for column in find_all(select, exp.Column) if column.table == source.alias}
    names = [exp.column(c.name, quoted=True) for c in table.columns if c.name.lower() in used]
    query = exp.select(*names, *([] if names else ["1"])).from_(
        exp.alias_(rows_of(_whole(table)), table.table, quoted=True, table=True), copy=False
    )
    if conditions:
        query.where(*(_about_table(condition, source, table) for condition in conditions), copy=False)
    return query.sql(DIALECT, copy=False)


def _about_table(condition: exp.Expr, source: Source, table: Table) -> exp.Expr:
    """Return the condition with the table's name for its alias, so that equal hoists have equal texts."""
    condition = copied(condition)
    for column in find_all(condition, exp.Column):
        if column.table == source.alias:
            column.set("table", exp.to_identifier(table.table, quoted=True))
    return condition


def _whole(table: Table) -> Table:
    """Return the table, which is to be read whole. Raises NotOnlineError if not all of it is there."""
    if isinstance(table, FirstPart):
        raise NotOnlineError(f"only a first part of {table.table} is laid out, and it is read whole")
    return table


def _read_files(draft: Draft, node: exp.Expr) -> tuple[Read, ...]:
    """Put whole layouts in the place of the catalog tables below a node, and return what that reads."""
    reads: list[Read] = []
    layouts: list[Table] = []
    for table in list(tables_in(node)):
        if isinstance(table.this, exp.Identifier):
            layout = _whole(draft.catalog.table(table.name))
            layouts.append(layout)
            reads.append(layout.whole_read(draft.names))
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
    select = copied(draft.select)
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
    for query in list(find_all(scan, exp.Select)):
        is_inside = query is not scan and query.root() is scan  # and not in one that was prepared just now
        if is_inside and _is_same_for_all_rows(draft, query, replaced):
            query.replace(exp.select("*").from_(_prepared(draft, query, work)))


def _read_hoists(draft: Draft, node: exp.Expr, work: _Work) -> None:
    """Put hoists and stream tokens in the place of all that subqueries below a node read."""
    _read_members(draft, node, work)
    _read_tables(draft, node, work)


def _read_members(draft: Draft, node: exp.Expr, work: _Work) -> None:
    """Put hoists in the place of the tables of members below a node (see `rewrite/sampling.py`)."""
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
    return all(_is_bound_within(query, column) for column in find_all(query, exp.Column))


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
    assert source.table is not None
    return stream_token(source.table.table)


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
        name = _add(work, sql, (layout.table,), (layout.whole_read(draft.names),)).name
    table.replace(exp.alias_(exp.to_table(name), source.alias, quoted=True, table=True))


def stream_token(table: str) -> str:
    """Return the name that stands for a streamed table's files in the partial SQL."""
    return "stream_" + hashlib.sha256(table.encode()).hexdigest()[:12]


FAR_MORE_EVEN = 4.0  # so many times as many units of one size: half of the error


def streams_of(draft: Draft) -> tuple[Stream, ...]:
    """Return the layouts that the draft samples, by name."""
    tables = {source.table.table for source in draft.streams if source.table is not None}
    return tuple(
        Stream(table, stream_token(table), columns_named(draft.catalog.table(table), draft.names))
        for table in sorted(tables | draft.local_tables)
    )


def measuring_tables(draft: Draft) -> tuple[str, ...]:
    """Return the streamed tables whose rows measure what was scanned.

    It is the largest one. But every joined row must have a row that counts. Else its unit would be of no
    size, though the answer varies by it. An outer join gives rows without the largest table, so the tables
    that it keeps count as well.

    And no unit may have most of the rows that count, as all those without a key may. It is met at once or not
    at all, and says nothing of what else there is. A kept table with far more even units counts alone then.
    """
    streams = [(source.layout, source.nullable) for source in draft.streams]
    largest = max((layout for layout, _ in streams), key=lambda layout: (layout.row_count, layout.table))
    always = {layout.table: layout for layout, nullable in streams if not nullable}
    kept = always or {layout.table: layout for layout, _ in streams}
    others = () if largest.table in always else tuple(name for name in sorted(kept) if name != largest.table)
    usual = _even_units(largest, *(kept[name] for name in others))
    evenest = max(always.values(), key=lambda layout: (_even_units(layout), layout.table), default=largest)
    if _even_units(evenest) > FAR_MORE_EVEN * usual:
        return (evenest.table,)
    return (largest.table, *others)


def _even_units(*layouts: Layout) -> float:
    """Return how many units of one size would vary as much as those of these layouts, counted together."""
    rows = sum(layout.row_count for layout in layouts)
    return rows**2 / max(sum(layout.row_count * layout.typical_unit_rows for layout in layouts), 1.0)


def scan_of_tables(draft: Draft) -> exp.Select:
    """Return FROM and WHERE of the query over the catalog's tables, to read types off."""
    scan = exp.Select()
    for part in ("from_", "where"):
        if value := draft.select.args.get(part):
            scan.set(part, copied(value))
    scan.set("joins", [copied(join) for join in draft.select.args.get("joins") or []])
    return scan


def scan_sql(draft: Draft, scan: exp.Select, *, over_tables: bool) -> str:
    """Return FROM and WHERE of a scan, as a task runs them. over_tables: of the tables of the catalog."""
    where = scan.args.get("where")
    if where is not None and not over_tables and find_first(where, exp.Exists) is not None:
        scan = _asked_by_key(draft, scan)
    return scan.sql(DIALECT).removeprefix("SELECT").strip()


def _asked_by_key(draft: Draft, scan: exp.Select) -> exp.Select:
    """Return a scan with IN for EXISTS, itself where DuckDB does not take that.

    `=` compares a number with a text, and IN does not.
    """
    from relaqs_engine.rewrite.exists import ask_rows_by_key

    if (asked := ask_rows_by_key(scan)) is scan:
        return scan
    try:
        draft.binder.describe(ask_rows_by_key(scan_of_tables(draft)).select("1").sql(DIALECT))
    except SqlError:
        return scan
    return asked


def scans_of(draft: Draft) -> tuple[StreamScan, ...]:
    """Return what the draft's partial query reads of each stream."""
    assert draft.scan is not None
    names = frozenset(_names(draft, draft.scan))
    tokens = [table.name for table in tables_in(draft.scan)]
    return tuple(
        StreamScan(
            stream.table,
            columns_named(draft.catalog.table(stream.table), names),
            times=max(1, tokens.count(stream.token)),  # 0 where only EXISTS among the outputs reads it
        )
        for stream in streams_of(draft)
    )


def is_filtered(scan: exp.Select) -> bool:
    """Whether a condition leaves rows out of the scan, or of a subquery in it. One of an aggregate does not.

    >>> is_filtered(sqlglot.parse_one("SELECT sum(x) FILTER (WHERE x > 1) FROM t"))
    False
    >>> is_filtered(sqlglot.parse_one("SELECT sum(x) FROM t WHERE x > 1"))
    True
    """
    return any(not isinstance(where.parent, exp.Filter) for where in find_all(scan, exp.Where))


def _names(draft: Draft, scan: exp.Select) -> Iterator[str]:
    """Yield the names of columns in the partial query, in lower case."""
    having = draft.select.args.get("having")
    around = [*_sort_keys(draft.select), *([] if having is None else [having])]
    for tree in chain([scan], draft.keys, draft.select.expressions, around):
        yield from (column.name.lower() for column in find_all(tree, exp.Column))
    if draft.distinct is not None:  # a value's sampling units are counted by their keys
        yield from (name.lower() for source in draft.streams for name in source.key_columns)


def _sort_keys(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield what the rows are ordered by, except outputs: `SELECT sum(x) AS y … ORDER BY y` reads no y."""
    outputs = {each.alias_or_name.lower() for each in select.expressions}
    order = select.args.get("order")
    for key in (ordered.this for ordered in (order.expressions if order else ())):
        if not (isinstance(key, exp.Column) and not key.table and key.name.lower() in outputs):
            yield key


def met_several_times(draft: Draft) -> Iterator[str]:
    """Yield the tables that are read whole and have more than one row that a sampled row may meet."""
    joins = draft.select.args.get("joins") or []
    conditions = [*draft.conjuncts, *(c for join in joins for c in conjuncts_of(join.args.get("on")))]
    equated = frozenset(column for condition in conditions for column in _equated(condition))
    for source in draft.sources:
        columns = {name for alias, name in equated if alias == source.alias}
        if not source.streams and not _is_unique(source, columns):
            yield source.alias if source.table is None else source.table.table


def _equated(condition: exp.Expr) -> frozenset[tuple[str, str]]:
    """Return the columns, as (alias, name), that a condition surely equates with those of other tables."""
    condition = condition.unnest()
    if isinstance(condition, exp.Or):
        branches = [
            frozenset(column for part in conjuncts_of(branch) for column in _equated(part))
            for branch in condition.flatten()
        ]
        return frozenset.intersection(*branches)
    pair = column_pair(condition)
    return frozenset() if pair is None else frozenset((each.table, each.name.lower()) for each in pair)


def _is_unique(source: Source, columns: set[str]) -> bool:
    """Whether no two rows of a source agree in all of these columns, as far as the statistics tell.

    Of several columns, and in sampled tables, these are numbers of distinct values to a few percent.
    """
    if source.table is None:
        return isinstance(source.node, exp.Subquery) and _tell_apart(columns, source.node.this)
    layout, rows = source.table, source.table.row_count
    found = [column for column in layout.columns if column.name.lower() in columns]
    if any(each.is_counted and each.distinct_count >= rows - each.null_count for each in found):
        return True
    if rows > 1 and len(found) == 1 and found[0].is_counted:
        return False
    return rows <= 1 or prod(each.distinct_count for each in found) >= NEARLY_ALL * rows


def _tell_apart(columns: set[str], query: exp.Expr) -> bool:
    """Whether no two rows of an aggregation, or of distinct rows, agree in all of these columns."""
    if not isinstance(query, exp.Query):
        return False
    if isinstance(query, exp.Select) and query.args.get("group"):
        keys, sets = group_keys(query)
        named = {item.unalias() for item in query.expressions if item.alias_or_name.lower() in columns}
        return not sets and named.issuperset(keys)
    distinct = query.args.get("distinct")
    is_plain = distinct is True or (isinstance(distinct, exp.Distinct) and not distinct.args.get("on"))
    return is_plain and {name.lower() for name in query.named_selects} <= columns
