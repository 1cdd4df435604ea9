"""The tasks of a pass: what runs on a worker for some partitions, and the order in which all is added up.

A large partition is cut into pieces of a few thousand rows: tasks are short, so that a query that comes does
not wait behind them, and what a piece needs fits into a core's cache. How many pieces follows from the size
of the data alone. Sums are added as a binary tree over the pieces' positions. A task covers 2^k neighbours,
which are one node of that tree: so how pieces are grouped into tasks changes no bit of the result, and the
grouping may follow measured times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from relaqs_engine.errors import DataError

from relaqs.training.kept import KEPT, VersionedArrays, byte_count
from relaqs.training.one_thread import one_thread
from relaqs.training.protocol import TellsClasses
from relaqs.training.reading import PartitionRead
from relaqs.training.rows import Pieces, Rows, Sums
from relaqs.training.spill import SPILL

TASK_SECONDS = 0.05  # what a task takes at most, if it covers several pieces; at least about half of it
PIECE_ROWS = 8192  # at most, in a piece, where the job does not say: 0.1 to 7 ms of the nine algorithms
FIRST_PIECES = 4  # in a task of the first pass, when no time was measured yet

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """Where a task's partitions come from.

    Attributes:
        run_id: of the run that reads them.
        data: owner of the arrays kept.
        budget_bytes: for all that is kept in the process.
        first: the position of the first partition among all of them.
    """

    run_id: str
    data: str
    budget_bytes: int
    first: int
    reads: tuple[PartitionRead, ...]

    def kept(self, offset: int, pieces: Pieces) -> Rows | None:
        """Return one partition's rows, to be used for these pieces alone, if this process has them."""
        arrays = KEPT.get(self.data, self.first + offset)
        if arrays is None:
            return SPILL.rows(self.run_id, self.data, self.first + offset, pieces)
        return _rows(arrays)

    def read(self, offset: int, owner: str) -> Rows:
        """Return one partition's rows from its files, and keep them for the next who asks."""
        rows = self.reads[offset].rows(owner)
        arrays = {"features": (0, rows.features)}
        if rows.target is not None:
            arrays["target"] = (0, rows.target)
        if not KEPT.put(self.data, self.first + offset, arrays, self.budget_bytes):
            SPILL.put(self.run_id, self.data, self.first + offset, rows)
        return rows

    def spill_one(self) -> bool:
        """Move a partition's rows from memory to disk. Return whether that was done."""
        if (newest := KEPT.newest(self.data)) is None:
            return False
        partition, arrays = newest
        if not SPILL.put(self.run_id, self.data, partition, _rows(arrays)):
            return False
        KEPT.drop(self.data, partition)
        return True


def _rows(arrays: VersionedArrays) -> Rows:
    return Rows(arrays["features"][1], arrays["target"][1] if "target" in arrays else None)


@dataclass(frozen=True, slots=True)
class Summed:
    """What a task of a pass gives. reads: how many partitions it had to read, because they were not kept."""

    sums: Sums
    reads: int


class SumsRows(Protocol):
    """What a pass asks of a job."""

    def partial(self, model: Any, rows: Rows) -> Sums: ...


@dataclass(frozen=True, slots=True)
class Examined:
    """Sums how many rows a model tells rightly, and how many there are: a pass over rows held out."""

    job: TellsClasses

    def partial(self, model: Any, rows: Rows) -> Sums:
        return np.array(float(self.job.right(model, rows))), np.array(float(len(rows)))


