"""What a sampling unit comes to where it is a cluster key: its rows in a group, its sums, its derived row.

    SELECT avg(n), avg(s) FROM (SELECT user, count(*) AS n, sum(paid) AS s FROM events GROUP BY user)

Laid out by user, one row of this derived table is one unit. So its columns have bounds as those of a stored
table have, and all that asks for bounds follows: what one unread user may move, and whether a sum can fall.

    n    at least 1, and at most the rows of the largest unit
    s    as many times what one row may add, and at most what the manifest has of sums over a unit
         (`layouts/outliers.py`)
    avg, min, max, any_value, quantiles    between the ends of what they are of
    s / n    between the ends of `paid`, as an average is, since n counts at least the rows that s adds up

Conditions inside only leave rows out, or rows of the derived table. Where further keys stand beside the
cluster key, a unit has as many rows as these have values, and within one group of the outer query as many as
the other keys have. Where a unit may meet any number of rows of a joined table, nothing is known of its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, isfinite, prod, sqrt

from sqlglot import exp

from relaqs_engine.bounds import UNKNOWN, Bounds, ColumnLookup, hull, is_never_null
from relaqs_engine.layouts.column_statistics import NEARLY_ALL
from relaqs_engine.layouts.manifest import Column, DerivedColumn, OtherUnits, QuotientEnds, is_number
from relaqs_engine.plans.aggregate import UnitSum
from relaqs_engine.rewrite.draft import Draft, KeyBeside, Source, tables_in
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.scans import met_several_times
from relaqs_engine.sql.aggregate_laws import Call, Merge, call_of, is_aggregate
from relaqs_engine.sql.expressions import Ranges
from relaqs_engine.sql.parse import DIALECT

_ONE_OF_VALUES = (Merge.MIN, Merge.MAX, Merge.ANY, Merge.FIRST, Merge.LAST)
_BETWEEN_VALUES = (*_ONE_OF_VALUES, Merge.MEAN, Merge.QUANTILE, Merge.BESIDE_MIN, Merge.BESIDE_MAX)
# The most that they are of values which differ by 1 at most.
_SPREADS = {
    **dict.fromkeys(("stddev_pop", "sem"), 0.5),
    **dict.fromkeys(("stddev", "stddev_samp"), sqrt(0.5)),
}
_VARIANCES = {"var_pop": 0.25, "var_samp": 0.5}


def rows_of_unit(draft: Draft, source: Source) -> int:
    """Return the most rows of a source that a sampling unit has in one group."""
    sampled = [table.name for table in tables_in(source.node) if draft.catalog.table(table.name).is_sampled]
    most = prod(draft.catalog.layout(name).max_unit_rows for name in sampled)
    columns = source.table.columns if source.table and not source.is_derived else ()
    return rows_in_a_group(draft, source, most, {each.name: each.most_unit_rows for each in columns})


def rows_in_a_group(draft: Draft, source: Source, most: int, parts: Mapping[str, int | None]) -> int:
    """Return the most rows of a source that a sampling unit has in one group.

    Rows of a group agree in each key, so a column that is a key bounds them. An outer join may put a unit's
    rows that met none into the group of NULL, and a grouping set may leave a key out.

    Args:
        source: a relation of its FROM.
        most: the rows of the largest unit, in the tables that it reads.
        parts: the most rows of a unit with one value, by column. None where that is not known.
    """
    grouped = () if source.nullable or draft.grouping_sets else draft.keys
    keys = [key.name.lower() for key in grouped if isinstance(key, exp.Column) and key.table == source.alias]
    if source.is_derived:
        beside = (key.values for key in source.keys_beside if key.output not in keys)
        return source.grouping_sets * min(most, prod(most if each is None else each for each in beside))
    named = {name.lower(): rows for name, rows in parts.items() if rows}
    return min([most, *(named[key] for key in keys if key in named)])


def of_derived_table(inner: Draft, others: OtherUnits | None = None) -> tuple[Column, ...]:
    """Return what is known of the columns of a derived table that groups by a cluster key.

    Args:
        inner: the query inside, with its streams chosen.
        others: what is known of the units that are no outliers, where the table has these alone.
    """
    types = inner.binder.describe(inner.select.sql(DIALECT))
    rows = _rows_of_groups(inner, others)
    sets = len(group_keys(inner.select)[1])
    values = [item.unalias().unnest() for item in inner.select.expressions]
    items = list(zip(values, types, strict=True))
    calls = {name: call_of(value) for value, (name, _) in items if is_aggregate(value)}
    return tuple(_column(value, name, type_, rows, sets, calls) for value, (name, type_) in items)


def keys_beside(inner: Draft, cluster_key: frozenset[tuple[str, str]]) -> tuple[KeyBeside, ...]:
    """Return the keys of a derived table beside the cluster key, given as (alias, column in lower case)."""
    return tuple(_keys_beside(inner, cluster_key))


def _keys_beside(inner: Draft, cluster_key: frozenset[tuple[str, str]]) -> Iterator[KeyBeside]:
    keys, sets = group_keys(inner.select)
    outputs = {item.unalias(): item.alias_or_name.lower() for item in inner.select.expressions}
    for key in keys[:-1] if sets else keys:
        if isinstance(key, exp.Column) and (key.table, key.name.lower()) in cluster_key:
            continue
        known = inner.column_of(key) if isinstance(key, exp.Column) else None
        counted = known.distinct_count if known is not None else 0
        yield KeyBeside(outputs.get(key, ""), 1 + ceil(counted / NEARLY_ALL) if counted else None)


@dataclass(frozen=True, slots=True)
class _RowsOfGroups:
    """What is known of the rows in each group of a derived table.

    Attributes:
        column_of: gives the statistics of a column.
        most: how many there are at most. None where that is not known.
        sum_of: gives what they add to the sum of a value, None where that is not known.
    """

    column_of: ColumnLookup
    most: int | None
    sum_of: Callable[[exp.Expr], UnitSum | None]

    def are_never_null(self, value: exp.Expr) -> bool:
        return is_never_null(value, self.column_of)


def _rows_of_groups(inner: Draft, others: OtherUnits | None) -> _RowsOfGroups:
    joins = inner.select.args.get("joins") or []
    keys, sets = group_keys(inner.select)
    grouped = replace(inner, keys=keys, grouping_sets=sets)
    most = None
    if not any(join.side == "FULL" for join in joins) and not any(met_several_times(inner)):
        most = prod(rows_of_unit(grouped, source) for source in inner.streams)
    sums: dict[str, UnitSum] = {}
    alias = ""
    if others is not None:
        (source,) = inner.streams
        assert source.table is not None
        parts = {column.column: column.most_unit_rows for column in others.columns}
        alias = source.alias
        if most is not None:
            most = rows_in_a_group(grouped, source, others.max_unit_rows, parts)
        sums = sums_of(others, {column.name.lower() for column in source.table.columns})
    return _RowsOfGroups(inner.column_of, most, lambda value: unit_sum(value, alias, sums))


def _column(
    value: exp.Expr, name: str, type_: str, rows: _RowsOfGroups, sets: int, calls: Mapping[str, Call | None]
) -> Column:
    """Return what is known of an output of a derived table. null_count: 0, or 1 where it may be NULL.

    calls: the outputs that are aggregates, by name.
    """
    call = call_of(value) if is_aggregate(value) else None
    nulls = int(not _is_never_null(value, call, rows) or sets > 0)
    taken = call.arguments[0] if call is not None and _takes_one(call) else value
    known = rows.column_of(taken) if isinstance(taken, exp.Column) else None
    if known is not None and known.type == type_:
        return Column(name, type_, known.minimum, known.maximum, nulls, known.distinct_count, byte_count=0)
    bounds = _bounds(value, rows) if is_number(type_) else UNKNOWN
    low, high = _finite(bounds.lowest), _finite(bounds.highest)
    quotients = tuple(_quotients(call, calls, rows)) if call is not None else ()
    return DerivedColumn(name, type_, low, high, nulls, 0, byte_count=0, quotients=quotients)


def _finite(end: float | None) -> float | None:
    return end if end is not None and isfinite(end) else None


def _takes_one(call: Call) -> bool:
    """Whether a call gives one of the values of its argument."""
    return call.law.merge in _ONE_OF_VALUES and len(call.arguments) in call.law.arguments


def _is_never_null(value: exp.Expr, call: Call | None, rows: _RowsOfGroups) -> bool:
    if call is None:
        return rows.are_never_null(value)
    if call.law.merge is Merge.COUNT:
        return True
    has_value = call.law.merge in (*_ONE_OF_VALUES, Merge.TOTAL, Merge.MEAN)
    return has_value and call.condition is None and all(map(rows.are_never_null, call.arguments))


def _bounds(value: exp.Expr, rows: _RowsOfGroups) -> Bounds:
    """Return the bounds of an expression over aggregates and keys."""
    calls: dict[str, Call | None] = {}

    def placed(node: exp.Expr) -> exp.Expr:
        if not is_aggregate(node):
            return node
        name = f"aggregate_{len(calls)}"
        calls[name] = call_of(node)
        return exp.column(name)

    over = value.copy().transform(placed)
    found = {name: _placed(name, call, calls, rows) for name, call in calls.items()}
    return Ranges(lambda each: rows.column_of(each) if each.table else found.get(each.name))(over)


def _placed(name: str, call: Call | None, calls: Mapping[str, Call | None], rows: _RowsOfGroups) -> Column:
    """Return what is known of an aggregate inside of an expression, by the name that stands for it there."""
    if call is None:
        return Column(name, "DOUBLE", None, None, 1, 0, 0)
    bounds, type_ = _bounds_of_call(call, rows), "BIGINT" if call.law.merge is Merge.COUNT else "DOUBLE"
    quotients = tuple(_quotients(call, calls, rows))
    return DerivedColumn(name, type_, bounds.lowest, bounds.highest, 1, 0, 0, quotients=quotients)


def _quotients(call: Call, calls: Mapping[str, Call | None], rows: _RowsOfGroups) -> Iterator[QuotientEnds]:
    """Yield between which ends a sum lies, divided by each count of at least the rows that it adds up.

    Rows that are counted beside these add nothing, as zeros do.
    """
    if call.law.merge is not Merge.TOTAL or call.is_distinct or len(call.arguments) != 1:
        return
    (summed,) = call.arguments
    of_a_row = Ranges(rows.column_of)(summed)
    for name, count in calls.items():
        if count is None or count.law.name != "count" or count.is_distinct:
            continue
        of_all = not count.arguments or isinstance(count.arguments[0], exp.Star)
        counts_more = of_all or rows.are_never_null(count.arguments[0])
        has_same_rows = count.condition == call.condition
        counts_these = has_same_rows and count.arguments == call.arguments
        if counts_these or (has_same_rows and rows.are_never_null(summed) and counts_more):
            yield QuotientEnds(name.lower(), of_a_row.lowest, of_a_row.highest)
        elif counts_more and (has_same_rows or count.condition is None):
            with_zeros = hull([of_a_row, Bounds.exactly(0.0)])
            yield QuotientEnds(name.lower(), with_zeros.lowest, with_zeros.highest)


def _bounds_of_call(call: Call, rows: _RowsOfGroups) -> Bounds:
    """Return the bounds of an aggregate of a group that has at least one row. DISTINCT leaves rows out."""
    law = call.law
    if len(call.arguments) not in law.arguments or law.name == "approx_quantile":
        return UNKNOWN
    if law.merge is Merge.COUNT:
        of_all = not call.arguments or isinstance(call.arguments[0], exp.Star)
        least = 1.0 if of_all and call.condition is None else 0.0
        return Bounds(least, None if rows.most is None else float(rows.most))
    of_a_row = Ranges(rows.column_of)(call.arguments[0])
    if law.merge is Merge.TOTAL:
        return _bounds_of_sum(of_a_row, rows.most, rows.sum_of(call.arguments[0]))
    if law.merge in _BETWEEN_VALUES:
        return of_a_row
    if of_a_row.ends is None or law.name not in (*_SPREADS, *_VARIANCES):
        return UNKNOWN
    width = of_a_row.ends[1] - of_a_row.ends[0]
    most = _SPREADS[law.name] * width if law.name in _SPREADS else _VARIANCES[law.name] * width**2
    return Bounds(0.0, most)


def _bounds_of_sum(of_a_row: Bounds, most: int | None, of_unit: UnitSum | None) -> Bounds:
    """Return the bounds of a sum over at least one row, and `most` of them."""
    low, high = of_a_row.lowest, of_a_row.highest
    if most is None:
        return Bounds(low if of_a_row.is_nonnegative else None, None)
    low = None if low is None else min(low, most * low)
    high = None if high is None else max(high, most * high)
    if of_unit is not None:
        least = min(of_unit.middle, most * of_unit.middle) - of_unit.below
        greatest = max(of_unit.middle, most * of_unit.middle) + of_unit.above
        low, high = (
            least if low is None else max(low, least),
            greatest if high is None else min(high, greatest),
        )
    return Bounds(low, high)


def sums_of(others: OtherUnits, of_all: Container[str]) -> dict[str, UnitSum]:
    """Return what the rows of a unit that is no outlier add to the sum of a column, by name in lower case.

    of_all: the columns whose outliers are among these rows.
    """
    found = {}
    for each in others.columns:
        name = each.column.lower()
        without = (each.above, each.below, each.squares)
        with_outliers = (each.above_of_all, each.below_of_all, each.squares_of_all)
        above, below, squares = with_outliers if name in of_all else without
        if each.middle is not None and above is not None and below is not None and squares is not None:
            found[name] = UnitSum(each.middle, above, below, squares)
    return found


def unit_sum(value: exp.Expr, alias: str, sums: Mapping[str, UnitSum]) -> UnitSum | None:
    """Return what a unit's rows add to the sum of a column of a source, or of a + b · column.

    None where nothing is known of it.
    """
    value = value.unnest()
    match value:
        case exp.Column():
            return sums.get(value.name.lower()) if value.table == alias else None
        case exp.Cast() if value.to.is_type(exp.DType.DOUBLE):
            return unit_sum(value.this, alias, sums)
        case exp.Neg():
            return _scaled(unit_sum(value.this, alias, sums), -1.0)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _unit_sum_of_two(value, alias, sums)
    return None


def _unit_sum_of_two(value: exp.Binary, alias: str, sums: Mapping[str, UnitSum]) -> UnitSum | None:
    """Return the same of a column and a number, with an operation between them."""
    left, right = _number(value.left), _number(value.right)
    if right is not None:
        return _unit_sum_with(type(value), unit_sum(value.left, alias, sums), right)
    if left is None or isinstance(value, exp.Div):
        return None
    found = unit_sum(value.right, alias, sums)
    if isinstance(value, exp.Sub):
        return _unit_sum_with(exp.Add, _scaled(found, -1.0), left)
    return _unit_sum_with(type(value), found, left)


def _unit_sum_with(operation: type[exp.Binary], found: UnitSum | None, number: float) -> UnitSum | None:
    """Return what units' rows add to a sum where each value is combined with a number on its right."""
    if found is None:
        return None
    if operation is exp.Add or operation is exp.Sub:
        return found.moved(number if operation is exp.Add else -number)
    if operation is exp.Mul:
        return found.times(number)
    return found.times(1.0 / number) if number else None


def _scaled(found: UnitSum | None, factor: float | None) -> UnitSum | None:
    return None if found is None or factor is None else found.times(factor)


def _number(value: exp.Expr) -> float | None:
    """Return the number that is written out, None for anything else."""
    value = value.unnest()
    if isinstance(value, exp.Neg) and (inner := _number(value.this)) is not None:
        return -inner
    return float(value.this) if isinstance(value, exp.Literal) and not value.is_string else None
