"""Where the error bars of a plan come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Method(StrEnum):
    """Where error bars come from."""

    REPLICATES = "replicates"  # partials kept per block: valid for any sampling unit
    CLOSED_FORM = "closed form"  # sums of squares and products per group: row units, many groups
    NONE = "none"  # no output has an interval, none was asked for, or each group is complete once it is seen


@dataclass(frozen=True, slots=True)
class ErrorBars:
    """How the error bars of an aggregation are made, and what makes them narrower.

    Attributes:
        method: where they come from.
        block_count: how many blocks the partial query by block tells apart.
        rows_are_units: each joined row is a sampling unit of its own.
        joined: the sampled tables of FROM, each as often as its rows are joined. Others are only asked about
            these rows, as EXISTS does.
        counts_every_row: one table, no condition, no groups: COUNT(*) is known from the manifest.
        most_unit_rows: the most joined rows that a sampling unit has in one group, by the manifests. None
            where it is not known.
        least_row_groups: where row groups of plain files are the units, a group is certified if it is in
            nearly all row groups that were read, and these are so many at least. 0 where they are not.
    """

    method: Method = Method.NONE
    block_count: int = 1
    rows_are_units: bool = False
    joined: tuple[str, ...] = ()
    counts_every_row: bool = False
    most_unit_rows: int | None = None
    least_row_groups: int = 0

    @property
    def joins_one_stream(self) -> bool:
        """Whether FROM has one table that is sampled, once."""
        return len(self.joined) == 1
