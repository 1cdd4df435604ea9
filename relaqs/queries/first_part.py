"""A query over a table that is being laid out: estimates from the first part, then the query as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.plans.sampled_then_exact import FirstPartPlan, SummaryPlan

from relaqs.jobs.job import Step, StepReport, TaskResult
from relaqs.queries.mergeable import MergeableQueryJob
from relaqs.queries.reporting import Asked
from relaqs.queries.whole import WholeQueryJob


class FirstPartJob:
    """Folds the mini-batches of the first part, and then runs the query once, as its last step.

    Args:
        plan: how the query is answered.
        sample: gives the estimates.
        whole: gives the exact answer.
    """

    def __init__(
        self, plan: FirstPartPlan | SummaryPlan, sample: MergeableQueryJob, whole: WholeQueryJob
    ) -> None:
        self.id = sample.id
        self._sample = sample
        self._whole = whole
        self._share = sum(partition.row_count for partition in plan.part.partitions) / plan.part.row_count

    @property
    def latest(self) -> Estimate | None:
        return self._whole.latest or self._sample.latest

    @property
    def batch_count(self) -> int:
        return self._sample.batch_count + 1

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        return (*(self._share * fraction for fraction in self._sample.fractions), 1.0)

    @property
    def folded(self) -> int:
        return self._sample.folded + self._whole.folded

    def next_step(self) -> Step | None:
        return self._sample.next_step() or self._whole.next_step()

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        if step.index == self._sample.batch_count:
            self._sample.close()
            return self._whole.fold(step, results)
        return self._sample.fold(step, results)

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        self._sample.close()


def first_part_job(
    id: str,
    plan: FirstPartPlan,
    catalog: Catalog,
    asked: Asked,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> FirstPartJob:
    """Return the job of a plan over a first part. The arguments are those of `query_job`."""
    sampled = catalog.with_layout(plan.part)  # the catalog may have the whole layout meanwhile
    sample = MergeableQueryJob(id, plan.sample, sampled, asked, state_cursor, ends_exact=False)
    whole = WholeQueryJob(id, plan.whole, database_config=exact_config, step=sample.batch_count)
    return FirstPartJob(plan, sample, whole)
