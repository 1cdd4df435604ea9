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

from relaqs_engine.layouts.manifest import Column, OtherUnits, OutlierUnits
from relaqs_engine.layouts.outliers import outlier_condition, unit_condition
from relaqs_engine.plans.basis import Basis, BasisColumn, UnitSum
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.rewrite.aggregates import bounds_of_a_row
from relaqs_engine.rewrite.draft import Draft, Source, tables_in
from relaqs_engine.rewrite.sources import query_inside
from relaqs_engine.rewrite.units import of_derived_table, rows_in_a_group, sums_of, unit_sum
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
    of_sample = _of_sample(draft, source, names, units)
    draft = replace(draft, basis=tuple(_among_inliers(each, draft, of_sample) for each in draft.basis))
    if units is not None:
        apart = {each.name.lower() for each in source.layout.columns if each.has_outliers} - names
        draft = _with_other_units(draft, source, units.others, apart, leaves_out=bool(keys))
    tests = [outlier_condition(skewed, source.alias)] if skewed else []
    alias = source.block_alias if source.is_derived else source.alias
    tests += [unit_condition(source.layout, keys, alias)] if keys else []
    if not tests:
        return draft
    assert draft.scan is not None
    condition = sqlglot.parse_one(" OR ".join(tests), dialect=DIALECT)
    return replace(
        draft,
        scan=_where(draft.scan, source, exp.not_(condition.copy())),
        outlier_scan=_where(draft.scan, source, condition),
        outlier_columns=tuple(column.name for column in skewed),
    )


def _with_other_units(
    draft: Draft, source: Source, others: OtherUnits, in_sample: set[str], *, leaves_out: bool
) -> Draft:
    """Return the draft with what is known of the units that are no outliers.

    in_sample: the columns whose outliers are in the sample.
    """
    parts = {column.column: column.most_unit_rows for column in others.columns}
    most = rows_in_a_group(draft, source, others.max_unit_rows, parts)
    sums = {} if source.is_derived else sums_of(others, in_sample)
    return replace(
        draft,
        bars=replace(draft.bars, most_unit_rows=most, leaves_units_out=leaves_out),
        basis=tuple(replace(each, unit_sums=_unit_sums(each, source, sums)) for each in draft.basis),
    )


def _where(scan: exp.Select, source: Source, condition: exp.Expr) -> exp.Select:
    """Return the scan of those rows of a source that meet a condition, which a derived table asks inside."""
    if not source.is_derived:
        return scan.where(condition)
    scan = scan.copy()
    derived = next(each for each in scan.find_all(exp.Subquery) if each.alias == source.alias)
    derived.this.where(condition, copy=False)
    return scan


def _indexed_stream(draft: Draft) -> Source | None:
    """Return the one stream, if it may have an outlier index and the query sums over its rows."""
    keeps_values = draft.distinct is not None or draft.of_values
    if draft.bars.method is not Method.REPLICATES or not draft.may_read_outliers or keeps_values:
        return None
    if not draft.bars.joins_one_stream or len(draft.streams) != 1 or draft.shared:
        return None
    (source,) = draft.streams
    return None if source.nullable or _is_asked_about(draft, source) else source


def _is_asked_about(draft: Draft, source: Source) -> bool:
    """Whether a subquery reads sampled rows beside those of a source."""
    if not source.is_derived or source.layout is None:
        return bool(draft.local_tables)
    read = [draft.catalog.table(each.name).table for each in tables_in(draft.select)]
    return read.count(source.layout.table) > 1 or draft.local_tables != {source.layout.table}


def _skewed_columns(draft: Draft, source: Source) -> list[Column]:
    """Return the columns with outliers that occur in a sum."""
    assert source.layout is not None
    if source.is_derived:  # a row of it is made of all rows of a unit, wherever their values lie
        return []
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


def _of_sample(draft: Draft, source: Source, skewed: set[str], units: OutlierUnits | None) -> Source:
    """Return the source with what is known of the rows that are left in the sample.

    skewed: the columns whose outliers are not.
    """
    assert source.layout is not None
    if source.is_derived:
        inner = query_inside(draft, source.node)
        return replace(source, columns=of_derived_table(inner, units.others)) if units else source
    if not skewed:
        return source
    columns = (
        each.without_outliers() if each.name.lower() in skewed else each for each in source.layout.columns
    )
    return replace(source, layout=replace(source.layout, columns=tuple(columns)))


def _among_inliers(column: BasisColumn, draft: Draft, of_sample: Source) -> BasisColumn:
    """Return the column with the bounds of the rows that are left in the sample."""
    if column.kind not in _SUMMED:
        return column

    def known(each: exp.Column) -> Column | None:
        return (of_sample if each.table == of_sample.alias else draft.source(each.table)).column(each.name)

    bounds = bounds_of_a_row(_aggregate(column), known)
    return replace(column, lowest=bounds.lowest, highest=bounds.highest)


def _unit_sums(column: BasisColumn, source: Source, sums: Mapping[str, UnitSum]) -> tuple[UnitSum, ...]:
    """Return what a unit's rows add to a sum, or to both factors of a moment; nothing where not known."""
    if column.kind not in _SUMMED:
        return ()
    aggregate = _aggregate(column)
    values = [aggregate.this, *([aggregate.expression] if isinstance(aggregate, exp.CovarPop) else [])]
    values = values * 2 if column.is_square else values
    found = [unit_sum(value, source.alias, sums) for value in values]
    return tuple(each for each in found if each is not None) if None not in found else ()
