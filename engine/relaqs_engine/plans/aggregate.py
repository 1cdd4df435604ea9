"""Plans of one query whose partial results merge: `MergePlan` of an aggregation, `RowsPlan` of rows.

Each task runs a partial query over its partitions, and its result is merged into one state:

    SELECT flag, avg(x) FROM t GROUP BY flag

is `k0 = flag, b0 = sum(x), b1 = count(x), m = count(*)` over each partition, and in the state, where these
columns merge by adding up. The answer is then `SELECT k0, b0 / b1`. Without aggregates the state is the
rows themselves, and each row found is final.

- The names that this SQL uses: tables, columns, parameters, and marks that a task fills in.
- `BasisColumn`: a column of partial results. Every supported aggregate is made of such mergeable
  primitives.
- `MembershipRules`: what decides which groups an answer has, the numbers that HAVING and LIMIT compare.
- `HeavyGroups`: what is known of the groups that an index of heavy units has, and of all others.
- `FoldedPlan`: what both kinds share, a query that each task runs and a state for its results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from relaqs_engine.plans.plan import ErrorBars, Method, Mode, OnlinePlan, OutputColumn

# The table of partial rows. Each of its rows carries the count of joined rows behind it and its block.
STATE = "state"
ROWS = "m"
BLOCK = "r"
# The outlier index adds rows to the state in this block. They are no sample, so no error bar is made of them.
OUTLIER_BLOCK = -1
# The table of the groups that were read from an index of heavy units, in the columns of the state.
HEAVY = "heavy_groups"
FAN_OUT = "fan_out"
# The factor that turns a total over the rows scanned into one over the table: rows in the table / rows
# scanned. In the SQL of an estimate it is called `scale`. It is a parameter of the prepared statement.
SCALE = "scale"
SCALE_PARAMETER = "CAST($1 AS DOUBLE)"
UNIT_SCALE_PARAMETER = "CAST($2 AS DOUBLE)"  # units of the table / units scanned
# Of COUNT(DISTINCT x): a value of x, and the sampling units that have it, 1 or more (how many more is not
# always known). Merged per group these are the distinct values seen, those seen in one unit only, and of all
# rows with a value the share whose value was seen in one unit only.
VALUE = "x"
UNITS = "u"
DISTINCT_SEEN = "distinct_seen"
DISTINCT_ONCE = "distinct_once"
DISTINCT_TWICE = "distinct_twice"
DISTINCT_ESTIMATE = "distinct_estimate"
# In the SQL around answers: which row of which answer it is, and the joined rows behind it.
GROUP = "relaqs_group"
GROUP_ROWS = "relaqs_rows"
# A ranking reads this many groups that follow those it shows, and this many that HAVING leaves out.
RIVALS = 500
# A group with fewer rows is too small to be judged: its standard error is itself too uncertain.
JUDGED_ROWS = 30
# Where LIMIT picks groups: how many of those seen come before a group or with it by the keys of ORDER BY, how
# many of these were seen in one sampling unit at most, and whether no group can come before it.
BEFORE = "relaqs_before"
BEFORE_ONCE = "relaqs_before_once"
IS_FIRST = "relaqs_is_first"
# The one-row table of the values that stages share with every group, and the scale that belongs to them.
SHARED = "shared"
SHARED_SCALE = "shared_scale"
# Text literals that stand for the ends of a range until a task is given numbers. They are cast in the SQL.
RANGE_LOW = "range low"
RANGE_HIGH = "range high"


def outlier_column(name: str) -> str:
    """Return the column of an estimate's groups with what outliers add to a basis column, unscaled."""
    return f"outlier_{name}"


def moves_column(position: int) -> str:
    """Return the column with the most that one sampled row could move the output at a position."""
    return f"relaqs_moves_{position}"


def margin_column(index: int) -> str:
    """Return the column with how far apart the sides of a comparison are, around answers."""
    return f"relaqs_margin_{index}"


