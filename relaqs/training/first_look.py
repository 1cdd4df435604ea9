"""The first look at all rows, before training starts: its tasks, and what they give together.

Small partitions are looked at together: a task costs some milliseconds to hand out, and a partition of a
few thousand rows takes less than one where a worker has its rows already. A task covers 2^k neighbours, as
those of a pass do, so the grouping changes no bit of the profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relaqs.jobs.job import Work
from relaqs.training.passes import PartitionSource, in_pairs
from relaqs.training.profile import Profile, profile_of
from relaqs.training.reading import PartitionRead
from relaqs.training.rows import ALL

LOOK_VALUES = 1 << 19  # at most, in a task that covers several partitions: 20 to 50 ms to read


@dataclass(frozen=True, slots=True)
class Profiled:
    """What a first look at some partitions gives.

    Attributes:
        profile: of all their rows.
        row_counts: of each partition, the rows that the SELECT keeps.
    """

    profile: Profile
    row_counts: tuple[int, ...]

    @classmethod
    def of(cls, looks: Sequence[Profiled]) -> Profiled:
        """Return what several looks give together. looks: of neighbours, in their order."""
        counts = tuple(count for look in looks for count in look.row_counts)
        return cls(in_pairs((look.profile for look in looks), Profile.merged), counts)


@dataclass(frozen=True, slots=True)
class ProfileWork:
    """Looks at some partitions. sample_rows: how many rows of each are part of the sample."""

    source: PartitionSource
    sample_rows: tuple[int, ...]

    def run(self, owner: str) -> Profiled:
        profiles = []
        for offset, read in enumerate(self.source.reads):
            if (rows := self.source.kept(offset, ALL)) is None:
                rows = self.source.read(offset, owner)
            seed = self.source.first + offset
            profiles.append(profile_of(rows, read.names, self.sample_rows[offset], seed))
        counts = tuple(profile.row_count for profile in profiles)
        return Profiled(in_pairs(profiles, Profile.merged), counts)


def profile_works(
    reads: Sequence[PartitionRead], source: Callable[[range], PartitionSource], wanted_rows: int
) -> list[Work]:
    """Return the tasks of the first look at partitions: 2^k neighbours for a task where they are small.

    Args:
        source: returns where the rows of some of the partitions come from.
        wanted_rows: how many rows the sample has at most, about.
    """
    counts = [read.row_count for read in reads]
    columns = len(reads[0].names) + (reads[0].target is not None)
    each = partitions_per_look(counts, columns)
    rows = sample_rows(counts, wanted_rows)
    return [
        ProfileWork(source(range(first, min(first + each, len(reads)))), tuple(rows[first : first + each]))
        for first in range(0, len(reads), each)
    ]


def partitions_per_look(row_counts: Sequence[int], columns: int) -> int:
    """Return how many partitions, a power of two, a task of the first look covers.

    >>> partitions_per_look([3_750] * 80, columns=7), partitions_per_look([10**6] * 80, columns=7)
    (16, 1)
    """
    values = max(sum(row_counts) * columns / len(row_counts), 1.0)
    return 1 << max(0, min(math.floor(math.log2(LOOK_VALUES / values)), (len(row_counts) - 1).bit_length()))


def sample_rows(row_counts: Sequence[int], wanted: int) -> list[int]:
    """Return how many rows of each partition are part of the sample at most: in proportion to its size.

    row_counts: before any condition of the SELECT, which may leave fewer than that.
    """
    total = max(sum(row_counts), 1)
    return [math.ceil(min(wanted / total, 1.0) * count) for count in row_counts]
