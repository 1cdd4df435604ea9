"""A query without aggregates as a job."""

from __future__ import annotations

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimator import RowsEstimator
from relaqs_engine.execution.tasks import leading_stream
from relaqs_engine.plans.aggregate import RowsPlan

from relaqs.queries.folded import FoldedQueryJob
from relaqs.queries.reporting import Asked


class RowsQueryJob(FoldedQueryJob):
    """Collects the rows that the tasks find; each of them is final."""

    def __init__(self, id: str, plan: RowsPlan, catalog: Catalog, asked: Asked, state_cursor: Cursor) -> None:
        leading = leading_stream(plan, catalog)
        super().__init__(
            *(id, plan, catalog, asked, state_cursor),
            answers=lambda state: RowsEstimator(plan, leading, state, state_cursor),
        )