class Basis(StrEnum):
    """The mergeable primitives every supported aggregate is made of."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    ANY_VALUE = "any_value"
    FIRST = "first"  # of rows in an order, or of any rows; a struct of the value and what is ordered by
    LAST = "last"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    ARG_MIN = "arg_min"  # merged by the extreme it stands beside
    ARG_MAX = "arg_max"
    MEAN = "mean"  # of a variance or covariance: count, means and m2 are merged by Chan's formula
    M2 = "m2"  # the sum of products of deviations from two means, or of squares of deviations from one
    VALUES = "values"  # all of them, as a list
    # What a row adds to one column, times what it adds to another, summed over the rows. Variances in closed
    # form need it for every pair of columns, and for each column with itself.
    PRODUCT = "product"


@dataclass(frozen=True, slots=True)
class UnitSum:
    """What the rows of one sampling unit add to a sum: any k of them `middle` · k + d, −below ≤ d ≤ above.

    Attributes:
        middle: about the mean of what a row adds.
        above: the most that distances above the middle come to.
        below: the most that distances below it come to.
        squares: the most that squares of distances from it come to.
    """

    middle: float
    above: float
    below: float
    squares: float

    def times(self, factor: float) -> UnitSum:
        """Return the same of values that are so many times as large."""
        above, below = (self.above, self.below) if factor >= 0.0 else (self.below, self.above)
        size = abs(factor)
        return UnitSum(factor * self.middle, size * above, size * below, factor**2 * self.squares)

    def moved(self, by: float) -> UnitSum:
        """Return the same of values that are larger by a number."""
        return UnitSum(self.middle + by, self.above, self.below, self.squares)


@dataclass(frozen=True, slots=True)
class BasisColumn:
    """One column of partial aggregates.

    Where the plan reads outliers apart, `lowest` and `highest` bound a row that is no outlier. Outliers
    beyond them may then have moved a total already.

    Attributes:
        name: its name in partial results and in the state.
        kind: how it merges.
        sql: its expression in the partial query.
        type: its DuckDB type.
        row_sql: what one joined row adds to a COUNT or SUM.
        count_of: the name of a COUNT: each row that adds something here adds 1 there. A MEAN and an M2 need
            it to merge. A SUM has one where the query divides it by this count, as avg(x) does. What is never
            NULL is counted by COUNT(*), and so is its own COUNT.
        means: the names of the MEANs that an M2's deviations are from: two for a covariance, twice the same
            for a variance. A MEAN has its own name here.
        extreme_of: the extreme that an ARG_MIN or ARG_MAX stands beside.
        order: what a FIRST or LAST is ordered by, as SQL over the fields of its struct.
        lowest: a provable lower bound of one row's value, from the statistics; None where there is none.
        highest: likewise an upper bound.
        counts_units: whether it counts sampling units, as COUNT(DISTINCT key) does. Partial results of such a
            column add up only where each has all rows of its units. Those of other columns merge whatever
            rows they come from.
        unit_sums: what a unit's rows add, of each factor of an M2. Empty where the ends of a row say it all.
    """

    name: str
    kind: Basis
    sql: str
    type: str
    row_sql: str = ""
    count_of: str | None = None
    means: tuple[str, ...] = ()
    extreme_of: str | None = None
    order: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    counts_units: bool = False
    unit_sums: tuple[UnitSum, ...] = ()

    @property
    def is_additive(self) -> bool:
        """Whether replicates can subtract it: counts, sums, and moments as sums of deviations."""
        return self.kind in (Basis.COUNT, Basis.SUM, Basis.MEAN, Basis.M2)

    @property
    def is_moment(self) -> bool:
        """Whether it is a sum of deviations from means."""
        return self.kind in (Basis.MEAN, Basis.M2)

    @property
    def is_square(self) -> bool:
        """Whether it is a sum of squares of deviations, which is never negative."""
        return self.kind is Basis.M2 and len(set(self.means)) == 1

    @property
    def additive_sql(self) -> str:
        """Return what a row of the state adds to it, as a double; of moments about grand_…, the mean."""
        away = " * ".join(f"({mean} - grand_{mean})" for mean in self.means)
        match self.kind:
            case Basis.MEAN:
                return f"CAST({self.count_of} AS DOUBLE) * {away}"
            case Basis.M2:
                return f"({self.name} + {self.count_of} * {away})"
            case _:
                return f"CAST({self.name} AS DOUBLE)"


@dataclass(frozen=True, slots=True)
class Decider:
    """A number that decides which groups the answer has.

    Example: in `HAVING sum(x) > 100` the sum is a decider with the threshold 100 and the side "above".

    Attributes:
        value: the number; it is estimated like an output, and not shown.
        ranks: True where the answer is its LIMIT first groups by this number. Otherwise HAVING compares it
            with the threshold, and a group stays on the side where it is.
        descends: whether the largest number comes first. Only for a ranking.
        threshold: what HAVING compares the number with.
        passes: HAVING's condition, in SQL over merged groups.
        side: the side of the threshold where groups pass, "above" or "below"; "" where it is neither.
    """

    value: OutputColumn
    ranks: bool
    descends: bool = True
    threshold: float = 0.0
    passes: str = ""
    side: str = ""


@dataclass(frozen=True, slots=True)
class MembershipRules:
    """Which groups belong to the answer, as far as HAVING, LIMIT and inner stages say.

    Attributes:
        deciders: the estimated numbers that HAVING and LIMIT depend on.
        is_opaque: True where it cannot be told before the end which groups belong to the answer.
        shown_rows: how many groups the answer shows at most, where a decider ranks them. Its estimate then
            reads RIVALS more. None where nothing that is estimated ranks them.
        ranks_by_key: whether LIMIT picks groups by keys alone, or by keys first and then by what has no
            error.
        ranks_totals: whether the ranking is by values that are scaled.
        has_having: whether the query has a HAVING.
        has_limit: whether it has a LIMIT or an OFFSET.
        most_rows: how many groups LIMIT lets through. None without LIMIT, and with an OFFSET.
        first_by: the keys that order the answer before any estimate does, as SQL over merged groups.
        rows_may_leave: whether rows that were counted may stop counting, as an inner stage moves.
    """

    deciders: tuple[Decider, ...] = ()
    is_opaque: bool = False
    shown_rows: int | None = None
    ranks_by_key: bool = False
    ranks_totals: bool = False
    has_having: bool = False
    has_limit: bool = False
    most_rows: int | None = None
    first_by: tuple[str, ...] = ()
    rows_may_leave: bool = False

    @property
    def ranks_averages(self) -> bool:
        """Whether LIMIT picks groups by averages, ratios or quantiles, and by nothing before.

        Those of a few rows are far out by chance, and would hide all others. So groups of fewer than
        JUDGED_ROWS rows come last in an estimate.
        """
        return self.ranking is not None and not self.ranks_totals and not self.first_by

    @property
    def ranking(self) -> Decider | None:
        """Return what the answer's groups are ranked by, None where they are not ranked by an estimate."""
        return next((decider for decider in self.deciders if decider.ranks), None)

    @property
    def margins(self) -> tuple[Decider, ...]:
        """Return what HAVING compares."""
        return tuple(decider for decider in self.deciders if not decider.ranks)

    @property
    def picks_groups(self) -> bool:
        """Whether HAVING or LIMIT leaves groups out."""
        return self.has_having or self.has_limit


