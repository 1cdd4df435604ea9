"""Answers so far that another query is computed from, as the tables that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.arrow_arrays import arrow, arrow_or_null, doubles
from relaqs_engine.execution.estimator import Estimator, SoFar
from relaqs_engine.execution.rows import RowsEstimator
from relaqs_engine.plans.names import GROUP, GROUP_ROWS, moves_column
from relaqs_engine.plans.online_plan import OnlinePlan
from relaqs_engine.plans.outputs import OutputKind

# Where a part's answer comes from: what estimates it, or the answer itself, when it is final.
PartSource: TypeAlias = Estimator | RowsEstimator | pa.Table


@dataclass(frozen=True, slots=True)
class Part:
    """One answer that another query reads.

    Attributes:
        plan: the plan of the answer.
        rows: its outputs as first columns, in their own types.
        first_row: the number of its first row. The rows of all parts have different numbers.
        estimates: outputs that are numbers so far, as DOUBLE, by position.
        row_counts: the joined rows behind each row.
        estimator: what estimates the answer, None where it is final or made of (exact) rows.
        so_far: the answer before it is presented, None in the same cases.
    """

    plan: OnlinePlan
    rows: pa.Table
    first_row: int
    estimates: dict[int, FloatArray]
    row_counts: FloatArray
    estimator: Estimator | None = None
    so_far: SoFar | None = None

    def table(self) -> pa.Table:
        """Return the columns c0, c1, …, the number of each row, and the joined rows behind it."""
        columns = [
            arrow_or_null(self.estimates[i]) if i in self.estimates else self.rows.column(i)
            for i in range(len(self.plan.outputs))
        ]
        columns.append(arrow(np.arange(self.first_row, self.first_row + self.rows.num_rows)))
        columns.append(arrow(self.row_counts.astype(np.int64)))
        names = [f"c{i}" for i in range(len(self.plan.outputs))]
        return pa.Table.from_arrays(columns, names=[*names, GROUP, GROUP_ROWS])

    def variants(self, cells: FloatArray) -> pa.Table:
        """Return the table once for each variant, with the variant's number as `variant`.

        `cells` are the outputs of kind ESTIMATE in each variant, shape (variants, rows, outputs).
        """
        table = self.repeated(len(cells))
        for place, i in enumerate(estimated_positions(self.plan)):
            table = table.set_column(i, f"c{i}", arrow_or_null(cells[:, :, place].ravel()))
        return table

    def made_up(self, count: int, which: BoolArray, numbers: np.random.Generator) -> pa.Table:
        """Return so many variants in which the estimates of some rows are positive numbers of any size.

        A final answer stays as it is, and so do values so far, such as a MAX.
        """
        positions = estimated_positions(self.plan)
        if self.so_far is None or not positions:
            return self.repeated(count)
        cells = np.stack([self.estimates[i] for i in positions], axis=1)
        made_up = numbers.lognormal(0.0, 3.0, (count, *cells.shape))
        return self.variants(np.where(which[:, None], made_up, cells))

    def with_moves(self, moves: FloatArray) -> pa.Table:
        """Return the table with what one row could move each estimate, shape (rows, outputs), beside it."""
        table = self.table()
        for place, i in enumerate(estimated_positions(self.plan)):
            table = table.append_column(moves_column(i), arrow(moves[:, place]))
        return table

    def repeated(self, times: int) -> pa.Table:
        """Return the table once for each of so many variants, with the variant's number as `variant`."""
        count = self.rows.num_rows
        table = self.table().take(arrow(np.tile(np.arange(count), times)))
        return table.append_column("variant", arrow(np.repeat(np.arange(times), count)))


def estimated_positions(plan: OnlinePlan) -> list[int]:
    return [i for i, output in enumerate(plan.outputs) if output.kind is OutputKind.ESTIMATE]


def parts_so_far(
    plans: Sequence[OnlinePlan], sources: Sequence[PartSource], *, is_scaled: bool
) -> list[Part]:
    """Return the answers so far. With `is_scaled` False, totals are as they were seen."""
    found: list[Part] = []
    first_row = 0
    for plan, source in zip(plans, sources, strict=True):
        found.append(_part(plan, source, first_row, is_scaled))
        first_row += found[-1].rows.num_rows
    return found


def _part(plan: OnlinePlan, source: PartSource, first_row: int, is_scaled: bool) -> Part:
    if not isinstance(source, Estimator):
        rows = source.rows() if isinstance(source, RowsEstimator) else source
        return Part(plan, rows, first_row, {}, np.ones(rows.num_rows))
    so_far = source.so_far(is_scaled=is_scaled)
    point = so_far.point
    estimates = {i: doubles(point.column(f"v{i}")) for i in estimated_positions(plan)}
    for i, output in enumerate(plan.outputs):
        if output.kind is OutputKind.DISTINCT:
            estimates[i] = doubles(point.column(i))
    rows = so_far.groups.rows[: point.num_rows]
    return Part(plan, point, first_row, estimates, rows, source, so_far)
