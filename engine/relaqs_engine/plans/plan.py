"""The plan of one query: frozen values that say what runs where, and why. Deciding happens in `rewrite/`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relaqs_engine.layouts.reads import TableRead
from relaqs_engine.plans.refinement import Refinement
from relaqs_engine.plans.sign import Sign

# Names inside the SQL of a plan: the table of partial rows, the count of joined rows each carries, its
# replicate block, and (while estimating) population rows / scanned rows.
STATE = "state"
# Of COUNT(DISTINCT x): a value of x, and the sampling units that have it; merged per group, the distinct
# values seen, those seen in one unit only, and the pairs of value and unit.
VALUE = "x"
UNITS = "u"
DISTINCT_SEEN = "distinct_seen"
DISTINCT_ONCE = "distinct_once"
DISTINCT_ESTIMATE = "distinct_estimate"
ROWS = "m"
# In the SQL around answers: which row of which answer, and the joined rows behind it.
GROUP = "relaqs_group"
GROUP_ROWS = "relaqs_rows"
# Of a ranking, beside the groups it shows: so many that follow them, and so many that HAVING leaves out.
RIVALS = 500
BLOCK = "r"
SCALE = "scale"
# The scale is the one parameter of an estimate's prepared statement.
SCALE_PARAMETER = "CAST($1 AS DOUBLE)"
# The block of what the outlier index adds to the state: it is no sample, and no block of error bars.
OUTLIER_BLOCK = -1


def outlier_column(name: str) -> str:
    """Return the column of an estimate's groups with what outliers add to a basis column, unscaled."""
    return f"outlier_{name}"


class Mode(StrEnum):
    """How a query is answered (see ARCHITECTURE.md)."""

    MERGEABLE = "mergeable"
    REFINED = "refined"
    EXACT = "exact"


class Method(StrEnum):
    """Where error bars come from."""

    REPLICATES = "replicates"  # partials kept per block: valid for any sampling unit
    CLOSED_FORM = "closed form"  # sums of squares and products per group: row units, many groups
    NONE = "none"  # no intervals were asked for


