"""A training by mini-batches on a cluster: by tasks while passes are short, and else by a gang.

The first look at the data, and that at held-out rows after each pass, are tasks in any case.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from relaqs.jobs.job import TaskResult, Work
from relaqs.training.elastic.batches import BatchRule
from relaqs.training.elastic.course import TrainingCourse
from relaqs.training.elastic.gang_carrier import GangCarrier, GangPass, NoGangs, PassMade
from relaqs.training.elastic.gang_facts import GangFacts
from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.lesson import TableRecipe
from relaqs.training.elastic.order import pieces_of_step
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.elastic.run_book import PassEnd
from relaqs.training.elastic.step_job import StepJob
from relaqs.training.elastic.step_log import Rescale
from relaqs.training.reading import TrainingSet

LEAST_PASS_SECONDS = 0.5  # of a core. For a shorter pass it is not worth to keep ranks in workers


class GangJob(StepJob):
    """A `StepJob` that asks a gang for its steps once a pass turns out to be long. Both give the same bits.

    Where no gang can run, it makes all its steps by tasks.

    Args:
        carrier: the executor of this run.
    """

    def __init__(
        self,
        id: str,
        job: MiniBatchTraining,
        data: TrainingSet,
        rule: BatchRule,
        carrier: GangCarrier,
        *,
        budget_bytes: int,
    ) -> None:
        super().__init__(id, job, data, rule, budget_bytes=budget_bytes)
        self._carrier = carrier
        self._facts: GangFacts | None = None
        self._is_refused = self._is_final = False

    @property
    def ranks(self) -> int:
        return super().ranks if self._is_refused else self._carrier.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        return self._carrier.rescales

    @property
    def batch_rows(self) -> int:
        return self._carrier.batch_rows or super().batch_rows

    @property
    def journal(self) -> Journal:
        """The steps so far. Those of the pass that is being made may still be made once more, the same.

        Steps that were made ahead are no part of the model once the run has ended.
        """
        made = super().journal
        is_over = self._is_refused or self._is_final or self._carrier.has_stopped
        new = None if is_over else self._carrier.journal_since(len(made))
        return made if new is None else made.then(new)

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        if self._is_refused or (self._facts is None and self._is_short(course)):
            return super()._step_works(course)
        book = self._book
        if self._facts is None:
            self._facts = GangFacts(self.id, book.order, book.rule.rows(course))
        sources = book.sources(range(book.held_out.start))
        recipe = TableRecipe(self._job, book.rule, book.order, course, sources)
        return [GangPass(recipe, course, course.passes + 1, self._facts)]

    def _is_short(self, course: TrainingCourse) -> bool:
        """Return whether a pass takes little time, as far as is known."""
        if self._pass_core_seconds >= LEAST_PASS_SECONDS:
            return False
        order = self._book.order
        steps = order.piece_count / pieces_of_step(self._book.rule.rows(course), order.piece_rows)
        return not self._step_seconds * steps >= LEAST_PASS_SECONDS  # NaN before it was measured

    def _take_made(self, values: Sequence[Any], results: Sequence[TaskResult]) -> None:
        made = values[0]
        if isinstance(made, NoGangs):
            self._is_refused = True
            warnings.warn(
                f"no gang can run on this cluster, so mini-batches are made by tasks: {made.why}",
                RuntimeWarning,
                stacklevel=2,
            )
        elif isinstance(made, PassMade):
            journal = self._carrier.journal_since(self._book.steps)
            assert journal is not None
            self._book.passed(made.course, journal.until(made.course.step - self._book.steps))
        else:
            super()._take_made(values, results)

    def _end(self) -> PassEnd | None:
        if self._book.course is None or not self._book.steps:
            return None  # the gang was refused
        end = super()._end()
        if end is not None and self._facts is not None:
            self._facts.passed(end.loss, end.accuracy)
        self._is_final = end is not None and end.is_final
        return end
