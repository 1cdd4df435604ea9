"""Variances of the cells shown, by the plan's method, and how each cell moves with its sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap import (
    Variance,
    closed_form_variance,
    jackknife_variance,
    leave_one_out,
    linearised_variance,
)
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.blocks import BlockSums, block_sums
from relaqs_engine.execution.cells import CellEvaluator, ShownGroups, additive_columns, estimated_outputs
from relaqs_engine.execution.state import PartialRows
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan

# Leave-one-out variants evaluated in SQL at most; beyond it cells are linearised (one variant a column).
MAX_REPLICATE_CELLS = 20_000
_STEP = 1e-6


@dataclass(frozen=True, slots=True)
class Scan:
    """What has been read. block_rows: rows of each block, shape (blocks,), whether they match or not."""

    block_rows: NDArray[np.int64]
    population_rows: int

    @property
    def rows(self) -> int:
        return int(self.block_rows.sum())

    @property
    def occupied_blocks(self) -> int:
        """Return how many blocks hold rows. Clusters may be so few that one holds all that was read."""
        return int(np.count_nonzero(self.block_rows))

    @property
    def fraction(self) -> float:
        return self.rows / self.population_rows

    @property
    def scale(self) -> float:
        return self.population_rows / self.rows


class VarianceEstimator:
    """Variances and gradients of one query's cells, shapes (groups, outputs) and (groups, outputs, columns).

    The gradient is by the unscaled sums, the scale held fixed.
    """

    def __init__(self, plan: MergePlan, state: PartialRows, cursor: Cursor) -> None:
        self._plan = plan
        self._state = state
        self._cursor = cursor
        self._evaluate = CellEvaluator(plan, cursor)
        self._blocks: BlockSums | None = None

    def __call__(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> tuple[Variance, FloatArray]:
        rows = groups.rows.astype(np.int64)
        if self._plan.method is Method.CLOSED_FORM:
            gradient = self._gradient(groups, cells, scan)
            products = groups.products
            return closed_form_variance(
                gradient, groups.sums, products, rows, scan.rows, scan.fraction
            ), gradient
        self._blocks = blocks = block_sums(self._plan, groups, self._state, self._cursor)
        if not self._are_totals and scan.occupied_blocks * cells.size <= MAX_REPLICATE_CELLS:
            return self._jackknife(groups, blocks, cells, scan)
        gradient = self._gradient(groups, cells, scan)
        variance = linearised_variance(
            gradient, blocks.group, blocks.block, blocks.sums, scan.block_rows, rows, scan.fraction
        )
        return variance, gradient

    def rows_of_largest_unit(self, groups: ShownGroups, scan: Scan, leading: Layout) -> FloatArray:
        """Return how many rows of each group one sampling unit may hold, shape (groups,).

        1 where rows are units. The largest unit of the table is known, and so is the typical one. A group may
        have but a part of each, as a month has of the flights of an aircraft: it is taken to have as much of
        the largest as it has of a typical one. A group that met small units alone is judged by the others: by
        how much more of a unit they have than if rows were spread over the groups at random.
        """
        if self._blocks is None or leading.max_unit_rows == 1 or scan.occupied_blocks < 2:
            return np.ones(len(groups.rows))
        rows, typical = groups.rows, leading.typical_unit_rows
        of_typical = self._rows_of_typical_unit(groups, scan)
        spread = 1.0 + typical * rows / scan.rows
        together = max(1.0, float(np.sum(rows * of_typical) / np.sum(rows * spread)))
        share = np.maximum(of_typical, together * spread) / typical
        most: FloatArray = np.maximum(leading.max_unit_rows * np.minimum(share, 1.0), 1.0)
        return most

    def _rows_of_typical_unit(self, groups: ShownGroups, scan: Scan) -> FloatArray:
        """Return how many rows of its group the unit of a row has, on average, shape (groups,).

        It is how much more the group's count varies than if rows were units: u times for units of u rows.
        """
        assert self._blocks is not None
        found = self._blocks
        counted = linearised_variance(
            np.ones((len(groups.rows), 1, 1)),
            found.group,
            found.block,
            found.rows[:, None],
            scan.block_rows,
            groups.rows.astype(np.int64),
            scan.fraction,
        )
        of_rows = (1.0 - scan.fraction) * np.maximum(groups.rows, 1.0)
        return np.maximum(counted.variance[:, 0] / of_rows, 1.0)

    @property
    def _are_totals(self) -> bool:
        return all(output.total for output in estimated_outputs(self._plan))

    def without_each_block(self, groups: ShownGroups, scan: Scan) -> FloatArray:
        """Return the cells with each block that holds rows left out, shape (blocks, groups, outputs)."""
        rest, rest_rows = _rest(groups, block_sums(self._plan, groups, self._state, self._cursor), scan)
        return self._evaluate(groups, rest, scan.population_rows / rest_rows)

    def _jackknife(
        self, groups: ShownGroups, blocks: BlockSums, cells: FloatArray, scan: Scan
    ) -> tuple[Variance, FloatArray]:
        """Evaluate every block's absence, and every sum's step, in one statement."""
        occupied = scan.block_rows > 0
        rest, rest_rows = _rest(groups, blocks, scan)
        variants, steps = stepped(groups.sums)
        scales = np.concatenate([scan.population_rows / rest_rows, np.full(len(variants), scan.scale)])
        moved = self._evaluate(groups, np.concatenate([rest, variants]), scales)
        variance = jackknife_variance(
            cells,
            moved[: len(rest)],
            scan.block_rows[occupied],
            groups.rows.astype(np.int64),
            scan.fraction,
        )
        return variance, differences(moved[len(rest) :], cells, steps)

    def _gradient(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> FloatArray:
        if self._are_totals:
            return self._gradient_of_totals(len(cells), scan.scale)
        variants, steps = stepped(groups.sums)
        moved = self._evaluate(groups, variants, np.full(len(variants), scan.scale))
        return differences(moved, cells, steps)

    def _gradient_of_totals(self, group_count: int, scale: float) -> FloatArray:
        names = [column.name for column in additive_columns(self._plan)]
        outputs = estimated_outputs(self._plan)
        gradient = np.zeros((group_count, len(outputs), len(names)))
        for i, output in enumerate(outputs):
            gradient[:, i, names.index(str(output.total))] = scale
        return gradient


def _rest(groups: ShownGroups, blocks: BlockSums, scan: Scan) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return each group's sums without each block, (blocks, groups, columns), and the rows scanned then.

    No block has the outliers: they stay, at the weight that the scale without the block undoes.
    """
    occupied = scan.block_rows > 0
    dense = np.zeros((len(scan.block_rows), *groups.sums.shape))
    dense[blocks.block, blocks.group] = blocks.sums
    rest, rows = leave_one_out(dense[occupied], scan.block_rows[occupied])
    return rest + (rows / scan.population_rows)[:, None, None] * groups.outliers, rows


def stepped(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums with one column moved at a time, shape (columns, groups, columns), and the steps.

    A step is relative to the sum itself: sums of squares and of shares differ a billionfold. Where a sum is
    0, it is relative to those of other groups, and where all are, as of deviations from a mean, to the root
    of the others' size. A sum that is NaN or infinite has a step too, so that what does not depend on it is
    seen not to move.
    """
    sizes = np.where(np.isfinite(sums), np.abs(sums), 0.0)
    typical = sizes.mean(axis=0, keepdims=True)
    others = np.sqrt(sizes.mean(axis=1, keepdims=True)) + 1e-3
    steps = _STEP * np.maximum(sizes, np.where(typical > 0.0, 1e-3 * typical, others))
    variants = np.repeat(sums[None], sums.shape[1], axis=0)
    for k in range(sums.shape[1]):
        variants[k, :, k] += steps[:, k]
    return variants, steps


def differences(moved: FloatArray, cells: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the forward differences as a gradient, shape (groups, outputs, columns)."""
    slopes = (moved - cells[None]) / steps.T[:, :, None]
    return np.asarray(np.moveaxis(slopes, 0, 2))
