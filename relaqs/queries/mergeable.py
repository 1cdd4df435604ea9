"""An aggregation as a job."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor
from relaqs_engine.errors import TooManyGroupsError
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.group_count import count_groups
from relaqs_engine.execution.tasks import leading_stream
from relaqs_engine.execution.value_budget import DECIDED_AT, returned_values
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.schedule import MiniBatch

from relaqs.jobs.job import Step, StepReport, TaskResult
from relaqs.queries.folded import FoldedQueryJob
from relaqs.queries.reporting import Asked


class MergeableQueryJob(FoldedQueryJob):
    """Folds partial aggregates, and estimates the answer from what they merge to.

    most_values: of COUNT(DISTINCT), that all tasks may return. Where they would return more, the job fails
    after its first estimate.
    """

    def __init__(
        self,
        id: str,
        plan: MergePlan,
        catalog: Catalog,
        asked: Asked,
        state_cursor: Cursor,
        *,
        ends_exact: bool = True,
        schedule: tuple[MiniBatch, ...] | None = None,
        most_values: float = math.inf,
    ) -> None:
        leading = leading_stream(plan, catalog)
        super().__init__(
            *(id, plan, catalog, asked, state_cursor),
            answers=lambda state: Estimator(plan, leading, state, state_cursor, asked.request),
            ends_exact=ends_exact,
            schedule=schedule,
        )
        self._aggregation = plan
        self._most_values = most_values if plan.columns.counts_distinct else math.inf

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        """Fold and estimate. Raises TooManyGroupsError where there are too many values to count on."""
        if self.folded == 1 and self._most_values < math.inf:
            self._check_values()
        return super().fold(step, results)

    def _check_values(self) -> None:
        fraction = self.estimator.scanned_fraction
        if fraction > DECIDED_AT:
            return
        values = count_groups(self._aggregation, self._cursor, fraction, by_value=True).in_all
        tasks = sum(len(batch.tasks) for batch in self._batches)
        if returned_values(self._state.row_count, fraction, values, tasks) > self._most_values:
            raise TooManyGroupsError(values, "values")