@dataclass(frozen=True, slots=True)
class HeavyGroups:
    """How the groups in an index of heavy units are read before their partitions are.

    Attributes:
        index: the name of the index, see `HeavyUnits.name`.
        most: what any other group's ranked total is at most, where each row meets one row of the static
            tables at most.
        fan_out_sql: how many rows of the static tables a row can meet at most, over the hoists.
    """

    index: str
    most: float
    fan_out_sql: str


@dataclass(frozen=True, slots=True)
class StreamScan:
    """What a task reads of one stream.

    Attributes:
        table: the name of the layout.
        columns: the columns that the partial query names.
        times: how often the query reads the table, as a self-join reads it twice.
    """

    table: str
    columns: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True, slots=True)
class PartialQuery:
    """The query that a task runs over some partitions. Stream tokens stand in the place of file lists.

    Attributes:
        by_block_sql: the same, with its groups told apart by block as well; "" where no block is told apart.
        outlier_sql: the same over the outlier index, which the first step reads; `sql` leaves those rows out.
            "" where no index is read.
        heavy: how groups are read from an index of heavy units, by the same query, before their partitions
            are. None where they are not.
        scans: what it reads of each stream.
        is_filtered: whether a condition leaves rows out.
    """

    sql: str
    by_block_sql: str = ""
    outlier_sql: str = ""
    heavy: HeavyGroups | None = None
    scans: tuple[StreamScan, ...] = ()
    is_filtered: bool = False


