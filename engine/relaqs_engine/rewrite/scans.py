"""What a partial query reads of its streams: the columns that its tree names, and how often it reads each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.reads import columns_named
from relaqs_engine.plans.folded import StreamScan
from relaqs_engine.plans.streams import Stream
from relaqs_engine.rewrite.draft import Draft, tables_in
from relaqs_engine.rewrite.existence_by_key import ask_rows_by_key
from relaqs_engine.rewrite.hoist import stream_token
from relaqs_engine.sql.parse import DIALECT

FAR_MORE_EVEN = 4.0  # so many times as many units of one size: half of the error


def streams_of(draft: Draft) -> tuple[Stream, ...]:
    """Return the layouts that the draft samples, by name."""
    tables = {source.layout.table for source in draft.streams if source.layout is not None}
    return tuple(
        Stream(table, stream_token(table), columns_named(draft.catalog.table(table), draft.names))
        for table in sorted(tables | draft.local_tables)
    )


def measuring_tables(draft: Draft) -> tuple[str, ...]:
    """Return the streamed tables whose rows measure what was scanned.

    It is the largest one. But every joined row must have a row that counts. Else its unit would be of no
    size, though the answer varies by it. An outer join gives rows without the largest table, so the tables
    that it keeps count as well:

    >>> from relaqs_engine.planning.example import after
    >>> from relaqs_engine.rewrite.sources import choose_streams
    >>> def tables(join):
    ...     sql = f"SELECT count(*) FROM orders {join} JOIN items ON id = order_id"
    ...     return measuring_tables(after(choose_streams, sql))
    >>> tables("INNER"), tables("RIGHT")
    (('items',), ('items',))
    >>> tables("LEFT"), tables("FULL")
    (('items', 'orders'), ('items', 'orders'))

    And no unit may have most of the rows that count, as all those without a key may. It is met at once or not
    at all, and says nothing of what else there is. A kept table with far more even units counts alone then.
    """
    streams = [(source.layout, source.nullable) for source in draft.streams if source.layout is not None]
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
            scan.set(part, value.copy())
    scan.set("joins", [join.copy() for join in draft.select.args.get("joins") or []])
    return scan


def scan_sql(draft: Draft, scan: exp.Select, *, over_tables: bool) -> str:
    """Return FROM and WHERE of a scan, as a task runs them. over_tables: of the tables of the catalog."""
    asked = ask_rows_by_key(scan)
    if asked is not scan and (over_tables or not _can_be_asked_by_key(draft)):
        asked = scan
    return asked.sql(DIALECT).removeprefix("SELECT").strip()


def _can_be_asked_by_key(draft: Draft) -> bool:
    """Whether DuckDB takes IN for EXISTS. `=` compares a number with a text, and IN does not."""
    asked = ask_rows_by_key(scan_of_tables(draft))
    try:
        draft.binder.describe(asked.select("1").sql(DIALECT))
    except SqlError:
        return False
    return True


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

    >>> import sqlglot
    >>> is_filtered(sqlglot.parse_one("SELECT sum(x) FILTER (WHERE x > 1) FROM t"))
    False
    >>> is_filtered(sqlglot.parse_one("SELECT sum(x) FROM t WHERE x > 1"))
    True
    """
    return any(not isinstance(where.parent, exp.Filter) for where in scan.find_all(exp.Where))


def _names(draft: Draft, scan: exp.Select) -> Iterator[str]:
    """Yield the names of columns in the partial query, in lower case."""
    having = draft.select.args.get("having")
    around = [*_sort_keys(draft.select), *([] if having is None else [having])]
    for tree in chain([scan], draft.keys, draft.select.expressions, around):
        yield from (column.name.lower() for column in tree.find_all(exp.Column))
    if draft.distinct is not None:  # a value's sampling units are counted by their keys
        yield from (name.lower() for source in draft.streams for name in source.key_columns)


def _sort_keys(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield what the rows are ordered by, except outputs: `SELECT sum(x) AS y … ORDER BY y` reads no y."""
    outputs = {each.alias_or_name.lower() for each in select.expressions}
    order = select.args.get("order")
    for key in (ordered.this for ordered in (order.expressions if order else ())):
        if not (isinstance(key, exp.Column) and not key.table and key.name.lower() in outputs):
            yield key
