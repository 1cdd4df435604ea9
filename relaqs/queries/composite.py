"""Queries over the answers of other queries, as one job: composite queries, and refined ones.

**Composite** (`AroundQueryJob`). The outer query is SQL over the answers so far of its subqueries. The
steps of the job are theirs, side by side.

**Refined** (`RefinedQueryJob`). A step's tasks read the same partitions for the inner aggregates and the
outer query. Rows of the outer query are decided by the tasks, inside the range in which the inner value
was known to lie two steps before: a fixed distance, so that what a task does depends on the steps folded
and on nothing else. When the value leaves the range, what was decided is dropped and a step of its own
reads it again, inside the new range. No snapshot is made until it is whole again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from relaqs_engine.errors import ExpressionError, TooManyGroupsError
from relaqs_engine.execution.composite_estimate import AroundEstimator, PartSource
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.refined import RefinedAnswer, kept_within
from relaqs_engine.execution.state import (
    KNOWN_ROWS_PER_ROW,
    EstimateCosts,
    GroupCount,
    fractions_after,
    leading_stream,
    partial_task,
    scheduled_batches,
)
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.composite import AroundPlan, Range, RefinedPlan
from relaqs_engine.plans.plan import MiniBatch

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.jobs import JobSetting, Reporter, WholeQueryJob, arrow_of, own_columns

if TYPE_CHECKING:
    from relaqs.queries.folded import FoldedQueryJob

PartJob: TypeAlias = "FoldedQueryJob | WholeQueryJob"
"""A job whose answer, so far or final, others are computed from."""


class AroundQueryJob:
    """Folds its parts, and computes the answer from theirs where that pays.

    scan_seconds: what reading the tables takes of a core.
    """

    def __init__(
        self, plan: AroundPlan, parts: Sequence[PartJob], setting: JobSetting, scan_seconds: float
    ) -> None:
        asked = setting.asked
        self.id = setting.id
        self.latest: Estimate | None = None
        self._parts = parts
        self._cursor = setting.state_cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._estimator = AroundEstimator(plan, self._cursor, asked.request)
        self._costs = EstimateCosts(scan_seconds)
        # Until it is known how many groups there are, nothing is read ahead: it may all be for nothing.
        self._waits = self._costs.are_too_many(sum(part.expected_groups for part in plan.parts))
        self._issued: list[list[Step | None]] = []
        self.folded = 0  # steps that are in the answer

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

    def next_step(self) -> Step | None:
        if self._waits and len(self._issued) > self.folded:
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
        self.folded, self._waits = step.index + 1, False
        self.latest = self._answer()
        report = self._reporter.report(step, results, self.latest, self._fraction())
        if report.is_final:
            self._cursor.close()
        why = (part.gives_up for part in self._parts)
        return replace(report, gives_up=next((each for each in why if each is not None), None))

    def close(self) -> None:
        """Give back the states of all parts, which share the cursor. Safe to call twice."""
        self._cursor.close()

    def _answer(self) -> Estimate | None:
        """Return the answer so far, None where computing it now does not pay, or fails over estimates."""
        finals = [part.latest for part in self._parts]
        answers = [own_columns(final) for final in finals if final is not None]
        if len(answers) == len(self._parts):
            return self._estimator.exact(answers)
        sources = [part.source() for part in self._parts]
        if not self._costs.allow(self._rows_in(sources)):
            return None
        try:
            return self._estimator.estimate(sources, self._fraction())
        except ExpressionError:  # an estimate does not fit where the exact value does
            return None

    def _rows_in(self, sources: Sequence[PartSource]) -> int:
        """Return the rows of the parts' answers. Raises TooManyGroupsError where they get far too many."""
        counts = [_group_count(source) for source in sources]
        in_all = sum(count.in_all for count in counts)
        if self._costs.are_too_many(in_all, self._fraction()):
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


# A step's tasks use the range known after the step so many before it: the runner keeps two in flight.
RANGE_STEPS = 2


_KEPT = "kept"


@dataclass(frozen=True, slots=True)
class _StepWork:
    """What a step does. within: the range in which its tasks decide rows. is_redo: it reads them again."""

    batches: tuple[MiniBatch, ...]
    within: Range
    is_redo: bool


class _Redo(Enum):
    """Whether rows that were decided wrongly are to be read again. Until that is done there is no answer."""

    NONE = auto()
    DUE = auto()
    IN_FLIGHT = auto()


