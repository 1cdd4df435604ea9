"""Estimates from row groups of plain files: the SQL of a task, and variances where the row group is the unit.

Rows of one row group are alike, as they were written together. So a group's rows say less than as many random
rows. What counts is in how many of the row groups it was found, here called m of n.

- **The variance of a total** is that of clusters, as for any block. Row groups without the group count as 0.
- **Of an average** m is in how many it has values that are not NULL: those of the sum or count in it that was
  met least, and 8 at least. By the row groups that have rows, 91 % of the averages of a column with NULLs in
  runs held.
- **The variance of an average** hangs on the m alone. It gets the factor m/(m−1) in the place of n/(n−1), and
  at most m−1 degrees of freedom. Without it 74 % of the averages by the column that a file is sorted by were
  covered, with it 94 to 96 %.
- **Values that go with the order of the file** vary less than random row groups would, as one of each stretch
  is drawn. Where neighbours differ less than luck explains, in one of 100 samples, their differences make the
  variance: Σ(zᵢ − zᵢ₊₁)²/2 in the place of Σ(zᵢ − z̄)², on 2(n−1)²/(3n−4) degrees of freedom (Wolter 2007,
  Introduction to Variance Estimation, chapter 8, v₂; the test is von Neumann's of 1941).
- **Of groups that luck has just brought over the 20** the totals are too large. Their intervals are up to a
  quarter wider, less so the further m is above 20. Without it 89 % of such totals were covered.
- **Certified** is a group with m ≥ 20, or one with m ≥ 8 where groups with about as many rows were in 98 % of
  the row groups that were read. Its own 8 of 8 would not do: of groups that are in 80 % of a file's row
  groups, luck would certify those of which it has shown too much. Of such counts 84 % held.

The decision: docs/decisions/0025-row-groups.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_bootstrap.variance import Variance

from relaqs_engine.duck import Cursor, parquet_rows
from relaqs_engine.execution.cells import ShownGroups, estimated_outputs, own_columns
from relaqs_engine.execution.state import PartialRows
from relaqs_engine.execution.variance import Scan, VarianceEstimator
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, Layout
from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable
from relaqs_engine.plans.aggregate import Basis, BasisColumn, MergePlan

ENOUGH_ROW_GROUPS = 20
"""A group that was found in so many row groups is certified, however many were read."""

WIDER_AT_FIRST = 0.25
"""By how much the interval of a total is widened where a group was found in just enough row groups."""

_MOST_IN_ORDER = 1_000_000  # cells times row groups: of more, neighbours are not compared
LIKE_ROWS = 2.0
MOST_ABSENT = 0.02
"""Else groups with about as many rows, within this factor, may be absent from this share of those read."""


def sample_sql(sample: MergePlan, groups: Sequence[RowGroup], first_block: int) -> str:
    """Return the partial query over row groups. They are blocks, numbered from `first_block` on."""
    return _over(sample, sample.partial.by_block_sql or sample.partial.sql, groups, first_block)


def certain_sql(sample: MergePlan, groups: Sequence[RowGroup]) -> str:
    """Return the partial query over the row groups that every estimate reads."""
    return _over(sample, sample.partial.outlier_sql, groups, 0)


def _over(sample: MergePlan, sql: str, groups: Sequence[RowGroup], first_block: int) -> str:
    (stream,) = sample.streams
    block = f"CAST({first_block} + file_index AS INTEGER) AS {BLOCK_COLUMN}"
    read = parquet_rows([group.file(stream.columns) for group in groups])
    return sql.replace(stream.token, f"(SELECT *, {block} FROM {read})")


def intervals_wider_by(found: FloatArray, read: int) -> FloatArray:
    """Return by how much intervals of totals widen, as 1.2 for a fifth, so that luck is allowed for.

    A group that is in 15 of 24 row groups on average is certified when it is found in 20 of them, that is
    when its total is too large by nearly three standard errors.
    """
    spread = np.sqrt(max(1.0, ENOUGH_ROW_GROUPS * (1 - ENOUGH_ROW_GROUPS / max(read, ENOUGH_ROW_GROUPS + 1))))
    above = (found - ENOUGH_ROW_GROUPS) / (2 * spread)
    return 1 + WIDER_AT_FIRST * np.where(read > ENOUGH_ROW_GROUPS, np.clip(1 - above, 0.0, 1.0), 0.0)


def absent_share(rows: FloatArray, found: FloatArray, read: int) -> FloatArray:
    """Return the share of row groups that groups with about as many rows were not found in, shape (groups,).

    A group that was found in all of 8 row groups may be in 80 % of the file's, and luck have shown the others
    of it. Groups with half to twice as many rows tell.
    """
    order = np.argsort(rows)
    before = np.concatenate([[0.0], np.cumsum(found[order])])
    first = np.searchsorted(rows[order], rows / LIKE_ROWS, side="left")
    last = np.searchsorted(rows[order], rows * LIKE_ROWS, side="right")
    present = (before[last] - before[first]) / np.maximum((last - first) * read, 1)
    return np.asarray(1.0 - present)


class RowGroupVariance(VarianceEstimator):
    """Variances of cells where each block is one row group, drawn at random."""

    _uses: BoolArray  # which sums each output is made of, shape (outputs, columns)

    def __init__(self, plan: MergePlan, leading: Layout, state: PartialRows, cursor: Cursor) -> None:
        super().__init__(plan, state, cursor)
        assert isinstance(leading, RowGroupTable)
        self._in_order = np.argsort(leading.places)  # as the draw was spread, whatever the files are called

    def __call__(self, groups: ShownGroups, cells: FloatArray, scan: Scan) -> tuple[Variance, FloatArray]:
        variance, gradient = super().__call__(groups, cells, scan)
        self._uses = (gradient != 0.0).any(axis=0)
        averages, found, read = self._are_averages, self._found_in(groups), scan.occupied_blocks
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(found > 1, found / (found - 1) * (read - 1) / read, np.nan)
        factor = np.where(averages, factor, intervals_wider_by(found, read) ** 2)
        freedom = np.minimum(variance.degrees_of_freedom, np.maximum(found - 1.0, 1.0))
        freedom = np.where(averages, freedom, variance.degrees_of_freedom)
        share = self._of_neighbours(gradient, scan)
        freedom = np.where(share < 1.0, np.minimum(freedom, 2.0 * (read - 1) ** 2 / (3 * read - 4)), freedom)
        return Variance(variance.variance * factor * share, freedom), gradient

    def _of_neighbours(self, gradient: FloatArray, scan: Scan) -> FloatArray:
        """Return what differences between neighbours in the file say of the variance, as a share of it.

        It is 1 where luck may have made neighbours alike. Beyond half, those left out lie farther apart.
        """
        blocks, read = self._blocks, scan.occupied_blocks
        if blocks is None or read * gradient[..., 0].size > _MOST_IN_ORDER:
            return np.ones(gradient.shape[:2])
        adds = np.zeros((len(scan.block_rows), *gradient.shape[:2]))
        adds[blocks.block, blocks.group] = np.einsum("pck,pk->pc", gradient[blocks.group], blocks.sums)
        adds -= adds.sum(axis=0) * (scan.block_rows / scan.rows)[:, None, None]
        adds = adds[[i for i in self._in_order if scan.block_rows[i]]]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (np.diff(adds, axis=0) ** 2).sum(axis=0) / (2.0 * (adds**2).sum(axis=0))
        by_luck = 1.0 - 2.326 * np.sqrt((read - 2) / (read**2 - 1))
        farther = max(1.0, scan.fraction / max(1.0 - scan.fraction, 1e-9)) ** 2
        return np.where(share < by_luck, np.minimum(share * farther, 1.0), 1.0)

    def rows_of_largest_unit(self, groups: ShownGroups, scan: Scan, leading: Layout) -> FloatArray:
        """Return how many rows of one unread unit may be unlike those seen: 1, NaN or infinitely many.

        Row groups that footers show to be unlike were read for certain, so that of the others a single row
        may be. Where there are too many to be read, it is all rows until so many row groups were drawn that
        these tell of all. Of what was found in few row groups it is not known. Neither is certified.

        Returns: of each cell, shape (groups, outputs).
        """
        if self._blocks is None:
            return np.full((len(groups.rows), 1), np.nan)
        least, read = self._plan.bars.least_row_groups, scan.occupied_blocks
        found = self._blocks_with(groups, self._blocks.rows)
        are_present = absent_share(groups.rows, found, read) <= MOST_ABSENT
        enough = (found >= ENOUGH_ROW_GROUPS) | ((found >= least) & are_present)
        enough = enough[:, None] & (self._found_in(groups) >= least)
        assert isinstance(leading, RowGroupTable)
        unlike = np.inf if read < (leading.least_drawn or 0) else 1.0
        return np.where(enough, unlike, np.nan)

    @property
    def _are_averages(self) -> BoolArray:
        return np.array([not output.total for output in estimated_outputs(self._plan)], dtype=bool)

    def _found_in(self, groups: ShownGroups) -> FloatArray:
        """Return in how many of the row groups each cell was found, shape (groups, outputs)."""
        assert self._blocks is not None
        of_rows = self._blocks_with(groups, self._blocks.rows)
        of_columns = np.stack([self._of_column(groups, each, of_rows) for each in own_columns(self._plan)])
        least = [
            np.minimum(of_rows, of_columns[uses].min(axis=0, initial=np.inf)) if is_average else of_rows
            for uses, is_average in zip(self._uses, self._are_averages, strict=True)
        ]
        return np.stack(least, axis=1)

    def _of_column(self, groups: ShownGroups, column: BasisColumn, of_rows: FloatArray) -> FloatArray:
        """Return in how many row groups a sum has values, or those of all rows where nothing counts them."""
        assert self._blocks is not None
        names = [each.name for each in own_columns(self._plan)]
        count = column.name if column.kind is Basis.COUNT else column.count_of
        return (
            self._blocks_with(groups, self._blocks.sums[:, names.index(count)]) if count in names else of_rows
        )

    def _blocks_with(self, groups: ShownGroups, counts: FloatArray) -> FloatArray:
        """Return in how many blocks something is counted of each group, shape (groups,)."""
        assert self._blocks is not None
        found = np.bincount(self._blocks.group[counts > 0], minlength=len(groups.rows))
        return found.astype(np.float64)
