"""What all plans share: what is read and when, what the answer has, and where its error bars come from.

A plan is a frozen value. It says what runs where, and why. There are seven kinds:

    MergePlan         one aggregation: partial results merge, and every mini-batch gives an estimate
    RowsPlan          no aggregates: the rows found so far are the answer so far
    AroundPlan        SQL around the answers of other plans, its parts
    RefinedPlan       an aggregate over all rows stands inside: it is estimated first, as a stage
    SampledThenExact  estimates from a part of the rows, then the query as a whole
    CostlyPlan        aggregates over functions that are asked of a sample of rows
    WholePlan         no sound estimate is known: the query runs once, exactly

The first two are in `aggregate.py`, the next three in `composite.py`, `CostlyPlan` in `costly.py`.
`relaqs/queries/start.py` has one job for each but the last but one, which `relaqs/costly` runs.

In this file, from the answer down to what is read:

- `OutputColumn`: a column of the answer, and what is known of it before the end. Dates, times and
  intervals are counted in microseconds (`TimeScale`).
- `ErrorBars`: where the widths of intervals come from.
- `Stream` and `Hoist`: layouts that are sampled, and static sides that each worker prepares once.
- `OnlinePlan`, the base of all kinds, and `WholePlan`.
- `mini_batches`: which partitions are folded in which mini-batch, and by which task. A pure function of
  the layout. Nothing measured enters: the same data, seed and query give the same mini-batches on any
  cluster. They start with one partition, or the few that the query is predicted to need for a first
  estimate within ±5 % (`first_partitions` in `execution/state.py`), and grow, since error falls with the
  square root of the rows. A task covers several partitions, so that per-call work (planning, joins' build
  sides) stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import inf, nan
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.quantiles import normal_quantile

from relaqs_engine.duck import CivilTime
from relaqs_engine.layouts.manifest import DistinctCount, GroupCounts, Read, plain_tables
from relaqs_engine.sql.expressions import Fold, Motion, Sign, most_folded

_ZERO = {
    "DATE": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP_S": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP_MS": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP_NS": ("TIMESTAMP", "1970-01-01"),
    "TIMESTAMP WITH TIME ZONE": ("TIMESTAMPTZ", "1970-01-01 00:00:00+00"),
    "TIME": ("TIME", "00:00:00"),
}
TIME_TYPES = frozenset(_ZERO)
"""DuckDB's types of moments that have a number of microseconds of their own."""
MICROSECOND_TYPES = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIME"))
"""Those of them that Arrow keeps as microseconds or days."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """How the moments or intervals of an output are counted as numbers: in microseconds from an origin.

    Attributes:
        origin_microseconds: the origin, in microseconds since 1970, of times of day since midnight. Intervals
            are counted from zero.
        span_microseconds: how far apart two moments of the column can be. An error is relative to it, as no
            moment is zero. NaN for intervals: theirs are relative to the value, as those of numbers are.
    """

    origin_microseconds: int
    span_microseconds: float


INTERVAL_SCALE = TimeScale(0, nan)


def microseconds_sql(time_type: str, value: str) -> str:
    """Return SQL for the microseconds of a moment, since 1970 or since midnight. An infinite one has none."""
    has_microseconds = time_type in ("TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
    return f"epoch_us({value})" if has_microseconds else f"epoch_us(CAST({value} AS TIMESTAMP))"


def time_sql(time_type: str, microseconds: str) -> str:
    """Return SQL for the moment of so many microseconds, a BIGINT. It has the type of their average."""
    type_, zero = _ZERO[time_type]
    return f"CAST('{zero}' AS {type_}) + to_microseconds({microseconds})"


class OutputKind(StrEnum):
    """What is known about an output column before the end."""

    KEY = "key"  # a function of group keys alone: exact for every row shown
    ESTIMATE = "estimate"  # a number with an interval
    DISTINCT = "distinct"  # COUNT(DISTINCT x): between the values seen and those that may be unseen
    OF_DISTINCT = "of distinct"  # by the interval of a COUNT(DISTINCT x) that it is multiplied or divided by
    QUANTILE = "quantile"  # between two values of the sample, by their ranks
    BOUND = "bound"  # MIN or MAX: at most, at least
    OPAQUE = "opaque"  # depends on aggregates, without a sound interval


@dataclass(frozen=True, slots=True)
class QuantileOf:
    """A quantile of the values that a basis column lists.

    Attributes:
        values: the name of the basis column.
        share: the share of the values that lies below the quantile.
        rank_error: how far off that share the last answer may be, as DuckDB's approximate quantiles are.
    """

    values: str
    share: float
    rank_error: float = 0.0


@dataclass(frozen=True, slots=True)
class OfDistinct:
    """A value that is a number of distinct values, or one over it, times something estimated from sums.

    Attributes:
        factor: what is estimated from sums, an output of kind ESTIMATE: sum(paid) of
            sum(paid) / count(DISTINCT item).
        is_divided: whether it is divided by the number of values, and not multiplied.
    """

    factor: OutputColumn
    is_divided: bool


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the answer.

    Attributes:
        name: as the query calls it.
        kind: what is known of it before the end.
        type: DuckDB's own type for it, which every snapshot keeps.
        estimate_sql: the value as SQL over the group's keys, its partial aggregates b0, b1, … and `scale`,
            the factor from rows scanned to all rows. For sum(x) it is b0 · scale.
        total: the basis column, where the output is a plain SUM or COUNT. Its interval may then use that the
            total cannot be negative.
        counts_rows: whether it is a COUNT.
        side: for BOUND, "least" if the value so far is a lower bound of the final one (MAX), "most" if it is
            an upper bound (MIN).
        quantile: which quantile it is, for QUANTILE.
        unrounded_sql: the value before it is folded and rounded, "" where it is neither.
        folds: how the value is folded after that, as by abs(). Its interval is folded as well.
        rounding: how far rounding moves the value at most.
        rounding_a_row: how much further it moves it for each row of the group.
        moves_in_steps: something inside of it is rounded, so nothing bounds what one row does.
        widest: how wide a certified interval may be, as half of its width relative to the value. It is finite
            for what multiplies errors, as EXP: up to there the interval of a straight line holds.
        sign: the side of zero that its values keep to, EITHER where they may come near zero.
        never_certified: why no interval of it is ever certified before the end, in words. "" where one may
            be. The answer's error leaves such a column out.
        measures: whether it measures its row and does not name it, where `kind` does not say so: a KEY of a
            query that runs as a whole is exact, be it a group or a sum.
        time: how an estimated moment or interval is counted as a number; its error bars are of that number.
            None where it is a number itself.
        of_distinct: for OF_DISTINCT, how its interval follows from that of COUNT(DISTINCT).
    """

    name: str
    kind: OutputKind
    type: str
    estimate_sql: str
    total: str | None = None
    counts_rows: bool = False
    side: str | None = None
    quantile: QuantileOf | None = None
    unrounded_sql: str = ""
    folds: tuple[Fold, ...] = ()
    rounding: float = 0.0
    rounding_a_row: float = 0.0
    moves_in_steps: bool = False
    widest: float = inf
    sign: Sign = Sign.EITHER
    never_certified: str = ""
    time: TimeScale | None = None
    of_distinct: OfDistinct | None = None
    measures: bool = False

    @property
    def part(self) -> str:
        """Return what a chart does with it: "measure" for an exact number that measures, else its kind."""
        return "measure" if self.measures and self.kind is OutputKind.KEY else self.kind.value

    @property
    def certifiable(self) -> bool:
        """Whether an interval of it may be certified before the end."""
        return not self.never_certified

    @property
    def remark(self) -> str:
        """Return why its numbers are not certified, where none ever is before the end, "" for all others."""
        return "" if self.certifiable else f"not certified before the end, because {self.never_certified}"

    @property
    def smooth_sql(self) -> str:
        """Return the value that error bars are of: before it is folded and rounded."""
        return self.unrounded_sql or self.estimate_sql

    @property
    def motion(self) -> Motion:
        """Return how the value moves with its straight one: it may turn (KINKS), or stop (CHOOSES)."""
        return most_folded(fold.motion for fold in self.folds)


