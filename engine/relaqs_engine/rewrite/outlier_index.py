"""Rule: read rows with values far out from the outlier index, and leave them out of the sample.

    SELECT sum(fare) FROM trips       -- rows with a fare above 80 are in the index of trips
      sample:  … FROM partitions WHERE NOT fare > 80     scaled up
      index:   … FROM outliers   WHERE fare > 80         as it is

The two are put together as two partitions are, but rows of one sampling unit may be in both. So every column
of the state must merge whatever rows its partial results come from. COUNT(DISTINCT key) does not: it counts a
key in each partition, and would count it in the index again. `layouts/outliers.py` says what is in the index.
"""

from __future__ import annotations

from dataclasses import replace

import sqlglot
from sqlglot import exp

from relaqs_engine.layouts.manifest import Column
from relaqs_engine.layouts.outliers import outlier_condition
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.rewrite.aggregates import bounds_of_a_row
from relaqs_engine.rewrite.draft import Draft, Source
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
    if source is None or draft.scan is None:
        return draft
    skewed = _skewed_columns(draft, source)
    if not skewed:
        return draft
    condition = sqlglot.parse_one(outlier_condition(skewed, source.alias), dialect=DIALECT)
    names = {column.name.lower() for column in skewed}
    return replace(
        draft,
        scan=draft.scan.where(exp.not_(condition.copy())),
        outlier_scan=draft.scan.where(condition),
        outlier_columns=tuple(column.name for column in skewed),
        basis=tuple(_among_inliers(column, draft, source, names) for column in draft.basis),
    )


def _indexed_stream(draft: Draft) -> Source | None:
    """Return the one stream, if it has an outlier index and the query sums over its rows."""
    keeps_values = draft.distinct is not None or draft.of_values
    if draft.bars.method is not Method.REPLICATES or not draft.may_read_outliers or keeps_values:
        return None
    if len(draft.streams) != 1 or draft.local_tables or draft.shared:
        return None
    if any(column.counts_units for column in draft.basis):
        return None
    (source,) = draft.streams
    is_plain = not source.is_derived and not source.nullable
    has_index = source.layout is not None and source.layout.outliers is not None
    return source if is_plain and has_index else None


def _skewed_columns(draft: Draft, source: Source) -> list[Column]:
    """Return the columns with outliers that occur in a sum."""
    assert source.layout is not None
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
