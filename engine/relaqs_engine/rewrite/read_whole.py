"""What is read whole of tables that could be sampled, and what that costs, predicted from sizes.

It is members that EXISTS and IN ask (`rewrite/members.py`), and derived tables that group such a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from sqlglot import exp

from relaqs_engine.layouts.manifest import LAYOUT_MARK, Layout
from relaqs_engine.layouts.scan_cost import scan_core_seconds
from relaqs_engine.plans.around import PartPlan
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, tables_in

_DISTINCT_CORE_SECONDS = 4e-8  # for a row: 25 to 50 ns, measured with one and with two columns
_FEWER_BY = 4  # with fewer rows for a value, making them distinct costs more than it saves


MOST_READ_WHOLE = 0.5  # of what a query does; with more, a sample of the rest comes too late to be of use

# Each mini-batch joins with them anew. A row of them was measured to cost 15 to 140 ns each time.
MOST_ROWS_KEPT = 2_000_000


def check_little_is_read_whole(draft: Draft) -> Draft:
    """Return the draft. Raises NotOnlineError where reading tables whole is most of what the query does.

    >>> from relaqs_engine.planning.example import refusal
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
    """Raise NotOnlineError where most of what a query's parts do is to read sampled tables whole.

    Args:
        draft: the query.
        parts: their plans.
        queries: the parts.
    """
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
        and source.layout is None
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


def _combinations(layout: Layout, values: Iterable[exp.Expr]) -> int:
    """Return about how many combinations there are of the columns in these values of a table's rows."""
    found = {column.name.lower() for value in values for column in value.find_all(exp.Column)}
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
    columns = query.find_all(exp.Column)
    used = {column.name.lower() for column in columns if column.table == table.alias_or_name}
    byte_count = sum(column.byte_count for column in layout.columns if column.name.lower() in used)
    return scan_core_seconds(byte_count, layout.row_count)
