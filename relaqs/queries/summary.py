"""SUMMARIZE: estimates from the first partitions of a table, then the statement as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.intervals import IntervalRequest, estimate_as_asked
from relaqs_engine.execution.summary import summary_so_far
from relaqs_engine.execution.tasks import scheduled_batches
from relaqs_engine.plans.sampled_then_exact import SummaryPlan
from relaqs_engine.plans.schedule import MiniBatch

from relaqs.jobs.job import Step, StepReport, TaskResult
from relaqs.queries.first_part import FirstPartJob
from relaqs.queries.mergeable import MergeableQueryJob
from relaqs.queries.reporting import Asked
from relaqs.queries.whole import WholeQueryJob


class SummarySampleJob(MergeableQueryJob):
    """Folds the measures of all columns, and gives them as the rows of the summary."""

    def __init__(
        self, id: str, plan: SummaryPlan, catalog: Catalog, asked: Asked, state_cursor: Cursor
    ) -> None:
        schedule = scheduled_batches(plan.sample, catalog, asked.seed, asked.batches)
        super().__init__(
            *(id, plan.sample, catalog, asked, state_cursor),
            ends_exact=False,
            schedule=schedule if asked.batches else _few(schedule),
        )
        self._summary = plan
        self._request = asked.request

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self.fold_state(step, results)
        self.latest = estimate_as_asked(self._request, self._summary_at, rows_are_estimated=False)
        return self._reporter.report(step, results, self.latest)

    def _summary_at(self, request: IntervalRequest) -> Estimate:
        """Return the summary so far, with intervals that hold each for itself."""
        assert isinstance(self.estimator, Estimator)
        wide = self.estimator.at(request).estimate()
        return summary_so_far(self._summary, wide, self._cursor, request.confidence)


def _few(batches: tuple[MiniBatch, ...]) -> tuple[MiniBatch, ...]:
    """Return at most three mini-batches: each costs many measures, and the exact answer is not far."""
    ends = sorted({1, max(1, len(batches) // 2), len(batches)})
    together = [batches[begin:end] for begin, end in pairwise([0, *ends])]
    return tuple(
        MiniBatch(
            index,
            tuple(task for batch in each for task in batch.tasks),
            all(batch.by_block for batch in each),
        )
        for index, each in enumerate(together)
    )


def summary_job(
    id: str,
    plan: SummaryPlan,
    catalog: Catalog,
    asked: Asked,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> FirstPartJob:
    """Return the job of a plan of SUMMARIZE. The arguments are those of `query_job`."""
    sample = SummarySampleJob(id, plan, catalog.with_layout(plan.part), asked, state_cursor)
    whole = WholeQueryJob(id, plan.whole, database_config=exact_config, step=sample.batch_count)
    return FirstPartJob(plan, sample, whole)
