"""MergePlan: one aggregation. Each task aggregates its partitions; merged, its results give every estimate.

    SELECT flag, avg(x) FROM t GROUP BY flag

is `k0 = flag, b0 = sum(x), b1 = count(x), m = count(*)` over each partition, and in the state, where these
columns merge by adding up. The answer is then `SELECT k0, b0 / b1`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.deciders import MembershipRules
from relaqs_engine.plans.error_bars import ErrorBars, Method
from relaqs_engine.plans.folded import FoldedPlan, ResultShape
from relaqs_engine.plans.names import BLOCK, ROWS, UNITS, VALUE


@dataclass(frozen=True, slots=True)
class StateColumns:
    """The columns of an aggregation's state.

    Attributes:
        keys: the names of the group keys, k0, k1, …
        basis: the partial aggregates.
        shared: columns of inner stages' merged state. Every group has them beside its own, and
            `shared_scale` is their scale. None of them is in the state.
        counts_distinct: the state has a row per value that COUNT(DISTINCT) counts.
    """

    keys: tuple[str, ...] = ()
    basis: tuple[BasisColumn, ...] = ()
    shared: tuple[BasisColumn, ...] = ()
    counts_distinct: bool = False

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
        bars: where error bars come from.
        groups: what is known of the groups.
        membership: which groups belong to the answer.
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
