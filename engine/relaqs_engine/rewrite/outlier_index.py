"""Rule: read rows with values far out from the outlier index, and leave them out of the sample.

    SELECT sum(fare) FROM trips       -- rows with a fare above 80 are in the index of trips
      sample:  … FROM partitions WHERE NOT fare > 80     scaled up
      index:   … FROM outliers   WHERE fare > 80         as it is

So are the rows of the cluster keys with most rows, whatever the query counts or sums:

    SELECT country, count(*) FROM events GROUP BY country      -- laid out by user
      sample:  … FROM partitions WHERE NOT user IN (7, 93, …)
      index:   … FROM outliers   WHERE user IN (7, 93, …)

The two are put together as two partitions are, but rows of one sampling unit may be in both where values
choose them. So every column of the state must merge whatever rows its partial results come from.
COUNT(DISTINCT key) does not: it counts a key in each partition, and would count it in the index again. Of
such a query whole units alone are read apart. `layouts/outliers.py` and `layouts/outlier_units.py` say what
is in the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sqlglot
from sqlglot import exp

from relaqs_engine.layouts.manifest import Column, OtherUnits
from relaqs_engine.layouts.outliers import outlier_condition, unit_condition
from relaqs_engine.plans.basis import Basis, BasisColumn, UnitSum
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.rewrite.aggregates import bounds_of_a_row
from relaqs_engine.rewrite.draft import Draft, Source
from relaqs_engine.rewrite.method import rows_in_a_group
from relaqs_engine.sql.aggregates import call_in
from relaqs_engine.sql.parse import DIALECT

_SUMMED = (Basis.SUM, Basis.MEAN, Basis.M2)


def read_outliers_apart(draft: Draft) -> Draft:
    """Return the draft with outliers read apart, if it sums a skewed column of its one stream.

    >>> from relaqs_engine.planning.example import after, shown
    >>> draft = after(read_outliers_apart, "SELECT sum(fare) FROM trips")
    >>> print(shown(draft.scan))
    SELECT FROM partitions_of_trips AS trips WHERE NOT COALESCE(trips.fare < 2.5 OR trips.fare > 80.0, FALSE)
    >>> print(shown(draft.outlier_scan))
    SELECT FROM partitions_of_trips AS trips WHERE COALESCE(trips.fare < 2.5 OR trips.fare > 80.0, FALSE)
    >>> draft.basis[0].highest   # the most that a row of the sample can add to the sum
    80.0
    """
    source = _indexed_stream(draft)
    if source is None or source.layout is None or draft.scan is None:
        return draft
    skewed = _skewed_columns(draft, source)
    units = source.layout.outlier_units
    keys = units.keys if units else ()
    names = {column.name.lower() for column in skewed}
    draft = replace(
        draft, basis=tuple(_among_inliers(column, draft, source, names) for column in draft.basis)
    )
    if units is not None:
        apart = {each.name.lower() for each in source.layout.columns if each.has_outliers} - names
        draft = _with_other_units(draft, source, units.others, apart, leaves_out=bool(keys))
    tests = [outlier_condition(skewed, source.alias)] if skewed else []
    tests += [unit_condition(source.layout, keys, source.alias)] if keys else []
    if not tests:
        return draft
    assert draft.scan is not None
    condition = sqlglot.parse_one(" OR ".join(tests), dialect=DIALECT)
    return replace(
        draft,
        scan=draft.scan.where(exp.not_(condition.copy())),
        outlier_scan=draft.scan.where(condition),
        outlier_columns=tuple(column.name for column in skewed),
    )


def _with_other_units(
    draft: Draft, source: Source, others: OtherUnits, unknown: set[str], *, leaves_out: bool
) -> Draft:
    """Return the draft with what is known of the units that are no outliers.

    unknown: the columns whose outliers are in the sample, so that nothing is known of their sums.
    """
    parts = {column.column: column.most_unit_rows for column in others.columns}
    most = rows_in_a_group(draft, source, others.max_unit_rows, parts)
    sums = {
        each.column.lower(): UnitSum(each.middle, each.above, each.below, each.squares)
        for each in others.columns
        if each.middle is not None and each.column.lower() not in unknown
    }
    return replace(
        draft,
        bars=replace(draft.bars, most_unit_rows=most, leaves_units_out=leaves_out),
        basis=tuple(replace(each, unit_sums=_unit_sums(each, source, sums)) for each in draft.basis),
    )


def _indexed_stream(draft: Draft) -> Source | None:
    """Return the one stream, if it may have an outlier index and the query sums over its rows."""
    keeps_values = draft.distinct is not None or draft.of_values
    if draft.bars.method is not Method.REPLICATES or not draft.may_read_outliers or keeps_values:
        return None
    if len(draft.streams) != 1 or draft.local_tables or draft.shared:
        return None
    (source,) = draft.streams
    return source if not source.is_derived and not source.nullable else None


def _skewed_columns(draft: Draft, source: Source) -> list[Column]:
    """Return the columns with outliers that occur in a sum."""
    assert source.layout is not None
    if source.layout.outliers is None or any(column.counts_units for column in draft.basis):
        return []
    used = {
        column.name.lower()
        for basis in draft.basis
        if basis.kind in _SUMMED
        for column in _aggregate(basis).find_all(exp.Column)
        if column.table == source.alias
    }
    return [c for c in source.layout.columns if c.has_outliers and c.name.lower() in used]


def _aggregate(column: BasisColumn) -> exp.Expr:
    """Return the SUM, MEAN or M2 without its FILTER."""
    call = call_in(column.sql)
    assert call is not None
    return call.node


def _among_inliers(column: BasisColumn, draft: Draft, source: Source, skewed: set[str]) -> BasisColumn:
    """Return the column with the bounds of the rows that are no outliers."""
    if column.kind not in _SUMMED:
        return column

    def inlier_ends(each: exp.Column) -> Column | None:
        found = draft.source(each.table).column(each.name)
        if found is None or each.table != source.alias or each.name.lower() not in skewed:
            return found
        return found.without_outliers()

    bounds = bounds_of_a_row(_aggregate(column), inlier_ends)
    return replace(column, lowest=bounds.lowest, highest=bounds.highest)


def _unit_sums(column: BasisColumn, source: Source, sums: Mapping[str, UnitSum]) -> tuple[UnitSum, ...]:
    """Return what a unit's rows add to a sum, or to both factors of a moment; nothing where not known."""
    if column.kind not in _SUMMED:
        return ()
    aggregate = _aggregate(column)
    values = [aggregate.this, *([aggregate.expression] if isinstance(aggregate, exp.CovarPop) else [])]
    values = values * 2 if column.is_square else values
    found = [_unit_sum(value, source, sums) for value in values]
    return tuple(each for each in found if each is not None) if None not in found else ()


def _unit_sum(value: exp.Expr, source: Source, sums: Mapping[str, UnitSum]) -> UnitSum | None:
    """Return what a unit's rows add to the sum of a column, or of a + b · column."""
    value = value.unnest()
    match value:
        case exp.Column():
            return sums.get(value.name.lower()) if value.table == source.alias else None
        case exp.Cast() if value.to.is_type("double"):
            return _unit_sum(value.this, source, sums)
        case exp.Neg():
            return _scaled(_unit_sum(value.this, source, sums), -1.0)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _unit_sum_of_two(value, source, sums)
    return None


def _unit_sum_of_two(value: exp.Binary, source: Source, sums: Mapping[str, UnitSum]) -> UnitSum | None:
    """Return the same of a column and a number, with an operation between them."""
    left, right = _number(value.left), _number(value.right)
    if right is not None:
        return _unit_sum_with(type(value), _unit_sum(value.left, source, sums), right)
    if left is None or isinstance(value, exp.Div):
        return None
    found = _unit_sum(value.right, source, sums)
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
