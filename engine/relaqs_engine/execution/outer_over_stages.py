"""The outer query of a refined plan where it reads stages and static tables alone: it runs anew over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from relaqs_engine.duck import Cursor
from relaqs_engine.errors import DataError
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.execution.present import present_estimate, present_exact
from relaqs_engine.execution.stage import StagesSoFar
from relaqs_engine.plans.refined import OverStages, RefinedPlan
from relaqs_engine.plans.schedule import MiniBatch

_SO_FAR = "groups so far: some of them have few rows yet, so totals are as seen, not scaled"


class OverStagesAnswer:
    """Answers from the stages' answers and from static tables, which are fetched once."""

    kept_row_count = 0

    def __init__(self, plan: RefinedPlan, outer: OverStages, cursor: Cursor) -> None:
        self._plan = plan
        self._outer = outer
        self._cursor = cursor

    def fetch(self, tables: Sequence[pa.Table]) -> None:
        """Keep the static tables, in the order of the plan."""
        for static, table in zip(self._outer.statics, tables, strict=True):
            with self._cursor.registered(fetched=table):
                self._cursor.run(f"CREATE OR REPLACE TEMP TABLE {static.name} AS FROM fetched")

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch's rows, which there are none of."""
        assert not partials, batch

    def forget(self) -> None:
        """Drop the rows, which there are none of."""

    def estimate(self, stages: StagesSoFar) -> Estimate | None:
        """Return the answer so far; None where the query fails over values that are only estimates."""
        try:
            with self._cursor.registered(**stages.answers):
                answer = self._cursor.table(self._outer.final_sql)
        except DataError:  # a cast that estimates overflow, or a comparison of several rows with one
            return None
        return present_estimate(
            self._plan,
            answer,
            CellIntervals.unknown(np.empty((answer.num_rows, 0))),
            {},
            fraction=stages.row_fraction,
            unseen_groups=None,
            certain_rows=np.zeros(answer.num_rows, dtype=bool),
            rows_are_settled=False,
            warnings=_warnings(answer.num_rows, stages.are_as_seen),
        )

    def exact(self, answers: Mapping[str, pa.Table]) -> Estimate:
        """Return the final answer."""
        with self._cursor.registered(**answers):
            return present_exact(self._plan, self._cursor.table(self._outer.final_sql))


def _warnings(rows: int, are_as_seen: bool) -> tuple[str, ...]:
    so_far = (_SO_FAR,) if are_as_seen else ()
    return (*so_far, f"0 of {rows:,} rows are certain to stay") if rows else so_far
