"""An aggregation as a job."""

from __future__ import annotations

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.tasks import leading_stream
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.schedule import MiniBatch

from relaqs.queries.folded import FoldedQueryJob
from relaqs.queries.reporting import Asked


class MergeableQueryJob(FoldedQueryJob):
    """Folds partial aggregates, and estimates the answer from what they merge to."""

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
    ) -> None:
        leading = leading_stream(plan, catalog)
        super().__init__(
            *(id, plan, catalog, asked, state_cursor),
            answers=lambda state: Estimator(plan, leading, state, state_cursor, asked.request),
            ends_exact=ends_exact,
            schedule=schedule,
        )
