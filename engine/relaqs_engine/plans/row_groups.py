"""RowGroupPlan: plain files, of which some row groups are read first, for estimates, and then everything.

The estimates are those of a MergePlan over row groups drawn at random. The end is a WholePlan: the query as
DuckDB runs it over the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from relaqs_engine.plans.estimated_whole import EstimatedWhole
from relaqs_engine.plans.schedule import spread_order

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
