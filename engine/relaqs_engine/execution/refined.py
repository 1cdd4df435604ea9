"""Answers of refined plans: first the stages, then the rows that count by them, then the outer query.

    SELECT zone, count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips) GROUP BY zone

The inner average is a *stage* (`rewrite/stages.py`). Each mini-batch is folded in this order:

1. The stage folds its partials, and its value so far is known: say 20, with a standard error of 0.5.
2. The outer query folds its rows. It keeps them by what is compared, the fare: rows with equal fares in one
   zone and block are summed to one. The kept rows with a fare above the value *are* partial rows of the
   outer query, so merging, estimating and the exact end work as in any query.
3. The outer query is estimated from the rows that count now.

**Deciding early.** Keeping all rows would cost more with each mini-batch. Where rows are compared with one
value v of one stage, most of them are clear: v surely lies within v ± 6 standard errors, the *range*. Tasks
sum rows on the side that counts, drop rows on the other side, and keep only those inside the range.

*Example.* The range is 20 ± 6 · 0.5, so 17 to 23. A fare of 25 is summed, one of 12 is dropped, and one of 19
is kept by its value.

**Leaving the range.** Later estimates, and their error bars, look at values within ± 3 standard errors, and
the standard errors get smaller. If v becomes 20.8 ± 0.3, they look at 19.9 to 21.7, all inside 17 to 23:
every decision holds. They leave the range about once in a million looks. Then the kept rows are dropped and
read again in the new range, and there is no snapshot until that is done. So a range changes what is kept,
never an estimate.

What is ugly. A task uses the range that was known two steps before it, because two steps are in flight. All
ranges so far are met with each other, as rows were decided in all of them. And where several conditions, or
one value for each group, decide, there is no range: all candidates are kept.

The decision: docs/decisions/0006-refined-mode.md, points 2 to 4. The error bars are in `refined_variance.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relaqs_engine.duck import Cursor
from relaqs_engine.errors import DataError
from relaqs_engine.execution.arrays import arrow
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.interval import CellIntervals, IntervalRequest
from relaqs_engine.execution.present import present_estimate, present_exact
from relaqs_engine.execution.refined_variance import LOOKED_AT_STANDARD_ERRORS, RefinedVariance
from relaqs_engine.execution.stage import Replicates, StageState
from relaqs_engine.execution.state import GroupState, PartialRows
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.plan import STATE, OnlinePlan
from relaqs_engine.plans.refinement import SHARED, SHARED_SCALE, Range
from relaqs_engine.plans.schedule import MiniBatch

# Rows are decided at 6 standard errors on either side of the stage's value. Later estimates look at 3 smaller
# standard errors around a moved value. They leave the range about once in a million looks, and the rows are
# then read again.
RANGE_STANDARD_ERRORS = 6.0
_SO_FAR = "groups so far: some of them have few rows yet, so totals are as seen, not scaled"


class Counted:
    """The partial rows that count by the stages' values now."""

    def __init__(self, block_count: int) -> None:
        self.block_rows: NDArray[np.int64] = np.zeros(block_count, dtype=np.int64)
        self.in_arrow: pa.Table | None = None


