"""Plans that are made of other plans: a query over their answers, or a sample first and then the whole.

`AroundPlan` is SQL around the answers of its parts, such as a window over aggregates or a set operation:

    SELECT zone, sum(fare) / sum(sum(fare)) OVER () FROM trips GROUP BY zone

has one part, the sums of the zones. Its window is computed anew over each answer of the part.

`RefinedPlan` is of a query with an aggregate over all rows inside, as `WHERE x > (SELECT avg(x) FROM t)`.
The inner aggregate is a **stage**: an aggregation of its own that reads the same mini-batches. The rows of
the outer query are kept, and those that count are merged anew. A look-up is bounded by a `Range`, in which
the value of a stage is taken to lie. These plans are made in `rewrite/uncertain_rows.py`, and answered in
`execution/refined.py`. An outer query that samples nothing itself is an `AroundPlan` over the inner answers.

`SampledThenExact` estimates a query from a part of its rows, and then runs it once, exactly. A `MergePlan`
over the part gives the estimates, and a `WholePlan` the end: the query as DuckDB runs it. The part is one
of three:

    row groups of plain files, drawn at random
    the first partitions of a layout that is being made
    the first partitions of a table, for SUMMARIZE
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from relaqs_engine.layouts.manifest import FirstPart
from relaqs_engine.plans.aggregate import MergePlan, ResultShape, RowsPlan
from relaqs_engine.plans.plan import Method, MiniBatch, Mode, OnlinePlan, WholePlan, spread_order

if TYPE_CHECKING:
    from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable


@dataclass(frozen=True, slots=True)
class Range:
    """Where a stage's value is taken to lie, both ends included. Without ends nothing is decided."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, other: Range) -> bool:
        """Whether the other range lies within this one."""
        return self.low <= other.low and other.high <= self.high

    @property
    def decides(self) -> bool:
        """Whether both ends are known, so that values outside of it are decided."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, other: Range) -> Range:
        """Return the part of this range that lies in the other."""
        return Range(max(self.low, other.low), min(self.high, other.high))


# A plan with an answer that SQL can stand around.
PartPlan: TypeAlias = MergePlan | RowsPlan | WholePlan


@dataclass(frozen=True, slots=True)
class AroundTexts:
    """The SQL over the answers of the parts. It reads them as tables part_0, part_1, …

    Such a table has the part's outputs as c0, c1, … An answer so far has two more columns:
    `relaqs_group` numbers its rows, through all parts, and `relaqs_rows` counts the joined rows behind each.

    Attributes:
        final: makes the query's answer, with the columns o0, o1, …, of the final answers of the parts.
        estimate: makes the answer so far of the parts' answers so far. The outputs that are estimated stand
            in it once more, as DOUBLE, named v0, v1, … after their positions. If its rows can be told apart,
            `relaqs_group` and `relaqs_rows` follow.
        moves: the most that one sampled row could move each estimated output, in the same names, for each
            `place` of the table shown. The parts have it as relaqs_moves_0, … beside c0, …. It is infinite
            where it is not known. "" where it is known of no output.
    """

    final: str
    estimate: str
    moves: str = ""


@dataclass(frozen=True, slots=True)
class Draw:
    """Parts whose rows are sampled together, so that what they miss is not independent.

    Attributes:
        parts: their positions. They leave out the same block together.
        replicate: the SQL of the estimated outputs, once for each variant of these parts. A variant is their
            answers without one block.
    """

    parts: tuple[int, ...]
    replicate: str


@dataclass(frozen=True, slots=True)
class Margin:
    """A number by which an answer chooses. In the texts it is an estimated output after the last one.

    Attributes:
        output: which output depends on it, None where the row does.
        is_compared: it is how far apart the two sides of a comparison are. As long as that is far from zero,
            nothing changes. False: it is what COALESCE takes unless it is NULL, and it must be certified.
    """

    output: int | None
    is_compared: bool = True


@dataclass(frozen=True, slots=True)
class Ranking:
    """LIMIT behind an ORDER BY whose first term is an estimate.

    Attributes:
        output: the estimated output.
        descends: whether the largest comes first.
        shown: how many rows LIMIT lets through. The estimate's SQL gives RIVALS more.
    """

    output: int
    descends: bool
    shown: int


@dataclass(frozen=True, slots=True)
class AroundRows:
    """What is known of the rows of an answer that is computed from others (see `rewrite/levels.py`).

    Attributes:
        have_identity: they can be told apart, each by the row of a part that it comes from.
        are_certain: which rows there are depends on no estimate, LIMIT left aside.
        most: how many rows LIMIT lets through, None where it cannot leave any out. 0 where an OFFSET may.
        keep_groups: each row is a group of a part's answer.
        sets: into how many rows one row that is sampled may fall, the total of all left aside. Tables of
            different seeds are sampled independently and count apart. 0 where that is not known, or where
            none is sampled.
        so_far: some outputs are values so far, without an interval, as a rank is. While the groups of the
            parts have few rows, they are computed from totals that are not scaled.
        have_margins: which rows there are depends on no estimate but the margins. False where LIMIT picks
            among them.
        margins: of each comparison of estimates, and of each estimate that may be NULL.
        totals: totals[i]: output i adds up sampled rows, none of which takes anything away.
        chosen: chosen[i]: output i is a value that comparisons of estimates choose among known ones.
        whole: whole[i]: output i depends on which groups there are, so all of them must have been met.
        ranking: by which estimate LIMIT picks among the rows, None where it picks in another way, or not.
        are_sampled: they are made of rows that are sampled, not of static ones that look estimates up.
        tables_together: the most tables with one seed. A row of each may be sampled with one row of another.
    """

    have_identity: bool
    are_certain: bool
    most: int | None
    keep_groups: bool
    so_far: bool
    sets: int = 0
    have_margins: bool = False
    margins: tuple[Margin, ...] = ()
    totals: tuple[bool, ...] = ()
    chosen: tuple[bool, ...] = ()
    whole: tuple[bool, ...] = ()
    ranking: Ranking | None = None
    are_sampled: bool = True
    tables_together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AroundPlan(OnlinePlan):
    """How a query over the answers of others is answered.

    Attributes:
        parts: the plans of those answers.
        draws: the samples that the parts come from, each independent of the others. For the error bars, the
            answer is computed again without each block of each draw in turn. () where no error bar needs it.
        sources: sources[i] are the (part, output) from which output i takes its interval.
        added: outputs of parts that are added up, each as the (part, output) that make one column.
    """

    mode = Mode.MERGEABLE
    is_two_level = True

    parts: tuple[PartPlan, ...]
    draws: tuple[Draw, ...]
    texts: AroundTexts
    rows: AroundRows
    sources: tuple[tuple[tuple[int, int], ...], ...]
    added: tuple[frozenset[tuple[int, int]], ...]

    @property
    def method(self) -> Method:
        return next(part.method for part in self.parts if part.is_estimated)

    @property
    def is_undecided(self) -> bool:
        return self.rows.are_sampled and not self.rows.are_certain

    @property
    def expected_groups(self) -> int:
        return max(part.expected_groups for part in self.parts)


@dataclass(frozen=True, slots=True)
class Stage:
    """An inner aggregate over streams.

    Attributes:
        name: the table that its answer so far becomes. It has the answer's columns o0, o1, …, estimates also
            as DOUBLE (v0, …), and the merged state.
        title: what it computes, for people.
    """

    name: str
    title: str
    plan: MergePlan


@dataclass(frozen=True, slots=True)
class Threshold:
    """One comparison `row value <operator> stage value` that decides which rows count.

    Attributes:
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
    """The outer query.

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
    outer: OuterRows

    @property
    def joined(self) -> tuple[str, ...]:
        return self.outer.plan.joined

    @property
    def task_plans(self) -> tuple[MergePlan, ...]:
        """Return the plans with the partial queries that a mini-batch's tasks run."""
        return (self.outer.kept, *(stage.plan for stage in self.stages))

    @property
    def result_shape(self) -> ResultShape | None:
        """Return how large a partial result of the outer query gets; None where a condition decides that."""
        return self.outer.plan.result_shape

    @property
    def method(self) -> Method:
        return self.outer.plan.method

    @property
    def expected_groups(self) -> int:
        return self.outer.plan.expected_groups

    @property
    def groups_are_local(self) -> bool:
        return self.outer.plan.groups_are_local


