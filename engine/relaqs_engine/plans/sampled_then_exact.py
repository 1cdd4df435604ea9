"""The plan that estimates a query from a part of its rows, and then runs it once, exactly.

Three parts of the rows give such estimates:

    row groups of plain files, drawn at random
    the first partitions of a layout that is being made
    the first partitions of a table, for SUMMARIZE

A `MergePlan` over the part gives the estimates, and a `WholePlan` the end: the query as DuckDB runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from relaqs_engine.layouts.manifest import FirstPart
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.plan import Method, Mode, OnlinePlan, WholePlan
from relaqs_engine.plans.schedule import MiniBatch, spread_order

if TYPE_CHECKING:
    from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable


FIRST_DRAWN = 8
"""Fewer row groups certify nothing."""

_GROWTH = 3


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
class SampledThenExact(OnlinePlan):
    """How a query is estimated from a part of its rows, of which the exact answer takes nothing over.

    The sample of SUMMARIZE is one wide row, with each measure of each column. Its outputs are called by the
    measure and the number of the column: `avg_3`. `rows` counts the rows.

    Attributes:
        sample: how the estimates are made.
        whole: how the exact answer is.
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
