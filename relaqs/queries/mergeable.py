"""A query as a job: mini-batches are its steps, partial queries its tasks, and a fold gives an Estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.parts import PartSource
from relaqs_engine.execution.present import present_exact
from relaqs_engine.execution.rows import RowsEstimator
from relaqs_engine.execution.state import GroupState
from relaqs_engine.execution.tasks import (
    batch_reads,
    batch_sqls,
    fractions_after,
    leading_stream,
    scheduled_batches,
)
from relaqs_engine.plans.plan import Mode, OnlinePlan

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.description import JobDescription
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.around import AroundQueryJob, own_columns
from relaqs.queries.options import QueryOptions
from relaqs.queries.refined import RefinedQueryJob
from relaqs.queries.reporting import Asked, Reporter, arrow_of
from relaqs.sharing.view import Kind


@dataclass(frozen=True, slots=True)
class SavedState:
    """Where a job stands. folded: mini-batches in it. rows: its partial rows. block_rows: shape (blocks,)."""

    folded: int
    rows: pa.Table
    block_rows: NDArray[np.int64]


class MergeableQueryJob:
    """Folds partial aggregates of growing mini-batches. Cost per row is constant; the end is exact.

    state_cursor: a cursor of its own, where the merged state is kept; closed after the last fold.
    """

    def __init__(
        self,
        id: str,
        plan: OnlinePlan,
        catalog: Catalog,
        asked: Asked,
        state_cursor: Cursor,
    ) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self._plan = plan
        self._catalog = catalog
        self._config = asked.database_config
        self._cursor = state_cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._leading = leading = leading_stream(plan, catalog)
        self._state = GroupState(plan, leading, state_cursor)
        self.estimator: Estimator | RowsEstimator
        if plan.returns_rows:
            self.estimator = RowsEstimator(plan, leading, self._state, state_cursor)
        else:
            self.estimator = Estimator(plan, leading, self._state, state_cursor, asked.request)
        self._batches = scheduled_batches(plan, catalog, asked.seed, asked.batches)
        self._issued = 0
        self._folded = 0

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        return fractions_after(self._batches, self._leading)

    @property
    def folded(self) -> int:
        """How many mini-batches the state holds."""
        return self._folded

    def saved(self) -> SavedState | None:
        """Return what `restore` goes on from; None before the first mini-batch and after the last."""
        if not self._folded or self.latest is None or self.latest.is_exact:
            return None
        return SavedState(self._folded, self._state.saved(), self._state.block_rows)

    def restore(self, saved: SavedState) -> None:
        """Go on from a state that a job of the same query over the same data saved. Only at the beginning."""
        assert not self._issued, "only a job that has not begun can go on from a saved state"
        self._state.restore(saved.rows, saved.block_rows)
        self._issued = self._folded = saved.folded
        self.latest = self.estimator.estimate()

    def next_step(self) -> Step | None:
        if self._issued == len(self._batches):
            return None
        batch = self._batches[self._issued]
        self._issued += 1
        sqls = batch_sqls(self._plan, self._catalog, batch)
        reads = batch_reads(self._plan, self._catalog, batch)
        work = [QueryWork(self._config, self._plan.hoists, *each) for each in zip(sqls, reads, strict=True)]
        tasks = (Task(TaskKey(self.id, batch.index, i), each) for i, each in enumerate(work))
        return Step(batch.index, tuple(tasks))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        if not self.fold_state(step, results):
            self.latest = self.estimator.estimate()
        assert self.latest is not None
        return self._reporter.report(step, results, self.latest)

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        """Fold without estimating; return whether that was the last, and the exact answer is there."""
        self._state.fold(self._batches[step.index], [arrow_of(result) for result in results])
        self._folded = step.index + 1
        if is_final := step.index == len(self._batches) - 1 or self.estimator.is_complete:
            self.latest = self.estimator.exact()
            self._cursor.close()
        return is_final

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        self._cursor.close()

    @property
    def population_rows(self) -> int:
        return self._leading.row_count

    def scanned_fraction(self) -> float:
        return 1.0 if self.latest is not None else self.estimator.scanned_fraction

    def source(self) -> PartSource:
        return self.estimator if self.latest is None else own_columns(self.latest)


class ExactQueryJob:
    """Runs the query once, whole, as one task: for queries without a sound approximation."""

    batch_count = 1
    fractions = (1.0,)

    def __init__(self, id: str, plan: OnlinePlan, *, database_config: DatabaseConfig) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self._plan = plan
        self._config = database_config
        self._is_issued = False

    @property
    def folded(self) -> int:
        return 0 if self.latest is None else 1

    def next_step(self) -> Step | None:
        if self._is_issued:
            return None
        self._is_issued = True
        work = QueryWork(self._config, (), self._plan.exact_sql, self._plan.exact_reads)
        return Step(0, (Task(TaskKey(self.id, 0, 0), work, self._config.threads),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self.fold_state(step, results)
        assert self.latest is not None
        return Reporter(None).report(step, results, self.latest)

    def close(self) -> None:
        """Do nothing: there is no state."""

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        self.latest = present_exact(self._plan, arrow_of(results[0]))
        return True

    @property
    def population_rows(self) -> int:
        return 0

    def scanned_fraction(self) -> float:
        return 1.0

    def source(self) -> PartSource:
        assert self.latest is not None  # one step, which is the first of all parts'
        return own_columns(self.latest)


QueryJob = MergeableQueryJob | RefinedQueryJob | ExactQueryJob | AroundQueryJob


def query_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> QueryJob:
    """Return the job that answers a plan in its mode. exact_config: the database of what runs as a whole."""

    def part_job(part: OnlinePlan, cursor: Cursor) -> MergeableQueryJob | ExactQueryJob:
        if part.mode is Mode.EXACT:
            cursor.close()
            return ExactQueryJob(id, part, database_config=exact_config)
        return MergeableQueryJob(id, part, catalog, asked, cursor)

    if plan.mode is Mode.REFINED:
        return RefinedQueryJob(id, plan, catalog, asked, state_cursor)
    if plan.around is None:
        return part_job(plan, state_cursor)
    parts = [part_job(part, state_cursor.another()) for part in plan.around.parts]
    return AroundQueryJob(id, plan, parts, asked, state_cursor)


def keeps_state(plan: OnlinePlan) -> bool:
    """Whether a query has a state that a checkpoint can keep: one aggregation has, and rows as they are.

    A query that is refined, or is SQL over the answers of its parts, or runs as a whole begins anew.
    """
    return plan.mode is Mode.MERGEABLE and plan.around is None


def query_description(
    id: str, plan: OnlinePlan, options: QueryOptions, *, exact_cores: int
) -> JobDescription:
    """Return what the scheduler is told of a query. exact_cores: what one that runs as a whole can use."""
    is_exact = plan.mode is Mode.EXACT
    return JobDescription(
        id,
        Kind.EXACT if is_exact else Kind.QUERY,
        name=" ".join(plan.sql.split()),
        weight=options.priority,
        cores_most=exact_cores if is_exact else math.inf,
        target=None if is_exact else options.target,
        deadline_seconds=math.inf if options.within is None else options.within,
        costs_grow=plan.mode is Mode.REFINED,
    )
