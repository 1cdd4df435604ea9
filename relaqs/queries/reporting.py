"""What jobs of queries share: what they are asked for, results as Arrow, and the report of a fold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.execution.estimate import DEFAULT_JUDGE, Estimate, Judge
from relaqs_engine.execution.intervals import IntervalRequest

from relaqs.jobs.job import Step, StepReport, TaskResult
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
