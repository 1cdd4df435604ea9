"""Rule: static sides are prepared once per worker: only the columns used, the rows that can join.

A static table that must match keeps the rows that pass its own conditions and that meet the smaller static
tables it is equated with (a semi-join, which never multiplies rows). A condition that is an OR over several
tables implies one per table: every branch's own part, joined by OR.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from sqlglot import exp

from relaqs_engine.layouts.manifest import BLOCK_COLUMN, Layout
from relaqs_engine.layouts.reads import TableRead, read_of_table
from relaqs_engine.plans.streams import Hoist
from relaqs_engine.rewrite.draft import Draft, Source, aliases_in, column_pair, conjuncts_of, tables_in
from relaqs_engine.rewrite.sources import inner_conditions_hold_everywhere
from relaqs_engine.sql.parse import DIALECT


@dataclass(slots=True)
class _Work:
    """Hoists made so far: by the table's place in the query, and whether they drop rows."""

    hoists: dict[str, Hoist] = field(default_factory=dict)
    of_alias: dict[str, Hoist] = field(default_factory=dict)
    reduced: set[str] = field(default_factory=set)


def hoist_statics(draft: Draft) -> Draft:
    """Return the draft with its hoists, and the FROM and WHERE of the partial query reading them."""
    work = _Work()
    pushed: set[int] = set()
    statics = [source for source in draft.sources if not source.streams]
    for source in sorted(statics, key=_row_count):
        reduces = source.layout is not None and not source.nullable
        own = [c for c in draft.conjuncts if _is_only_about(c, source)] if reduces else []
        pushed.update(id(condition) for condition in own)
        _hoist_source(draft, source, own, work)
    kept = tuple(condition for condition in draft.conjuncts if id(condition) not in pushed)
    scan = _scan(draft, kept, work)
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
        work.of_alias[source.alias] = _add(work, body.this.sql(DIALECT), source.alias, reads)
        return
    conditions = list(own)
    if not source.nullable:
        conditions += [c for whole in draft.conjuncts if (c := implied_by_or(whole, source.alias))]
        conditions += _semi_joins(draft, source, work)
    sql = projection(draft.select, source, source.layout, conditions)
    hoist = _add(work, sql, source.layout.table, (read_of_table(source.layout, draft.names),))
    work.of_alias[source.alias] = hoist
    if conditions:
        work.reduced.add(source.alias)


def implied_by_or(condition: exp.Expr, alias: str) -> exp.Expr | None:
    """Return what `(a and …) or (b and …)` implies for one source, or None if some branch says nothing."""
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
    """Return `x IN (SELECT y FROM smaller)` for each smaller static table that has lost rows itself."""
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
        exp.alias_(_files(layout), layout.table, quoted=True, table=True)
    )
    if conditions:
        query = query.where(*(_about_table(condition, source, layout) for condition in conditions))
    return query.sql(DIALECT)


def _about_table(condition: exp.Expr, source: Source, layout: Layout) -> exp.Expr:
    """Return the condition with the table's name for its alias: equal hoists have equal texts."""
    condition = condition.copy()
    for column in condition.find_all(exp.Column):
        if column.table == source.alias:
            column.set("table", exp.to_identifier(layout.table, quoted=True))
    return condition


def _files(layout: Layout) -> exp.Expr:
    literal = exp.Array(expressions=[exp.Literal.string(str(path)) for path in layout.paths])
    option = exp.EQ(this=exp.to_identifier("hive_partitioning"), expression=exp.false())
    return exp.Table(this=exp.Anonymous(this="read_parquet", expressions=[literal, option]))


def whole_table(layout: Layout) -> exp.Subquery:
    """Return a derived table that reads all partitions of a layout, without the columns we added."""
    columns = [exp.column(column.name, quoted=True) for column in layout.columns]
    return exp.select(*columns).from_(_files(layout)).subquery(copy=False)


def _read_files(draft: Draft, node: exp.Expr) -> tuple[TableRead, ...]:
    """Put whole layouts in the place of catalog tables below the node; return what is read of them."""
    reads: list[TableRead] = []
    for table in list(tables_in(node)):
        if isinstance(table.this, exp.Identifier):
            layout = draft.catalog.table(table.name)
            reads.append(read_of_table(layout, draft.names))
            derived = whole_table(layout)
            derived.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)))
            table.replace(derived)
    return tuple(dict.fromkeys(reads))


def _add(work: _Work, sql: str, about: str, reads: tuple[TableRead, ...]) -> Hoist:
    digest = hashlib.sha256(sql.encode()).hexdigest()[:16]
    name = f"hoist_{digest}"
    return work.hoists.setdefault(name, Hoist(name, sql, (about,), reads))


def _scan(draft: Draft, kept: tuple[exp.Expr, ...], work: _Work) -> exp.Select:
    """Return FROM and WHERE with stream tokens and hoists in the place of tables."""
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
    moved = inner_conditions_hold_everywhere(joins)
    scan.set("joins", [_without_inner_condition(join) if moved else join for join in joins])
    if kept:
        scan = scan.where(*kept)
    tokens = {stream_token(layout.table) for layout in draft.catalog.layouts}
    for table in list(tables_in(scan)):
        if table.name not in work.hoists and table.name not in tokens:
            _replace_table_of_subquery(draft, table, work)
    return scan


def _name_in_partial(source: Source, work: _Work) -> str:
    if not source.streams:
        return work.of_alias[source.alias].name
    assert source.layout is not None
    return stream_token(source.layout.table)


def _block_of_groups(source: Source) -> exp.Expr:
    """Return the block of a local derived table's groups: all rows of a group share it."""
    block = exp.column(BLOCK_COLUMN, source.block_alias, quoted=True)
    return exp.alias_(exp.AnyValue(this=block), BLOCK_COLUMN, quoted=True)


def _without_inner_condition(join: exp.Join) -> exp.Join:
    """Inner joins' conditions stand among the conjuncts; an outer join keeps its own."""
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
        name = _add(work, sql, layout.table, (read_of_table(layout, draft.names),)).name
    table.replace(exp.alias_(exp.to_table(name), source.alias, quoted=True, table=True))


def stream_token(table: str) -> str:
    """Return the name that stands for a streamed table's files in the partial SQL."""
    return "stream_" + hashlib.sha256(table.encode()).hexdigest()[:12]
