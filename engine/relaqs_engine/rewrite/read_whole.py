"""What it costs to read members whole before a sample, predicted from sizes (see `rewrite/members.py`)."""

from __future__ import annotations

from math import prod

from sqlglot import exp

from relaqs_engine.layouts.scan_cost import scan_core_seconds
from relaqs_engine.rewrite.draft import Draft, tables_in

_DISTINCT_CORE_SECONDS = 4e-8  # for a row: 25 to 50 ns, measured with one and with two columns
_FEWER_BY = 4  # with fewer rows for a value, making them distinct costs more than it saves


def tables_read_whole(draft: Draft) -> tuple[str, ...]:
    """Return the layouts that could be sampled and are read whole for members, each once."""
    tables = (table for members in draft.members_in(draft.select) for table in tables_in(members))
    layouts = (draft.catalog.table(table.name) for table in tables)
    return tuple(dict.fromkeys(layout.table for layout in layouts if layout.is_sampled))


def share_read_whole(draft: Draft) -> float:
    """Return the share of the members in what a query does, by predicted time."""
    members = {each.this for each in draft.members_in(draft.select)}  # equal ones are made once
    whole = sum(_members_seconds(draft, each) for each in members)
    tables = (table for source in draft.streams for table in tables_in(source.node))
    streamed = sum(_seconds(draft, draft.select, table) for table in tables)
    return whole / max(whole + streamed, 1e-9)


def repeats_values(draft: Draft, query: exp.Select) -> bool:
    """Return whether the rows of a query are so much fewer once each is there only once.

    Only a query over one table says so by what is known of its columns. Of a join it is taken for granted.
    """
    tables = tables_in(query)
    if len(tables) != 1:
        return True
    layout = draft.catalog.table(tables[0].name)
    found = {column.name.lower() for item in query.expressions for column in item.find_all(exp.Column)}
    values = prod(max(each.distinct_count, 1) for each in layout.columns if each.name.lower() in found)
    return values * _FEWER_BY <= layout.row_count


def _members_seconds(draft: Draft, members: exp.Query) -> float:
    tables = tables_in(members)
    read = sum(_seconds(draft, members, table) for table in tables)
    if not members.args.get("distinct"):
        return read
    rows = max(draft.catalog.table(table.name).row_count for table in tables)
    return read + rows * _DISTINCT_CORE_SECONDS


def _seconds(draft: Draft, query: exp.Expr, table: exp.Table) -> float:
    """Return how long reading the columns takes that a query uses of a table in it."""
    layout = draft.catalog.table(table.name)
    columns = query.find_all(exp.Column)
    used = {column.name.lower() for column in columns if column.table == table.alias_or_name}
    byte_count = sum(column.byte_count for column in layout.columns if column.name.lower() in used)
    return scan_core_seconds(byte_count, layout.row_count)
