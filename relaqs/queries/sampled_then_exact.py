"""A query that is estimated from a sample, and then answered as a whole: one job of two phases.

The last step is the query as a whole, by DuckDB, so the last answer is exact. Estimates come only while the
sample is folded. What is folded depends on where it is from:

| where the sample is from | what folds it |
|---|---|
| the first partitions of a table that is being laid out | `MergeableQueryJob`, as for any aggregation |
| some row groups of the user's own files | `RowGroupSampleJob` |
| the first partitions of a table, for SUMMARIZE | `SummarySampleJob` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.intervals import estimate_as_asked
from relaqs_engine.execution.row_group_estimates import certain_sql, sample_sql
from relaqs_engine.execution.state import reads_outliers, scheduled_batches
from relaqs_engine.execution.summary import summary_so_far
from relaqs_engine.layouts.manifest import PlainRead
from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable
from relaqs_engine.plans.composite import SampledThenExact
from relaqs_engine.plans.plan import IntervalRequest, MiniBatch

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, TaskResult
from relaqs.queries.folded import MergeableQueryJob
from relaqs.queries.jobs import JobSetting, WholeQueryJob, arrow_of

MOST_PARTIAL_ROWS = 20_000
"""From more of them nothing is estimated from row groups: that would take longer than the exact answer."""


class SampledThenExactJob:
    """Folds the mini-batches of a sample, and then runs the query once, as its last step.

    The cursor of its state is closed before the last step.
    """

    def __init__(self, plan: SampledThenExact, setting: JobSetting) -> None:
        self.id, exact_config = setting.id, setting.exact_config
        part = plan.drawn(setting.asked.seed)
        # The catalog may have the whole layout meanwhile.
        sampled = replace(setting, catalog=setting.catalog.with_layout(part))
        if isinstance(part, RowGroupTable):
            sampled = replace(sampled, asked=replace(setting.asked, database_config=exact_config))
            self._sample: MergeableQueryJob = RowGroupSampleJob(plan, part, sampled)
        elif plan.summarized:
            self._sample = SummarySampleJob(plan, sampled)
        else:
            self._sample = MergeableQueryJob(plan.sample, sampled, ends_exact=False)
        self._whole = WholeQueryJob(self.id, plan.whole, database_config=exact_config)
        self._share = sum(partition.row_count for partition in part.partitions) / part.row_count

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
        return (
            self._whole.next_step(self._sample.issued) if self._sample.is_issued else self._sample.next_step()
        )

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        if step.index < self._sample.issued:
            return self._sample.fold(step, results)
        self._sample.close()
        return self._whole.fold(step, results)

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        self._sample.close()


class RowGroupSampleJob(MergeableQueryJob):
    """Estimates from row groups, up to the first mini-batch that shows that there are too many groups.

    table: the row groups that are drawn, in the order in which they are read.
    """

    task_cores = 0  # all that the database has

    def __init__(self, plan: SampledThenExact, table: RowGroupTable, setting: JobSetting) -> None:
        super().__init__(plan.sample, setting, ends_exact=False, schedule=plan.batches)
        self._table = table
        self._has_too_many_groups = False

    @property
    def is_issued(self) -> bool:
        return super().is_issued or self._has_too_many_groups

    @property
    def _waits_for_fold(self) -> bool:
        """Whether the first mini-batch must tell whether there are too many groups to go on sampling."""
        tells = self.issued == 1 and self.folded == 0 and bool(self._aggregation.columns.keys)
        return tells or super()._waits_for_fold

    def _work(self, batch: MiniBatch) -> list[QueryWork]:
        """Return the work of a mini-batch of row groups. The first reads those that are far out as well."""
        groups = tuple(self._table.drawn_from[i] for i in batch.partitions)
        work = [self._over(sample_sql(self._aggregation, groups, batch.partitions[0]), groups)]
        if reads_outliers(self._aggregation, batch):
            certain = self._table.certain
            work.insert(0, self._over(certain_sql(self._aggregation, certain), certain))
        return work

    def _over(self, sql: str, groups: tuple[RowGroup, ...]) -> QueryWork:
        (stream,) = self._aggregation.streams
        read = PlainRead(
            self._table.table,
            tuple(dict.fromkeys(group.state for group in groups)),
            stream.columns,
            tuple((group.state[0], group.position) for group in groups),
        )
        return QueryWork(self._config, self._aggregation.hoists, sql, (read,))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        rows = self._state.row_count + sum(arrow_of(result).num_rows for result in results)
        self._has_too_many_groups |= rows > MOST_PARTIAL_ROWS
        if not self._has_too_many_groups:
            return super().fold(step, results)
        self.folded = step.index + 1
        return self._reporter.report(step, results, None, self.estimator.scanned_fraction)


class SummarySampleJob(MergeableQueryJob):
    """Folds the measures of all columns, and gives them as the rows of the summary."""

    def __init__(self, plan: SampledThenExact, setting: JobSetting) -> None:
        asked = setting.asked
        schedule = scheduled_batches(plan.sample, setting.catalog, asked.seed, asked.batches)
        schedule = schedule if asked.batches else _few(schedule)
        super().__init__(plan.sample, setting, ends_exact=False, schedule=schedule)
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
