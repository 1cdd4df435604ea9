"""Variances of answers that depend on inner stages: each block is left out of the stages and of the groups.

    SELECT count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips)

Such an answer is uncertain twice. Its own rows are a sample, and the average that they are compared with is
estimated from the same sample. So a block is left out of both levels at once: the rows of the other blocks
are compared with the average of the other blocks. Let θ₍₋ₖ₎ be the answer without block k, scaled by its own
rows. The delete-a-block jackknife makes the variance of these replicates. For R equal blocks and a scanned
share f:

    variance = (1 − f) · (R − 1)/R · Σ (θ₍₋ₖ₎ − their mean)²

Comparing all rows again for each of a hundred blocks would be slow. But without block k the value moves only
a little, from v to v₍₋ₖ₎. Only rows *between* the two values change sides, so only those are summed again:

    sums without block k  =  sums of the rows that count, less those of block k
                             ± sums of the rows of other blocks between v and v₍₋ₖ₎

*Example.* Block A has the fares 10 and 30, block B has 22 and 22. The mean is 21, and three fares are above
it. Without A, the mean is 22. With the old mean two fares would count, but both lie between 21 and 22 and
change sides, so none does. Without B, the mean is 20 and one fare counts. Half of the rows are left, so both
are scaled by 2: the replicates are 0 and 2. With a fixed mean they would have been 4 and 2.

**When it is not trusted.** Where many rows are equal to the value (fares are often round numbers), no block
moves the value past them, so all blocks agree and are wrong together. The value is therefore also moved by
three standard errors, down and up. The two shifts of the answer must be opposite, so that their sum is at
most half the larger one, or both must be small, at most half the answer's standard error. *Example:* shifts
of −40 and +36 are fine. Shifts of −40 and 0 are not, and the cell gets no interval.

What is ugly. The rows that change sides come from a join of all kept rows with all variants, in SQL; with
more than 2 million cells times blocks there are no error bars. And the stage needs 30 rows before its own
standard error is believed.

The decision: docs/decisions/0006-refined-mode.md, point 5. `execution/variance.py` has the simple case.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap import Variance, jackknife_variance, leave_one_out
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.arrow_arrays import arrow, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.blocks import block_sums
from relaqs_engine.execution.cells import CellEvaluator, ShownGroups, own_columns
from relaqs_engine.execution.stage import Replicates
from relaqs_engine.execution.state import PartialRows
from relaqs_engine.execution.variance import Scan, differences, stepped
from relaqs_engine.plans.names import BLOCK, STATE
from relaqs_engine.plans.refined import OuterRows

# The most cells times blocks that are evaluated. Two million take about a tenth of a second.
MAX_REPLICATE_CELLS = 2_000_000
# The stage's value is moved by this many standard errors, down and up. The answer's two shifts must be
# opposite, up to MOST_CURVATURE of the larger one, or be at most SMALL_SHIFT of the answer's standard error.
# Otherwise the value is near many equal rows, and blocks do not show what happens when it passes them.
LOOKED_AT_STANDARD_ERRORS = 3.0
MOST_CURVATURE = 0.5
SMALL_SHIFT = 0.5
_NO_BLOCK = -1

Blocks = NDArray[np.int64]


class RefinedVariance:
    """Variances and gradients of the cells of a refined plan, in the shapes that `VarianceEstimator` gives.

    Args:
        plan: the refined plan.
        counted: the partial rows that count. `cursor` sees them as `state`.
        cursor: of the database with the rows that count.
        kept: the cursor that sees the rows kept.

    Attributes:
        replicates: the stages by name, None for a stage without error bars. Set it before each call.
    """

    def __init__(self, outer: OuterRows, counted: PartialRows, cursor: Cursor, kept: Cursor) -> None:
        self._plan = outer.plan
        self._outer = outer
        self._counted = counted
        self._cursor = cursor
        self._kept = kept
        self._evaluate = CellEvaluator(outer.plan, cursor)
        self.replicates: Mapping[str, Replicates | None] = {}

    def __call__(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> tuple[Variance, FloatArray]:
        gradient = self._gradient(groups, cells, scan)
        stages = self._needed()
        if stages is None or scan.occupied_blocks * cells.size > MAX_REPLICATE_CELLS:
            return _unknown(cells), gradient
        left_out = self._own_sums(groups, scan)
        variance = self._jackknife(groups, cells, scan, left_out, stages)
        if (threshold := self._outer.threshold) is None:
            return variance, gradient
        stage, blocks = stages[threshold.stage], np.flatnonzero(scan.block_rows > 0)
        moved = left_out + self._moved_rows(groups, blocks, stage.values, stage.value)
        trusted = self._near_linear(groups, cells, scan, variance, stage)
        variance = self._jackknife(groups, cells, scan, moved, stages)
        spread = np.where(trusted, variance.variance, np.nan)
        return Variance(spread, variance.degrees_of_freedom), gradient

    def _gradient(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> FloatArray:
        variants, steps = stepped(groups.sums)
        return differences(self._cells(groups, variants, np.full(len(variants), scan.scale)), cells, steps)

    def _cells(self, groups: ShownGroups, sums: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the cells of variants of the sums.

        Args:
            groups: the groups shown.
            sums: shape (variants, groups, columns).
            scale: of what is a sample, shape (variants,).
        """
        own_scale = np.ones_like(scale) if self._plan.groups_are_local else scale
        return self._evaluate(groups, sums, own_scale, scale)

    def _jackknife(
        self,
        groups: ShownGroups,
        cells: FloatArray,
        scan: Scan,
        left_out: FloatArray,
        stages: Mapping[str, Replicates],
    ) -> Variance:
        """Return the delete-a-block variance.

        `left_out` are the groups' own sums without each block, shape (blocks, groups, columns).
        """
        shared = [stages[name].sums for name in self._outer.shared]
        of_groups = [np.repeat(sums[:, None], len(cells), axis=1) for sums in shared]
        rows = scan.block_rows[scan.block_rows > 0]
        scale = scan.population_rows / (rows.sum() - rows)
        replicates = self._cells(groups, np.concatenate([left_out, *of_groups], axis=2), scale)
        matched = groups.rows.astype(np.int64)
        if self._plan.groups_are_local:  # what varies is the stages: their rows are the sample
            matched = np.full_like(matched, min(int(stage.groups.rows[0]) for stage in stages.values()))
        kurtosis = scan.kurtosis(self._plan.bars)
        return jackknife_variance(cells, replicates, rows, matched, scan.fraction, kurtosis)

    def _needed(self) -> dict[str, Replicates] | None:
        """Return the stages that matter, None where the variance of one of them is not known yet."""
        found = {name: self.replicates.get(name) for name in self._outer.compared}
        known = {name: r for name, r in found.items() if r is not None and np.isfinite(r.standard_error)}
        return known if len(known) == len(found) else None

    def _own_sums(self, groups: ShownGroups, scan: Scan) -> FloatArray:
        """Return the groups' own sums with each block left out, shape (blocks, groups, columns).

        A complete group keeps its sums, because it is no sample.
        """
        columns, rows = len(own_columns(self._plan)), scan.block_rows[scan.block_rows > 0]
        if self._plan.groups_are_local:
            return np.repeat(groups.sums[None, :, :columns], len(rows), axis=0)
        blocks = block_sums(self._plan, groups, self._counted, self._cursor)
        dense = np.zeros((len(scan.block_rows), len(groups.rows), columns))
        dense[blocks.block, blocks.group] = blocks.sums
        rest, _ = leave_one_out(dense[scan.block_rows > 0], rows)
        return rest

    def _moved_rows(
        self, groups: ShownGroups, left_out: Blocks, values: FloatArray, value: float
    ) -> FloatArray:
        """Return the sums that groups gain when rows are compared with other values, a variant for each.

        Args:
            groups: the groups shown.
            left_out: the block whose rows are left out in each variant, shape (variants,).
            values: what rows are compared with in each variant, shape (variants,).
            value: what they are compared with now.

        Returns shape (variants, groups, columns).
        """
        threshold = self._outer.threshold
        assert threshold is not None
        columns, row, operator = own_columns(self._plan), threshold.row_key, threshold.operator
        low, high = float(min(values.min(), value)), float(max(values.max(), value))
        shown = groups.keys.append_column("g", arrow(np.arange(len(groups.rows))))
        variants = pa.table(
            {
                "variant": arrow(np.arange(len(values))),
                "left_out": arrow(left_out),
                "v": arrow(values),
            }
        )
        was = f"{row} {operator} CAST({value!r} AS DOUBLE)"
        same = (
            " AND ".join(f"{STATE}.{key} IS NOT DISTINCT FROM shown.{key}" for key in self._plan.columns.keys)
            or "true"
        )
        sums = ", ".join(
            f"sum(CASE WHEN {was} THEN -({c.additive_sql}) ELSE {c.additive_sql} END)" for c in columns
        )
        with self._kept.registered(shown=shown, variants=variants):
            table = self._kept.table(
                f"SELECT variant, g, {sums} FROM {STATE} JOIN shown ON {same} JOIN variants "
                f"ON {STATE}.{BLOCK} <> left_out AND ({was}) <> ({row} {operator} v) "
                f"WHERE {threshold.sure_key} IS NULL AND {row} BETWEEN CAST({low!r} AS DOUBLE) "
                f"AND CAST({high!r} AS DOUBLE) GROUP BY variant, g"
            )
        result = np.zeros((len(values), len(groups.rows), len(columns)))
        found = np.stack([doubles(column, null=0.0) for column in table.columns[2:]], axis=1)
        result[integers(table.column(0)), integers(table.column(1))] = found
        return result

    def _near_linear(
        self, groups: ShownGroups, cells: FloatArray, scan: Scan, fixed: Variance, stage: Replicates
    ) -> BoolArray:
        """Return the cells that move alike, up and down, with the stage's value, or that move little.

        Args:
            groups: the groups shown.
            cells: their cells, shape (groups, outputs).
            scan: what was read.
            fixed: the variance as if the stage's value did not vary.
            stage: the stage's replicates.
        """
        ends = LOOKED_AT_STANDARD_ERRORS * stage.standard_error * np.array([-1.0, 1.0])
        gained = self._moved_rows(groups, np.full(2, _NO_BLOCK), stage.value + ends, stage.value)
        sums = np.repeat(groups.sums[None], 2, axis=0)
        sums[:, :, : gained.shape[2]] += gained
        down, up = self._cells(groups, sums, np.full(2, scan.scale)) - cells
        largest = np.maximum(np.abs(down), np.abs(up))
        is_small = largest <= SMALL_SHIFT * np.sqrt(fixed.variance)
        return np.asarray(is_small | (np.abs(down + up) <= MOST_CURVATURE * largest))


def _unknown(cells: FloatArray) -> Variance:
    return Variance(np.full_like(cells, np.nan), np.ones_like(cells))
