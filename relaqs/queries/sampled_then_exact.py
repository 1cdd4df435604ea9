"""A query that is estimated from a sample, and then answered as a whole: one job of two phases.

| where the sample is from | job |
|---|---|
| the first partitions of a table that is being laid out | `FirstPartJob` |
| some row groups of the user's own files | `RowGroupQueryJob` |
| the first partitions of a table, for SUMMARIZE | `SummarySampleJob` |

The last step is the query as a whole, by DuckDB, so the last answer is exact. Estimates come only while
the sample is folded, and end early where the whole query is cheaper than going on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.execution.estimate import Estimate, present_exact
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.intervals import estimate_as_asked
from relaqs_engine.execution.row_groups import certain_sql, sample_sql
from relaqs_engine.execution.state import GroupState, reads_outliers, scheduled_batches
from relaqs_engine.execution.summary import summary_so_far
from relaqs_engine.layouts.reads import PlainRead
from relaqs_engine.layouts.row_groups import RowGroup
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_engine.plans.sampled_then_exact import FirstPartPlan, RowGroupPlan, SummaryPlan
from relaqs_engine.plans.schedule import MiniBatch

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.folded import MergeableQueryJob
from relaqs.queries.jobs import Asked, Reporter, WholeQueryJob, arrow_of


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


MOST_PARTIAL_ROWS = 20_000
"""From more of them nothing is estimated: that would take longer than the exact answer."""


class RowGroupQueryJob:
    """Estimates from row groups, mini-batch by mini-batch, and then runs the query as a whole.

    Args:
        id: the job's name.
        plan: how the query is answered.
        asked: what the job is asked for.
        state_cursor: a cursor of the job's own, where the state is kept; closed after the last fold.
        database_config: of the database that reads row groups and runs the whole query.
    """

    def __init__(
        self,
        id: str,
        plan: RowGroupPlan,
        asked: Asked,
        state_cursor: Cursor,
        *,
        database_config: DatabaseConfig,
    ) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self._plan = plan
        self._config = database_config
        self._cursor = state_cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._table = plan.drawn(asked.seed)
        self._state = GroupState(plan.sample, self._table, state_cursor)
        self._estimator = Estimator(plan.sample, self._table, self._state, state_cursor, asked.request)
        self._batches = [
            MiniBatch(i, (tuple(places),), by_block=True) for i, places in enumerate(plan.batches)
        ]
        self._issued = 0
        self._folded = 0
        self._whole_step: int | None = None
        self._has_too_many_groups = False

    @property
    def batch_count(self) -> int:
        return len(self._batches) + 1

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been read after each mini-batch."""
        rows = [sum(self._table.partitions[i].row_count for i in batch.partitions) for batch in self._batches]
        return (*(done / self._table.row_count for done in accumulate(rows)), 1.0)

    @property
    def folded(self) -> int:
        """How many mini-batches the answer holds."""
        return self._folded

    def next_step(self) -> Step | None:
        if self._whole_step is not None or self._waits_for_first_fold:
            return None
        index = self._issued
        self._issued += 1
        if index < len(self._batches) and not self._has_too_many_groups:
            return self._step(index, self._sampling(self._batches[index]))
        self._whole_step = index
        whole = self._plan.whole
        work = QueryWork(self._config, (), whole.exact_sql, whole.exact_reads)
        return self._step(index, [work], whole_seconds=math.inf)

    @property
    def _waits_for_first_fold(self) -> bool:
        """Whether the first mini-batch must tell whether there are too many groups to go on sampling."""
        return self._issued == 1 and self._folded == 0 and bool(self._plan.sample.columns.keys)

    def _sampling(self, batch: MiniBatch) -> list[QueryWork]:
        """Return the work of a mini-batch of row groups. The first reads those that are far out as well."""
        groups = tuple(self._table.drawn_from[i] for i in batch.partitions)
        sql = sample_sql(self._plan, self._plan.files(groups), batch.partitions[0])
        work = [self._work(sql, groups)]
        if reads_outliers(self._plan.sample, batch):
            work.insert(0, self._work(certain_sql(self._plan), self._plan.table.certain))
        return work

    def _work(self, sql: str, groups: tuple[RowGroup, ...]) -> QueryWork:
        (stream,) = self._plan.sample.streams
        read = PlainRead(
            self._table.table,
            tuple(dict.fromkeys(group.state for group in groups)),
            stream.columns,
            tuple((group.state[0], group.position) for group in groups),
        )
        return QueryWork(self._config, self._plan.sample.hoists, sql, (read,))

    def _step(self, index: int, work: Sequence[QueryWork], *, whole_seconds: float | None = None) -> Step:
        tasks = (
            Task(TaskKey(self.id, index, i), each, self._config.threads, whole_seconds=whole_seconds)
            for i, each in enumerate(work)
        )
        return Step(index, tuple(tasks))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded = step.index + 1
        if step.index == self._whole_step:
            self.latest = present_exact(self._plan.whole, arrow_of(results[0]))
            self._cursor.close()
            return self._reporter.report(step, results, self.latest)
        partials = [arrow_of(result) for result in results]
        rows = self._state.row_count + sum(partial.num_rows for partial in partials)
        self._has_too_many_groups |= rows > MOST_PARTIAL_ROWS
        if self._has_too_many_groups:
            return self._unestimated(step, results)
        self._state.fold(self._batches[step.index], partials)
        self.latest = self._estimator.estimate()
        return self._reporter.report(step, results, self.latest)

    def _unestimated(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        """Return the report of a mini-batch that gave no estimate."""
        return StepReport(
            step=step.index,
            quality=math.inf,
            work_done=self.fractions[step.index],
            core_seconds=sum(result.core_seconds for result in results),
            is_final=False,
            progress=math.nan,
        )

    def close(self) -> None:
        """Give back the state. Safe to call twice."""
        self._cursor.close()


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