class RefinedAnswer:
    """Stages and outer query of one plan.

    Stages are folded first. The kept rows are folded once it is known that earlier decisions about rows hold.

    Args:
        plan: the refined plan.
        leading: the layout whose rows measure what was scanned.
        cursor: of the database that holds the states. Further cursors are opened beside it.
        request: which intervals are asked for.
    """

    def __init__(self, plan: OnlinePlan, leading: Layout, cursor: Cursor, request: IntervalRequest) -> None:
        assert plan.refinement is not None
        self._plan = plan
        self._refinement = plan.refinement
        self._leading = leading
        self._cursor = cursor
        self._stages = {
            stage.name: StageState(stage, leading, cursor.another(), request)
            for stage in self._refinement.stages
        }
        self._answers: dict[str, pa.Table] = {}
        self._replicates: dict[str, Replicates | None] = {}
        self._is_so_far = False
        # Where all rows count, the estimate is made from the kept rows themselves.
        self._kept_cursor = cursor if self._refinement.belonging is None else cursor.another()
        self._counted = Counted(plan.block_count)
        self.forget_kept()
        rows: PartialRows = self._counted
        if self._refinement.belonging is None and self._kept is not None:
            rows = self._kept
        self._variance = RefinedVariance(plan, rows, cursor, self._kept_cursor)
        self._outer = Estimator(plan, leading, rows, cursor, request, self._variance)

    def forget_kept(self) -> None:
        """Drop the kept rows of the outer query, so that they can be read again."""
        self._kept: GroupState | None = None
        if self._refinement.kept is not None:
            self._kept_cursor.unregister(STATE)
            self._kept_cursor.run(f"DROP TABLE IF EXISTS {STATE}")
            self._kept = GroupState(self._refinement.kept, self._leading, self._kept_cursor)

    def fetch_statics(self, tables: Sequence[pa.Table]) -> None:
        """Keep the static tables that the final query reads, in the order of the plan."""
        for static, table in zip(self._refinement.statics, tables, strict=True):
            with self._cursor.registered(fetched=table):
                self._cursor.run(f"CREATE OR REPLACE TEMP TABLE {static.name} AS FROM fetched")

    def fold_stages(self, batch: MiniBatch, partials: Mapping[str, Sequence[pa.Table]]) -> None:
        """Add a whole mini-batch to every stage, and bring their answers up to date."""
        self._is_so_far = False
        for name, stage in self._stages.items():
            stage.fold(batch, partials[name])
            so_far = self._refinement.picks_groups and stage.has_tiny_groups
            self._answers[name] = stage.estimate(is_scaled=not so_far)
            self._is_so_far = self._is_so_far or so_far
        self._replicates = {
            name: stage.replicates(self._answers[name], self._plan.block_count)
            for name, stage in self._stages.items()
            if name in self._compared
        }

    def fold_kept(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch's rows of the outer query."""
        assert self._kept is not None
        self._kept.fold(batch, partials)

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept. Rows that agree in all that matters are summed to one."""
        return 0 if self._kept is None else self._kept.row_count

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

    def estimate(self) -> Estimate | None:
        """Return the answer so far; None where the final query fails over values that are only estimates."""
        belonging = self._refinement.belonging
        if self._kept is None:
            return self._estimate_over_stages()
        self._variance.replicates = self._replicates
        scale = Scan(self._kept.block_rows, self._leading.row_count).scale
        with self._counting(belonging.sql if belonging else None, self._answers, scale):
            return self._outer.estimate()

    def exact(self) -> Estimate:
        """Return the answer after the last mini-batch, its rows decided by the stages' exact values."""
        belonging = self._refinement.belonging
        answers = {name: stage.exact() for name, stage in self._stages.items()}
        if self._kept is None:
            with self._cursor.registered(**answers):
                return present_exact(self._plan, self._cursor.table(self._plan.final_sql))
        with self._counting(belonging.exact_sql if belonging else None, answers, 1.0):
            return self._outer.exact()

    @contextmanager
    def _counting(self, sql: str | None, answers: Mapping[str, pa.Table], scale: float) -> Iterator[None]:
        """Make the rows that count, and what all groups share, available inside the block.

        Args:
            sql: the query of the rows that count, None where all rows do.
            answers: the stages' answers.
            scale: of what was seen to the whole table.
        """
        assert self._kept is not None
        tables = {SHARED: self._shared(answers, scale)} if self._refinement.shared else {}
        if sql is not None:
            with self._kept_cursor.registered(**answers):
                tables[STATE] = self._counted.in_arrow = self._kept_cursor.table(sql)
            self._counted.block_rows = self._kept.block_rows
        with self._cursor.registered(**tables):
            yield

    def _estimate_over_stages(self) -> Estimate | None:
        stage = next(iter(self._stages.values()))
        try:
            with self._cursor.registered(**self._answers):
                answer = self._cursor.table(self._plan.final_sql)
        except DataError:  # a cast that estimates overflow, or a comparison of several rows with one
            return None
        return present_estimate(
            self._plan,
            answer,
            CellIntervals.unknown(np.empty((answer.num_rows, 0))),
            {},
            fraction=Scan(stage.block_rows, self._leading.row_count).fraction,
            unseen_groups=None,
            certain_rows=np.zeros(answer.num_rows, dtype=bool),
            rows_are_settled=False,
            warnings=self._warnings(answer.num_rows),
        )

    def _warnings(self, rows: int) -> tuple[str, ...]:
        so_far = (_SO_FAR,) if self._is_so_far else ()
        return (*so_far, f"0 of {rows:,} rows are certain to stay") if rows else so_far

    @property
    def _compared(self) -> frozenset[str]:
        """Return the stages whose one value rows or groups are compared with."""
        threshold = self._refinement.threshold
        return frozenset([*self._refinement.shared, *([threshold.stage] if threshold else [])])

    def _of_threshold(self) -> Replicates | None:
        threshold = self._refinement.threshold
        return None if threshold is None else self._replicates.get(threshold.stage)

    def _shared(self, answers: Mapping[str, pa.Table], scale: float) -> pa.Table:
        """Return the one row that all groups share: the stages' values, and their merged state if known."""
        columns: dict[str, pa.Array] = {SHARED_SCALE: arrow(np.array([scale]))}
        for name in self._refinement.shared:
            answer = answers[name]
            columns[f"{name}_value"] = answer.column("o0")
            for column in self._stages[name].stage.plan.basis:
                known = column.name in answer.column_names
                columns[f"{name}_{column.name}"] = answer.column(column.name) if known else arrow(np.zeros(1))
        return pa.table(columns)
