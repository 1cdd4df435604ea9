"""Intervals of the cells shown: from their variance, and by proof where blocks say nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from relaqs_bootstrap import (
    Variance,
    confidence_intervals,
    largest_influence,
    largest_influence_of_unit,
)
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_engine.execution.cells import ShownGroups, additive_columns, estimated_outputs
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.reasons import Reason
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan

_ROUNDING = 1e-9
_MORE_ROWS = 2.0  # than a group is estimated to have, where rows decide how far rounding moves a value
MOST_WIDENED = 2.0  # the largest factor on a half-width that luck in the selection may cause


@dataclass(frozen=True, slots=True)
class CellIntervals:
    """Values and intervals of the estimated outputs, shape (groups, outputs). NaN where not known.

    `doubt` is why a cell is not certified, a `Reason`. `influence` is the most that a sampling unit that was
    not read can move each value. None: not known.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    doubt: IntArray
    standard_error: FloatArray
    influence: FloatArray | None = None

    @property
    def certified(self) -> BoolArray:
        """Whether each interval is certified."""
        return np.asarray(self.doubt == Reason.NONE)

    @classmethod
    def unknown(cls, value: FloatArray, why: Reason = Reason.SO_FAR) -> CellIntervals:
        def nothing() -> FloatArray:
            return np.full_like(value, np.nan)

        return cls(value, nothing(), nothing(), np.full(value.shape, int(why)), nothing())

    def doubt_where(self, unsure: BoolArray, why: Reason) -> None:
        """Take the certificate from cells that have one, for a reason. unsure: of a shape that fits."""
        self.doubt[self.certified & unsure] = why

    def of_rows(self, certain: BoolArray, factor: FloatArray) -> CellIntervals:
        """Return the first groups' cells. Those of uncertain rows are not certified.

        `factor` multiplies the half-widths of each row, shape (rows,). A row that only just stays would get
        bars that say nothing. It keeps its own bars instead, and they are not certified.
        """
        count = len(certain)
        value, low, high = self.value[:count], self.low[:count], self.high[:count]
        is_wide = certain & ~(factor <= MOST_WIDENED)
        times = np.where(certain & ~is_wide, factor, 1.0)[:, None]
        low = np.where(times > 1.0, value - (value - low) * times, low)
        high = np.where(times > 1.0, value + (high - value) * times, high)
        influence = None if self.influence is None else self.influence[:count]
        doubt, error = self.doubt[:count].copy(), self.standard_error[:count]
        found = CellIntervals(value, low, high, doubt, error, influence)
        found.doubt_where(~certain[:, None], Reason.MAY_LEAVE)
        found.doubt_where(is_wide[:, None], Reason.BARELY_STAYS)
        return found

    def of_columns(self, count: int) -> CellIntervals:
        """Return the first columns."""
        return CellIntervals(
            self.value[:, :count],
            self.low[:, :count],
            self.high[:, :count],
            self.doubt[:, :count],
            self.standard_error[:, :count],
            None if self.influence is None else self.influence[:, :count],
        )

    def within(self, column: int, least: FloatArray, most: FloatArray) -> None:
        """Cut the intervals of a column at the known ends of its values, each of shape (rows,)."""
        self.low[:, column] = np.maximum(self.low[:, column], np.minimum(least, self.value[:, column]))
        self.high[:, column] = np.minimum(self.high[:, column], np.maximum(most, self.value[:, column]))

    def or_known(self, known: BoolArray) -> CellIntervals:
        """Return the intervals with the named cells as final values."""
        return CellIntervals(
            self.value,
            np.where(known, self.value, self.low),
            np.where(known, self.value, self.high),
            np.where(known & np.isfinite(self.value), Reason.NONE, self.doubt),
            np.where(known, 0.0, self.standard_error),
        )

    def or_fixed(self, fixed: BoolArray) -> CellIntervals:
        """Return the intervals with the named cells as values that are certain, be it that they are NULL."""
        found = self.or_known(fixed)
        return replace(found, doubt=np.where(fixed & np.isnan(self.value), Reason.NONE, found.doubt))

    @classmethod
    def known(cls, value: FloatArray) -> CellIntervals:
        """Return values that are final, because every row of their groups has been seen."""
        doubt = np.where(np.isfinite(value), Reason.NONE, Reason.NO_NUMBER)
        return cls(value, value, value, doubt, np.zeros_like(value))


