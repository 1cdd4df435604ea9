"""Intervals of the cells shown: from their variance, by ranks, and by proof where blocks say nothing.

`IntervalEstimator` makes those of functions of sums, and `quantile_bounds` those of quantiles: two values
of the sample, by rank, between which the table's quantile lies. `IntervalRequest` is the interval that the
user asked for. Where all intervals of a table are to hold together, each has another confidence:

    SELECT origin, avg(dep_delay), count(*) FROM flights GROUP BY origin

At 95 % each number is outside its interval in 5 of 100 samples. Of twenty that have nothing to do with each
other, all are inside theirs in 36 of 100. Where all are to hold together, each of m intervals is made at 1 −
0.05/m. Whatever depends on what, the chances that one of them fails add up to 0.05 at most (Bonferroni).

The m are counted in an estimate at the confidence asked for. Final numbers are right in any case, and
count nothing. Where estimates decide which rows the answer has, what is said of its rows counts as one
more. Wider intervals take the certificate from some cells, such as a quantile whose ends lie beyond the
sample. They give none, so m is never too small.

**Skewed values far out.** The farther out, the less normal a tail is: of 250 average delays, all were
inside in 70 to 85 of 100 samples. Where an estimate is skewed by γ, the end of its t interval is off by
γ(2z² + 1)/6 standard errors (Hall 1992, The Bootstrap and Edgeworth Expansion), and γ is at most what one
row moves the estimate by, in standard errors. A cell is certified where no unread row can move it by more
than two. For a table that limit shrinks by 1/z²: for 30 cells it is 0.78.

With "anytime" every look has to hold, and cells are certified one after another. So all cells shown count
that may be certified, whether they are yet or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import MIN_ROWS, largest_influence, largest_influence_of_unit
from relaqs_bootstrap.intervals import (
    Intervals,
    Level,
    bounded_average,
    confidence_intervals,
    quantile_ranks,
    share_variance_of_blocks,
    share_variance_of_rows,
)
from relaqs_bootstrap.variance import Variance

from relaqs_engine.arrow_arrays import arrow, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.cells import (
    ShownGroups,
    additive_columns,
    estimated_outputs,
    folded,
    folded_ends,
    in_columns,
    keeps_sign,
    known_values,
    outliers_agree,
)
from relaqs_engine.execution.estimate import (
    CellBounds,
    CellIntervals,
    Estimate,
    Reason,
    microseconds_from,
    numbers_of,
)
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.aggregate import BLOCK, STATE, Basis, BasisColumn, MergePlan
from relaqs_engine.plans.plan import IntervalRequest, Method, OutputKind, QuantileOf, TimeScale


def estimate_as_asked(
    request: IntervalRequest, estimate_at: Callable[[IntervalRequest], Estimate], *, rows_are_estimated: bool
) -> Estimate:
    """Return an estimate whose intervals hold as they were asked for.

    Args:
        request: how they must hold.
        estimate_at: makes an estimate whose intervals hold each for itself.
        rows_are_estimated: whether estimates decide which rows the answer has.
    """
    found = estimate_at(request.of_each(1))
    uncertain = found.certified & (found.half_widths > 0.0)
    if request.anytime:
        uncertain |= found.widths > 0.0
    count = int(uncertain.sum())
    count += bool(count) and rows_are_estimated
    return estimate_at(request.of_each(count)) if request.for_table and count > 1 else found


_ROUNDING = 1e-9
_MOST_OF_AVERAGE = 0.2  # that an interval by known ends may be off on either side: a wider one says little
_MORE_ROWS = 2.0  # than a group is estimated to have, where rows decide how far rounding moves a value


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
        self._known = known_values(plan)
        self._counted_by = _counted_by(self._columns)
        self._products = np.array([column.kind is Basis.M2 for column in self._columns], dtype=bool)
        self._counts_units = np.array([column.counts_units for column in self._columns], dtype=bool)
        self._outputs = outputs = estimated_outputs(plan)
        self._rounding = np.array([output.rounding for output in outputs])
        self._rounding_a_row = np.array([output.rounding_a_row for output in outputs])
        self._widest = np.array([output.widest for output in outputs])
        self._signs = [output.sign for output in outputs]
        self._is_certifiable = np.array([output.certifiable for output in outputs], dtype=bool)
        # For each estimated output, the column that it totals, or None where it is not a plain total.
        by_name = {column.name: column for column in self._columns}
        self._totals = [by_name.get(output.total or "") for output in outputs]
        # Plain averages of rows that no estimate chose: what each of them sums, and the place of its COUNT.
        sums = {
            f"CAST({each.name} AS DOUBLE) / NULLIF(CAST({each.count_of} AS DOUBLE), 0": (each, count)
            for each in self._columns
            for count, other in enumerate(self._columns)
            if each.kind is Basis.SUM and other.name == each.count_of
        }
        chosen = bool(plan.membership.deciders) or request.anytime
        can_be = self._rows_are_sampled and plan.bars.rows_are_units and not chosen
        averaged = {i: sums.get(output.smooth_sql.strip("()")) for i, output in enumerate(outputs)}
        self._averages = {i: of for i, of in averaged.items() if of and can_be and self._is_certifiable[i]}
        places = {each.name: self._counted_by[k] for k, each in enumerate(self._columns)}
        used = [{places.get(word, -1) for word in re.findall(r"\w+", each.smooth_sql)} for each in outputs]
        self._behind = [sorted(each - {-1}) for each in used]  # the COUNTs of what each output averages

    def __call__(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> CellIntervals:
        """Return intervals of cells of shape (groups, outputs)."""
        if self._plan.method is Method.REPLICATES and scan.occupied_blocks < 2:
            return self._with_known_values(CellIntervals.unknown(cells, Reason.FEW_PARTS))
        variance, gradient = self._variance(groups, cells, scan)
        bend = self._bend(groups, gradient, variance.variance, scan.fraction)
        variance = replace(variance, variance=variance.variance * bend**2)
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
            rows_matched=self._rows_behind(groups, scan),
            nonnegative_total=nonnegative,
            observed_total=observed,
            unit_ceiling=self._unit_ceiling(),
            possible_influence=influence * self._request.row_weight * bend,
            known_total=np.nan_to_num(outliers),
            largest_unit=influence if self._rows_are_sampled else None,
            keeps_sign=keeps_sign(cells, self._signs) & outliers_agree(self._columns, groups)[:, None],
        )
        by_ends = self._bound_averages(found, cells, groups, scan.fraction)
        error = np.sqrt(variance.variance)
        rows = _MORE_ROWS * scan.scale * np.asarray(groups.rows, dtype=np.float64)
        rounding = self._rounding + self._rounding_a_row * rows[:, None]
        ends = folded_ends(self._outputs, found.low, found.high)
        low, high = ends[0] - rounding, ends[1] + rounding
        freedom = variance.degrees_of_freedom if self._plan.bars.least_row_groups else None
        result = CellIntervals(cells, low, high, found.doubt, error, influence, freedom)
        result.doubt_where((found.high - found.low) / 2 > self._widest * np.abs(cells), Reason.TOO_WIDE)
        result = _without_spread(result, variance, np.where(nonnegative, observed, np.nan), by_ends)
        result.doubt_where((ends[0] == ends[1]) & (found.low < found.high), Reason.ALIKE)
        result = replace(result, value=folded(self._outputs, cells))
        self._explain(result, unit_rows)
        return self._with_known_values(result)

    def _bend(
        self, groups: ShownGroups, gradient: FloatArray, variance: FloatArray, fraction: float
    ) -> FloatArray:
        """Return by how much errors of means widen what squares of deviations from them make, 1 or more.

        A variance of m values varies by (μ₄ − σ⁴)/m + 2σ⁴/m² (Cramér 1946, Mathematical Methods, 27.4). Its
        tangent has the first part alone, none for two equally frequent values. In several sums, parts cancel.
        """
        slopes = gradient[:, :, self._products]
        with np.errstate(divide="ignore", invalid="ignore"):
            each = (groups.sums / groups.sums[:, self._counted_by])[:, None, self._products]
            second = 2.0 * ((1.0 - fraction) * np.where(slopes == 0.0, 0.0, slopes * each).sum(axis=2)) ** 2
            found = np.sqrt(1.0 + second / variance)
        return np.where((np.count_nonzero(slopes, axis=2) == 1) & (found < np.inf), found, 1.0)

    def _rows_behind(self, groups: ShownGroups, scan: Scan) -> IntArray:
        """Return how many rows each cell is computed from: of a group's rows, those that are not left out."""
        seen = groups.sums + groups.outliers * (1.0 - 1.0 / scan.scale)
        found = [np.minimum(groups.rows, seen[:, each].min(axis=1, initial=np.inf)) for each in self._behind]
        return np.asarray(np.rint(in_columns(len(groups.rows), found)), dtype=np.int64)

    def _bound_averages(
        self, found: Intervals, cells: FloatArray, groups: ShownGroups, fraction: float
    ) -> BoolArray:
        """Certify averages that the ends of their rows hold together, and return which, in a mask.

        They need neither ten rows nor a calm sample. In groups with outliers there are none.
        """
        taken = np.zeros(cells.shape, dtype=bool)
        level = Level.of(self._request.confidence, anytime=False, fraction=fraction)
        for i, (column, count) in self._averages.items():
            if found.certified[:, i].all():
                continue
            ends = _ends_of_a_row(column, groups, self._ends_of(groups))
            value, rows = cells[:, i], np.where(groups.outliers[:, count] == 0.0, groups.sums[:, count], 0.0)
            low, high = bounded_average(value, rows, *ends, level)
            near = np.maximum(high - value, value - low) <= _MOST_OF_AVERAGE * np.abs(value)
            taken[:, i] = near & ~found.certified[:, i]
            for array, own in ((found.low, low), (found.high, high), (found.doubt, Reason.NONE)):
                array[:, i] = np.where(taken[:, i], own, array[:, i])
        return taken

    def _explain(self, found: CellIntervals, unit_rows: FloatArray) -> None:
        """Say of cells that are not certified what is known beyond their statistics."""
        doubt, unsure = found.doubt, ~found.certified
        doubt[(doubt == Reason.UNBOUNDED) & np.isnan(unit_rows)] = Reason.FEW_ROW_GROUPS
        doubt[(doubt != Reason.FEW_ROWS) & unsure & np.isinf(unit_rows)] = Reason.UNLIKE_ROW_GROUPS
        large, leading = doubt == Reason.LARGE_ROW, self._leading
        if leading.max_unit_rows > 1 and not self._plan.bars.least_row_groups:
            appended = leading.outlier_units is None and not leading.is_compact
            doubt[large] = Reason.LARGE_UNIT_APPENDED if appended else Reason.LARGE_UNIT
        elif leading.outliers is None and not leading.is_compact:
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
        """Return the rows of the largest unit in each group, or of each cell: (groups, 1 or outputs)."""
        found = self._rows_of_largest_unit(groups, scan, self._leading)
        return found if found.ndim > 1 else found[:, None]

    def _possible_influence(
        self, groups: ShownGroups, gradient: FloatArray, unit_rows: FloatArray
    ) -> FloatArray:
        """Return the most that one unread unit can move each cell, NaN where its columns are unbounded.

        Both bounds hold: the most rows of a unit times the ends of a row, and what units sum to at most.
        """
        rows = np.repeat(np.fmax.reduce(unit_rows, axis=1)[:, None], len(self._columns), axis=1)
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
        return np.where(self._is_certifiable & ~np.isnan(unit_rows), influence, np.nan)

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

    def _with_known_values(self, found: CellIntervals) -> CellIntervals:
        """Return the intervals with what the manifest has as known values."""
        for i, value in self._known.items():
            for array in (found.value, found.low, found.high):
                array[:, i] = value
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
    low, high = (np.full(len(groups.rows), each, float) for each in (column.lowest, column.highest))
    if column.name in by_group:
        of_group = by_group[column.name]
        low, high = np.fmax(low, of_group[0]), np.fmin(high, of_group[1])
    return low, high


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
    found: CellIntervals, variance: Variance, at_least: FloatArray, by_ends: BoolArray
) -> CellIntervals:
    """Return the intervals with only what is provable where all blocks agree, as those `by_ends` are.

    Blocks that agree say nothing about rows unlike those seen. A total that cannot fall is at least what was
    seen, NaN for others. If nothing was seen, `found` already has the bound.
    """
    # Differences in the gradient leave a trace of rounding where nothing varies.
    rounding = (_ROUNDING * found.value) ** 2
    flat = (variance.variance <= rounding) & (at_least != 0.0) & ~by_ends
    low = np.where(flat, at_least, found.low)
    high = np.where(flat, np.nan, found.high)
    found.doubt_where(flat, Reason.ALIKE)
    return replace(found, low=low, high=high)