class Basis(StrEnum):
    """The mergeable primitives every supported aggregate is made of."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    ANY_VALUE = "any_value"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    ARG_MIN = "arg_min"  # merged by the extreme it stands beside
    ARG_MAX = "arg_max"
    MEAN = "mean"  # of a moment triple (count, mean, m2), merged by Chan's formula
    M2 = "m2"
    VALUES = "values"  # all of them, as a list
    PRODUCT = "product"  # of two columns' row contributions, summed; upper triangle, row by row


@dataclass(frozen=True, slots=True)
class BasisColumn:
    """One partial aggregate column. sql: its expression in the partial query. type: its DuckDB type.

    row_sql: what one joined row adds to a COUNT or SUM. count_of: the name of the count of the same rows,
    with which MEAN and M2 are merged; also of a SUM, where there is one. M2 names its MEAN in mean_of.
    extreme_of: for ARG_MIN and ARG_MAX, the extreme they stand beside. lowest, highest: provable bounds of
    one row's value, from the statistics, or None. Where the plan reads outliers apart they are of a row that
    is none: a total may then have been moved by outliers beyond them.
    """

    name: str
    kind: Basis
    sql: str
    type: str
    row_sql: str = ""
    count_of: str | None = None
    mean_of: str | None = None
    extreme_of: str | None = None
    lowest: float | None = None
    highest: float | None = None

    @property
    def is_additive(self) -> bool:
        """Whether replicates can subtract it: counts, sums, and moments as sums of deviations."""
        return self.kind in (Basis.COUNT, Basis.SUM, Basis.MEAN, Basis.M2)

    @property
    def additive_sql(self) -> str:
        """Return what a row of the state adds to it, as a double; of moments about grand_…, the mean."""
        n, mean = self.count_of, self.mean_of
        match self.kind:
            case Basis.MEAN:
                return f"CAST({n} AS DOUBLE) * ({self.name} - grand_{self.name})"
            case Basis.M2:
                return f"({self.name} + {n} * ({mean} - grand_{mean}) * ({mean} - grand_{mean}))"
            case _:
                return f"CAST({self.name} AS DOUBLE)"


class OutputKind(StrEnum):
    """What is known about an output column before the end."""

    KEY = "key"  # a function of group keys alone: exact for every row shown
    ESTIMATE = "estimate"  # a number with an interval
    DISTINCT = "distinct"  # COUNT(DISTINCT x): between the values seen and those that may be unseen
    QUANTILE = "quantile"  # between two values of the sample, by their ranks
    BOUND = "bound"  # MIN or MAX: at most, at least
    OPAQUE = "opaque"  # depends on aggregates, without a sound interval


@dataclass(frozen=True, slots=True)
class QuantileOf:
    """A quantile of the values that the basis column `values` lists. share: of them that lie below it."""

    values: str
    share: float


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the answer. type: DuckDB's own type for it, which every snapshot keeps.

    estimate_sql: the value over keys, basis and `scale`. total: the basis column when the output is a plain
    SUM or COUNT, whose interval may then use that it cannot be negative. side: for BOUND, "least" if the
    value so far is a lower bound of the final one (MAX), "most" if an upper bound (MIN). quantile: for
    QUANTILE. unrounded_sql: the value before it is rounded, "" where it is not; rounding: how far that moves
    it at most. moves_in_steps: something inside of it is rounded, so that nothing bounds what a row does.
    sign: the sides of zero its values may lie on. certifiable: False where no interval of it is certified
    before the end, whatever is read, so that the answer's error leaves it out.
    """

    name: str
    kind: OutputKind
    type: str
    estimate_sql: str
    total: str | None = None
    side: str | None = None
    quantile: QuantileOf | None = None
    unrounded_sql: str = ""
    rounding: float = 0.0
    moves_in_steps: bool = False
    sign: Sign = Sign.EITHER
    certifiable: bool = True

    @property
    def smooth_sql(self) -> str:
        """Return the value that error bars are of: before it is rounded."""
        return self.unrounded_sql or self.estimate_sql


