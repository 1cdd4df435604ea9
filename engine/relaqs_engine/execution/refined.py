"""Answers of refined plans: first the stages, then the rows that count by them, then the outer query.

    SELECT zone, count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips) GROUP BY zone

The inner average is a *stage* (`rewrite/scalar_subqueries.py`). Each mini-batch is folded in this order:

1. The stage folds its partials, and its value so far is known: say 20, with a standard error of 0.5.
2. The outer query folds its rows. It keeps them by what is compared, the fare: rows with equal fares in
   one zone and block are summed to one. The kept rows with a fare above the value *are* partial rows of
   the outer query, so merging, estimating and the exact end work as in any query.
3. The outer query is estimated from the rows that count now.

**Deciding early.** Keeping all rows would cost more with each mini-batch. Where rows are compared with one
value v of one stage, most of them are clear: v surely lies within v ± 6 standard errors, the *range*.
Tasks sum rows on the side that counts, drop rows on the other side, and keep only those inside the range.

*Example.* The range is 20 ± 6 · 0.5, so 17 to 23. A fare of 25 is summed, one of 12 is dropped, and one of
19 is kept by its value.

**Leaving the range.** Later estimates, and their error bars, look at values within ± 3 standard errors,
and the standard errors get smaller. If v becomes 20.8 ± 0.3, they look at 19.9 to 21.7, all inside 17 to
23: every decision holds. They leave the range about once in a million looks. Then the kept rows are
dropped and read again in the new range, and there is no snapshot until that is done. So a range changes
what is kept, never an estimate.

What is ugly. A task uses the range that was known two steps before it, because two steps are in flight.
All ranges so far are met with each other, as rows were decided in all of them. And where several
conditions, or one value for each group, decide, there is no range: all candidates are kept.

The decision: docs/decisions/0006-refined-mode.md, points 2 to 4.

**Variance.** Such an answer is uncertain twice. Its own rows are a sample, and the average that they are
compared with is estimated from the same sample. So a block is left out of both levels at once: the rows of
the other blocks are compared with the average of the other blocks. Let θ₍₋ₖ₎ be the answer without block k,
scaled by its own rows. The delete-a-block jackknife makes the variance of these replicates. For R equal
blocks and a scanned share f:

    variance = (1 − f) · (R − 1)/R · Σ (θ₍₋ₖ₎ − their mean)²

Comparing all rows again for each of a hundred blocks would be slow. But without block k the value moves
only a little, from v to v₍₋ₖ₎. Only rows *between* the two values change sides, so only those are summed
again:

    sums without block k  =  sums of the rows that count, less those of block k
                             ± sums of the rows of other blocks between v and v₍₋ₖ₎

*Example.* Block A has the fares 10 and 30, block B has 22 and 22. The mean is 21, and three fares are
above it. Without A, the mean is 22. With the old mean two fares would count, but both lie between 21 and
22 and change sides, so none does. Without B, the mean is 20 and one fare counts. Half of the rows are
left, so both are scaled by 2: the replicates are 0 and 2. With a fixed mean they would have been 4 and 2.

**When it is not trusted.** Where many rows are equal to the value (fares are often round numbers), no
block moves the value past them, so all blocks agree and are wrong together. The value is therefore also
moved by three standard errors, down and up. The two shifts of the answer must be opposite, so that their
sum is at most half the larger one, or both must be small, at most half the answer's standard error.
*Example:* shifts of −40 and +36 are fine. Shifts of −40 and 0 are not, and the cell gets no interval.

What is ugly. The rows that change sides come from a join of all kept rows with all variants, in SQL; with
more than 2 million cells times blocks there are no error bars. And the stage needs 30 rows before its own
standard error is believed.

The decision: docs/decisions/0006-refined-mode.md, point 5. `execution/variance.py` has the simple case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_bootstrap.variance import Variance, jackknife_variance, leave_one_out

from relaqs_engine.arrow_arrays import arrow, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.cells import (
    CellEvaluator,
    ShownGroups,
    additive_columns,
    block_sums,
    estimated_outputs,
    folded,
    own_columns,
    shown_groups,
)
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.state import GroupState, PartialRows, filled
from relaqs_engine.execution.variance import Scan, differences, stepped
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.aggregate import (
    BLOCK,
    RANGE_HIGH,
    RANGE_LOW,
    SCALE,
    SHARED,
    SHARED_SCALE,
    STATE,
    MergePlan,
)
from relaqs_engine.plans.composite import OuterRows, Range, RefinedPlan, Stage
from relaqs_engine.plans.plan import IntervalRequest, Method, MiniBatch, OutputKind

# A stage's one value decides and certifies nothing before it comes from this many rows. With fewer, its
# standard error is too uncertain, and its expression is not yet near linear.
MIN_ROWS = 30
_ROUNDING = 1e-9


def kept_within(outer: OuterRows, within: Range) -> MergePlan:
    """Return how rows of a refined plan are kept by tasks that decide those outside of a range."""
    kept, belonging = outer.kept, outer.belonging
    if belonging is None or belonging.threshold is None or not within.decides:
        return kept
    ends = {f"'{RANGE_LOW}'": f"'{within.low!r}'", f"'{RANGE_HIGH}'": f"'{within.high!r}'"}
    partial = replace(
        kept.partial,
        sql=filled(belonging.ranged_sql, ends),
        by_block_sql=filled(belonging.ranged_by_block_sql, ends),
    )
    return replace(kept, partial=partial)


@dataclass(frozen=True, slots=True)
class Replicates:
    """A stage's one value, and the same value with each block left out.

    Attributes:
        groups: its one group.
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
    """

    answers: Mapping[str, pa.Table]
    replicates: Mapping[str, Replicates | None]


class StageState:
    """Folds a stage's partials. The answer so far is a table with o0, …, v0, …, keys and merged state."""

    def __init__(self, stage: Stage, leading: Layout, cursor: Cursor, request: IntervalRequest) -> None:
        self.stage = stage
        self._leading = leading
        self._cursor = cursor
        self._state = GroupState(stage.plan, leading, cursor)
        self._estimator = Estimator(stage.plan, leading, self._state, cursor, request)
        self._evaluate = CellEvaluator(stage.plan, cursor)

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        self._state.fold(batch, partials)

    def estimate(self) -> pa.Table:
        """Return the answer so far."""
        scale = 1.0 if self.stage.plan.groups_are_local else self._scan.scale
        point = self._estimator.point(scale)
        return point.append_column(SCALE, arrow(np.full(point.num_rows, scale)))

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
        straight = self._evaluate(groups, np.concatenate([rest, groups.sums[None]]), scales)
        cells = folded(estimated_outputs(plan), straight)
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
    """
    together = of_blocks[:stored].reshape(-1, block_count, *of_blocks.shape[1:]).sum(axis=0)
    return np.concatenate([together, of_blocks[stored:]])


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
            return Variance(np.full_like(cells, np.nan), np.ones_like(cells)), gradient
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
        variants, steps = stepped(groups.sums, additive_columns(self._plan))
        return differences(self._cells(groups, variants, np.full(len(variants), scan.scale)), cells, steps)

    def _cells(self, groups: ShownGroups, sums: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the cells of variants of the sums.

        Args:
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
            {"variant": arrow(np.arange(len(values))), "left_out": arrow(left_out), "v": arrow(values)}
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
            fixed: the variance as if the stage's value did not vary.
        """
        ends = LOOKED_AT_STANDARD_ERRORS * stage.standard_error * np.array([-1.0, 1.0])
        gained = self._moved_rows(groups, np.full(2, _NO_BLOCK), stage.value + ends, stage.value)
        sums = np.repeat(groups.sums[None], 2, axis=0)
        sums[:, :, : gained.shape[2]] += gained
        down, up = self._cells(groups, sums, np.full(2, scan.scale)) - cells
        largest = np.maximum(np.abs(down), np.abs(up))
        is_small = largest <= SMALL_SHIFT * np.sqrt(fixed.variance)
        return np.asarray(is_small | (np.abs(down + up) <= MOST_CURVATURE * largest))


