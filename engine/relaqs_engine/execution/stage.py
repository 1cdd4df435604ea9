"""An inner stage while it runs: its merged state, its answer so far, and how its one value varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap import jackknife_variance, leave_one_out
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import arrow
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.blocks import block_sums
from relaqs_engine.execution.cells import CellEvaluator, ShownGroups, own_columns, shown_groups
from relaqs_engine.execution.estimator import MIN_ROWS_TO_SCALE_RANKED, Estimator
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.state import GroupState
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.names import ROWS, SCALE
from relaqs_engine.plans.outputs import OutputKind
from relaqs_engine.plans.ranges import Range
from relaqs_engine.plans.refined import Stage
from relaqs_engine.plans.schedule import MiniBatch

# A stage's one value decides and certifies nothing before it comes from this many rows. With fewer, its
# standard error is too uncertain, and its expression is not yet near linear.
MIN_ROWS = 30
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Replicates:
    """A stage's one value, and the same value with each block left out.

    Attributes:
        groups: its one group.
        value: the stage's value.
        standard_error: of the value, NaN where it is not known yet.
        sums: additive columns with one block left out, shape (blocks, columns).
        values: the value with one block left out, shape (blocks,).
    """

    groups: ShownGroups
    value: float
    standard_error: float
    sums: FloatArray
    values: FloatArray

    def around(self, standard_errors: float) -> Range:
        """Return the values within this many standard errors, together with those of all replicates."""
        error = self.standard_error if np.isfinite(self.standard_error) else 0.0
        half = standard_errors * error + _ROUNDING * abs(self.value)
        low, high = float(self.values.min()), float(self.values.max())
        return Range(min(low, self.value - half), max(high, self.value + half))


@dataclass(frozen=True, slots=True)
class StagesSoFar:
    """What all stages of a plan have given after a mini-batch.

    Attributes:
        answers: the answer so far of each stage, by name.
        replicates: how the one value of a stage varies, None where it has no error bars. Only for stages that
            rows or groups are compared with.
        row_fraction: the share of the rows that was scanned.
        are_as_seen: whether some answer has totals as they were seen, not scaled.
    """

    answers: Mapping[str, pa.Table]
    replicates: Mapping[str, Replicates | None]
    row_fraction: float
    are_as_seen: bool


class StageState:
    """Folds a stage's partials. The answer so far is a table with o0, …, v0, …, keys and merged state."""

    def __init__(self, stage: Stage, leading: Layout, cursor: Cursor, request: IntervalRequest) -> None:
        self.stage = stage
        self._leading = leading
        self._cursor = cursor
        self._state = GroupState(stage.plan, leading, cursor)
        self._estimator = Estimator(stage.plan, leading, self._state, cursor, request)
        self._evaluate = CellEvaluator(stage.plan, cursor)

    @property
    def row_fraction(self) -> float:
        """Return the share of the rows that was scanned."""
        return self._scan.row_fraction

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        self._state.fold(batch, partials)

    def estimate(self, *, is_scaled: bool) -> pa.Table:
        """Return the answer so far. Where it is not to be scaled, totals are as seen."""
        as_seen = self.stage.plan.groups_are_local or not is_scaled
        scale = 1.0 if as_seen else self._scan.scale
        point = self._estimator.point(scale)
        return point.append_column(SCALE, arrow(np.full(point.num_rows, scale)))

    @property
    def has_tiny_groups(self) -> bool:
        """Whether some group has too few rows to be ranked by its scaled totals."""
        if self.stage.plan.groups_are_local:
            return False
        point = self._cursor.table(
            f"SELECT coalesce(min({ROWS}), 0) AS least FROM ({self.stage.plan.texts.merge})"
        )
        return bool(point.column(0)[0].as_py() < MIN_ROWS_TO_SCALE_RANKED)

    def exact(self) -> pa.Table:
        """Return the answer after the last mini-batch: o0, …, in DuckDB's own types and arithmetic."""
        plan = self.stage.plan
        return self._cursor.table(f"WITH merged AS ({plan.texts.merge}) {plan.texts.final}")

    def replicates(self, point: pa.Table, block_count: int) -> Replicates | None:
        """Return how the stage's one value varies, None where it is not one estimate with error bars.

        Args:
            point: its answer so far.
            block_count: how many blocks are told apart, a divisor of the stage's own number.
        """
        plan, scan = self.stage.plan, self._scan
        is_one = point.num_rows == 1 and not plan.columns.keys and plan.outputs[0].kind is OutputKind.ESTIMATE
        if not is_one or plan.method is not Method.REPLICATES or scan.occupied_blocks < 2:
            return None
        groups = shown_groups(plan, point)
        blocks = block_sums(plan, groups, self._state, self._cursor)
        dense = np.zeros((len(scan.block_rows), 1, len(own_columns(plan))))
        dense[blocks.block, blocks.group] = blocks.sums
        dense = coarser(dense, plan.block_count, block_count)
        rows = coarser(scan.block_rows, plan.block_count, block_count)
        occupied = rows > 0
        rest, rest_rows = leave_one_out(dense[occupied], rows[occupied])
        scales = np.append(self._leading.row_count / rest_rows, scan.scale)
        cells = self._evaluate(groups, np.concatenate([rest, groups.sums[None]]), scales)
        values, value = cells[:-1, :, :1], cells[-1, :, :1]
        matched = groups.rows.astype(np.int64)
        kurtosis = scan.kurtosis(plan.bars)
        found = jackknife_variance(value, values, rows[occupied], matched, scan.fraction, kurtosis)
        variance = found.variance[0, 0]
        error = float(np.sqrt(variance)) if matched[0] >= MIN_ROWS else float("nan")
        return Replicates(groups, float(value[0, 0]), error, rest[:, 0], values[:, 0, 0])

    @property
    def _scan(self) -> Scan:
        return Scan.of(self._state, self._leading)


def coarser(of_blocks: NDArray[Any], stored: int, block_count: int) -> NDArray[Any]:
    """Return sums over blocks, where stored blocks are added up by their number modulo block_count.

    `of_blocks` has shape (stored + tasks, …): after the stored blocks, each task is one.

    >>> coarser(np.array([1, 2, 3, 4, 10, 20]), stored=4, block_count=2).tolist()
    [4, 6, 10, 20]
    """
    together = of_blocks[:stored].reshape(-1, block_count, *of_blocks.shape[1:]).sum(axis=0)
    return np.concatenate([together, of_blocks[stored:]])
