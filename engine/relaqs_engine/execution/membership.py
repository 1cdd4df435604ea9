"""Which groups of an estimate surely belong to the answer, by the numbers that decide it."""

from __future__ import annotations

import numpy as np

from relaqs_engine.estimate import BoolArray, FloatArray
from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.plan import OnlinePlan, OutputKind

# A group is decided with at least so many rows, and so many standard errors from where it would change sides.
# Fewer rows make the standard error itself too uncertain (FACTS, HAVING and top-k).
MIN_ROWS = 30
STANDARD_ERRORS = 3.0


def decided_groups(plan: OnlinePlan, found: CellIntervals, rows: FloatArray) -> BoolArray:
    """Return which of the groups shown are decided, shape (shown groups,).

    found: shape (groups, estimated outputs), the deciders last, the groups in the answer's order and, where
    they are ranked, one more than the answer shows. rows: joined rows seen of each.
    """
    count = len(rows) if plan.shown_rows is None else min(len(rows), plan.shown_rows)
    if plan.membership_is_opaque:
        return np.zeros(count, dtype=bool)
    decided = np.ones(count, dtype=bool)
    enough = (rows >= MIN_ROWS) | plan.groups_are_final
    first = sum(output.kind is OutputKind.ESTIMATE for output in plan.outputs)
    for i, decider in enumerate(plan.deciders, start=first):
        value, error = found.value[:, i], found.standard_error[:, i]
        if decider.ranks:
            decided &= _ahead(value, error, rows, count)
        else:
            decided &= ((np.abs(value) > STANDARD_ERRORS * error) & enough)[:count]
    return decided


def _ahead(value: FloatArray, error: FloatArray, rows: FloatArray, count: int) -> BoolArray:
    """Return which of the first groups are surely ahead of the one left out; all, where none is."""
    if len(value) <= count:
        return np.ones(count, dtype=bool)
    distance = np.abs(value[:count] - value[count])
    spread = np.sqrt(error[:count] ** 2 + error[count] ** 2)
    enough = (rows[:count] >= MIN_ROWS) & bool(rows[count] >= MIN_ROWS)
    return np.asarray((distance > STANDARD_ERRORS * spread) & enough)
