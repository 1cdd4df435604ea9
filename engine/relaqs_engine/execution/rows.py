"""The answer of a query that returns rows: those found so far, and at the end all of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.execution.present import present_estimate, present_exact
from relaqs_engine.execution.state import GroupState
from relaqs_engine.execution.variance import Scan
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.rows import RowsPlan


class RowsEstimator:
    """Turns the rows found so far into Estimates. Rows are never estimated, only their number is."""

    def __init__(self, plan: RowsPlan, leading: Layout, state: GroupState, cursor: Cursor) -> None:
        self._plan = plan
        self._leading = leading
        self._state = state
        self._cursor = cursor

    @property
    def is_complete(self) -> bool:
        """Whether no more rows are needed. LIMIT without ORDER BY takes any rows."""
        limit = self._plan.limit_rows
        return limit is not None and self._state.row_count >= limit

    @property
    def scanned_fraction(self) -> float:
        return Scan.of(self._state, self._leading).row_fraction

    def rows(self) -> pa.Table:
        """Return those of the rows found so far that the answer would have."""
        return self._cursor.table(self._plan.final_sql)

    def exact(self) -> Estimate:
        return present_exact(self._plan, self.rows())

    def estimate(self) -> Estimate:
        rows = self.rows()
        scan = Scan.of(self._state, self._leading)
        found = self._state.row_count
        expected = None if self._plan.has_limit else round(found * scan.scale)
        total = "the first of them" if expected is None else f"about {expected:,} in all"
        return present_estimate(
            self._plan,
            rows,
            CellIntervals.unknown(np.empty((rows.num_rows, 0))),
            {},
            fraction=scan.row_fraction,
            unseen_groups=None if expected is None else expected - found,
            certain_rows=np.full(rows.num_rows, not self._plan.has_limit or self.is_complete),
            rows_are_settled=False,
            warnings=(f"rows so far: {rows.num_rows:,}, {total}",),
        )
