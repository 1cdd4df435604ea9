"""What a refined plan has beyond a mergeable one: inner stages, and the rows whose fate hangs on them.

Frozen values, made by `rewrite/refine.py` and `rewrite/over_stages.py`, run by `execution/refined.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaqs_engine.plans.plan import Hoist, OnlinePlan

# In the place of numbers that a mini-batch's tasks are given: texts, to be cast.
RANGE_LOW = "'range low'"
RANGE_HIGH = "'range high'"
# The one-row table of the values that stages share with every group, and the scale that belongs to them.
SHARED = "shared"
SHARED_SCALE = "shared_scale"


@dataclass(frozen=True, slots=True)
class Stage:
    """An inner aggregate over streams, a mergeable query of its own.

    name: the table its answer so far becomes, with the answer's columns o0, o1, …, estimates also as DOUBLE
    (v0, …), and the merged state. title: what it computes, for people.
    """

    name: str
    title: str
    plan: OnlinePlan


@dataclass(frozen=True, slots=True)
class Threshold:
    """One comparison `row value <operator> stage value` that decides which rows count.

    stage: the name of the stage. value: the column of its answer that is compared. row_key, sure_key: keys of
    the kept rows: what is compared, NULL where the row counts for sure, and whether it does.
    """

    stage: str
    value: str
    operator: str
    row_key: str
    sure_key: str

    @property
    def compared_with(self) -> str:
        """Return the stage's value as the estimate has it."""
        return f"(SELECT {self.value} FROM {self.stage})"


@dataclass(frozen=True, slots=True)
class Belonging:
    """Which kept rows count. sql, exact_sql: kept rows and stages to partial rows of the outer query.

    threshold: None where rows cannot be decided before the end. ranged_sql, ranged_by_block_sql: partial
    queries that fold what is certain inside a range, and drop what is certainly out.
    """

    sql: str
    exact_sql: str
    threshold: Threshold | None = None
    ranged_sql: str = ""
    ranged_by_block_sql: str = ""


@dataclass(frozen=True, slots=True)
class Refinement:
    """The stages of a refined plan, in the order they are computed, and what happens to the outer query.

    kept: how rows of the outer query are kept: its state has the outer query's keys, then what its conditions
    on stages compare. None where the outer query reads stages and static tables alone; those are `statics`.
    belonging: None where every row counts, and stages are compared with groups only. shared: names of the
    stages whose one value is a column of every group. picks_groups: which of the stages' groups are shown is
    decided by what is estimated of them: the largest, or those with more than so many rows. While groups have
    few rows their totals are as seen, since scaled they would be far too high.
    """

    stages: tuple[Stage, ...]
    kept: OnlinePlan | None = None
    belonging: Belonging | None = None
    shared: tuple[str, ...] = ()
    statics: tuple[Hoist, ...] = ()
    picks_groups: bool = False

    @property
    def threshold(self) -> Threshold | None:
        return self.belonging.threshold if self.belonging else None


@dataclass(frozen=True, slots=True)
class Range:
    """Where a stage's value is taken to lie, both ends included. Without ends nothing is decided."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, other: Range) -> bool:
        return self.low <= other.low and other.high <= self.high

    @property
    def decides(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, other: Range) -> Range:
        """Return the part of this range that lies in the other."""
        return Range(max(self.low, other.low), min(self.high, other.high))