_FEWEST_COUNTED = 100  # values of a group, for an error that is about normal


class Method(StrEnum):
    """Where error bars come from."""

    REPLICATES = "replicates"  # partials kept per block: valid for any sampling unit
    CLOSED_FORM = "closed form"  # sums of squares and products per group: row units, many groups
    NONE = "none"  # no output has an interval, none was asked for, or each group is complete once it is seen


@dataclass(frozen=True, slots=True)
class ValuesByGroup:
    """What a layout has of COUNT(DISTINCT x) by a column with few values.

    Attributes:
        counts: by value of the column.
        hashes: of its values, in the order of the counts, by a DuckDB of this probe.
        hash_probe: see `layouts/assignment.py`.
        are_all: all rows of a group count. If not, it has at most so many values.
    """

    counts: GroupCounts
    hashes: tuple[int, ...]
    hash_probe: str
    are_all: bool

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """Return the number of each group, None where too few were counted to say how far off it is."""
        share = self.counts.share
        return tuple(
            counted / share if counted >= _FEWEST_COUNTED or share == 1.0 else None
            for counted in self.counts.counted
        )

    @property
    def relative_errors(self) -> tuple[float, ...]:
        """Return the standard error of each number, relative to it."""
        return tuple(((1.0 - self.counts.share) / max(each, 1)) ** 0.5 for each in self.counts.counted)