FIRST_DRAWN = 8
"""Fewer row groups certify nothing."""

_GROWTH = 3


def growing_sizes(most: int) -> tuple[int, ...]:
    """Return how many row groups are drawn up to the end of each mini-batch. A rest joins the one before."""
    sizes = [FIRST_DRAWN]
    while most >= 1.5 * sizes[-1]:
        sizes.append(sizes[-1] * _GROWTH)
    return (*sizes[:-1], most)


def what_is_missed(drawn: int, count: int) -> str:
    """Return what a draw of so many row groups cannot tell, for the reader."""
    missed = 1.0 - drawn / count
    return f"not seen: a row group unlike all others, in {missed:.0%} of cases, if its footer does not tell"


@dataclass(frozen=True, slots=True)
class SummarizedColumn:
    """One column of what is summarized, and so one row of the summary.

    Attributes:
        listed: the column of the sample's state with its values, "" where they are not listed. Each row of
            the state has equal values once where `lists_distinct` is true.
        lists_distinct: see `listed`.
        time_type: the type as which quantiles are written, of moments; "" for numbers. The sample has these
            quantiles in microseconds.
        null_percentage: of its rows, None where that is not known beforehand.
    """

    name: str
    type: str
    listed: str = ""
    lists_distinct: bool = False
    time_type: str = ""
    null_percentage: float | None = None

    @property
    def lists_cut_values(self) -> bool:
        """Whether the values are listed without their last digits: nanoseconds as whole microseconds."""
        return self.time_type == "TIMESTAMP_NS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledThenExact(OnlinePlan):
    """How a query is estimated from a part of its rows, of which the exact answer takes nothing over.

    The sample of SUMMARIZE is one wide row, with each measure of each column. Its outputs are called by the
    measure and the number of the column: `avg_3`. `rows` counts the rows.

    Attributes:
        part: what is sampled: the first partitions of a table, or its row groups.
        sizes: how many row groups are drawn up to the end of each mini-batch. () for partitions.
        summarized: the columns that SUMMARIZE summarizes, in order. () for any other query.
    """

    mode = Mode.MERGEABLE
    ends_whole = True

    sample: MergePlan
    whole: WholePlan
    part: FirstPart | RowGroupTable
    sizes: tuple[int, ...] = ()
    summarized: tuple[SummarizedColumn, ...] = ()

    @classmethod
    def of(
        cls, sample: MergePlan, whole: WholePlan, part: FirstPart | RowGroupTable, *reasons: str
    ) -> SampledThenExact:
        """Return the plan of a query with the outputs of its sample. reasons: why it is answered so."""
        return cls(
            sql=whole.sql,
            outputs=sample.outputs,
            reasons=reasons,
            streams=sample.streams,
            hoists=sample.hoists,
            warnings=sample.warnings,
            measured_by=sample.measured_by,
            sample=sample,
            whole=replace(whole, outputs=sample.outputs, reasons=()),
            part=part,
        )

    @property
    def sample_may_go(self) -> bool:
        return not self.sizes

    @property
    def plain_tables(self) -> tuple[str, ...]:
        return self.whole.plain_tables

    @property
    def method(self) -> Method:
        return self.sample.method

    @property
    def expected_groups(self) -> int:
        return self.sample.expected_groups

    @property
    def shows_every_group(self) -> bool:
        return self.sample.shows_every_group

    @property
    def groups(self) -> tuple[RowGroup, ...]:
        """Return the row groups that are drawn from, none where partitions are sampled."""
        return () if isinstance(self.part, FirstPart) else self.part.drawn_from

    def drawn(self, seed: int) -> FirstPart | RowGroupTable:
        """Return what is sampled, with the row groups that are drawn in the order in which they are read."""
        if isinstance(self.part, FirstPart):
            return self.part
        return self.part.drawn(spread_order(len(self.groups), self.sizes, seed))

    @property
    def batches(self) -> tuple[MiniBatch, ...]:
        """Return the mini-batches of row groups, each a block by its place in that order."""
        ends = enumerate(pairwise((0, *self.sizes)))
        return tuple(MiniBatch(i, (tuple(range(*places)),), by_block=True) for i, places in ends)
