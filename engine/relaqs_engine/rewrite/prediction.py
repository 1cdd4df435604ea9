"""What a query costs with one choice of layouts, predicted from the catalog: no row is read.

Where several choices are sound, the planner takes the one that is predicted to be within ±5 % soonest
(`planning/layout_choice.py`). A wrong prediction costs time, and never changes an answer.
"""

from __future__ import annotations

from itertools import accumulate

from sqlglot import exp

from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.statistics import NEARLY_ALL
from relaqs_engine.plans.schedule import mini_batches
from relaqs_engine.plans.time_to_estimate import TimeToEstimate, share_to_read
from relaqs_engine.rewrite.draft import Draft, Source, aliases_in, column_pair, pairs_of, tables_in
from relaqs_engine.rewrite.method import MANY_GROUPS, groups_of
from relaqs_engine.rewrite.read_whole import column_seconds
from relaqs_engine.rewrite.scans import streams_of
from relaqs_engine.rewrite.selectivity import share_kept
from relaqs_engine.rewrite.sources import groups_lie_in_partitions

# Totals were measured to be certified once as many rows are read as so many of the largest units have.
_LARGEST_UNITS = 1_000


def time_to_estimate(draft: Draft) -> TimeToEstimate:
    """Return when a query is within ±5 %, with its streams chosen.

    A group in one partition is complete once it is seen, and all groups are seen at the end. Rows without
    aggregates are taken for one group, of which a sample tells how many there are.

    >>> from relaqs_engine.planning.example import after
    >>> from relaqs_engine.rewrite.sources import choose_streams
    >>> def share(sql):
    ...     return round(time_to_estimate(after(choose_streams, sql)).share, 3)
    >>> share("SELECT driver, sum(fare) FROM trips GROUP BY driver")
    0.923
    >>> share("SELECT driver, sum(fare) FROM trips WHERE zone <= 50 GROUP BY driver")
    0.984
    """
    keys = _keys(draft)
    leading = max(draft.streams, key=_row_count)
    assert leading.layout is not None
    partitions = len(leading.layout.partitions)
    if groups_lie_in_partitions(draft, keys):
        return _time(draft, partitions, share=1.0, groups=0)
    groups = max(1, groups_of(draft, keys))
    rows = leading.layout.row_count * share_kept(draft.conjuncts, draft.column_of)
    share = share_to_read(rows / groups, _design_effect(draft, keys, leading))
    share = max(share, 1 / partitions, _share_to_certify(leading.layout))
    return _time(draft, partitions, share, min(groups, MANY_GROUPS))


def _share_to_certify(layout: Layout) -> float:
    """Return the share of a layout that is read before one unit more could move a total by little."""
    return min(1.0, _LARGEST_UNITS * layout.max_unit_rows / max(layout.row_count, 1))


def _time(draft: Draft, partitions: int, share: float, groups: int) -> TimeToEstimate:
    sampled = {stream.table for stream in streams_of(draft)}
    members = {id(table) for each in draft.members_in(draft.select) for table in tables_in(each)}
    whole = streamed = kept = 0.0
    for table in (each for each in tables_in(draft.select) if isinstance(each.this, exp.Identifier)):
        seconds = column_seconds(draft, draft.select, table)
        if id(table) not in members and draft.catalog.table(table.name).table in sampled:
            streamed += seconds
        else:
            whole += seconds
            kept += _rows_kept(draft, table)
    return TimeToEstimate(whole, streamed, share, _batches(partitions, share), kept, groups)


def _rows_kept(draft: Draft, table: exp.Table) -> float:
    """Return about how many rows of a table that is read whole meet the conditions on it alone."""
    own = [each for each in draft.conjuncts if aliases_in(each) == {table.alias_or_name}]
    return draft.catalog.table(table.name).row_count * share_kept(own, draft.column_of)


def _batches(partitions: int, share: float) -> int:
    """Return how many mini-batches there are until that share of the partitions is read."""
    sizes = (len(each.partitions) for each in mini_batches(range(partitions), partition_bytes=0.0))
    read = accumulate(sizes)
    return 1 + sum(done < share * partitions for done in read)


def _keys(draft: Draft) -> tuple[exp.Expr, ...]:
    """Return the keys of the query's groups. Those of several grouping sets are not told apart here."""
    group = draft.select.args.get("group")
    return () if group is None else tuple(group.expressions)


def _row_count(source: Source) -> int:
    return 0 if source.layout is None else source.layout.row_count


def _design_effect(draft: Draft, keys: tuple[exp.Expr, ...], leading: Source) -> float:
    """Return how many rows say as much as one: those of a unit, if it decides which of them count, and where.

    All items of an order have the order's day. So an order is one observation of what happens on a day. What
    the rows of a unit have besides is taken to differ as much as that of any rows.
    """
    assert leading.layout is not None
    conditions = (each for each in draft.conjuncts if column_pair(each) is None)
    deciding = [column for each in (*keys, *conditions) for column in each.find_all(exp.Column)]
    of_unit = _tables_of_unit(draft, leading)
    is_decided = any(column.table in of_unit or _is_key(column, leading) for column in deciding)
    return _rows_of_unit(leading.layout) if is_decided else 1.0


def _rows_of_unit(layout: Layout) -> float:
    return max(layout.typical_unit_rows, layout.row_count / max(layout.unit_count, 1))


def _tables_of_unit(draft: Draft, leading: Source) -> frozenset[str]:
    """Return the tables of which each unit meets one row, on its key or by way of another such table."""
    pairs = [pair for one in pairs_of(draft.conjuncts) for pair in (one, one[::-1])]
    found: frozenset[str] = frozenset()
    while True:
        grown = found | {
            other.table
            for known, other in pairs
            if (known.table in found or _is_key(known, leading)) and _is_unique(draft, other)
        }
        if grown == found:
            return found - {leading.alias}
        found = grown


def _is_key(column: exp.Column, leading: Source) -> bool:
    """Whether a column is the whole cluster key."""
    return column.table == leading.alias and [column.name.lower()] == [
        each.lower() for each in leading.key_columns
    ]


def _is_unique(draft: Draft, column: exp.Column) -> bool:
    """Whether nearly all values of a column are different, as far as the statistics tell."""
    known = draft.column_of(column)
    return known is not None and known.distinct_count >= NEARLY_ALL * _row_count(draft.source(column.table))