@dataclass(frozen=True, slots=True)
class EndsByGroup:
    """Between which ends the value of a row lies in each group, by one key with few values.

    Attributes:
        column: the name of the basis column that sums the values.
        key: the position of the key among those of the query.
        hashes: of the key's values, by a DuckDB of this probe.
        hash_probe: see `layouts/assignment.py`.
        lowest: in the order of the hashes, and of NULL at last. None where nothing is known.
        highest: likewise.
    """

    column: str
    key: int
    hashes: tuple[int, ...]
    hash_probe: str
    lowest: tuple[float | None, ...]
    highest: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class IntervalRequest:
    """The interval that the user asked for.

    Attributes:
        confidence: of both sides together.
        anytime: whether it must hold at all looks together, not just at one moment.
        for_table: whether the intervals of all certified cells must hold together, not just each for itself.
        row_weight: how many times what an unread row may add counts, when a cell is certified.
    """

    confidence: float = 0.95
    anytime: bool = False
    for_table: bool = False
    row_weight: float = 1.0

    def of_each(self, count: int) -> IntervalRequest:
        """Return what is asked of each of so many intervals by itself."""
        if not self.for_table or count < 2:
            return replace(self, for_table=False)
        confidence = 1.0 - (1.0 - self.confidence) / count
        usual, far = (normal_quantile((1.0 + each) / 2.0) for each in (self.confidence, confidence))
        return replace(self, confidence=confidence, for_table=False, row_weight=(far / usual) ** 2)