class OuterRowsAnswer:
    """Keeps the rows of the outer query, and answers from those that count."""

    def __init__(
        self,
        outer: OuterRows,
        stages: Sequence[Stage],
        leading: Layout,
        cursor: Cursor,
        request: IntervalRequest,
    ) -> None:
        self._outer = outer
        self._basis_of = {stage.name: stage.plan.columns.basis for stage in stages}
        self._leading = leading
        self._cursor = cursor
        self._kept_cursor = cursor if outer.belonging is None else cursor.another()
        self._counted = PartialRows(outer.plan.block_count)  # that count by the stages' values now
        self._kept = self._nothing_kept()
        rows: PartialRows = self._kept if outer.belonging is None else self._counted
        self._variance = RefinedVariance(outer, rows, cursor, self._kept_cursor)
        self._estimator = Estimator(outer.plan, leading, rows, cursor, request, self._variance)

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept, those that agree in all that matters summed to one."""
        return self._kept.row_count

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch's rows."""
        self._kept.fold(batch, partials)

    def forget(self) -> None:
        """Drop the rows, to keep them anew."""
        self._kept = self._nothing_kept()

    def _nothing_kept(self) -> GroupState:
        self._kept_cursor.unregister(STATE)
        self._kept_cursor.run(f"DROP TABLE IF EXISTS {STATE}")
        return GroupState(self._outer.kept, self._leading, self._kept_cursor)

    def estimate(self, stages: StagesSoFar) -> Estimate:
        """Return the answer so far."""
        belonging = self._outer.belonging
        self._variance.replicates = stages.replicates
        scale = Scan.of(self._kept, self._leading).scale
        with self._counting(belonging.sql if belonging else None, stages.answers, scale):
            return self._estimator.estimate()

    def exact(self, answers: Mapping[str, pa.Table]) -> Estimate:
        """Return the final answer, of rows decided by the stages' final values alone."""
        belonging = self._outer.belonging
        with self._counting(belonging.exact_sql if belonging else None, answers, 1.0):
            return self._estimator.exact()

    @contextmanager
    def _counting(self, sql: str | None, answers: Mapping[str, pa.Table], scale: float) -> Iterator[None]:
        """Have the rows that count, and what all groups share, there inside the block.

        sql: which rows count, None for all.
        """
        tables = {SHARED: self._shared(answers, scale)} if self._outer.shared else {}
        if sql is not None:
            with self._kept_cursor.registered(**answers):
                tables[STATE] = self._counted.in_arrow = self._kept_cursor.table(sql)
            self._counted.block_rows = self._kept.block_rows
            self._counted.unit_count = self._kept.unit_count
        with self._cursor.registered(**tables):
            yield

    def _shared(self, answers: Mapping[str, pa.Table], scale: float) -> pa.Table:
        """Return the one row of what all groups share: values, and merged state where that is known."""
        columns: dict[str, pa.Array] = {SHARED_SCALE: arrow(np.array([scale]))}
        for name in self._outer.shared:
            answer = answers[name]
            columns[f"{name}_value"] = answer.column("o0")
            for column in self._basis_of[name]:
                known = column.name in answer.column_names
                columns[f"{name}_{column.name}"] = answer.column(column.name) if known else arrow(np.zeros(1))
        return pa.table(columns)


