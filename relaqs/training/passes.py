"""The tasks of a pass: what runs on a worker for some partitions, and the order in which all is added up.

Sums are added as a binary tree over the partitions' positions. A task covers 2^k neighbours, which are one
node of that tree: so how partitions are grouped into tasks changes no bit of the result, and the grouping may
follow measured times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from relaqs_engine.errors import DataError

from relaqs.training.kept import KEPT
from relaqs.training.one_thread import one_thread
from relaqs.training.profile import Profile, profile_of
from relaqs.training.protocol import Rows, Sums, TrainingJob
from relaqs.training.reading import PartitionRead

TASK_SECONDS = 0.15  # what a task takes at most, if it covers several partitions; at least about half of it

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a task's partitions come from.

    data: owner of the arrays kept. budget_bytes: for all that is kept in the process. first: the position of
    the first partition among all of them.
    """

    data: str
    budget_bytes: int
    first: int
    reads: tuple[PartitionRead, ...]

    def rows(self, offset: int, job_id: str, kept_by: str | None = None) -> Rows:
        """Return one partition's rows, kept or read. kept_by: the run whose own arrays come with them."""
        position = self.first + offset
        arrays = KEPT.get(self.data, position)
        if arrays is None:
            rows = self.reads[offset].rows(job_id)
            arrays = {"features": (0, rows.features)}
            if rows.target is not None:
                arrays["target"] = (0, rows.target)
            KEPT.put(self.data, position, arrays, self.budget_bytes)
        own = KEPT.get(kept_by, position) if kept_by is not None else None
        target = arrays["target"][1] if "target" in arrays else None
        return Rows(arrays["features"][1], target, dict(own or {}))


@dataclass(frozen=True, slots=True)
class ProfileWork:
    """Returns the profile of some partitions. sample_rows: how many rows of each are part of the sample."""

    source: Source
    sample_rows: tuple[int, ...]

    def run(self, job_id: str) -> Profile:
        profiles = []
        for offset, read in enumerate(self.source.reads):
            rows = self.source.rows(offset, job_id)
            seed = self.source.first + offset
            profiles.append(profile_of(rows, read.names, self.sample_rows[offset], seed))
        return in_pairs(profiles, Profile.merged)


@dataclass(frozen=True, slots=True)
class PassWork:
    """Returns the sums of some partitions for a model."""

    run_id: str
    job: TrainingJob
    model: Any
    source: Source

    def run(self, job_id: str) -> Sums:
        with one_thread():
            return in_pairs(
                [self._partial(offset, job_id) for offset in range(len(self.source.reads))], add_sums
            )

    def _partial(self, offset: int, job_id: str) -> Sums:
        rows = self.source.rows(offset, job_id, kept_by=self.run_id)
        sums = self.job.partial(self.model, rows)
        if rows.kept:
            KEPT.put(self.run_id, self.source.first + offset, rows.kept, self.source.budget_bytes)
        return sums


def in_pairs(values: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Return all values combined, neighbours first: ((0 1) (2 3)) … A last one without a neighbour waits."""
    level = list(values)
    while len(level) > 1:
        pairs = [combine(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def add_sums(one: Sums, other: Sums) -> Sums:
    """Return the sums of both. Raises DataError where a job's sums differ in shape from task to task."""
    if [each.shape for each in one] != [each.shape for each in other]:
        raise DataError(
            f"partial() returned arrays of shapes {[each.shape for each in one]} for one partition and "
            f"{[each.shape for each in other]} for another; their shapes must depend on the model alone"
        )
    return tuple(a + b for a, b in zip(one, other, strict=True))


def partitions_per_task(pass_core_seconds: float, partitions: int) -> int:
    """Return how many partitions, a power of two, a task covers, by what the last pass took."""
    each = pass_core_seconds / partitions
    most = TASK_SECONDS / max(each, 1e-9)
    return 1 << max(0, min(math.floor(math.log2(max(most, 1.0))), (partitions - 1).bit_length()))


def sample_rows(row_counts: Sequence[int], wanted: int) -> list[int]:
    """Return how many rows of each partition are part of the sample at most: in proportion to its size.

    row_counts: before any condition of the SELECT, which may leave fewer than that.
    """
    total = max(sum(row_counts), 1)
    return [math.ceil(min(wanted / total, 1.0) * count) for count in row_counts]