@dataclass(frozen=True, slots=True)
class ErrorBars:
    """How the error bars of an aggregation are made, and what makes them narrower.

    Attributes:
        block_count: how many blocks the partial query by block tells apart.
        rows_are_units: each joined row is a sampling unit of its own.
        joined: the sampled tables of FROM, each as often as its rows are joined. Others are only asked about
            these rows, as EXISTS does.
        known_totals: the basis columns whose total the manifest has, and these totals. They are of one table,
            without condition and groups, such as COUNT(*).
        distinct: between which ends COUNT(DISTINCT x) of each group lies, by the manifest. None where nothing
            is known of x.
        distinct_by: the same of each group, where it is known. None where groups are not counted.
        known_outputs: where a further COUNT(DISTINCT x) of a whole table stands among the outputs, and what
            the manifest has of x.
        most_unit_rows: the most joined rows that a sampling unit has in one group, by the manifests. None
            where it is not known.
        least_row_groups: where row groups of plain files are the units, a group is certified if it is in
            nearly all row groups that were read, and these are so many at least. 0 where they are not.
        ends_by_group: ends of what is summed that are those of a group.
        rows_are_of_units: a joined row is made of all rows of a sampling unit, as in a derived table
            that groups by the cluster key.
        leaves_units_out: the rows of outlier units are counted apart, and other units are sampled.
    """

    method: Method = Method.NONE
    block_count: int = 1
    rows_are_units: bool = False
    joined: tuple[str, ...] = ()
    known_totals: tuple[tuple[str, float], ...] = ()
    distinct: DistinctCount | None = None
    distinct_by: ValuesByGroup | None = None
    known_outputs: tuple[tuple[int, DistinctCount], ...] = ()
    most_unit_rows: int | None = None
    least_row_groups: int = 0
    rows_are_of_units: bool = False
    leaves_units_out: bool = False
    ends_by_group: tuple[EndsByGroup, ...] = ()

    @property
    def joins_one_stream(self) -> bool:
        """Whether FROM has one table that is sampled, once."""
        return len(self.joined) == 1

    def of_fewer_rows(self) -> ErrorBars:
        """Return the same where some of the rows do not count. At most all values are among the others."""
        distinct = None if self.distinct is None else replace(self.distinct, least=0.0)
        by = None if self.distinct_by is None else replace(self.distinct_by, are_all=False)
        return replace(self, known_totals=(), distinct=distinct, distinct_by=by, known_outputs=())


@dataclass(frozen=True, slots=True)
class Stream:
    """A layout that is sampled.

    Attributes:
        table: the name of the layout.
        token: the name that stands for its files in the SQL of a task.
        columns: the columns that the query can read. Their bytes are checked before a task runs.
    """

    table: str
    token: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hoist:
    """A static side that a worker prepares once: projected, filtered, reduced.

    Attributes:
        name: the table that it becomes. It is a digest of the SQL, of the data that the SQL reads and of the
            time zone, so that queries share equal hoists.
        sql: the query that makes it.
        tables: the names of the tables that it reads, for people.
        reads: the files that it reads.
    """

    name: str
    sql: str
    tables: tuple[str, ...]
    reads: tuple[Read, ...] = ()


class Mode(StrEnum):
    """How a query is answered (see ARCHITECTURE.md)."""

    MERGEABLE = "mergeable"
    REFINED = "refined"
    EXACT = "exact"
    COSTLY = "costly"