VarianceOfCells = Callable[[ShownGroups, FloatArray, Scan], tuple[Variance, FloatArray]]
EndsOfGroups = Callable[[ShownGroups], Mapping[str, tuple[FloatArray, FloatArray]]]
"""The ends of a row's value in each group, by the name of a basis column; NaN where they are not known."""
RowsOfLargestUnit = Callable[[ShownGroups, Scan, Layout], FloatArray]


class IntervalEstimator:
    """Makes the intervals of one query's answers from its state and the groups shown.

    `rows_are_fixed` says whether no estimate decides which rows count.
    """

    def __init__(
        self,
        plan: MergePlan,
        leading: Layout,
        request: IntervalRequest,
        variance: VarianceOfCells,
        rows_of_largest_unit: RowsOfLargestUnit,
        ends_of: EndsOfGroups = lambda groups: {},
        *,
        rows_are_fixed: bool,
    ) -> None:
        self._plan = plan
        self._leading = leading
        self._request = request
        self._variance = variance
        self._rows_of_largest_unit = rows_of_largest_unit
        self._ends_of = ends_of
        one_each = plan.bars.joins_one_stream and leading.max_unit_rows == 1
        self._rows_are_sampled = rows_are_fixed and one_each and not plan.bars.least_row_groups
        self._columns = additive_columns(plan)
        self._counted_by = _counted_by(self._columns)
        self._counts_units = np.array([column.counts_units for column in self._columns], dtype=bool)
        outputs = estimated_outputs(plan)
        self._rounding = np.array([output.rounding for output in outputs])
        self._rounding_a_row = np.array([output.rounding_a_row for output in outputs])
        self._widest = np.array([output.widest for output in outputs])
        self._is_certifiable = np.array([output.certifiable for output in outputs], dtype=bool)
        # For each estimated output, the column that it totals, or None where it is not a plain total.
        by_name = {column.name: column for column in self._columns}
        self._totals = [by_name.get(output.total or "") for output in outputs]

    def __call__(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> CellIntervals:
        """Return intervals of cells of shape (groups, outputs)."""
        if self._plan.method is Method.REPLICATES and scan.occupied_blocks < 2:
            return self._with_known_counts(CellIntervals.unknown(cells, Reason.FEW_PARTS))
        variance, gradient = self._variance(groups, cells, scan)
        nonnegative = np.array([_cannot_fall(column) for column in self._totals])
        unit_rows = self._unit_rows(groups, scan)
        influence = self._possible_influence(groups, gradient, unit_rows)
        if self._plan.bars.rows_are_of_units:
            influence = influence + self._influence_on_scale(groups, gradient, scan)
        outliers = self._of_totals(groups.outliers)
        observed = self._of_totals(groups.sums) + outliers * (1.0 - 1.0 / scan.scale)
        found = confidence_intervals(
            cells,
            variance,
            fraction=scan.fraction,
            confidence=self._request.confidence,
            anytime=self._request.anytime,
            rows_matched=groups.rows.astype(np.int64),
            nonnegative_total=nonnegative,
            observed_total=observed,
            unit_ceiling=self._unit_ceiling(),
            possible_influence=influence * self._request.row_weight,
            known_total=np.nan_to_num(outliers),
            largest_unit=influence if self._rows_are_sampled else None,
        )
        error = np.sqrt(variance.variance)
        rows = _MORE_ROWS * scan.scale * np.asarray(groups.rows, dtype=np.float64)
        rounding = self._rounding + self._rounding_a_row * rows[:, None]
        low, high = found.low - rounding, found.high + rounding
        result = CellIntervals(cells, low, high, found.doubt, error, influence)
        result.doubt_where((found.high - found.low) / 2 > self._widest * np.abs(cells), Reason.TOO_WIDE)
        result = _without_spread(result, variance, nonnegative, observed)
        self._explain(result, unit_rows)
        return self._with_known_counts(result)

    def _explain(self, found: CellIntervals, unit_rows: FloatArray) -> None:
        """Say of cells that are not certified what is known beyond their statistics."""
        doubt, unsure = found.doubt, ~found.certified
        doubt[(doubt == Reason.UNBOUNDED) & np.isnan(unit_rows)] = Reason.FEW_ROW_GROUPS
        doubt[(doubt != Reason.FEW_ROWS) & unsure & np.isinf(unit_rows)] = Reason.UNLIKE_ROW_GROUPS
        large = doubt == Reason.LARGE_ROW
        if self._leading.max_unit_rows > 1 and not self._plan.bars.least_row_groups:
            doubt[large] = Reason.LARGE_UNIT
        elif self._leading.outliers is None and not self._leading.is_compact:
            doubt[large] = Reason.LARGE_ROW_APPENDED
        doubt[(doubt != Reason.FEW_ROWS) & unsure & ~np.isfinite(found.value)] = Reason.NO_NUMBER

    def at_least(self, groups: ShownGroups, cells: FloatArray) -> CellIntervals:
        """Return values so far. A total that cannot fall is at least that; nothing is known of the others."""
        found = CellIntervals.unknown(cells, Reason.AS_SEEN)
        for i, column in enumerate(self._totals):
            if _cannot_fall(column):
                found.low[:, i] = cells[:, i]
        return found

    def _of_totals(self, sums: FloatArray) -> FloatArray:
        """Return the sum that each output totals, NaN where the output is not a total."""
        found = np.full((len(sums), len(self._totals)), np.nan)
        for i, column in enumerate(self._totals):
            if column is not None:
                found[:, i] = sums[:, self._columns.index(column)]
        return found

    def _unit_ceiling(self) -> FloatArray:
        """Return the most one sampling unit can add to each total, NaN where a join may multiply rows."""
        alone = not self._plan.hoists and self._plan.bars.joins_one_stream
        largest = self._leading.max_unit_rows
        rows = min(largest, self._plan.bars.most_unit_rows or largest)
        most = [_most_of_unit(column, rows) for column in self._totals]
        return np.array(most) * (1.0 if alone else np.nan)

    def _unit_rows(self, groups: ShownGroups, scan: Scan) -> FloatArray:
        return self._rows_of_largest_unit(groups, scan, self._leading)[:, None]

    def _possible_influence(
        self, groups: ShownGroups, gradient: FloatArray, unit_rows: FloatArray
    ) -> FloatArray:
        """Return the most that one unread unit can move each cell, NaN where its columns are unbounded.

        Both bounds hold: the most rows of a unit times the ends of a row, and what units sum to at most.
        """
        rows = np.repeat(unit_rows, len(self._columns), axis=1)
        # A unit counts as one. What was read of it moves the scale as well, which is one of rows.
        usual = self._leading.row_count / max(1, self._leading.unit_count)
        rows[:, self._counts_units] = max(1.0, self._leading.max_unit_rows / usual)
        lowest, highest = np.empty(groups.sums.shape), np.empty(groups.sums.shape)
        ends = self._ends_of(groups)
        for i, column in enumerate(self._columns):
            lowest[:, i], highest[:, i] = self._added_by_a_row(column, groups, ends)
        influence = largest_influence(gradient, lowest * rows, highest * rows, self._counted_by)
        if any(column.unit_sums for column in self._columns):
            middle, away = (lowest + highest) / 2, rows * (highest - lowest) / 2
            below, above = -away, away
            for i, column in enumerate(self._columns):
                if column.unit_sums:
                    middle[:, i], below[:, i], above[:, i] = self._added_by_a_unit(column, groups, rows[:, i])
            of_units = (middle, (below, above), rows, self._counted_by)
            influence = np.fmin(influence, largest_influence_of_unit(gradient, *of_units))
        return np.where(self._is_certifiable, influence, np.nan)

    def _influence_on_scale(self, groups: ShownGroups, gradient: FloatArray, scan: Scan) -> FloatArray:
        """Return the most that one unread unit can move each cell because it has many rows of the table.

        It moves the scale by its share of the rows that were read. Where joined rows are rows of the table,
        what it adds to a total is always more. A row that is made of a unit counts as one.
        """
        sampled = np.nan_to_num(groups.sums - groups.outliers / scan.scale)
        with np.errstate(invalid="ignore"):
            by_scale = np.where(gradient == 0.0, 0.0, gradient * sampled[:, None, :]).sum(axis=2)
        return np.asarray(np.abs(by_scale) * self._leading.max_unit_rows / scan.rows)

    def _added_by_a_unit(
        self, column: BasisColumn, groups: ShownGroups, rows: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what each row of a unit adds to a group's sum, and the ends of what its rows add beside it.

        A unit's deviations from a group's mean μ have the squares Σ(x−μ)² ≤ (√Σ(x−c)² + √rows·|c−μ|)², for
        any c. Products of two deviations are bounded by their squares (Cauchy and Schwarz).
        """
        first = column.unit_sums[0]
        middle = np.full(len(rows), first.middle)
        if not column.is_moment:
            return middle, np.full(len(rows), -first.below), np.full(len(rows), first.above)
        means = [self._mean_of(name, groups) for name in column.means]
        if column.kind is Basis.MEAN:
            return middle - means[0], np.full(len(rows), -first.below), np.full(len(rows), first.above)
        roots = [
            np.sqrt(of.squares) + np.sqrt(rows) * np.abs(of.middle - mean)
            for of, mean in zip(column.unit_sums, means, strict=True)
        ]
        most = roots[0] * roots[1]
        return np.zeros(len(rows)), np.zeros(len(rows)) if column.is_square else -most, most

    def _added_by_a_row(
        self, column: BasisColumn, groups: ShownGroups, by_group: Mapping[str, tuple[FloatArray, FloatArray]]
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of what a row adds to each group's sum, if it adds anything.

        To moments it adds its deviation from the group's mean. To a COUNT it adds 1: a row of avg(x) with the
        value x adds (x, 1), so that it moves the average by (x − average)/n, and not by x/n.
        """
        if column.kind is Basis.COUNT:
            return np.ones(len(groups.rows)), np.ones(len(groups.rows))
        if not column.is_moment:
            return _ends_of_a_row(column, groups, by_group)
        ends = [self._away_from(mean, groups, by_group) for mean in column.means]
        if column.kind is Basis.MEAN:
            return ends[0]
        products = np.array([one * other for one in ends[0] for other in ends[1]])
        least = np.zeros(len(groups.rows)) if column.is_square else products.min(axis=0)
        return least, products.max(axis=0)

    def _away_from(
        self, mean: str, groups: ShownGroups, by_group: Mapping[str, tuple[FloatArray, FloatArray]]
    ) -> tuple[FloatArray, FloatArray]:
        """Return how far a row's value may lie below and above each group's mean."""
        column = next(column for column in self._columns if column.name == mean)
        means = self._mean_of(mean, groups)
        low, high = _ends_of_a_row(column, groups, by_group)
        return low - means, high - means

    def _mean_of(self, mean: str, groups: ShownGroups) -> FloatArray:
        return groups.means[:, next(i for i, column in enumerate(self._columns) if column.name == mean)]

    def _with_known_counts(self, found: CellIntervals) -> CellIntervals:
        """Return the intervals with counts of a whole table as known values: the manifest has them."""
        known = dict(self._plan.bars.known_totals)
        for i, column in enumerate(self._totals):
            if column is not None and column.name in known:
                for array in (found.value, found.low, found.high):
                    array[:, i] = known[column.name]
                found.doubt[:, i] = Reason.NONE
        return found


def _counted_by(columns: Sequence[BasisColumn]) -> IntArray:
    """Return the place of the COUNT to which the rows of each column add 1, −1 where there is no other."""
    places = {column.name: i for i, column in enumerate(columns)}

    def last(i: int) -> int:
        above = places.get(columns[i].count_of or "", i)
        return i if above == i else last(above)

    found = [last(i) for i in range(len(columns))]
    return np.array([-1 if place == i else place for i, place in enumerate(found)], dtype=np.int64)


def _ends_of_a_row(
    column: BasisColumn, groups: ShownGroups, by_group: Mapping[str, tuple[FloatArray, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of a row's value in each group. Those of the table and those of the group both hold."""
    low, high = (
        np.full(len(groups.rows), _or_nan(column.lowest)),
        np.full(len(groups.rows), _or_nan(column.highest)),
    )
    if column.name in by_group:
        of_group = by_group[column.name]
        low, high = np.fmax(low, of_group[0]), np.fmin(high, of_group[1])
    return low, high


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _most_of_unit(column: BasisColumn | None, rows: int) -> float:
    """Return the most that a unit adds to a total, NaN where it is not known."""
    if column is None or column.highest is None:
        return np.nan
    if column.counts_units:
        return column.highest
    sums = (max(0.0, each.middle) * rows + each.above for each in column.unit_sums)
    return min([column.highest * rows, *sums])


def _cannot_fall(column: BasisColumn | None) -> bool:
    return column is not None and column.lowest is not None and column.lowest >= 0.0


def _without_spread(
    found: CellIntervals, variance: Variance, nonnegative: BoolArray, observed: FloatArray
) -> CellIntervals:
    """Return the intervals with only what is provable where all blocks agree.

    Blocks that agree say nothing about rows unlike those seen. A total that cannot fall is at least what was
    seen. If nothing was seen, `found` already has the bound.
    """
    # Differences in the gradient leave a trace of rounding where nothing varies.
    rounding = (_ROUNDING * found.value) ** 2
    flat = (variance.variance <= rounding) & ~(nonnegative & (observed == 0.0))
    low = np.where(flat, np.where(nonnegative, observed, np.nan), found.low)
    high = np.where(flat, np.nan, found.high)
    found.doubt_where(flat, Reason.ALIKE)
    return replace(found, low=low, high=high)
