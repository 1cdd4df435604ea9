"""RefinedPlan: a query with an aggregate over all rows inside, such as `WHERE x > (SELECT avg(x) FROM t)`.

The inner aggregate is a **stage**: an aggregation of its own that reads the same mini-batches. The outer
query then is one of two:

    OuterRows    it reads streams itself: its rows are kept, and those that count are merged anew
    OverStages   it reads the stages' answers and static tables alone: it runs anew over them

Plans are made in `rewrite/refine.py` and `rewrite/over_stages.py`, and answered in `execution/refined.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.folded import ResultShape
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.online_plan import Mode, OnlinePlan
from relaqs_engine.plans.streams import Hoist


@dataclass(frozen=True, slots=True)
class Stage:
    """An inner aggregate over streams.

    Attributes:
        name: the table that its answer so far becomes. It has the answer's columns o0, o1, …, estimates also
            as DOUBLE (v0, …), and the merged state.
        title: what it computes, for people.
        plan: how it is answered.
    """

    name: str
    title: str
    plan: MergePlan


@dataclass(frozen=True, slots=True)
class Threshold:
    """One comparison `row value <operator> stage value` that decides which rows count.

    Attributes:
        stage: the name of the stage.
        value: the column of its answer that is compared.
        operator: one of <, <=, > and >=.
        row_key: the key of the kept rows that holds what is compared; NULL where the row counts for sure.
        sure_key: the key that says whether the row counts for sure.
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
    """Which kept rows count.

    Attributes:
        sql: kept rows and stages so far to partial rows of the outer query.
        exact_sql: the same with the stages' final answers.
        threshold: the comparison that decides; None where rows cannot be decided before the end.
        ranged_sql: the partial query that folds what is certain inside a range, and drops what is certainly
            out. RANGE_LOW and RANGE_HIGH stand for the ends of the range.
        ranged_by_block_sql: the same, with its groups told apart by block.
    """

    sql: str
    exact_sql: str
    threshold: Threshold | None = None
    ranged_sql: str = ""
    ranged_by_block_sql: str = ""


@dataclass(frozen=True, slots=True)
class OuterRows:
    """The outer query where it reads streams itself.

    Attributes:
        plan: how the rows that count are merged and estimated.
        kept: how tasks return its rows: aggregated by the outer query's keys, and by what its conditions on
            stages compare.
        belonging: which of the kept rows count; None where all do, and stages are compared with groups only.
        shared: the names of the stages with one value that is a column of every group.
    """

    plan: MergePlan
    kept: MergePlan
    belonging: Belonging | None = None
    shared: tuple[str, ...] = ()

    @property
    def threshold(self) -> Threshold | None:
        """Return the comparison that decides which rows count; None where there is none."""
        return self.belonging.threshold if self.belonging else None

    @property
    def compared(self) -> frozenset[str]:
        """Return the names of the stages with one value that rows or groups are compared with."""
        return frozenset([*self.shared, *([self.threshold.stage] if self.threshold else [])])


@dataclass(frozen=True, slots=True)
class OverStages:
    """The outer query where it reads nothing but stages and static tables.

    Attributes:
        final_sql: the query over the tables of stages and statics.
        statics: the static tables, which are fetched once.
        picks_groups: whether estimates decide which of the stages' groups are shown: the largest ones, for
            example, or those with more than 15 rows. Then totals are not scaled while groups have few rows,
            because scaled totals would be far too high.
    """

    final_sql: str
    statics: tuple[Hoist, ...] = ()
    picks_groups: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinedPlan(OnlinePlan):
    """How a query with inner stages is answered.

    Attributes:
        stages: the inner aggregates, in the order in which they are computed.
        outer: the rest of the query.
    """

    mode = Mode.REFINED
    is_two_level = True
    costs_grow = True

    stages: tuple[Stage, ...]
    outer: OuterRows | OverStages

    @property
    def outer_rows(self) -> OuterRows | None:
        """Return the outer query, if it reads streams itself."""
        return self.outer if isinstance(self.outer, OuterRows) else None

    @property
    def joined(self) -> tuple[str, ...]:
        return self.outer.plan.joined if isinstance(self.outer, OuterRows) else ()

    @property
    def statics(self) -> tuple[Hoist, ...]:
        """Return the static tables that are fetched once."""
        return self.outer.statics if isinstance(self.outer, OverStages) else ()

    @property
    def picks_groups(self) -> bool:
        """Whether it is decided by estimates which of the stages' groups are shown."""
        return isinstance(self.outer, OverStages) and self.outer.picks_groups

    @property
    def threshold(self) -> Threshold | None:
        """Return the comparison that decides which rows count; None where there is none."""
        return None if self.outer_rows is None else self.outer_rows.threshold

    @property
    def task_plans(self) -> tuple[MergePlan, ...]:
        """Return the plans with the partial queries that a mini-batch's tasks run."""
        kept = () if self.outer_rows is None else (self.outer_rows.kept,)
        return (*kept, *(stage.plan for stage in self.stages))

    @property
    def result_shape(self) -> ResultShape | None:
        """Return how large a partial result of the outer query gets; None where a condition decides that."""
        if self.outer_rows is None:
            return ResultShape(columns=1, most_rows=self.expected_groups)
        return self.outer_rows.plan.result_shape

    @property
    def method(self) -> Method:
        return Method.NONE if self.outer_rows is None else self.outer_rows.plan.method

    @property
    def expected_groups(self) -> int:
        if self.outer_rows is None:
            return max(stage.plan.expected_groups for stage in self.stages)
        return self.outer_rows.plan.expected_groups

    @property
    def groups_are_local(self) -> bool:
        return self.outer_rows is not None and self.outer_rows.plan.groups_are_local