NO_ROW = "no row meets its conditions: the zones of its layout rule all rows out"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlinePlan:
    """How one query is answered, and why in this way.

    Attributes:
        outputs: the columns of its answer, in order.
        reasons: why it is answered in this way, for people.
        streams: the layouts that it samples.
        hoists: the static sides that workers prepare for it.
        warnings: what every answer before the end says.
        measured_by: the streamed tables whose rows measure what was scanned: "10 %" is a tenth of them. Each
            unit that the query has rows of has rows there. None where no table is streamed.
        is_ordered: whether the query has an ORDER BY of its own.
        civil_time: the time zone and calendar that its statements run with. None: those of the process.
    """

    # How the query is answered, in a word.
    mode: ClassVar[Mode]
    # Whether there are estimates before the end.
    is_estimated: ClassVar[bool] = True
    # Whether it is computed from other answers so far, or from rows that they decide about.
    is_two_level: ClassVar[bool] = False
    # Whether a mini-batch costs more the more was read before.
    costs_grow: ClassVar[bool] = False
    # Whether one state holds all that was read, so that a checkpoint can keep it.
    keeps_state: ClassVar[bool] = False
    # Whether the query may run as a whole where its state does not fit into memory.
    may_run_whole: ClassVar[bool] = True
    # Whether its last step is the query as a whole.
    ends_whole: ClassVar[bool] = False
    # Whether an answer so far says of each of its rows if it is certain to stay.
    tells_certain_rows: ClassVar[bool] = False
    # Whether it calls costly functions of the user's.
    calls_functions: ClassVar[bool] = False

    sql: str
    outputs: tuple[OutputColumn, ...]
    reasons: tuple[str, ...]
    streams: tuple[Stream, ...] = ()
    hoists: tuple[Hoist, ...] = ()
    warnings: tuple[str, ...] = ()
    measured_by: tuple[str, ...] = ()
    is_ordered: bool = False
    civil_time: CivilTime | None = None

    @property
    def why_whole(self) -> tuple[str, ...]:
        """Return why it runs as a whole; nothing where it does not."""
        return ()

    @property
    def if_overdue(self) -> OnlinePlan | None:
        """Return how it goes on where it takes much longer than predicted. None: as before."""
        return None

    def without_estimates(self) -> OnlinePlan:
        """Return how it is answered where nobody sees estimates: what runs as a whole goes on then."""
        return self

    @property
    def sample_may_go(self) -> bool:
        """Whether the files that it samples may go while it runs, and its tables stay."""
        return False

    @property
    def leading(self) -> str:
        """Return the streamed table whose rows measure what was scanned, the first one of several."""
        return self.measured_by[0] if self.measured_by else ""

    @property
    def whole_reads(self) -> tuple[Read, ...]:
        """Return what is read where it runs as a whole; nothing where it does not."""
        return ()

    @property
    def plain_tables(self) -> tuple[str, ...]:
        """Return the plain tables that it reads whole."""
        return plain_tables(read for hoist in self.hoists for read in hoist.reads)

    @property
    def method(self) -> Method:
        """Return where its error bars come from."""
        return Method.NONE

    @property
    def expected_groups(self) -> int:
        """Return about how many groups there are at most."""
        return 1

    @property
    def share_needed(self) -> float:
        """Return the share of its streams after which it is predicted to be within ±5 %; 0: not predicted."""
        return 0.0

    def share_for(self, target: float) -> float:
        """Return the share after which it is predicted to be within a target; 0: not predicted."""
        return self.share_needed * min(0.05 / target, 1e9) ** 2

    def predicted(self, share_needed: float) -> Self:
        """Return the plan with that prediction, itself where its error does not fall step by step."""
        return self

    @property
    def is_undecided(self) -> bool:
        """Whether answers so far decide which rows there are, so that few of them are certain early."""
        return False

    @property
    def ranks_groups(self) -> bool:
        """Whether the answer is the first groups by a number that is estimated."""
        return False

    @property
    def joined(self) -> tuple[str, ...]:
        """Return the streamed tables of which a unit's rows are joined, each as often as it is joined."""
        return ()

    @property
    def groups_are_local(self) -> bool:
        """Whether each group's rows lie in one partition, so that a group seen is complete."""
        return False

    @property
    def groups_are_final(self) -> bool:
        """Whether a group's values are final once it is seen: its rows are all there, and all count."""
        return False

    @property
    def reads_outliers(self) -> bool:
        """Whether part of its totals is known, since an outlier index is read."""
        return False

    @property
    def leaves_units_out(self) -> bool:
        """Whether outlier units are counted apart, so that other units alone are sampled."""
        return False

    @property
    def has_one_row(self) -> bool:
        """Whether its answer has one row, whatever is read: aggregates without groups."""
        return False

    @property
    def groups_of_a_row(self) -> int | None:
        """Return into how many groups a sampled row may fall, but for the total of all. None: not known."""
        return None

    @property
    def shows_every_group(self) -> bool:
        """Whether no HAVING and no LIMIT leaves groups or rows out."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePlan(OnlinePlan):
    """How a query is run as a whole. Its reasons say why it is not estimated.

    Attributes:
        exact_sql: the query itself, over the files of whole tables.
        whole_reads: those files.
        if_overdue: how it gives estimates if it takes much longer than predicted. None: it goes on then.
    """

    mode = Mode.EXACT
    is_estimated = False
    may_run_whole = False
    ends_whole = True

    exact_sql: str
    whole_reads: tuple[Read, ...]
    if_overdue: OnlinePlan | None = None

    @property
    def plain_tables(self) -> tuple[str, ...]:
        return plain_tables(self.whole_reads)

    @property
    def why_whole(self) -> tuple[str, ...]:
        return self.reasons

    def without_estimates(self) -> OnlinePlan:
        return replace(self, if_overdue=None)


# Compressed bytes a task reads: 70 to 450 ms of one core for TPC-H at scale 10. Each task hashes the static
# sides of its joins anew, and DuckDB plans joins of few files badly: five partitions a task cost TPC-H 3, 5,
# 8, 9 and 10 1.0 to 1.4 times, and TPC-H 4 2.1 times, what ten or twenty in one task do.
TASK_BYTES = 64 << 20
# The share of the table, at its end, in which tasks are half as large, so that the cores finish together.
TAPER_SHARE = 1 / 10
BATCH_GROWTH = 1.5
# No mini-batch covers more than this share, so that snapshots keep coming. Each costs a merge and a pass over
# the final query, 5 to 10 ms, and gives the error bars one or two blocks more: ten mini-batches in the place
# of fourteen covered the flights by aircraft 1 to 2 points less.
BATCH_SHARE = 1 / 10
BATCH_SHARE_OF_MANY_GROUPS = 1 / 4
# What the partial results of a mini-batch may take: two of them are in memory, the one folded and the next.
BATCH_RESULT_BYTES = 256 << 20
# The share of the table, from its start, whose partials are kept per block, and the rows for which they are
# at least: blocks of all sizes make error bars that vary much where values are skewed.
BLOCK_SHARE = 0.06
BLOCKED_ROWS = 500_000
# With more groups, sums of products are cheaper than blocks of every group: at 10,000 groups, blocks were
# measured to cost five times as much.
MANY_GROUPS = 10_000


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The partitions folded in one step, by task. by_block: tasks keep their partials per block."""

    index: int
    tasks: tuple[tuple[int, ...], ...]
    by_block: bool

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(partition for task in self.tasks for partition in task)


