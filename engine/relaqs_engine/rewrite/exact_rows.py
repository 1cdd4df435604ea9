"""Rules: read some rows exactly and apart from the sample, from an index of the layout.

**Outliers.** Rule: read rows with values far out from the outlier index, and leave them out of the sample.

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
such a query whole units alone are read apart. `layouts/outliers.py` says what is in the
index.

**Heavy groups.** Rule: read the heaviest groups of a ranking early, from the index of heavy units.

    SELECT order_id, sum(price) AS paid FROM items GROUP BY order_id ORDER BY paid DESC LIMIT 10

Each group lies in one partition, so before the end most groups were not seen. The index of `items` has all
rows of the orders with the largest sums of `price`, and the bound of all other orders. From that follows
the most that a group outside the index can sum to:

    price                     the bound of price
    price * (1 - discount)    the bound of price, times the largest value of 1 - discount
    count(*)                  the bound of the number of rows
    … JOIN orders             times the rows of orders that one item can meet

A static table's rows that one row can meet are counted when the index is read. `layouts/heavy_units.py`
says what is in the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, prod

import sqlglot
from sqlglot import exp

from relaqs_engine.bounds import Bounds
from relaqs_engine.layouts.manifest import Column, Layout, OtherUnits, OutlierUnits
from relaqs_engine.layouts.outliers import outlier_condition, unit_condition
from relaqs_engine.plans.aggregate import Basis, BasisColumn, HeavyGroups, UnitSum
from relaqs_engine.plans.plan import Method
from relaqs_engine.rewrite.aggregates import bounds_of_a_row
from relaqs_engine.rewrite.draft import Draft, Source, pairs_of, tables_in
from relaqs_engine.rewrite.sampling import query_inside
from relaqs_engine.rewrite.scans import streams_of
from relaqs_engine.rewrite.units import of_derived_table, rows_in_a_group, sums_of, unit_sum
from relaqs_engine.sql.aggregate_laws import call_in
from relaqs_engine.sql.dialect import find_all
from relaqs_engine.sql.expressions import Ranges, alternatives
from relaqs_engine.sql.parse import DIALECT

_SUMMED = (Basis.SUM, Basis.MEAN, Basis.M2)


def read_outliers_apart(draft: Draft) -> Draft:
    """Return the draft with outliers read apart, if it sums a skewed column of its one stream.

    >>> draft = after(read_outliers_apart, "SELECT sum(fare) FROM trips")
    >>> print(shown(draft.scan))
    SELECT FROM partitions_of_trips AS trips
    WHERE NOT CASE WHEN trips.fare < 2.5 OR trips.fare > 80.0 THEN TRUE ELSE FALSE END
    >>> print(shown(draft.outlier_scan))
    SELECT FROM partitions_of_trips AS trips
    WHERE CASE WHEN trips.fare < 2.5 OR trips.fare > 80.0 THEN TRUE ELSE FALSE END
    >>> draft.basis[0].highest   # the most that a row of the sample can add to the sum
    80.0
    """
    source = _indexed_stream(draft)
    if source is None or draft.scan is None:
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
    derived = next(each for each in find_all(scan, exp.Subquery) if each.alias == source.alias)
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
    if not source.is_derived or source.table is None:
        return bool(draft.local_tables)
    read = [draft.catalog.table(each.name).table for each in tables_in(draft.select)]
    return read.count(source.table.table) > 1 or draft.local_tables != {source.table.table}


def _skewed_columns(draft: Draft, source: Source) -> list[Column]:
    """Return the columns with outliers that occur in a sum."""
    if source.is_derived:  # a row of it is made of all rows of a unit, wherever their values lie
        return []
    if source.layout.outliers is None or any(column.counts_units for column in draft.basis):
        return []
    used = {
        column.name.lower()
        for basis in draft.basis
        if basis.kind in _SUMMED
        for column in find_all(_aggregate(basis), exp.Column)
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
    assert source.table is not None
    if source.is_derived:
        inner = query_inside(draft, source.node)
        return replace(source, columns=of_derived_table(inner, units.others)) if units else source
    if not skewed:
        return source
    columns = (
        each.without_outliers() if each.name.lower() in skewed else each for each in source.table.columns
    )
    return replace(source, table=replace(source.table, columns=tuple(columns)))


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


_ROUNDING = 1e-9


def read_heavy_groups(draft: Draft) -> Draft:
    """Return the draft with its heavy groups, if an index of heavy units bounds all other groups.

    >>> sql = "SELECT id, sum(price / 2) AS s FROM orders JOIN items ON id = order_id GROUP BY id"
    >>> after(read_heavy_groups, f"{sql} ORDER BY s DESC LIMIT 10").heavy
    HeavyGroups(index='...', most=1350.0..., fan_out_sql='1')
    >>> after(read_heavy_groups, f"{sql} ORDER BY s LIMIT 10").heavy is None   # the least come first
    True
    """
    column = _ranked_total(draft)
    if column is None:
        return draft
    fan_out = _static_fan_out(draft)
    found = [_of_source(draft, source, column, fan_out) for source in draft.streams] if fan_out else []
    best = min(filter(None, found), key=lambda heavy: heavy.most, default=None)
    return replace(draft, heavy=best)


def _ranked_total(draft: Draft) -> BasisColumn | None:
    """Return the total whose largest values come first, where each group is complete once it is seen."""
    rules = draft.membership
    ranking = rules.ranking
    is_plain = not (draft.of_values or draft.distinct is not None or draft.shared or draft.grouping_sets)
    if not draft.groups.are_local or not is_plain or not draft.may_read_outliers or rules.rows_may_leave:
        return None
    if ranking is None or not ranking.descends or any(s.nullable or s.is_derived for s in draft.sources):
        return None
    column = next((each for each in draft.basis if each.name == ranking.value.total), None)
    return column if column is not None and column.kind in (Basis.SUM, Basis.COUNT) else None


def _of_source(draft: Draft, source: Source, column: BasisColumn, fan_out: str) -> HeavyGroups | None:
    """Return the heavy groups by the index of one stream, None where that does not bound the others."""
    layout = source.layout
    if layout.heavy is None:
        return None
    index = layout.heavy.name
    if any(draft.catalog.layout(s.table).rows_of_heavy(index) is None for s in streams_of(draft)):
        return None
    times = prod(other.layout.max_unit_rows for other in draft.streams if other is not source)
    most = _UnitMost(draft, source.alias, layout)(column) * times * (1.0 + _ROUNDING)
    return HeavyGroups(index, most, fan_out) if isfinite(most) else None


class _UnitMost:
    """Says what an aggregate of a unit's rows is at most, for the units that are not in the index.

    Each bound is that of a sum of values that are not negative. So it also bounds the sum over some of the
    rows.
    """

    def __init__(self, draft: Draft, alias: str, layout: Layout) -> None:
        assert layout.heavy is not None
        self._draft = draft
        self._alias = alias
        self._bounds = {bound.column.lower(): bound.most for bound in layout.heavy.bounds}
        self._rows = self._bounds.get("", float(layout.max_unit_rows))

    def __call__(self, column: BasisColumn) -> float:
        call = call_in(column.sql)
        assert call is not None
        return self._rows if column.kind is Basis.COUNT else self._of(call.arguments[0])

    def _of(self, value: exp.Expr) -> float:
        """Return the most that a value sums to over the rows of a unit, infinity where that is not known."""
        value = value.unnest()
        return min(self._by_parts(value), self._rows * _highest(self._range(value)))

    def _by_parts(self, value: exp.Expr) -> float:
        match value:
            case exp.Column() if value.table == self._alias:
                return self._bounds.get(value.name.lower(), inf)
            case exp.Mul():
                left, right = value.left, value.right
                return min(self._scaled(left, right), self._scaled(right, left))
            case exp.Add():
                return self._of(value.left) + self._of(value.right)
            case exp.Sub() if _is_never_negative(self._range(value.right)):
                return self._of(value.left)
            case exp.Div() if isinstance(value.right.unnest(), exp.Literal):
                return self._scaled(value.left, exp.Div(this=exp.Literal.number(1.0), expression=value.right))
            case exp.Case():
                return sum(map(self._of, alternatives(value)))
        return inf

    def _scaled(self, value: exp.Expr, factor: exp.Expr) -> float:
        found = self._range(factor)
        return self._of(value) * _highest(found) if _is_never_negative(found) else inf

    def _range(self, value: exp.Expr) -> Bounds:
        return Ranges(lambda each: self._draft.source(each.table).column(each.name))(value)


def _highest(found: Bounds) -> float:
    return inf if found.highest is None else max(0.0, found.highest)


def _is_never_negative(found: Bounds) -> bool:
    return found.lowest is not None and found.lowest >= 0.0


def _static_fan_out(draft: Draft) -> str:
    """Return the SQL of how many rows of the static tables one joined row of the streams can meet at most.

    It is "" where a static table is met by no equation of columns.
    """
    reached = {source.alias for source in draft.streams}
    waiting = [source for source in draft.sources if not source.streams]
    factors = ["1"]
    while waiting:
        ready = next((each for each in waiting if _columns_met(draft, each, reached)), None)
        if ready is None:
            return ""
        columns = ", ".join(_columns_met(draft, ready, reached))
        rows = f"SELECT count(*) AS n FROM {_prepared(draft, ready)} GROUP BY {columns}"
        factors.append(f"(SELECT coalesce(max(n), 1) FROM ({rows}))")
        reached.add(ready.alias)
        waiting.remove(ready)
    return " * ".join(factors)


def _columns_met(draft: Draft, source: Source, reached: set[str]) -> Sequence[str]:
    """Return the columns of a static table that are equated with columns of sources that were reached."""
    sides: list[tuple[exp.Column, exp.Column]] = [
        pair for both in pairs_of(draft.conjuncts) for pair in (both, (both[1], both[0]))
    ]
    met = (mine.name for mine, other in sides if mine.table == source.alias and other.table in reached)
    return [exp.to_identifier(name, quoted=True).sql(DIALECT) for name in dict.fromkeys(met)]


def _prepared(draft: Draft, source: Source) -> str:
    """Return the name that a static table is prepared under."""
    assert draft.scan is not None
    tables = find_all(draft.scan, exp.Table)
    return next(table.name for table in tables if table.alias == source.alias)
