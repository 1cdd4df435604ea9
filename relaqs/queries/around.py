"""A query over the answers of others as one job: its steps are theirs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.around import AroundEstimator
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.parts import PartSource
from relaqs_engine.plans.around import AroundPlan

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
    """Folds its parts, and computes the answer from theirs. cursor: one of its own."""

    def __init__(
        self,
        id: str,
        plan: AroundPlan,
        parts: Sequence[PartJob],
        asked: Asked,
        cursor: Cursor,
    ) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self._parts = parts
        self._cursor = cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._estimator = AroundEstimator(plan, cursor, asked.request)
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
        self._folded = step.index + 1
        self.latest = self._answer()
        if self.latest.is_exact:
            self._cursor.close()
        return self._reporter.report(step, results, self.latest)

    def close(self) -> None:
        """Give back the states of all parts, which share the cursor. Safe to call twice."""
        self._cursor.close()

    def _answer(self) -> Estimate:
        finals = [part.latest for part in self._parts]
        answers = [own_columns(final) for final in finals if final is not None]
        if len(answers) == len(self._parts):
            return self._estimator.exact(answers)
        return self._estimator.estimate([part.source() for part in self._parts], self._fraction())

    def _fraction(self) -> float:
        return self._of_all([part.scanned_fraction() for part in self._parts])

    def _of_all(self, scanned: Sequence[float]) -> float:
        rows = [part.population_rows for part in self._parts]
        return sum(n * f for n, f in zip(rows, scanned, strict=True)) / sum(rows)