@dataclass(frozen=True, slots=True)
class ResultShape:
    """How large the partial result over one partition gets, where no condition leaves rows out.

    Attributes:
        columns: how many columns a row of it has.
        lists: how many of them list all values of a group.
        most_rows: how many rows it has at most; None where each row read is one.
    """

    columns: int
    lists: int = 0
    most_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPlan(OnlinePlan, ABC):
    """A plan with one partial query, and a state that its results are folded into.

    Attributes:
        partial: the query that a task runs.
    """

    mode = Mode.MERGEABLE
    keeps_state = True

    partial: PartialQuery

    @property
    def task_plans(self) -> tuple[FoldedPlan, ...]:
        """Return the plans with the partial queries that a mini-batch's tasks run: this one."""
        return (self,)

    @property
    def result_shape(self) -> ResultShape | None:
        """Return how large a partial result gets; None where a condition decides that."""
        return None if self.partial.is_filtered else self._unfiltered_shape

    @property
    @abstractmethod
    def _unfiltered_shape(self) -> ResultShape: ...

    @property
    @abstractmethod
    def state_columns(self) -> tuple[str, ...]:
        """Return the columns of the state, by name."""

    @property
    @abstractmethod
    def block_count(self) -> int:
        """Return how many blocks are stored in the data and told apart."""

    @property
    @abstractmethod
    def compact_sql(self) -> str:
        """Return the query that makes one row of each group's; "" where its rows have to stay apart."""


@dataclass(frozen=True, slots=True)
class StateColumns:
    """The columns of an aggregation's state.

    Attributes:
        keys: the names of the group keys, k0, k1, …
        basis: the partial aggregates.
        shared: columns of inner stages' merged state. Every group has them beside its own, and
            `shared_scale` is their scale. None of them is in the state.
        counts_distinct: the state has a row per value that COUNT(DISTINCT) counts.
        most_listed: the most values that its lists may have; None where it has none.
    """

    keys: tuple[str, ...] = ()
    basis: tuple[BasisColumn, ...] = ()
    shared: tuple[BasisColumn, ...] = ()
    counts_distinct: bool = False
    most_listed: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns, in their order in the state."""
        values = (VALUE, UNITS) if self.counts_distinct else ()
        return (*self.keys, *values, BLOCK, *(column.name for column in self.basis), ROWS)

    @property
    def list_count(self) -> int:
        """Return how many columns list all values of a group."""
        return sum(column.kind is Basis.VALUES for column in self.basis)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known of the groups beforehand.

    Attributes:
        expected: about how many there are at most.
        are_local: each group's rows lie in one partition, so that a group seen is complete.
        sets: of how many sets of keys groups stand beside each other, as in ROLLUP, the empty set left aside.
            0 where GROUP BY has one.
        most: as many groups as there can be. None where that is not known.
        fewest: as many groups as there are at least.
        keys: values of group keys that some group has for certain, each as the key's name and its SQL.
    """

    expected: int = 1
    are_local: bool = False
    sets: int = 0
    most: int | None = None
    fewest: int = 0
    keys: tuple[tuple[str, str], ...] = ()
    share_needed: float = 0.0


