"""Answers of refined plans: first the stages, then the rows that count by them, then the outer query.

    SELECT zone, count(*) FROM trips WHERE fare > (SELECT avg(fare) FROM trips) GROUP BY zone

The inner average is a *stage* (`rewrite/stages.py`). Each mini-batch is folded in this order:

1. The stage folds its partials, and its value so far is known: say 20, with a standard error of 0.5.
2. The outer query folds its rows. It keeps them by what is compared, the fare: rows with equal fares in one
   zone and block are summed to one. The kept rows with a fare above the value *are* partial rows of the
   outer query, so merging, estimating and the exact end work as in any query.
3. The outer query is estimated from the rows that count now.

**Deciding early.** Keeping all rows would cost more with each mini-batch. Where rows are compared with one
value v of one stage, most of them are clear: v surely lies within v ± 6 standard errors, the *range*. Tasks
sum rows on the side that counts, drop rows on the other side, and keep only those inside the range.

*Example.* The range is 20 ± 6 · 0.5, so 17 to 23. A fare of 25 is summed, one of 12 is dropped, and one of 19
is kept by its value.

**Leaving the range.** Later estimates, and their error bars, look at values within ± 3 standard errors, and
the standard errors get smaller. If v becomes 20.8 ± 0.3, they look at 19.9 to 21.7, all inside 17 to 23:
every decision holds. They leave the range about once in a million looks. Then the kept rows are dropped and
read again in the new range, and there is no snapshot until that is done. So a range changes what is kept,
never an estimate.

What is ugly. A task uses the range that was known two steps before it, because two steps are in flight. All
ranges so far are met with each other, as rows were decided in all of them. And where several conditions, or
one value for each group, decide, there is no range: all candidates are kept.

The decision: docs/decisions/0006-refined-mode.md, points 2 to 4. The error bars are in `refined_variance.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.outer_over_stages import OverStagesAnswer
from relaqs_engine.execution.outer_rows import OuterRowsAnswer
from relaqs_engine.execution.refined_variance import LOOKED_AT_STANDARD_ERRORS
from relaqs_engine.execution.stage import Replicates, StagesSoFar, StageState
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.ranges import Range
from relaqs_engine.plans.refined import OuterRows, RefinedPlan
from relaqs_engine.plans.schedule import MiniBatch

# Rows are decided at 6 standard errors on either side of the stage's value. Later estimates look at 3 smaller
# standard errors around a moved value. They leave the range about once in a million looks, and the rows are
# then read again.
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
    """Stages and outer query of one plan.

    Stages are folded first. The kept rows are folded once it is known that earlier decisions about rows hold.

    Args:
        plan: the refined plan.
        leading: the layout whose rows measure what was scanned.
        cursor: of the database that holds the states. Further cursors are opened beside it.
        request: which intervals are asked for.
    """

    def __init__(self, plan: RefinedPlan, leading: Layout, cursor: Cursor, request: IntervalRequest) -> None:
        self._threshold = plan.threshold
        self._picks_groups = plan.picks_groups
        self._stages = {
            stage.name: StageState(stage, leading, cursor.another(), request) for stage in plan.stages
        }
        self._so_far = StagesSoFar({}, {}, 0.0, are_as_seen=False)
        self._compared: frozenset[str] = frozenset()
        self._block_count = 1
        self._outer: OuterAnswer
        if isinstance(plan.outer, OuterRows):
            self._compared, self._block_count = plan.outer.compared, plan.outer.plan.block_count
            self._outer = OuterRowsAnswer(plan.outer, plan.stages, leading, cursor, request)
        else:
            self._outer = OverStagesAnswer(plan, plan.outer, cursor)

    def forget_kept(self) -> None:
        """Drop the kept rows of the outer query, so that they can be read again."""
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
        self._so_far = StagesSoFar(answers, replicates, first.row_fraction, are_as_seen)

    def fold_kept(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch's rows of the outer query."""
        self._outer.fold(batch, partials)

    @property
    def kept_row_count(self) -> int:
        """Return how many rows are kept. Rows that agree in all that matters are summed to one."""
        return self._outer.kept_row_count

    @property
    def compared_with(self) -> Range | None:
        """Return the values that rows are compared with now, for the estimate and its error bars.

        None where they are compared with more than one value.
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
        """Return the answer after the last mini-batch, its rows decided by the stages' exact values."""
        return self._outer.exact({name: stage.exact() for name, stage in self._stages.items()})

    def _of_threshold(self) -> Replicates | None:
        return None if self._threshold is None else self._so_far.replicates.get(self._threshold.stage)
