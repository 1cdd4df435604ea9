"""Which columns decide about rows in a way that footers tell nothing of, and what that means for a sample.

`WHERE day <> 3` keeps all rows of most row groups and none of a few, if a file is sorted by day. A sample
that missed those few would be sure of itself, and wrong. Where each row group has about the same values of a
column, none is unlike the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from relaqs_engine.layouts.footers import Zone
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.row_groups import RowGroup, is_sound
from relaqs_engine.rewrite.zone_maps import wanted_by

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast)


def choosing_columns(
    select: exp.Select, conditions: Iterable[exp.Expr], alias: str, layout: Layout
) -> frozenset[str]:
    """Return the columns of one table that choose rows, groups or terms, but for ranges that footers know.

    Args:
        select: the query.
        conditions: those that all rows must meet.
        alias: the table's name in the query.
        layout: the table.
    """
    of_table = {column.name.lower(): column.name for column in layout.columns}
    found = (*_in_conditions(conditions, alias, layout), *_elsewhere(select))
    return frozenset(
        of_table[column.name.lower()]
        for column in found
        if column.table == alias and column.name.lower() in of_table
    )


def are_mixed(groups: Sequence[RowGroup], column: str, type_text: str) -> bool:
    """Return whether the row groups have about the same values of a column, as far as footers tell.

    Where a footer has no ends, it tells nothing, and the answer is True.
    """
    filled = _filled(groups, column)
    if len(filled) < len(groups):
        return not filled
    if not has_ends(groups, column, type_text):
        return True
    low, high = max(zone.low for zone in filled), min(zone.high for zone in filled)  # type: ignore[type-var]
    return bool(low < high) or all(zone.low == zone.high == low for zone in filled)  # type: ignore[operator]


def has_ends(groups: Sequence[RowGroup], column: str, type_text: str) -> bool:
    """Return whether the footers have both ends of a column in each row group that has values of it."""
    return all(is_sound(type_text, zone) for zone in _filled(groups, column))


def _filled(groups: Sequence[RowGroup], column: str) -> list[Zone]:
    """Return the zones that are not all NULL."""
    zones = ((group.zone(column), group.row_count) for group in groups)
    return [zone for zone, row_count in zones if zone.null_count != row_count]


def _in_conditions(conditions: Iterable[exp.Expr], alias: str, layout: Layout) -> Iterator[exp.Column]:
    for condition in conditions:
        wanted = wanted_by(condition, alias, layout)
        if wanted is None or not wanted.is_whole:
            yield from condition.find_all(exp.Column)


def _elsewhere(select: exp.Select) -> Iterator[exp.Column]:
    """Yield the columns of keys and outer joins, and those in aggregates that do more than arithmetic."""
    grouped = select.args.get("group")
    joins = [join.args["on"] for join in select.args.get("joins") or () if join.side and join.args.get("on")]
    for each in (*select.expressions, *joins, *([grouped] if grouped else [])):
        yield from (column for column in each.find_all(exp.Column) if not _is_term(column))


def _is_term(column: exp.Column) -> bool:
    """Whether an aggregate of arithmetic is all that a column is in."""
    parent = column.parent
    while isinstance(parent, _ARITHMETIC):
        parent = parent.parent
    return isinstance(parent, exp.AggFunc)