@dataclass(frozen=True, slots=True)
class MergeTexts:
    """The SQL from the state to answers.

    Attributes:
        merge: the state to one row per group.
        estimate: merged groups to the answer so far.
        final: merged groups to the exact answer, in DuckDB's own types.
        weighted_merge: `merge` for an estimate where an outlier index is read. What the index adds weighs
            1 / scale, so that scaling leaves it as it is. "" where no index is read.
        early_merge: `merge` for an estimate where heavy groups were read early. They are complete, so what
            their partitions have of them is left out. "" where none are.
        near: where groups are ranked, merged groups to those that fail HAVING so far: they may pass it later,
            and rank before others. Those nearest to its thresholds come first. It has the columns of
            `estimate`. "" where no such group can be in the answer.
        value_merge: where COUNT(DISTINCT) is estimated, the state to one row per value of a group. "" else.
    """

    merge: str
    estimate: str = ""
    final: str = ""
    weighted_merge: str = ""
    early_merge: str = ""
    near: str = ""
    value_merge: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan(FoldedPlan):
    """How one aggregation is answered.

    Attributes:
        columns: of the state.
        texts: the SQL from the state to answers.
    """

    tells_certain_rows = True

    columns: StateColumns
    texts: MergeTexts
    bars: ErrorBars = field(default_factory=ErrorBars)
    groups: GroupFacts = field(default_factory=GroupFacts)
    membership: MembershipRules = field(default_factory=MembershipRules)

    @property
    def method(self) -> Method:
        return self.bars.method

    @property
    def block_count(self) -> int:
        return self.bars.block_count

    @property
    def expected_groups(self) -> int:
        return self.groups.expected

    @property
    def share_needed(self) -> float:
        return self.groups.share_needed

    def predicted(self, share_needed: float) -> Self:
        known = replace(self.groups, share_needed=share_needed)
        return self if self.groups_are_local else replace(self, groups=known)

    @property
    def ranks_groups(self) -> bool:
        return self.membership.ranking is not None

    @property
    def groups_are_local(self) -> bool:
        return self.groups.are_local

    @property
    def groups_are_final(self) -> bool:
        return self.groups.are_local and not self.membership.rows_may_leave

    @property
    def joined(self) -> tuple[str, ...]:
        return self.bars.joined

    @property
    def reads_outliers(self) -> bool:
        return bool(self.texts.weighted_merge)

    @property
    def leaves_units_out(self) -> bool:
        return self.bars.leaves_units_out

    @property
    def has_one_row(self) -> bool:
        return not self.columns.keys and self.shows_every_group

    @property
    def shows_every_group(self) -> bool:
        return not self.membership.picks_groups

    @property
    def groups_of_a_row(self) -> int | None:
        known = self.bars.joins_one_stream and not self.groups_are_local
        return max(1, self.groups.sets) if known else None

    @property
    def _unfiltered_shape(self) -> ResultShape:
        columns = len(self.columns.keys) + len(self.columns.basis) + 1
        return ResultShape(columns, self.columns.list_count, self.groups.expected)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return self.columns.names

    @property
    def compact_sql(self) -> str:
        """Return the merge, by value where values are counted; "" where blocks or lists keep rows apart.

        Of local groups each has one row already.
        """
        apart = self.method is Method.REPLICATES or self.columns.list_count or self.groups_are_local
        return "" if apart else self.texts.value_merge or self.texts.merge


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPlan(FoldedPlan):
    """How the rows of a query are found.

    Attributes:
        keys: the columns of the state, k0, k1, …: the outputs, then what the rows are ordered by.
        final_sql: the state to the answer, in DuckDB's own types.
        expected_groups: how many rows there are at most.
        has_limit: whether the query has a LIMIT.
        limit_rows: this many rows, any of them, are the whole answer; None where all are needed.
    """

    # The rows that are kept are the answer itself, so running as a whole would need as much memory.
    may_run_whole = False

    keys: tuple[str, ...]
    final_sql: str
    expected_groups: int
    has_limit: bool = False
    limit_rows: int | None = None

    @property
    def block_count(self) -> int:
        return 1

    @property
    def shows_every_group(self) -> bool:
        return not self.has_limit

    @property
    def _unfiltered_shape(self) -> ResultShape:
        return ResultShape(columns=len(self.keys) + 1)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def compact_sql(self) -> str:
        return ""