# Rows are decided at 6 standard errors on either side of the stage's value. Later estimates look at 3 smaller
# standard errors around a moved value. They leave the range about once in a million looks, and the rows are
# then read again.
RANGE_STANDARD_ERRORS = 6.0


class RefinedAnswer:
    """Stages and outer query of one plan.

    Stages are folded first. The kept rows are folded once it is known that earlier decisions about rows hold.

    Args:
        leading: the layout whose rows measure what was scanned.
        cursor: of the database that holds the states. Further cursors are opened beside it.
        request: which intervals are asked for.
    """

    def __init__(self, plan: RefinedPlan, leading: Layout, cursor: Cursor, request: IntervalRequest) -> None:
        self._plan = plan.outer
        self._stages = {
            stage.name: StageState(stage, leading, cursor.another(), request) for stage in plan.stages
        }
        self._so_far = StagesSoFar({}, {})
        self._outer = OuterRowsAnswer(plan.outer, plan.stages, leading, cursor, request)

    def forget_kept(self) -> None:
        """Drop the kept rows of the outer query, so that they can be read again."""
        self._outer.forget()

    def fold_stages(self, batch: MiniBatch, partials: Mapping[str, Sequence[pa.Table]]) -> None:
        """Add a whole mini-batch to every stage, and bring their answers up to date."""
        answers: dict[str, pa.Table] = {}
        for name, stage in self._stages.items():
            stage.fold(batch, partials[name])
            answers[name] = stage.estimate()
        replicates = {
            name: self._stages[name].replicates(answers[name], self._plan.plan.block_count)
            for name in answers
            if name in self._plan.compared
        }
        self._so_far = StagesSoFar(answers, replicates)

    def fold_kept(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch's rows of the outer query."""
        self._outer.fold(batch, partials)

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept. Rows that agree in all that matters are summed to one."""
        return self._outer.kept_row_count

    @property
    def compared_with(self) -> Range | None:
        """Return the values that rows are compared with now, for the estimate and its error bars.

        None where they are compared with more than one value.
        """
        found = self._of_threshold()
        return None if found is None else found.around(LOOKED_AT_STANDARD_ERRORS)

    def range(self) -> Range:
        """Return where the value that rows are compared with surely lies, as far as blocks can tell."""
        found = self._of_threshold()
        if found is None or not np.isfinite(found.standard_error):
            return Range()
        return found.around(max(RANGE_STANDARD_ERRORS, LOOKED_AT_STANDARD_ERRORS))

    def estimate(self) -> Estimate:
        """Return the answer so far."""
        return self._outer.estimate(self._so_far)

    def exact(self) -> Estimate:
        """Return the answer after the last mini-batch, its rows decided by the stages' exact values."""
        return self._outer.exact({name: stage.exact() for name, stage in self._stages.items()})

    def _of_threshold(self) -> Replicates | None:
        threshold = self._plan.threshold
        return None if threshold is None else self._so_far.replicates.get(threshold.stage)
