"""A training by mini-batches on a cluster: by tasks while passes are short, and else by a gang.

The first look at the data, and that at held-out rows after each pass, are tasks in any case.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from relaqs.jobs.job import TaskResult, Work
from relaqs.training.elastic.course import BatchRule, Journal, Rescale, TrainingCourse, pieces_of_step
from relaqs.training.elastic.gang_carrier import GangCarrier, GangFacts, GangPass, NoGangs
from relaqs.training.elastic.rank import TableRecipe
from relaqs.training.elastic.step_job import PassEnd, StepJob
from relaqs.training.passes import RunRows
from relaqs.training.protocol import MiniBatchTraining

LEAST_PASS_SECONDS = 0.5  # of a core. For a shorter pass it is not worth to keep ranks in workers


class GangJob(StepJob):
    """A `StepJob` that asks a gang for its steps once a pass turns out to be long. Both give the same bits.

    Where no gang can run, it makes all its steps by tasks.

    Args:
        carrier: the executor of this run.
    """

    def __init__(self, rows: RunRows, job: MiniBatchTraining, rule: BatchRule, carrier: GangCarrier) -> None:
        super().__init__(rows, job, rule)
        self._carrier = carrier
        self._facts: GangFacts | None = None
        self._is_refused = self._is_final = False

    @property
    def ranks(self) -> int:
        return super().ranks if self._is_refused else self._carrier.ranks

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        return tuple(self._carrier.rescales)

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
        return made if is_over else made.then(self._carrier.journal_since(len(made)))

    def _step_works(self, course: TrainingCourse) -> list[Work]:
        if self._is_refused or (self._facts is None and self._is_short(course)):
            return super()._step_works(course)
        if self._facts is None:
            self._facts = GangFacts(self.id, self._order, self._rule.rows(course))
        recipe = TableRecipe(self._job, self._rule, self._order, course, self._sources(range(self._trained)))
        return [GangPass(recipe, course, course.passes + 1, self._facts)]

    def _is_short(self, course: TrainingCourse) -> bool:
        """Return whether a pass takes little time, as far as is known."""
        if self._pass_core_seconds >= LEAST_PASS_SECONDS:
            return False
        order = self._order
        steps = order.piece_count / pieces_of_step(self._rule.rows(course), order.piece_rows)
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
        elif isinstance(made, TrainingCourse):
            before = self._log.end
            journal = self._carrier.journal_since(before).until(made.step - before)
            assert made.step == before + len(journal), (made.step, before, len(journal))
            self._log.add(journal.batch_rows.tolist(), journal.rates.tolist(), journal.ranks.tolist())
            self._course = made
        else:
            super()._take_made(values, results)

    def _end(self) -> PassEnd | None:
        if self._course is None or not self._log.end:
            return None  # the gang was refused
        end = super()._end()
        if end is not None and self._facts is not None:
            self._facts.passed(end.loss, end.accuracy)
        self._is_final = end is not None and end.is_final
        return end