def partition_order(count: int, seed: int) -> tuple[int, ...]:
    """Return the order in which a query takes the partitions: any prefix is a uniform random sample."""
    return tuple(int(i) for i in np.random.default_rng(seed).permutation(count))


def spread_draws(count: int, size: int, random: np.random.Generator, times: int = 1) -> NDArray[np.int64]:
    """Return draws of `size` of `count` places, spread over them: one of each stretch, shape (times, size).

    All stretches have the same length, so some begin and end within a place. Such a place has a part in two.
    It is as likely as any other: in the second stretch it is drawn less often where it was not drawn in the
    first, and never where it was. With stretches of whole places, of two lengths, some of 70 places were
    drawn 22 % less often than is due, and some averages of 45 of them held in 79 % of the cases.
    Source: Chauvet 2012, On a characterization of ordered pivotal sampling, Bernoulli 18, section 2.
    """
    length = count / size
    drawn = np.full((times, size + 1), -1, dtype=np.int64)
    for i in range(size):
        shared, whole = i * count // size, -(-i * count // size)
        begun = (-i * count % size) / size  # the part that a place begun before has in this stretch
        is_again = (drawn[:, i - 1] != shared) & (random.random(times) * (length - 1 + begun) < begun)
        end = (i + 1) * count / size
        other = np.minimum(whole + (end - whole) * random.random(times), np.nextafter(end, 0.0))
        drawn[:, i] = np.where(is_again, shared, other)
    return drawn[:, :-1]


def spread_order(count: int, sizes: Sequence[int], seed: int) -> tuple[int, ...]:
    """Return places in the order in which they are read: those of all mini-batches so far are spread.

    The places of the last mini-batch are drawn first, and from them those that come before.

    Args:
        count: how many places there are.
        sizes: how many are read up to the end of each mini-batch.
        seed: another one gives other places.
    """
    random = np.random.default_rng(seed)
    [places] = spread_draws(count, sizes[-1], random)
    later: list[int] = []
    for size in reversed(sizes[:-1]):
        [early] = spread_draws(len(places), size, random)
        later = [*np.delete(places, early).tolist(), *later]
        places = places[early]
    return (*places.tolist(), *later)


