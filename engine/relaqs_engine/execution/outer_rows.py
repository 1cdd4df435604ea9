"""The outer query of a refined plan where it reads streams itself: its rows are kept, and counted anew.

After each mini-batch the rows that count by the stages' values now are merged, and estimated from like the
state of any other aggregation. Where all rows count, the rows kept are that state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relaqs_engine.arrow_arrays import arrow
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.refined_variance import RefinedVariance
from relaqs_engine.execution.stage import StagesSoFar
from relaqs_engine.execution.state import GroupState, PartialRows
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.names import SHARED, SHARED_SCALE, STATE
from relaqs_engine.plans.refined import OuterRows, Stage
from relaqs_engine.plans.schedule import MiniBatch


class Counted:
    """The partial rows that count by the stages' values now."""

    def __init__(self, block_count: int) -> None:
        self.block_rows: NDArray[np.int64] = np.zeros(block_count, dtype=np.int64)
        self.unit_count = 0
        self.in_arrow: pa.Table | None = None
        self.unseen_most = np.inf


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
        self._counted = Counted(outer.plan.block_count)
        self._kept = self._nothing_kept()
        rows: PartialRows = self._kept if outer.belonging is None else self._counted
        self._variance = RefinedVariance(outer, rows, cursor, self._kept_cursor)
        self._estimator = Estimator(outer.plan, leading, rows, cursor, request, self._variance)

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept, those that agree in all that matters summed to one."""
        return self._kept.row_count

    def fetch(self, tables: Sequence[pa.Table]) -> None:
        """Keep fetched static tables, of which it reads none: they are joined by the tasks."""
        assert not tables

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