@dataclass(frozen=True, slots=True)
class Decider:
    """A number that decides which groups the answer has. value: estimated, not shown.

    ranks: the answer is its LIMIT first groups by this value, the largest first where it descends. Otherwise
    HAVING compares the value with the threshold, and a group stays on the side where it is. passes: that
    condition, in SQL over merged groups. side: of the threshold where groups pass, "above" or "below", or ""
    where it is neither.
    """

    value: OutputColumn
    ranks: bool
    descends: bool = True
    threshold: float = 0.0
    passes: str = ""
    side: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """A layout that is sampled. token: the text that stands for its files in `partial_sql`.

    columns: those that the query can read.
    """

    table: str
    token: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hoist:
    """A static side prepared once per worker: projected, filtered, reduced. name: the table it becomes.

    The name is a digest of its SQL and of the data it reads, so equal hoists are shared between queries.
    tables: their names, for people. reads: the files.
    """

    name: str
    sql: str
    tables: tuple[str, ...]
    reads: tuple[TableRead, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """A query over the answers of others: what stands around aggregates (see `rewrite/levels.py`).

    parts: the plans of those answers; they are read as tables part_0, part_1, … of columns c0, c1, …, GROUP
    and GROUP_ROWS. final_sql, estimate_sql: to the answer o0, …; an estimate has v0, … as well for outputs
    that are estimated, then GROUP and GROUP_ROWS if its rows can be told apart. replicate_sql: the same for
    every variant of the one part that leaves out a block, "" if none is needed. varied: that part.
    sources: per output, (part, output) whose interval it has. whole: outputs not certified before the end,
    as groups not yet seen could change them. rows_are_certain: which rows there are depends on no estimate.
    keeps_groups: each row is a group of an answer. so_far: some outputs are values so far, computed from
    groups that are not scaled while they are tiny.
    """

    parts: tuple[OnlinePlan, ...]
    final_sql: str
    estimate_sql: str
    replicate_sql: str
    sources: tuple[tuple[tuple[int, int], ...], ...]
    whole: tuple[bool, ...]
    varied: int
    has_identity: bool
    rows_are_certain: bool
    keeps_groups: bool
    so_far: bool


@dataclass(frozen=True, slots=True)
class OnlinePlan:
    """Everything needed to run one query, and the reasons.

    leading: the streamed table whose rows measure what was scanned. expected_groups: about how many groups
    there are at most. block_count: blocks that partial_by_block_sql tells apart.
    groups_are_local: each group's rows lie in one partition, so a group seen is complete.
    returns_rows: it has no aggregates, its state is the rows themselves (k0, …: outputs, then what they are
    ordered by). limit_rows: so many rows, any, are the whole answer.
    rows_are_units: each joined row is a sampling unit of its own.
    counts_distinct: the state has a row per value that COUNT(DISTINCT) counts.
    deciders: what HAVING and LIMIT depend on. shown_rows: how many groups the answer shows at most, where
    deciders rank them; its estimate then has RIVALS more. near_sql: the groups that HAVING leaves out of a
    ranking, those nearest to its thresholds, with the columns of estimate_sql; "" where there are none.
    ranks_by_key: LIMIT picks groups by keys alone. ranks_totals: by what is scaled.
    membership_is_opaque: it cannot be told before the end which groups belong to the answer.
    has_grouping_sets: groups of several sets of keys (ROLLUP and the like) stand beside each other.
    counts_every_row: one table, no condition, no groups: COUNT(*) is known from the manifest.
    is_ordered: the query has an ORDER BY of its own.
    partial_sql: with stream tokens in place of file lists; partial_by_block_sql also groups by block.
    outlier_sql: the partial query over the outlier index, read in the first step; partial_sql leaves its rows
    out. "" where none is read.
    merge_sql: state to one row per group. weighted_merge_sql: the same for an estimate where an outlier index
    is read: what it adds weighs 1 / scale, so that scaling leaves it as it is.
    estimate_sql, final_sql: merged state to the answer so far, and to the exact answer in DuckDB's own types.
    exact_sql: the query itself over whole layouts (mode "exact"). exact_reads: their files. keys: internal
    names k0, k1, …
    refinement: the inner stages of a refined plan. shared: columns of its stages' merged state that every
    group has, with `shared_scale` for theirs.
    """

    sql: str
    mode: Mode
    reasons: tuple[str, ...]
    streams: tuple[Stream, ...]
    hoists: tuple[Hoist, ...]
    outputs: tuple[OutputColumn, ...]
    leading: str = ""
    keys: tuple[str, ...] = ()
    basis: tuple[BasisColumn, ...] = ()
    method: Method = Method.NONE
    expected_groups: int = 1
    block_count: int = 1
    partial_sql: str = ""
    partial_by_block_sql: str = ""
    outlier_sql: str = ""
    merge_sql: str = ""
    weighted_merge_sql: str = ""
    estimate_sql: str = ""
    final_sql: str = ""
    exact_sql: str = ""
    exact_reads: tuple[TableRead, ...] = ()
    returns_rows: bool = False
    limit_rows: int | None = None
    rows_are_units: bool = False
    counts_distinct: bool = False
    deciders: tuple[Decider, ...] = ()
    membership_is_opaque: bool = False
    shown_rows: int | None = None
    ranks_by_key: bool = False
    ranks_totals: bool = False
    near_sql: str = ""
    has_having: bool = False
    has_limit: bool = False
    groups_are_local: bool = False
    has_grouping_sets: bool = False
    counts_every_row: bool = False
    is_ordered: bool = False
    around: Around | None = None
    refinement: Refinement | None = None
    shared: tuple[BasisColumn, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ranking(self) -> Decider | None:
        """Return what the answer's groups are ranked by, None where they are not."""
        return next((decider for decider in self.deciders if decider.ranks), None)

    @property
    def groups_are_final(self) -> bool:
        """Whether a group's values are final as soon as it is seen: its rows are all there, and all count."""
        return self.groups_are_local and (self.refinement is None or self.refinement.belonging is None)
