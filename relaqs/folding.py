"""What jobs of queries share when they fold: results as Arrow, and the report of a fold."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from relaqs_engine.estimate import Estimate

from relaqs.job import Step, StepReport, TaskResult


def arrow_of(result: TaskResult) -> pa.Table:
    assert isinstance(result.value, pa.Table), result
    return result.value


def report_of(
    step: Step, results: Sequence[TaskResult], estimate: Estimate, watch: tuple[str, ...] | None
) -> StepReport:
    return StepReport(
        step=step.index,
        quality=estimate.relative_error(watch),
        work_done=estimate.fraction,
        core_seconds=sum(result.core_seconds for result in results),
        is_final=estimate.is_exact,
    )
