"""A refined query as a job: a step's tasks read the same partitions for the inner stages and the outer query.

Rows of the outer query are decided by the tasks, inside the range in which the stage's value was known to lie
two steps before: a fixed distance, so that what a task does depends on the steps folded and on nothing else.
When the value leaves the range, what was decided is dropped and a step of its own reads it again, inside the
new range. No snapshot is made until it is whole again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.refined import RefinedAnswer
from relaqs_engine.execution.tasks import (
    fractions_after,
    kept_within,
    leading_stream,
    partial_reads,
    partial_sql,
    scheduled_batches,
)
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.composite import Range, RefinedPlan
from relaqs_engine.plans.schedule import MiniBatch

from relaqs.executors.duck_process import QueryWork
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.reporting import Asked, Reporter, arrow_of

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
    """Folds stages and rows of growing mini-batches. The cost grows with the rows kept; the end is exact.

    state_cursor: of the database where states are kept; closed after the last fold.
    """

    def __init__(
        self,
        id: str,
        plan: RefinedPlan,
        catalog: Catalog,
        asked: Asked,
        state_cursor: Cursor,
    ) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self.redone_steps = 0
        self._plan = plan
        self._catalog = catalog
        self._config = asked.database_config
        self._cursor = state_cursor
        self._reporter = Reporter(asked.watch, asked.judge)
        self._answer = RefinedAnswer(plan, leading_stream(plan, catalog), state_cursor, asked.request)
        self._batches = scheduled_batches(plan, catalog, asked.seed, asked.batches)
        self._work: dict[int, _StepWork] = {}  # of steps in flight
        self._steps = 0
        self._next_batch = 0
        self._folded_batches = 0
        self._ranges: list[Range] = []  # after each mini-batch folded
        self._relied_on = Range()  # the narrowest in which rows that are kept, or dropped, were decided
        self._redo = _Redo.NONE
        self._quality = math.inf
        self._fraction = 0.0

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        return fractions_after(self._batches, leading_stream(self._plan, self._catalog))

    @property
    def folded(self) -> int:
        """How many mini-batches are in the answer."""
        return self._folded_batches

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
        core_seconds = time.thread_time() - started_seconds + sum(result.core_seconds for result in results)
        return self._report(core_seconds)

    def _fold_batch(self, work: _StepWork, tables: Sequence[pa.Table]) -> None:
        [batch] = work.batches
        parts = self._parts(work)
        of_part = {name: tables[i :: len(parts)][: len(batch.tasks)] for i, name in enumerate(parts)}
        if batch.index == 0:
            self._answer.fetch_statics(tables[len(batch.tasks) * len(parts) :])
        self._answer.fold_stages(batch, of_part)
        self._folded_batches += 1
        relied_on = work.within.within(self._relied_on)
        holds = self._holds(relied_on)
        known = self._answer.range()
        self._ranges.append(known.within(self._ranges[-1]) if holds and self._ranges else known)
        if self._redo is not _Redo.NONE:
            return  # its rows are read again with the others'
        if not holds:
            self._redo = _Redo.DUE
        elif _KEPT in of_part:
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
        if self._folded_batches < len(self._batches):
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
        """Yield what the tasks do: for each task of the mini-batches every part, then the statics."""
        for batch in work.batches:
            for partitions in batch.tasks:
                for plan in self._parts(work).values():
                    sql = partial_sql(plan, self._catalog, partitions, by_block=batch.by_block)
                    reads = partial_reads(plan, self._catalog, partitions)
                    yield QueryWork(self._config, plan.hoists, sql, reads)
        if not work.is_redo and work.batches[0].index == 0:
            for static in self._plan.statics:
                yield QueryWork(self._config, (), static.sql, static.reads)

    def _parts(self, work: _StepWork) -> dict[str, MergePlan]:
        """Return what each task of a mini-batch is done for: the rows of the outer query, and the stages."""
        parts: dict[str, MergePlan] = {}
        if (outer := self._plan.outer_rows) is not None:
            parts[_KEPT] = kept_within(outer, work.within)
        if not work.is_redo:
            parts |= {stage.name: stage.plan for stage in self._plan.stages}
        return parts

    def _report(self, core_seconds: float) -> StepReport:
        """Report the newest estimate; while rows are read again there is none, and nothing has moved."""
        progress = math.nan
        if self.latest is not None:
            self._quality = self._reporter.error(self.latest)
            self._fraction = self.latest.fraction
            progress = self._reporter.progress(self.latest)
        return StepReport(
            step=self._folded_batches - 1,
            quality=self._quality,
            work_done=self._fraction,
            core_seconds=core_seconds,
            is_final=self.latest is not None and self.latest.is_exact,
            progress=progress,
        )
