"""A query that runs as a whole, as a job of one task; and what the jobs of all queries share.

All are asked for the same things (`Asked`), give results as Arrow, and report a fold alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.execution.estimate import DEFAULT_JUDGE, Estimate, Judge, present_exact
from relaqs_engine.plans.plan import IntervalRequest, WholePlan

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.progress import ResultDelta, cells_of

MOST_CELLS = 2_000  # whose moves are followed, 3 ms a snapshot; of larger answers the error must tell


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query's job is asked for.

    Attributes:
        database_config: of the database that its tasks run on.
        request: which intervals.
        seed: of the order of partitions.
        batches: so many equal mini-batches, instead of growing ones.
        watch: the columns whose error counts, None for all.
        judge: how their cells' errors become one.
        may_run_whole: whether it may give up after an estimate, where the whole query costs less than more.
    """

    database_config: DatabaseConfig
    request: IntervalRequest = field(default_factory=IntervalRequest)
    seed: int = 0
    batches: int | None = None
    watch: tuple[str, ...] | None = None
    judge: Judge = DEFAULT_JUDGE
    may_run_whole: bool = False


def arrow_of(result: TaskResult) -> pa.Table:
    assert isinstance(result.value, pa.Table), result
    return result.value


def own_columns(estimate: Estimate) -> pa.Table:
    """Return the columns of the query, without those of its intervals."""
    return estimate.table.select(list(range(len(estimate.columns))))


class Reporter:
    """Reports what a query's folds gave.

    watch: the columns that define its error and its progress. judge: what makes one error of theirs.
    """

    def __init__(self, watch: tuple[str, ...] | None, judge: Judge = DEFAULT_JUDGE) -> None:
        self._watch = watch
        self._judge = judge
        self._moved = ResultDelta()
        self._quality = math.inf

    def report(self, step: Step, results: Sequence[TaskResult], estimate: Estimate) -> StepReport:
        self._quality = self.error(estimate)
        return StepReport(
            step=step.index,
            quality=self._quality,
            work_done=estimate.fraction,
            core_seconds=sum(result.core_seconds for result in results),
            is_final=estimate.is_exact,
            progress=self.progress(estimate),
        )

    def report_alone(self, step: Step, results: Sequence[TaskResult], fraction: float) -> StepReport:
        """Report a fold after which no estimate was made: the error is still that of the last one."""
        return StepReport(
            step=step.index,
            quality=self._quality,
            work_done=fraction,
            core_seconds=sum(result.core_seconds for result in results),
            is_final=False,
            progress=math.nan,
        )

    def error(self, estimate: Estimate) -> float:
        return estimate.relative_error(self._watch, self._judge)

    def progress(self, estimate: Estimate) -> float:
        """Return how far the watched cells moved since the last estimate; call it once for each.

        NaN where they are too many to follow, or none, and at the end, which is no estimate. While none is
        certified, as in answers without error bars, all count.
        """
        if estimate.is_exact or not 0 < estimate.values.size <= MOST_CELLS:
            return math.nan
        cells = cells_of(estimate, self._watch)
        if not cells.counts.any():
            cells = replace(cells, counts=np.isfinite(cells.values))
        return self._moved.update(cells) if cells.counts.any() else math.nan


class WholeQueryJob:
    """Runs the query once, whole, as one task: for queries without a sound approximation."""

    batch_count = 1
    fractions = (1.0,)
    gives_up = None

    def __init__(
        self,
        id: str,
        plan: WholePlan,
        *,
        database_config: DatabaseConfig,
        step: int = 0,
        core_seconds: float = math.inf,
    ) -> None:
        """Make a job.

        Args:
            id: its name.
            plan: how the query is answered.
            database_config: of the database that it runs in.
            step: the index of its only step, where it ends a job that has others before it.
            core_seconds: what reading its tables is predicted to take; inf: unknown.
        """
        self.id = id
        self._step = step
        self.latest: Estimate | None = None
        self._plan = plan
        self._config = database_config
        self._core_seconds = core_seconds
        self._is_issued = False

    @property
    def folded(self) -> int:
        return 0 if self.latest is None else 1

    def next_step(self) -> Step | None:
        if self._is_issued:
            return None
        self._is_issued = True
        work = QueryWork(self._config, (), self._plan.exact_sql, self._plan.exact_reads)
        key, cores = TaskKey(self.id, self._step, 0), self._config.threads
        return Step(self._step, (Task(key, work, cores, whole_seconds=self._core_seconds),))

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

    def source(self) -> pa.Table:
        assert self.latest is not None  # one step, which is the first of all parts'
        return own_columns(self.latest)