# A quantile takes a few numpy calls for each group. With more groups than this there are no intervals.
MOST_GROUPS = 20_000


@dataclass(frozen=True, slots=True)
class _Lists:
    """The values of each partial row, one row after another. The rows of a group follow one another.

    Attributes:
        starts: where each row's values begin, shape (rows,).
        counts: how many values each row has.
    """

    values: FloatArray
    starts: IntArray
    counts: IntArray
    group: IntArray
    block: IntArray

    def count_where(self, condition: BoolArray) -> IntArray:
        """Return how many values of each row meet a condition, shape (values,)."""
        before = np.append(0, np.cumsum(condition))
        return np.asarray(before[self.starts + self.counts] - before[self.starts], dtype=np.int64)

    def at(self, ranks: IntArray, others: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the values of two ranks, counted from 1, for each group. Rank 0 gives NaN."""
        found = np.full((2, len(ranks)), np.nan)
        rows = np.searchsorted(self.group, np.arange(len(ranks) + 1))
        ends = np.append(self.starts, len(self.values))[rows]
        for group, pair in enumerate(zip(ranks, others, strict=True)):
            if wanted := sorted({int(rank) - 1 for rank in pair if rank}):
                own = np.partition(self.values[ends[group] : ends[group + 1]], wanted)
                found[:, group] = [own[rank - 1] if rank else np.nan for rank in pair]
        return found[0], found[1]


def quantile_bounds(
    plan: MergePlan, point: pa.Table, scan: Scan, cursor: Cursor, request: IntervalRequest
) -> dict[int, CellBounds]:
    """Return the ends of each quantile of the groups shown, by position. `point` has keys and basis."""
    found = {}
    listed: dict[str, _Lists] = {}  # several quantiles are of the same values
    for i, output in enumerate(plan.outputs):
        if output.quantile is not None and output.kind is OutputKind.QUANTILE:
            value = numbers_of(output, point.column(f"v{i}"))
            if plan.groups_are_final:
                known = np.where(np.isfinite(value), Reason.NONE, Reason.NO_NUMBER)
                found[i] = CellBounds(value, value, known)
            elif _is_known(plan, point, scan):
                values = output.quantile.values
                if values not in listed:
                    listed[values] = _lists(plan, values, output.time, point, cursor)
                found[i] = _between(plan, output.quantile, value, listed[values], scan, request)
            else:
                is_large = point.num_rows > MOST_GROUPS
                why = Reason.MANY_GROUPS if is_large else Reason.FEW_PARTS
                found[i] = CellBounds.unknown(point.num_rows, why)
    return found


def _is_known(plan: MergePlan, point: pa.Table, scan: Scan) -> bool:
    if plan.method is Method.NONE or not 0 < point.num_rows <= MOST_GROUPS:
        return False
    return plan.bars.rows_are_units or (plan.method is Method.REPLICATES and scan.occupied_blocks >= 2)


def _between(
    plan: MergePlan,
    quantile: QuantileOf,
    value: FloatArray,
    lists: _Lists,
    scan: Scan,
    request: IntervalRequest,
) -> CellBounds:
    """Return the ends of each group's quantile. `value` is the quantile of the sample, shape (groups,)."""
    counts = np.bincount(lists.group, lists.counts, len(value)).astype(np.int64)
    share = quantile.share
    if plan.bars.rows_are_units:
        variance = share_variance_of_rows(counts, share, scan.fraction)
    else:
        variance = _variance_of_blocks(lists, value, scan)
    low_rank, high_rank, certified = quantile_ranks(
        counts,
        share,
        variance,
        fraction=scan.fraction,
        confidence=request.confidence,
        anytime=request.anytime,
    )
    further = np.ceil(quantile.rank_error * counts).astype(np.int64)
    low_rank = np.where(low_rank > further, low_rank - further, 0)
    high_rank = np.where((high_rank > 0) & (high_rank + further <= counts), high_rank + further, 0)
    low, high = lists.at(low_rank, high_rank)
    certified &= np.isfinite(low) & np.isfinite(high)
    why = np.where(counts < MIN_ROWS, Reason.FEW_ROWS, Reason.FAR_OUT)
    return CellBounds(low, high, np.where(certified, Reason.NONE, why))


def _lists(plan: MergePlan, listed: str, time: TimeScale | None, point: pa.Table, cursor: Cursor) -> _Lists:
    """Return as doubles the values that the groups shown have in a column of the state.

    time: how the values are counted, where they are moments or intervals.
    """
    shown = point.select(list(plan.columns.keys)).append_column("g", arrow(np.arange(point.num_rows)))
    same = (
        " AND ".join(f"{STATE}.{key} IS NOT DISTINCT FROM shown.{key}" for key in plan.columns.keys) or "true"
    )
    values = f"coalesce({f'CAST({listed} AS DOUBLE[])' if time is None else listed}, [])"
    with cursor.registered(shown=shown):
        table = cursor.table(f"SELECT g, {BLOCK}, {values} FROM {STATE} JOIN shown ON {same} ORDER BY g")
    lists = table.column(2).combine_chunks()
    counts = integers(lists.value_lengths())
    return _Lists(
        values=doubles(lists.flatten()) if time is None else microseconds_from(time, lists.flatten()),
        starts=np.cumsum(counts) - counts,
        counts=counts,
        group=integers(table.column(0)),
        block=integers(table.column(1)),
    )


def _variance_of_blocks(lists: _Lists, value: FloatArray, scan: Scan) -> Variance:
    """Return how much the share of values below each group's quantile varies between blocks."""
    limit = np.repeat(value[lists.group], lists.counts)
    rows = lists.count_where(lists.values < limit), lists.count_where(lists.values <= limit), lists.counts
    blocks, has_values = len(scan.block_rows), lists.counts > 0  # a task without rows gives an empty list
    codes = (lists.group * blocks + lists.block)[has_values]
    pairs, pair = np.unique(codes, return_inverse=True)
    below, up_to, counts = (np.bincount(pair, each[has_values], len(pairs)).astype(np.int64) for each in rows)
    return share_variance_of_blocks(
        below, up_to, counts, pairs // blocks, pairs % blocks, scan.block_rows, len(value), scan.fraction
    )