def mini_batches(
    order: Sequence[int],
    partition_bytes: float,
    *,
    result_bytes: float = 0.0,
    batches: int | None = None,
    batch_share: float = BATCH_SHARE,
    block_share: float = BLOCK_SHARE,
    soon_partitions: float = 0.0,
    first_partitions: float = 1.0,
) -> tuple[MiniBatch, ...]:
    """Return the mini-batches that together cover `order`.

    Args:
        order: the partitions in the order in which they are read.
        partition_bytes: the compressed bytes that a task reads for one partition.
        result_bytes: the bytes that it returns for one partition.
        batches: makes this many equal mini-batches. Without it they grow, up to `batch_share` of the
            partitions and BATCH_RESULT_BYTES of results.
        batch_share: the largest share of the partitions in one mini-batch.
        block_share: the share of the partitions, from the start, whose partials are kept for each block. The
            first mini-batch always is, unless this is 0. Later, each task's partial is a block of its own,
            for nothing. So it is in the last mini-batch, after which there are no error bars.
        soon_partitions: how many partitions are read so soon that an estimate is worth its cost only once
            twice as much was read. In a rest of so many, each mini-batch is as large as all before it.
        first_partitions: how many the first mini-batch has.

    >>> batches = mini_batches(partition_order(100, seed=0), partition_bytes=1 << 20)
    >>> [len(batch.partitions) for batch in batches]
    [1, 1, 2, 3, 5, 7, 10, 10, 10, 10, 10, 10, 10, 11]
    >>> soon = mini_batches(partition_order(100, seed=0), partition_bytes=1 << 20, soon_partitions=60)
    >>> [len(batch.partitions) for batch in soon]
    [1, 1, 2, 3, 5, 7, 10, 10, 10, 51]
    """
    most_by_results = BATCH_RESULT_BYTES / max(result_bytes, 1.0)
    most = min(len(order) * batch_share, most_by_results)
    soon = min(soon_partitions, most_by_results)
    sizes = (
        _equal_sizes(len(order), batches)
        if batches
        else _growing_sizes(len(order), most, soon, first_partitions)
    )
    per_task = max(1, int(TASK_BYTES / max(partition_bytes + result_bytes, 1.0)))
    done, result = 0, []
    for index, size in enumerate(sizes):
        chunk = tuple(order[done : done + size])
        is_last = index == len(sizes) - 1
        is_early = done + size <= len(order) * block_share and not is_last
        by_block = block_share > 0.0 and (index == 0 or is_early)
        is_end = done + size > len(order) * (1 - TAPER_SHARE)
        limit = min(per_task, -(-size // 2)) if is_end else per_task
        result.append(MiniBatch(index, _tasks(chunk, limit), by_block))
        done += size
    return tuple(result)


def _equal_sizes(count: int, batches: int) -> list[int]:
    batches = min(batches, count)
    edges = [round(i * count / batches) for i in range(batches + 1)]
    return [b - a for a, b in pairwise(edges)]


def _growing_sizes(count: int, most: float, soon: float, first: float) -> list[int]:
    """Return 1, 1, 2, 3, 5, … up to so many partitions each. In a rest that is read soon they double."""
    sizes: list[int] = []
    left, size = count, max(1.0, min(first, most))
    while left:
        take = max(int(size), count - left) if left <= soon else int(size)
        if left < 1.5 * take:  # a rest smaller than half a mini-batch joins it: no snapshot for a sliver
            take = left
        sizes.append(take)
        left -= take
        size = min(max(1.0, most), size * BATCH_GROWTH)
    return sizes


def _tasks(partitions: tuple[int, ...], per_task: int) -> tuple[tuple[int, ...], ...]:
    """Split a mini-batch evenly into as few tasks as the limit allows."""
    count = -(-len(partitions) // per_task)
    edges = [round(i * len(partitions) / count) for i in range(count + 1)]
    return tuple(partitions[a:b] for a, b in pairwise(edges))
