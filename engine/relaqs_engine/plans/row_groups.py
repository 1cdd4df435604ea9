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

ENOUGH_AT_FIRST, MOST_AT_FIRST = 16, 20
"""So many are drawn at first where that is a share that may be drawn."""

_MOST_TIMES = 3


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


def sizes_within(most: int) -> tuple[int, ...]:
    """Return how many row groups are drawn up to the end of each mini-batch, together `most` or few less.

    >>> [sizes_within(most) for most in (10, 26, 40, 64)]
    [(10,), (20,), (20, 40), (20, 60)]
    """
    times = max(1, min(_MOST_TIMES, most // ENOUGH_AT_FIRST))
    first = min(MOST_AT_FIRST, most // times)
    return (first,) if times == 1 else (first, first * times)