@dataclass(frozen=True, slots=True)
class PassWork:
    """Returns the sums of some pieces for a model.

    Attributes:
        cut: how many pieces each partition has.
        first, end: which pieces, by their positions among the pieces of all partitions. The source has the
            partitions that they are of.
    """

    job: SumsRows
    model: Any
    source: PartitionSource
    cut: int
    first: int
    end: int

    @property
    def common(self) -> Any:
        return self.model

    def with_common(self, common: Any) -> PassWork:
        return replace(self, model=common)

    def run(self, owner: str) -> Summed:
        reads = 0

        def partials() -> Iterator[Sums]:
            nonlocal reads
            for offset in range(len(self.source.reads)):
                start = (self.source.first + offset) * self.cut
                wanted = range(max(self.first, start), min(self.end, start + self.cut))
                pieces = Pieces(self.cut, wanted.start - start, wanted.stop - start)
                if (rows := self.source.kept(offset, pieces)) is None:
                    rows, reads = self.source.read(offset, owner), reads + 1
                for piece in wanted:
                    yield self._partial(piece, rows)

        with one_thread():
            return Summed(in_pairs(partials(), add_sums), reads)

    def _partial(self, piece: int, partition: Rows) -> Sums:
        run_id, part = self.source.run_id, piece % self.cut
        rows = partition.part(Pieces(self.cut, part, part + 1).of(len(partition)))
        rows.kept.update(KEPT.get(run_id, piece) or {})
        sums = self.job.partial(self.model, rows)
        if rows.kept:
            self._keep(piece, rows.kept)
        return sums

    def _keep(self, piece: int, arrays: VersionedArrays) -> None:
        """Keep what the job stored beside a piece. Rows make room for it, since to map them costs less.

        What a job stores took it longer to compute: bins and scores of trees, for example.
        """
        run_id, budget_bytes = self.source.run_id, self.source.budget_bytes
        while not KEPT.put(run_id, piece, arrays, budget_bytes):
            if byte_count(arrays) > budget_bytes or not self.source.spill_one():
                return


def in_pairs(values: Iterable[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Return all values combined, neighbours first: ((0 1) (2 3)) … A last one without a neighbour waits.

    It holds no more values at a time than the tree is deep.
    """
    tree = PairTree(combine)
    for value in values:
        tree.add(value)
    return tree.total()


class PairTree(Generic[Value]):
    """Combines values in pairs as they come, in their order. See `in_pairs`.

    >>> tree = PairTree(lambda one, other: f"({one} {other})")
    >>> for value in "012":
    ...     tree.add(value)
    >>> tree.total()
    '((0 1) 2)'
    """

    def __init__(self, combine: Callable[[Value, Value], Value]) -> None:
        self._combine = combine
        self._waiting: list[tuple[int, Value]] = []  # whole subtrees and how many values they have, falling

    def add(self, value: Value) -> None:
        size = 1
        while self._waiting and self._waiting[-1][0] == size:
            size, value = 2 * size, self._combine(self._waiting.pop()[1], value)
        self._waiting.append((size, value))

    def total(self) -> Value:
        """Return all values combined. There must be one at least."""
        _, total = self._waiting.pop()
        while self._waiting:
            total = self._combine(self._waiting.pop()[1], total)
        return total


def add_sums(one: Sums, other: Sums) -> Sums:
    """Return the sums of both. Raises DataError where a job's sums differ in shape from task to task."""
    if [each.shape for each in one] != [each.shape for each in other]:
        raise DataError(
            f"partial() returned arrays of shapes {[each.shape for each in one]} for one partition and "
            f"{[each.shape for each in other]} for another; their shapes must depend on the model alone"
        )
    return tuple(a + b for a, b in zip(one, other, strict=True))


def pieces_of(row_counts: Sequence[int], piece_rows: int) -> int:
    """Return how many pieces each partition is cut into: a power of two, so that each partition is a subtree.

    Args:
        row_counts: of the partitions.
        piece_rows: the most rows of a piece.
    """
    return 1 << (math.ceil(max(row_counts) / piece_rows) - 1).bit_length() if any(row_counts) else 1


def pieces_per_task(pass_core_seconds: float, pieces: int) -> int:
    """Return how many pieces, a power of two, a task covers, by what the last pass took."""
    each = pass_core_seconds / pieces
    most = TASK_SECONDS / max(each, 1e-9)
    return 1 << max(0, min(math.floor(math.log2(max(most, 1.0))), (pieces - 1).bit_length()))
