"""Variances of the cells shown, by the plan's method, and how each cell moves with its sums.

A cell is a function of additive sums over the group's rows. A total is `scale * sum`, a mean `sum / count`.
Its variance says how much it would differ had other partitions been read. There are three ways to compute it:

- *Closed form.* Where rows are the sampling units and groups are many, tasks also return sums of squares and
  products, and the textbook formula of a simple random sample applies. It costs a few sums for each group.
- *Jackknife.* Else rows are told apart by block. Each block is left out once, and the cell is computed
  without it. For R equal blocks and a scanned share f, with θ₍₋ₖ₎ the scaled cell without block k:
  `variance = (1 − f) · (R − 1)/R · Σ (θ₍₋ₖ₎ − their mean)²`. It works for any expression over the sums.
- *Linearised.* With very many cells, or where all cells are totals, the cell is replaced by its tangent. It
  then needs one derivative for each sum, and no cell is computed anew. For totals it equals the jackknife.

Real blocks are of unequal size, and weighted (`relaqs_bootstrap.variance` has an example).

**Derivatives** are taken by steps: one sum is moved by a millionth, and the cell computed again. They also
tell how far one unseen row could move the cell (`execution/intervals.py`).

What is ugly. Derivatives by steps leave a trace of rounding, which `beyond_rounding` and a relative 1e-9 take
away. Rows of the outlier index belong to no block. They stay in every replicate, at a weight that the
replicate's own scale undoes.

The decisions: docs/decisions/0002-unequal-blocks.md for blocks, 0016-heavy-tails.md for outliers and
clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_bootstrap.variance import (
    TYPICAL_KURTOSIS,
    Variance,
    closed_form_variance,
    jackknife_variance,
    leave_one_out,
    linearised_variance,
)

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.cells import (
    BlockSums,
    CellEvaluator,
    ShownGroups,
    additive_columns,
    block_sums,
    estimated_outputs,
)
from relaqs_engine.execution.state import PartialRows
from relaqs_engine.layouts.manifest import FEW_UNIT_ROWS, Layout
from relaqs_engine.plans.aggregate import BasisColumn, MergePlan
from relaqs_engine.plans.plan import ErrorBars, Method

# The most cells times blocks that are evaluated one by one. Beyond it, cells are linearised: one variant for
# each column.
MAX_REPLICATE_CELLS = 20_000
_STEP = 1e-6


@dataclass(frozen=True, slots=True)
class Scan:
    """What has been read: the rows of each block, whether they match or not, and sampling units.

    unit_kurtosis_rows: how unlike the sizes of all units are (see `Layout`).
    """

    block_rows: NDArray[np.int64]
    population_rows: int
    units: int
    population_units: int
    max_unit_rows: int = 1
    unit_kurtosis_rows: float = 1.0

    @classmethod
    def of(cls, rows: PartialRows, leading: Layout) -> Scan:
        guessed = float(leading.max_unit_rows if leading.cluster_key else 1)
        return cls(
            rows.block_rows,
            leading.row_count,
            rows.unit_count,
            leading.unit_count,
            leading.max_unit_rows,
            leading.unit_kurtosis_rows or guessed,
        )

    @property
    def rows(self) -> int:
        return int(self.block_rows.sum())

    @property
    def occupied_blocks(self) -> int:
        """Return how many blocks hold rows. With few clusters, one block may hold all that was read."""
        return int(np.count_nonzero(self.block_rows))

    @property
    def fraction(self) -> float:
        """Return the share of the sampling units: how likely each of them was to be scanned.

        One unit may have half of the rows. They say little of how many units are still to come.
        """
        return self.units / self.population_units

    @property
    def row_fraction(self) -> float:
        """Return the share of the rows, which is how far the scan is."""
        return self.rows / self.population_rows

    @property
    def least_fraction(self) -> float:
        """Return the lesser share. Of values that each row has anew, rows say how many are still to come."""
        return min(self.fraction, self.row_fraction)

    @property
    def scale(self) -> float:
        return self.population_rows / self.rows

    def kurtosis(self, bars: ErrorBars) -> float:
        """Return the kurtosis of what a joined row adds to a group.

        A group that has a tenth of the largest unit is taken to have a tenth of each. Half of what counts
        would have, N·Σm⁴/(Σm²)², measured best for totals: with more of it the few large blocks speak alone.

        Where a row is made of a unit, it stands for the unit's rows, and eight times as much is taken. Blocks
        have more rows because of their large units. These are what varies, and weights that are too equal
        find too little variance: with half, 0.93 of it, a twentieth of users like Pareto 1.3 values read.
        """
        rows = self.population_rows / self.population_units if bars.rows_are_of_units else self.max_unit_rows
        share = min(1.0, (bars.most_unit_rows or self.max_unit_rows) / rows)
        part = 8.0 if bars.rows_are_of_units else 0.5
        return max(TYPICAL_KURTOSIS, part * self.unit_kurtosis_rows * share)


class VarianceEstimator:
    """Variances and gradients of one query's cells, shapes (groups, outputs) and (groups, outputs, columns).

    The gradient is by the unscaled sums, with the scale held fixed.
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
            gradient,
            blocks.group,
            blocks.block,
            blocks.sums,
            scan.block_rows,
            rows,
            scan.fraction,
            scan.kurtosis(self._plan.bars),
        )
        return variance, gradient

    def rows_of_largest_unit(self, groups: ShownGroups, scan: Scan, leading: Layout) -> FloatArray:
        """Return how many rows of each group one sampling unit may hold, shape (groups,).

        The plan has it from the manifests. What was read cannot tell: a calm sample is one without the
        largest units. It is 1 where rows are the units.

        Of units with few rows a group soon has many, so these do tell. A group is taken to have as large a
        share of the largest one as it has of a typical one. One that has met only small units is judged by
        the other groups: by how much more of a unit they have than if rows were spread over them at random.
        """
        known = float(min(self._plan.bars.most_unit_rows or leading.max_unit_rows, leading.max_unit_rows))
        if not 1 < leading.max_unit_rows <= FEW_UNIT_ROWS or self._blocks is None or scan.occupied_blocks < 2:
            return np.full(len(groups.rows), known)
        rows, typical = groups.rows, leading.typical_unit_rows
        of_typical = self._rows_of_typical_unit(groups, scan)
        spread = 1.0 + typical * rows / scan.rows
        together = max(1.0, float(np.sum(rows * of_typical) / np.sum(rows * spread)))
        share = np.maximum(of_typical, together * spread) / typical
        most: FloatArray = np.maximum(known * np.minimum(share, 1.0), 1.0)
        return most

    def _rows_of_typical_unit(self, groups: ShownGroups, scan: Scan) -> FloatArray:
        """Return how many rows of its group the unit of a row has, on average, shape (groups,).

        It is how much more the group's count varies than if rows were units: u times as much for units of u
        rows.
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

    def without_each_block(self, groups: ShownGroups, scan: Scan, blocks: IntArray, count: int) -> FloatArray:
        """Return the cells with each of so many blocks left out, shape (count, groups, outputs).

        `blocks` is the number of the block that each block of the state is in, so that several may be one.
        """
        found = block_sums(self._plan, groups, self._state, self._cursor)
        found = replace(found, block=blocks[found.block])
        block_rows = np.bincount(blocks, scan.block_rows, count).astype(np.int64)
        rest, rest_rows = _rest(groups, found, block_rows, scan.population_rows)
        return self._evaluate(groups, rest, scan.population_rows / rest_rows)

    def _jackknife(
        self, groups: ShownGroups, blocks: BlockSums, cells: FloatArray, scan: Scan
    ) -> tuple[Variance, FloatArray]:
        """Evaluate every block's absence, and every sum's step, in one statement."""
        occupied = scan.block_rows > 0
        rest, rest_rows = _rest(groups, blocks, scan.block_rows, scan.population_rows)
        rest, rest_rows = rest[occupied], rest_rows[occupied]
        variants, steps = stepped(groups.sums, additive_columns(self._plan))
        scales = np.concatenate([scan.population_rows / rest_rows, np.full(len(variants), scan.scale)])
        moved = self._evaluate(groups, np.concatenate([rest, variants]), scales)
        variance = jackknife_variance(
            cells,
            moved[: len(rest)],
            scan.block_rows[occupied],
            groups.rows.astype(np.int64),
            scan.fraction,
            scan.kurtosis(self._plan.bars),
        )
        return variance, differences(moved[len(rest) :], cells, steps)

    def _gradient(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> FloatArray:
        if self._are_totals:
            return self._gradient_of_totals(len(cells), scan.scale)
        variants, steps = stepped(groups.sums, additive_columns(self._plan))
        moved = self._evaluate(groups, variants, np.full(len(variants), scan.scale))
        return differences(moved, cells, steps)

    def _gradient_of_totals(self, group_count: int, scale: float) -> FloatArray:
        names = [column.name for column in additive_columns(self._plan)]
        outputs = estimated_outputs(self._plan)
        gradient = np.zeros((group_count, len(outputs), len(names)))
        for i, output in enumerate(outputs):
            gradient[:, i, names.index(str(output.total))] = scale
        return gradient


def _rest(
    groups: ShownGroups, blocks: BlockSums, block_rows: IntArray, population_rows: int
) -> tuple[FloatArray, IntArray]:
    """Return each group's sums without each block, (blocks, groups, columns), and the rows scanned then.

    No block has the outliers. They stay, at a weight that the scale without the block undoes.
    """
    dense = np.zeros((len(block_rows), *groups.sums.shape))
    np.add.at(dense, (blocks.block, blocks.group), blocks.sums)
    rest, rows = leave_one_out(dense, block_rows)
    return rest + (rows / population_rows)[:, None, None] * groups.outliers, rows


def stepped(sums: FloatArray, columns: Sequence[BasisColumn]) -> tuple[FloatArray, FloatArray]:
    """Return the sums with one column moved at a time, shape (columns, groups, columns), and the steps.

    A step is relative to the sum itself, because sums of squares and of shares differ a billionfold. Where a
    sum is 0, the step is relative to the other groups' sums. Where all groups have 0, as for deviations from
    a mean, it is relative to the size of these, by their squares, or to the root of the group's other sums. A
    sum that is NaN or infinite has a step too, so that a cell that does not depend on it is seen to stay.
    """
    sizes = np.where(np.isfinite(sums), np.abs(sums), 0.0)
    typical = sizes.mean(axis=0, keepdims=True)
    others = np.sqrt(sizes.mean(axis=1, keepdims=True)) + 1e-3
    others = np.repeat(others, sums.shape[1], axis=1)
    names = [column.name for column in columns]
    for column in columns:
        if column.is_square and column.means and column.count_of in names:
            squares = sizes[:, names.index(column.name)] * sizes[:, names.index(column.count_of)]
            others[:, names.index(column.means[0])] = np.sqrt(squares) + 1e-12
    steps = _STEP * np.maximum(sizes, np.where(typical > 0.0, 1e-3 * typical, others))
    variants = np.repeat(sums[None], sums.shape[1], axis=0)
    for k in range(sums.shape[1]):
        variants[k, :, k] += steps[:, k]
    return variants, steps


def differences(moved: FloatArray, cells: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the forward differences as a gradient, shape (groups, outputs, columns)."""
    slopes = (moved - cells[None]) / steps.T[:, :, None]
    return np.asarray(np.moveaxis(slopes, 0, 2))
