"""Answers of refined plans: the stages first, then the outer query over what they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.interval import IntervalRequest
from relaqs_engine.execution.outer_over_stages import OverStagesAnswer
from relaqs_engine.execution.outer_rows import OuterRowsAnswer
from relaqs_engine.execution.refined_variance import LOOKED_AT_STANDARD_ERRORS
from relaqs_engine.execution.stage import Replicates, StagesSoFar, StageState
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.ranges import Range
from relaqs_engine.plans.refined import OuterRows, RefinedPlan
from relaqs_engine.plans.schedule import MiniBatch

# Standard errors either side of a stage's value that rows must be outside of to be decided. What is looked at
# later, three smaller standard errors about another value, leaves six of them about once in a million looks;
# then rows are decided anew.
RANGE_STANDARD_ERRORS = 6.0


class OuterAnswer(Protocol):
    """What answers the outer query, once its stages have answers."""

    @property
    def kept_row_count(self) -> int: ...

    def fetch(self, tables: Sequence[pa.Table]) -> None: ...

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None: ...

    def forget(self) -> None: ...

    def estimate(self, stages: StagesSoFar) -> Estimate | None: ...

    def exact(self, answers: Mapping[str, pa.Table]) -> Estimate: ...


class RefinedAnswer:
    """Stages and outer query of one plan. Stages are folded first, the rows kept when their decisions hold.

    cursor: of the database that holds states; further ones are opened beside it.
    """

    def __init__(self, plan: RefinedPlan, leading: Layout, cursor: Cursor, request: IntervalRequest) -> None:
        self._threshold = plan.threshold
        self._picks_groups = plan.picks_groups
        self._stages = {
            stage.name: StageState(stage, leading, cursor.another(), request) for stage in plan.stages
        }
        self._so_far = StagesSoFar({}, {}, np.zeros(1, dtype=np.int64), are_as_seen=False)
        self._compared: frozenset[str] = frozenset()
        self._block_count = 1
        self._outer: OuterAnswer
        if isinstance(plan.outer, OuterRows):
            self._compared, self._block_count = plan.outer.compared, plan.outer.plan.block_count
            self._outer = OuterRowsAnswer(plan.outer, plan.stages, leading, cursor, request)
        else:
            self._outer = OverStagesAnswer(plan, plan.outer, leading, cursor)

    def forget_kept(self) -> None:
        """Drop the rows of the outer query, to keep them anew."""
        self._outer.forget()

    def fetch_statics(self, tables: Sequence[pa.Table]) -> None:
        """Keep the static tables that the outer query reads, in the order of the plan."""
        self._outer.fetch(tables)

    def fold_stages(self, batch: MiniBatch, partials: Mapping[str, Sequence[pa.Table]]) -> None:
        """Add a whole mini-batch to every stage, and bring their answers up to date."""
        answers: dict[str, pa.Table] = {}
        are_as_seen = False
        for name, stage in self._stages.items():
            stage.fold(batch, partials[name])
            as_seen = self._picks_groups and stage.has_tiny_groups
            answers[name] = stage.estimate(is_scaled=not as_seen)
            are_as_seen = are_as_seen or as_seen
        replicates = {
            name: stage.replicates(answers[name], self._block_count)
            for name, stage in self._stages.items()
            if name in self._compared
        }
        first = next(iter(self._stages.values()))
        self._so_far = StagesSoFar(answers, replicates, first.block_rows, are_as_seen)

    def fold_kept(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch's rows of the outer query."""
        self._outer.fold(batch, partials)

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept, those that agree in all that matters summed to one."""
        return self._outer.kept_row_count

    @property
    def compared_with(self) -> Range | None:
        """Return the values that rows are compared with now, for the estimate and its error bars.

        None where they are not compared with one value.
        """
        found = self._of_threshold()
        return None if found is None else found.around(LOOKED_AT_STANDARD_ERRORS)

    def range(self) -> Range:
        """Return where the value that rows are compared with surely lies, as far as blocks can tell."""
        found = self._of_threshold()
        if found is None or not np.isfinite(found.standard_error):
            return Range()
        return found.around(max(RANGE_STANDARD_ERRORS, LOOKED_AT_STANDARD_ERRORS))

    def estimate(self) -> Estimate | None:
        """Return the answer so far; None where the outer query fails over values that are only estimates."""
        return self._outer.estimate(self._so_far)

    def exact(self) -> Estimate:
        """Return the answer after the last mini-batch, from the stages' exact answers alone."""
        return self._outer.exact({name: stage.exact() for name, stage in self._stages.items()})

    def _of_threshold(self) -> Replicates | None:
        return None if self._threshold is None else self._so_far.replicates.get(self._threshold.stage)
