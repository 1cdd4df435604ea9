"""Intervals of the cells shown: from their variance, and from what is provable where blocks say nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap import Variance, confidence_intervals, largest_influence

from relaqs_engine.estimate import BoolArray, FloatArray
from relaqs_engine.execution.cells import ShownGroups, additive_columns, estimated_outputs
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plan import Basis, BasisColumn, Method, OnlinePlan

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class IntervalRequest:
    """What interval the user asked for. anytime: valid at every look, not at one moment only."""

    confidence: float = 0.95
    anytime: bool = False


@dataclass(frozen=True, slots=True)
class CellIntervals:
    """Estimates of the estimated outputs, each array of shape (groups, outputs). NaN where not known."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    certified: BoolArray
    standard_error: FloatArray

    @classmethod
    def unknown(cls, value: FloatArray) -> CellIntervals:
        def nothing() -> FloatArray:
            return np.full_like(value, np.nan)

        return cls(value, nothing(), nothing(), np.zeros(value.shape, dtype=bool), nothing())

    def of_rows(self, certain: BoolArray, factor: FloatArray) -> CellIntervals:
        """Return the first groups' cells, those of uncertain rows not certified.

        factor: what the half-widths of each row are multiplied by, shape (rows,).
        """
        count = len(certain)
        value, low, high = self.value[:count], self.low[:count], self.high[:count]
        times = np.where(certain, factor, 1.0)[:, None]
        low = np.where(times > 1.0, value - (value - low) * times, low)
        high = np.where(times > 1.0, value + (high - value) * times, high)
        sure = self.certified[:count] & certain[:, None]
        return CellIntervals(value, low, high, sure, self.standard_error[:count])

    def within(self, column: int, least: FloatArray, most: FloatArray) -> None:
        """Have the intervals of a column end where its values are known to end, each of shape (rows,)."""
        self.low[:, column] = np.maximum(self.low[:, column], np.minimum(least, self.value[:, column]))
        self.high[:, column] = np.minimum(self.high[:, column], np.maximum(most, self.value[:, column]))

    def or_known(self, known: BoolArray) -> CellIntervals:
        """Return the intervals with the cells named as final values."""
        return CellIntervals(
            self.value,
            np.where(known, self.value, self.low),
            np.where(known, self.value, self.high),
            self.certified | (known & np.isfinite(self.value)),
            np.where(known, 0.0, self.standard_error),
        )

    @classmethod
    def known(cls, value: FloatArray) -> CellIntervals:
        """Return values that are final: groups whose every row has been seen."""
        return cls(value, value, value, np.isfinite(value), np.zeros_like(value))


VarianceOfCells = Callable[[ShownGroups, FloatArray, Scan], tuple[Variance, FloatArray]]


class IntervalEstimator:
    """Intervals for one query's answers, from what its state holds of the groups shown."""

    def __init__(
        self, plan: OnlinePlan, leading: Layout, request: IntervalRequest, variance: VarianceOfCells
    ) -> None:
        self._plan = plan
        self._leading = leading
        self._request = request
        self._variance = variance
        self._columns = additive_columns(plan)
        # For each estimated output the column it totals, or None where it is anything but a plain total.
        by_name = {column.name: column for column in self._columns}
        self._totals = [by_name.get(output.total or "") for output in estimated_outputs(plan)]

    def __call__(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> CellIntervals:
        """Return intervals of cells of shape (groups, outputs)."""
        if self._plan.method is Method.REPLICATES and scan.occupied_blocks < 2:
            return self._with_known_counts(CellIntervals.unknown(cells))
        variance, gradient = self._variance(groups, cells, scan)
        nonnegative = np.array([_cannot_fall(column) for column in self._totals])
        observed = self._observed(groups)
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
            possible_influence=self._possible_influence(gradient),
        )
        error = np.sqrt(variance.variance)
        result = CellIntervals(cells, found.low, found.high, found.certified, error)
        return self._with_known_counts(_without_spread(result, variance, nonnegative, observed))

    def at_least(self, groups: ShownGroups, cells: FloatArray) -> CellIntervals:
        """Return values so far: a total that cannot fall is at least that, of the rest nothing is known."""
        found = CellIntervals.unknown(cells)
        for i, column in enumerate(self._totals):
            if _cannot_fall(column):
                found.low[:, i] = cells[:, i]
        return found

    def _observed(self, groups: ShownGroups) -> FloatArray:
        """Return what was seen of each total, unscaled, NaN where the output is no total."""
        observed = np.full((len(groups.rows), len(self._totals)), np.nan)
        for i, column in enumerate(self._totals):
            if column is not None:
                observed[:, i] = groups.sums[:, self._columns.index(column)]
        return observed

    def _unit_ceiling(self) -> FloatArray:
        """Return the most one sampling unit can add to each total, NaN where a join may multiply rows."""
        alone = not self._plan.hoists and len(self._plan.streams) == 1
        most = [
            column.highest if column and column.highest is not None else np.nan for column in self._totals
        ]
        return np.array(most) * (self._leading.max_unit_rows if alone else np.nan)

    def _possible_influence(self, gradient: FloatArray) -> FloatArray:
        lowest = np.array([_or_nan(column.lowest) for column in self._columns])
        highest = np.array([_or_nan(column.highest) for column in self._columns])
        return largest_influence(gradient, lowest, highest)

    def _with_known_counts(self, found: CellIntervals) -> CellIntervals:
        """COUNT(*) of a whole table is in its manifest."""
        if self._plan.counts_every_row:
            for i, column in enumerate(self._totals):
                if column is not None and column.kind is Basis.COUNT and column.sql == "COUNT(*)":
                    for array in (found.value, found.low, found.high):
                        array[:, i] = float(self._leading.row_count)
                    found.certified[:, i] = True
        return found


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _cannot_fall(column: BasisColumn | None) -> bool:
    return column is not None and column.lowest is not None and column.lowest >= 0.0


def _without_spread(
    found: CellIntervals, variance: Variance, nonnegative: BoolArray, observed: FloatArray
) -> CellIntervals:
    """Blocks that all agree say nothing about rows unlike those seen: only what is provable remains.

    A total that cannot fall is at least what was seen; of nothing seen, `found` already has the bound.
    """
    # Differences in the gradient leave a trace of rounding where nothing varies.
    rounding = (_ROUNDING * found.value) ** 2
    flat = (variance.variance <= rounding) & ~(nonnegative & (observed == 0.0))
    low = np.where(flat, np.where(nonnegative, observed, np.nan), found.low)
    high = np.where(flat, np.nan, found.high)
    return CellIntervals(found.value, low, high, found.certified & ~flat, found.standard_error)