class RefinedQueryJob:
    """Folds stages and rows of growing mini-batches. The cost grows with the rows kept; the end is exact."""

    def __init__(self, plan: RefinedPlan, setting: JobSetting) -> None:
        catalog, asked = setting.catalog, setting.asked
        self.id = setting.id
        self.latest: Estimate | None = None
        self.redone_steps = 0
        self._plan = plan
        self._catalog = catalog
        self._config = asked.database_config
        self._cursor = setting.state_cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._answer = RefinedAnswer(plan, leading_stream(plan, catalog), self._cursor, asked.request)
        self._batches = scheduled_batches(plan, catalog, asked.seed, asked.batches)
        self._work: dict[int, _StepWork] = {}  # of steps in flight
        self._steps = 0
        self._next_batch = 0
        self.folded = 0  # mini-batches that are in the answer
        self._ranges: list[Range] = []  # after each mini-batch folded
        self._relied_on = Range()  # the narrowest in which rows that are kept, or dropped, were decided
        self._redo = _Redo.NONE
        self._fraction = 0.0

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        return fractions_after(self._batches, leading_stream(self._plan, self._catalog))

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept to be compared again."""
        return self._answer.kept_row_count

    def next_step(self) -> Step | None:
        if self._redo is _Redo.DUE:
            self._redo = _Redo.IN_FLIGHT
            self.redone_steps += 1
            return self._step(_StepWork(self._batches[: self._next_batch], self._ranges[-1], is_redo=True))
        known = self._next_batch - RANGE_STEPS
        if self._next_batch == len(self._batches) or known >= len(self._ranges):
            return None
        batch = self._batches[self._next_batch]
        self._next_batch += 1
        within = self._ranges[known] if known >= 0 else Range()
        return self._step(_StepWork((batch,), within, is_redo=False))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        started_seconds = time.thread_time()
        work = self._work.pop(step.index)
        tables = [arrow_of(result) for result in results]
        if work.is_redo:
            self._fold_redo(work, tables)
        else:
            self._fold_batch(work, tables)
        self.latest = self._estimate()
        own_seconds = time.thread_time() - started_seconds
        report = self._reporter.report(step, results, self.latest, self._fraction)
        self._fraction = report.work_done or 0.0
        core_seconds = report.core_seconds + own_seconds
        return replace(report, step=self.folded - 1, core_seconds=core_seconds)

    def _fold_batch(self, work: _StepWork, tables: Sequence[pa.Table]) -> None:
        [batch] = work.batches
        parts = self._parts(work)
        of_part = {name: tables[i :: len(parts)][: len(batch.tasks)] for i, name in enumerate(parts)}
        self._answer.fold_stages(batch, of_part)
        self.folded += 1
        relied_on = work.within.within(self._relied_on)
        holds = self._holds(relied_on)
        known = self._answer.range()
        self._ranges.append(known.within(self._ranges[-1]) if holds and self._ranges else known)
        if self._redo is not _Redo.NONE:
            return  # its rows are read again with the others'
        if not holds:
            self._redo = _Redo.DUE
        else:
            self._answer.fold_kept(batch, of_part[_KEPT])
            self._relied_on = relied_on

    def _fold_redo(self, work: _StepWork, tables: Sequence[pa.Table]) -> None:
        if not self._holds(work.within):
            self._redo = _Redo.DUE  # once more, with what is known now
            return
        self._answer.forget_kept()
        done = 0
        for batch in work.batches:
            self._answer.fold_kept(batch, tables[done : done + len(batch.tasks)])
            done += len(batch.tasks)
        self._relied_on, self._redo = work.within, _Redo.NONE

    def _holds(self, within: Range) -> bool:
        """Whether decisions made in this range agree with the values that rows are compared with now."""
        compared = self._answer.compared_with
        return not within.decides or (compared is not None and within.holds(compared))

    def _estimate(self) -> Estimate | None:
        if self._redo is not _Redo.NONE:
            return None
        if self.folded < len(self._batches):
            return self._answer.estimate()
        estimate = self._answer.exact()
        self._cursor.close()
        return estimate

    def close(self) -> None:
        """Give back the states of all stages. Safe to call twice."""
        self._cursor.close()

    def _step(self, work: _StepWork) -> Step:
        index = self._steps
        self._steps += 1
        self._work[index] = work
        tasks = enumerate(self._query_works(work))
        return Step(index, tuple(Task(TaskKey(self.id, index, i), each) for i, each in tasks))

    def _query_works(self, work: _StepWork) -> Iterator[QueryWork]:
        """Yield what the tasks do: for each task of the mini-batches every part."""
        for batch in work.batches:
            for partitions in batch.tasks:
                for plan in self._parts(work).values():
                    task = partial_task(plan, self._catalog, partitions, by_block=batch.by_block)
                    yield QueryWork(self._config, plan.hoists, task.sql, task.reads)

    def _parts(self, work: _StepWork) -> dict[str, MergePlan]:
        """Return what each task of a mini-batch is done for: the rows of the outer query, and the stages."""
        kept = {_KEPT: kept_within(self._plan.outer, work.within)}
        return kept if work.is_redo else kept | {stage.name: stage.plan for stage in self._plan.stages}
