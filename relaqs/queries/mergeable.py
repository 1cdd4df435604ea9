"""An aggregation as a job."""

from __future__ import annotations

from collections.abc import Sequence

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor
from relaqs_engine.errors import TooManyGroupsError
from relaqs_engine.execution.budgets import DueEstimates, ValueBudget, too_many_values
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.tasks import leading_stream
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.schedule import MiniBatch

from relaqs.jobs.job import Step, StepReport, TaskResult
from relaqs.queries.folded import FoldedQueryJob
from relaqs.queries.reporting import Asked


class MergeableQueryJob(FoldedQueryJob):
    """Folds partial aggregates, and estimates the answer from what they merge to.

    budget: what values may cost that are kept. Where they cost more the job fails after its first estimate.
    None: they may cost anything. due: the mini-batches after which it estimates. None: after each.
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
        budget: ValueBudget | None = None,
        due: DueEstimates | None = None,
    ) -> None:
        leading = leading_stream(plan, catalog)
        super().__init__(
            *(id, plan, catalog, asked, state_cursor),
            answers=lambda state: Estimator(plan, leading, state, state_cursor, asked.request),
            ends_exact=ends_exact,
            schedule=schedule,
        )
        self._aggregation = plan
        self._budget = budget
        self._due = due

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        """Fold and estimate. Raises TooManyGroupsError where values cost too much to go on."""
        if self.folded == 1 and self._budget is not None:
            found = too_many_values(
                self._budget,
                self._aggregation,
                self._cursor,
                returned=self._state.row_count,
                fraction=self.estimator.scanned_fraction,
                tasks=sum(len(batch.tasks) for batch in self._batches),
            )
            if found is not None:
                raise TooManyGroupsError(found, "values")
        return super().fold(step, results)

    def _is_estimate_due(self) -> bool:
        return self._due is None or self._due.now(self._state.row_count, self.estimator.scanned_fraction)
