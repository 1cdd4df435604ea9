"""RowGroupPlan: plain files, of which some row groups are read first, for estimates, and then everything.

The estimates are those of a MergePlan over row groups drawn at random. The end is a WholePlan: the query as
DuckDB runs it over the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relaqs_engine.plans.estimated_whole import EstimatedWhole
from relaqs_engine.plans.schedule import partition_order

if TYPE_CHECKING:
    from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable

FIRST_DRAWN = 8
"""Fewer row groups certify nothing."""

_GROWTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupPlan(EstimatedWhole):
    """How a query over plain files is estimated, and then run as a whole.

    Attributes:
        table: the row groups.
        most_drawn: how many of them are drawn.
    """

    table: RowGroupTable
    most_drawn: int

    def drawn(self, seed: int) -> RowGroupTable:
        """Return the table with the row groups that are drawn, in the order in which they are read."""
        return self.table.drawn(partition_order(len(self.table.drawn_from), seed)[: self.most_drawn])

    @property
    def batches(self) -> tuple[range, ...]:
        """Return the places of the row groups in each mini-batch before the end, in that order."""
        return growing_batches(self.most_drawn)

    def files(self, groups: tuple[RowGroup, ...]) -> tuple[str, ...]:
        """Return the names by which the columns that are needed of row groups are read."""
        (stream,) = self.sample.streams
        return tuple(group.file(stream.columns) for group in groups)


def growing_batches(count: int) -> tuple[range, ...]:
    """Return mini-batches that together have so many row groups. A rest joins the batch before it.

    >>> [len(batch) for batch in growing_batches(9)], [len(batch) for batch in growing_batches(52)]
    ([9], [8, 16, 28])
    """
    found, done = [], 0
    while done < count:
        upto = FIRST_DRAWN if not done else done * _GROWTH
        upto = count if count < 1.5 * upto else upto
        found.append(range(done, upto))
        done = upto
    return tuple(found)
