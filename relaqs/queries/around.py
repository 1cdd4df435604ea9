"""A query over the answers of others as one job: its steps are theirs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from relaqs_engine.duck import Cursor
from relaqs_engine.errors import TooManyGroupsError
from relaqs_engine.execution.budgets import KNOWN_ROWS_PER_ROW, AroundBudget
from relaqs_engine.execution.composite import AroundEstimator, PartSource
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.state import GroupCount
from relaqs_engine.plans.composite import AroundPlan

from relaqs.jobs.job import Step, StepReport, TaskKey, TaskResult
from relaqs.queries.reporting import Asked, Reporter, own_columns


class PartJob(Protocol):
    """A job whose answer, so far or final, others are computed from."""

    latest: Estimate | None

    @property
    def batch_count(self) -> int: ...

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of its rows that has been scanned after each mini-batch."""
        ...

    @property
    def population_rows(self) -> int:
        """Rows of the table whose rows measure what was scanned, 0 where nothing is sampled."""
        ...

    def next_step(self) -> Step | None: ...

    def fold_state(self, step: Step, results: Sequence[TaskResult]) -> bool:
        """Fold without estimating; return whether `latest` is the final answer now."""
        ...

    def source(self) -> PartSource:
        """Return what its answer so far comes from, the final answer once there is one."""
        ...

    def scanned_fraction(self) -> float: ...


class AroundQueryJob:
    """Folds its parts, and computes the answer from theirs where that pays.

    cursor: one of its own. scan_seconds: what reading the tables takes of a core.
    """

    def __init__(
        self,
        id: str,
        plan: AroundPlan,
        parts: Sequence[PartJob],
        asked: Asked,
        cursor: Cursor,
        scan_seconds: float,
    ) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self._parts = parts
        self._cursor = cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._estimator = AroundEstimator(plan, cursor, asked.request)
        self._budget = AroundBudget(scan_seconds)
        # Until it is known how many groups there are, nothing is read ahead: it may all be for nothing.
        self._waits = self._budget.is_hopeless(sum(part.expected_groups for part in plan.parts))
        self._issued: list[list[Step | None]] = []
        self._folded = 0

    @property
    def batch_count(self) -> int:
        return max(part.batch_count for part in self._parts)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of all parts' rows that has been scanned after each step."""
        parts = [part.fractions for part in self._parts]
        return tuple(
            self._of_all([part[min(i, len(part) - 1)] for part in parts]) for i in range(self.batch_count)
        )

    @property
    def folded(self) -> int:
        """How many of its steps are in the answer."""
        return self._folded

    def next_step(self) -> Step | None:
        if self._waits and len(self._issued) > self._folded:
            return None
        steps = [part.next_step() for part in self._parts]
        if all(step is None for step in steps):
            return None
        index = len(self._issued)
        self._issued.append(steps)
        tasks = [task for step in steps if step is not None for task in step.tasks]
        own = (replace(task, key=TaskKey(self.id, index, i)) for i, task in enumerate(tasks))
        return Step(index, tuple(own))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        first = 0
        for part, own in zip(self._parts, self._issued[step.index], strict=True):
            if own is not None:
                last = first + len(own.tasks)
                if part.latest is None:  # else it has its answer, and needed no more rows
                    part.fold_state(own, results[first:last])
                first = last
        self._folded, self._waits = step.index + 1, False
        self.latest = self._answer()
        if self.latest is None:
            return self._reporter.report_alone(step, results, self._fraction())
        if self.latest.is_exact:
            self._cursor.close()
        return self._reporter.report(step, results, self.latest)

    def close(self) -> None:
        """Give back the states of all parts, which share the cursor. Safe to call twice."""
        self._cursor.close()

    def _answer(self) -> Estimate | None:
        """Return the answer so far, None where computing it now does not pay."""
        finals = [part.latest for part in self._parts]
        answers = [own_columns(final) for final in finals if final is not None]
        if len(answers) == len(self._parts):
            return self._estimator.exact(answers)
        sources = [part.source() for part in self._parts]
        if not self._budget.allows(self._rows_in(sources)):
            return None
        return self._estimator.estimate(sources, self._fraction())

    def _rows_in(self, sources: Sequence[PartSource]) -> int:
        """Return the rows of the parts' answers. Raises TooManyGroupsError where they get far too many."""
        counts = [_group_count(source) for source in sources]
        in_all = sum(count.in_all for count in counts)
        if self._budget.is_hopeless(in_all, self._fraction()):
            raise TooManyGroupsError(in_all)
        return sum(count.seen for count in counts)

    def _fraction(self) -> float:
        return self._of_all([part.scanned_fraction() for part in self._parts])

    def _of_all(self, scanned: Sequence[float]) -> float:
        rows = [part.population_rows for part in self._parts]
        return sum(n * f for n, f in zip(rows, scanned, strict=True)) / sum(rows)


def _group_count(source: PartSource) -> GroupCount:
    """Return the rows of one answer, as many as it costs like. Rows that only are listed cost nothing."""
    if isinstance(source, Estimator):
        return source.group_count()
    rows = source.num_rows // KNOWN_ROWS_PER_ROW if isinstance(source, pa.Table) else 0
    return GroupCount(rows, rows)
