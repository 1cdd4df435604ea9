"""Where the error bars of a plan come from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from relaqs_engine.layouts.manifest import DistinctCount, GroupCounts

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
class ErrorBars:
    """How the error bars of an aggregation are made, and what makes them narrower.

    Attributes:
        method: where they come from.
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
