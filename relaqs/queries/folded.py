"""Jobs with one state that mini-batches fold into: tasks run the partial query, a fold gives an Estimate.

- An aggregation (`MergeableQueryJob`) folds partial aggregates, and its estimates have error bars.
- A query without aggregates (`RowsQueryJob`) folds rows, up to its LIMIT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from relaqs_engine.errors import TooManyGroupsError
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator, RowsEstimator
from relaqs_engine.execution.state import (
    FIRST_OF_NEEDED,
    VALUES_DECIDED_AT,
    EstimateCosts,
    GroupState,
    Values,
    batch_tasks,
    fractions_after,
    leading_stream,
    own_schedule,
    values_in_all,
)
from relaqs_engine.layouts.manifest import Layout, TableRead
from relaqs_engine.plans.aggregate import Basis, FoldedPlan, MergePlan, RowsPlan
from relaqs_engine.plans.plan import MiniBatch

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.jobs import JobSetting, Reporter, ResumableJob, SavedState, arrow_of, own_columns

Answers = Estimator | RowsEstimator

BATCHES_AHEAD = 3
"""Mini-batches that are fetched from an object store before their turn."""


class FoldedQueryJob(ResumableJob):
    """Folds the partial results of growing mini-batches. Cost per row is constant; the end is exact.

    Args:
        answers: makes of the state what answers are taken from.
        ends_exact: whether the partitions are the whole table. If not, the last mini-batch gives an estimate.
        schedule: its mini-batches, where it has them in common with other jobs. None: its own.
    """

    task_cores = 1
    """How many a task occupies. 0: all that its database has."""

    def __init__(
        self,
        plan: FoldedPlan,
        setting: JobSetting,
        answers: Callable[[Layout, GroupState], Answers],
        ends_exact: bool = True,
        schedule: tuple[MiniBatch, ...] | None = None,
    ) -> None:
        catalog, asked = setting.catalog, setting.asked
        self.id = setting.id
        self.latest: Estimate | None = None
        self._plan = plan
        self._catalog, self._batches = (
            (catalog, schedule) if schedule else own_schedule(plan, catalog, asked.seed, asked.batches)
        )
        self._config = asked.database_config
        self._cursor = setting.state_cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._leading = leading = leading_stream(plan, self._catalog)
        self._state = GroupState(plan, leading, self._cursor, asked.state_bytes)
        self.estimator = answers(leading, self._state)
        self._fractions = fractions_after(self._batches, leading)
        self._ends_exact = ends_exact
        self.issued = 0  # mini-batches that were begun
        self.folded = 0  # those that the state holds

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        return self._fractions

    @property
    def is_issued(self) -> bool:
        """Whether no more of them will be begun."""
        return self.issued == len(self._batches)

    def saved(self) -> SavedState | None:
        """Return what `restore` goes on from; None before the first mini-batch and after the last."""
        if not self.folded or (self.latest is not None and self.latest.is_exact):
            return None
        return SavedState(self.folded, self._state.saved(), self._state.block_rows)

    def restore(self, saved: SavedState) -> None:
        """Go on from a state that a job of the same query over the same data saved. Only at the beginning."""
        assert not self.issued, "only a job that has not begun can go on from a saved state"
        self._state.restore(saved.rows, saved.block_rows, self._batches[: saved.folded])
        self.issued = self.folded = saved.folded
        self.latest = self.estimator.estimate()

    def next_step(self) -> Step | None:
        if self.is_issued:
            return None
        batch = self._batches[self.issued]
        self.issued += 1
        cores = self.task_cores or self._config.threads
        work = enumerate(self._work(batch))
        return Step(
            batch.index, tuple(Task(TaskKey(self.id, batch.index, i), each, cores) for i, each in work)
        )

    def _work(self, batch: MiniBatch) -> list[QueryWork]:
        """Return the work of a mini-batch, which was just issued: one statement for each of its tasks."""
        tasks = batch_tasks(self._plan, self._catalog, batch)
        ahead = zip(tasks, self._ahead(len(tasks)), strict=True)
        return [
            QueryWork(self._config, self._plan.hoists, each.sql, each.reads, later) for each, later in ahead
        ]

    def _ahead(self, count: int) -> list[tuple[TableRead, ...]]:
        """Return what each of so many tasks may fetch of what later mini-batches read of object stores."""
        known = self.issued + BATCHES_AHEAD - 1 if self.issued > 1 else self.issued
        following = self._batches[known : self.issued + BATCHES_AHEAD]
        tasks = [each for batch in following for each in batch_tasks(self._plan, self._catalog, batch)]
        remote = [
            tuple(read for read in each.reads if isinstance(read, TableRead) and read.remote)
            for each in tasks
        ]
        return [tuple(chain.from_iterable(remote[i::count])) for i in range(count)]

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        if not self.fold_state(step, results):
            self.latest = self.estimator.estimate() if self._is_estimate_due() else None
        return self._reporter.report(step, results, self.latest, self.estimator.scanned_fraction)

    def _is_estimate_due(self) -> bool:
        """Whether to estimate from the state as it is now. What is not estimated now is with a later fold."""
        return True

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        """Fold without estimating; return whether that was the last, and the exact answer is there."""
        self._state.fold(self._batches[step.index], [arrow_of(result) for result in results])
        self.folded = step.index + 1
        is_last = self._ends_exact and step.index == len(self._batches) - 1
        if is_final := is_last or self.estimator.is_complete:
            self.latest = self.estimator.exact()
            self._cursor.close()
        return is_final

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        self._cursor.close()

    @property
    def gives_up(self) -> Exception | None:
        """Why it folds no more, though it has no exact answer; None where it goes on."""
        return None

    @property
    def population_rows(self) -> int:
        """Rows of the table whose rows measure what was scanned."""
        return self._leading.row_count

    def scanned_fraction(self) -> float:
        return 1.0 if self.latest is not None else self.estimator.scanned_fraction

    def source(self) -> Answers | pa.Table:
        return self.estimator if self.latest is None else own_columns(self.latest)


class MergeableQueryJob(FoldedQueryJob):
    """Folds partial aggregates, and estimates the answer from what they merge to.

    Where it keeps values, it goes on for as long as they are few enough, and then gives up: what it has kept
    is a sample, and the query as a whole has the exact answer.

    costs: says after which mini-batches it estimates, and how far. None: after each, to the end.
    """

    def __init__(
        self,
        plan: MergePlan,
        setting: JobSetting,
        *,
        ends_exact: bool = True,
        schedule: tuple[MiniBatch, ...] | None = None,
        costs: EstimateCosts | None = None,
    ) -> None:
        cursor, asked = setting.state_cursor, setting.asked

        def answers(leading: Layout, state: GroupState) -> Estimator:
            return Estimator(plan, leading, state, cursor, asked.request)

        super().__init__(plan, setting, answers, ends_exact, schedule)
        self._aggregation = plan
        self._costs = costs
        self._may_run_whole = asked.may_run_whole
        self._lists = [column.name for column in plan.columns.basis if column.kind is Basis.VALUES]
        most_listed = plan.columns.most_listed
        self._most_listed = math.inf if most_listed is None else most_listed
        self._listed = 0  # values in lists that were folded
        self._values: Values | None = None  # at the end, about
        self._last = len(self._batches) - 1  # the last mini-batch to fold
        self._gives_up: TooManyGroupsError | None = None
        self._target = asked.target
        self._enough = FIRST_OF_NEEDED * plan.share_for(self._target) or math.inf  # as is likely

    @property
    def batch_count(self) -> int:
        return len(self.fractions)

    @property
    def fractions(self) -> tuple[float, ...]:
        done = super().fractions
        return done if self._goes_to_the_end else (*done[: self._last + 1], 1.0)

    @property
    def gives_up(self) -> Exception | None:
        return self._gives_up

    @property
    def _goes_to_the_end(self) -> bool:
        return self._last == len(self._batches) - 1

    @property
    def _waits_for_fold(self) -> bool:
        """Whether what was begun is predicted to reach the target, or must tell how many values there are."""
        if self.issued <= self.folded:
            return False
        tells = self.issued == 1 and self._ends_exact and bool(self._lists)
        return tells or self._enough <= self._fractions[self.issued - 1]

    def restore(self, saved: SavedState) -> None:
        super().restore(saved)
        self._listed = self._listed_in([saved.rows])
        self._look_ahead()

    @property
    def is_issued(self) -> bool:
        return self.issued > self._last

    def next_step(self) -> Step | None:
        return None if self._waits_for_fold else super().next_step()

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        report = super().fold(step, results)
        times = report.quality / self._target  # errors shrink by the root of how many times as many rows
        self._enough = self.estimator.scanned_fraction * times * times if times > 1.0 else math.inf
        return replace(report, gives_up=self._gives_up)

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        self._listed += self._listed_in([arrow_of(result) for result in results])
        is_final = super().fold_state(step, results)
        if self._ends_exact and not is_final:
            self._look_ahead()
        return is_final

    def _listed_in(self, partials: Sequence[pa.Table]) -> int:
        """Return how many values the lists in partial rows have."""
        found = (rows.column(name) for rows in partials if rows.num_rows for name in self._lists)
        return sum(pc.sum(pc.list_value_length(column)).as_py() or 0 for column in found)

    def _look_ahead(self) -> None:
        """Decide how far to go: with the first mini-batch, and anew if more values come than may be kept."""
        newest, fraction = self.folded - 1, self.estimator.scanned_fraction
        if self._values is None:
            self._values = values_in_all(
                self._aggregation,
                self._cursor,
                returned=self._state.row_count,
                listed=self._listed,
                fraction=fraction,
                tasks=sum(len(batch.tasks) for batch in self._batches),
            )
            self._last = max(newest, self._last_for(self._values, fraction))
        if self._listed > self._most_listed:
            self._last = newest
        if newest == self._last and not self._goes_to_the_end:
            self._gives_up = TooManyGroupsError(self._values.count, "values")

    def _last_for(self, values: Values, fraction: float) -> int:
        """Return the last mini-batch that so many values allow. fraction: of the rows that were scanned."""
        fractions = super().fractions
        kept = sum(share * values.listed <= self._most_listed for share in fractions) - 1
        if self._costs is None or not self._may_run_whole or fraction > VALUES_DECIDED_AT:
            return kept
        return min(kept, self._costs.last_of_values(fractions, values.distinct, values.listed))

    def _is_estimate_due(self) -> bool:
        if self._costs is None or self._gives_up is not None:
            return True
        return self._costs.is_due(self._state.row_count, self.estimator.scanned_fraction)


class RowsQueryJob(FoldedQueryJob):
    """Collects the rows that the tasks find; each of them is final."""

    def __init__(self, plan: RowsPlan, setting: JobSetting) -> None:
        # Its rows are the answer, which has a limit of its own.
        setting = replace(setting, asked=replace(setting.asked, state_bytes=math.inf))
        cursor = setting.state_cursor
        super().__init__(plan, setting, lambda leading, state: RowsEstimator(plan, leading, state, cursor))
