"""Plans that estimate a query from a part of its rows, and then run it once, exactly.

Three parts of the rows give such estimates, and `EstimatedWhole` is what the plans over them share:

    RowGroupPlan     row groups of plain files, drawn at random: a MergePlan over them gives the estimates
    FirstPartPlan    the first part of a layout that is being made
    SummaryPlan      the first partitions of a table, for SUMMARIZE

The end is a WholePlan: the query as DuckDB runs it over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from relaqs_engine.layouts.manifest import FirstPart, Prefix
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.plan import Method, Mode, OnlinePlan, WholePlan
from relaqs_engine.plans.schedule import spread_order

if TYPE_CHECKING:
    from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedWhole(OnlinePlan):
    """How a query is estimated from a part of its rows, of which the exact answer takes nothing over.

    Attributes:
        sample: how the estimates are made.
        whole: how the exact answer is.
    """

    mode = Mode.MERGEABLE

    sample: MergePlan
    whole: WholePlan

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPartPlan(EstimatedWhole):
    """How an aggregation over plain tables is answered while the largest of them is being laid out.

    The sample ends with the partitions that are there. The query as a whole then reads the plain files.

    Attributes:
        part: what is sampled.
    """

    sample_may_go = True

    part: FirstPart


FIRST_DRAWN = 8
"""Fewer row groups certify nothing."""

_GROWTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupPlan(EstimatedWhole):
    """How a query over plain files is estimated, and then run as a whole.

    Attributes:
        table: the row groups.
        sizes: how many of them are drawn up to the end of each mini-batch.
    """

    table: RowGroupTable
    sizes: tuple[int, ...]

    @property
    def most_drawn(self) -> int:
        """Return how many row groups are drawn in all."""
        return self.sizes[-1]

    def drawn(self, seed: int) -> RowGroupTable:
        """Return the table with the row groups that are drawn, in the order in which they are read."""
        return self.table.drawn(spread_order(len(self.table.drawn_from), self.sizes, seed))

    @property
    def batches(self) -> tuple[range, ...]:
        """Return the places of the row groups in each mini-batch before the end, in that order."""
        return tuple(range(*ends) for ends in pairwise((0, *self.sizes)))

    def files(self, groups: tuple[RowGroup, ...]) -> tuple[str, ...]:
        """Return the names by which the columns that are needed of row groups are read."""
        (stream,) = self.sample.streams
        return tuple(group.file(stream.columns) for group in groups)


def growing_sizes(most: int) -> tuple[int, ...]:
    """Return how many row groups are drawn up to the end of each mini-batch. A rest joins the one before it.

    >>> growing_sizes(9), growing_sizes(52)
    ((9,), (8, 24, 52))
    """
    sizes = [FIRST_DRAWN]
    while most >= 1.5 * sizes[-1]:
        sizes.append(sizes[-1] * _GROWTH)
    return (*sizes[:-1], most)


def what_is_missed(drawn: int, count: int) -> str:
    """Return what a draw of so many row groups cannot tell, for the reader.

    >>> what_is_missed(10, 200)
    'not seen: a row group unlike all others, in 95% of cases, if its footer does not tell'
    """
    missed = 1.0 - drawn / count
    return f"not seen: a row group unlike all others, in {missed:.0%} of cases, if its footer does not tell"


@dataclass(frozen=True, slots=True)
class SummarizedColumn:
    """One column of what is summarized, and so one row of the summary.

    Attributes:
        name: its name.
        type: its DuckDB type.
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
class SummaryPlan(EstimatedWhole):
    """How SUMMARIZE is answered.

    The sample is one wide row, with each measure of each column. Its outputs are called by the measure and
    the number of the column: `avg_3`. `rows` counts the rows.

    Attributes:
        part: what is sampled.
        columns: those that are summarized, in order.
    """

    sample_may_go = True

    part: FirstPart | Prefix
    columns: tuple[SummarizedColumn, ...]
