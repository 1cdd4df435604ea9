"""What a worker computes of a step: the sums of some of its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.training.elastic.noise import norm
from relaqs.training.elastic.order import Order
from relaqs.training.elastic.protocol import MiniBatchTraining
from relaqs.training.kept import KEPT
from relaqs.training.passes import PartitionSource, add_sums, in_pairs
from relaqs.training.rows import ALL, Rows, Sums


class ReadsPieces(Protocol):
    """What gives the rows of pieces: `PieceReader` does."""

    @property
    def order(self) -> Order: ...

    def rows(self, piece: int) -> Rows: ...


@dataclass(slots=True)
class PieceReader:
    """Reads pieces of partitions, for one task or one rank.

    Partitions that the process keeps are taken from there. Others are read by each reader. It lets go of
    those that it used longest ago, where all of them together are beyond the budget of the process.

    Attributes:
        owner: the name by which a read can be interrupted.
        order: where the pieces are.
        sources: of partitions, by their positions in the order.
        reads: how many partitions were read, because the process did not have them.
    """

    owner: str
    order: Order
    sources: Mapping[int, PartitionSource]
    reads: int = 0
    _open: dict[int, tuple[Rows, IntArray]] = field(default_factory=dict)  # the one used last comes last
    _bytes: int = 0  # of what is open
    _lets_go: bool = False

    def rows(self, piece: int) -> Rows:
        """Return the rows of a piece, copied together."""
        partition, first, end = self.order.place(piece)
        rows, places = self._opened(partition)
        picked = places[first:end]
        return Rows(rows.features[picked], None if rows.target is None else rows.target[picked])

    def read_ahead(self) -> bool:
        """Open all partitions that fit into the budget. Return whether these are all there are."""
        for partition in self.sources:
            self._opened(partition)
            if self._lets_go:
                return False
        return True

    def _opened(self, partition: int) -> tuple[Rows, IntArray]:
        if (found := self._open.pop(partition, None)) is None:
            source = self.sources[partition]
            if (rows := source.kept(0, ALL)) is None:
                rows, self.reads = source.read(0, self.owner), self.reads + 1
            found = rows, self._places(partition, source)
            self._bytes += _byte_count(*found)
            self._make_room(source.budget_bytes)
        self._open[partition] = found  # the last one is the one used last
        return found

    def _make_room(self, budget_bytes: int) -> None:
        while self._bytes > budget_bytes and self._open:
            self._bytes -= _byte_count(*self._open.pop(next(iter(self._open))))
            self._lets_go = True

    def _places(self, partition: int, source: PartitionSource) -> IntArray:
        owner = f"{source.data} by {self.order.seed}"
        if (kept := KEPT.get(owner, partition)) is not None:
            return kept["places"][1]
        places = self.order.rows_of(partition)
        KEPT.put(owner, partition, {"places": (0, places)}, source.budget_bytes)
        return places


def _byte_count(rows: Rows, places: IntArray) -> int:
    target_bytes = 0 if rows.target is None else rows.target.nbytes
    return rows.features.nbytes + target_bytes + places.nbytes


def piece_sums(
    job: MiniBatchTraining, state: Any, reader: ReadsPieces, step: int, pieces: Sequence[int] | IntArray
) -> Sums:
    """Return the sums of some neighbouring pieces of a step, added in pairs.

    The last of them is for the noise: Σ |g|²/n over the pieces, g a piece's gradient sums, n its rows.
    """

    def each() -> Iterator[Sums]:
        for piece in pieces:
            rows = reader.rows(int(piece))
            sums = job.partial(state, rows, reader.order.draw(step, int(piece)))
            yield *sums, np.asarray(norm(job.gradients(sums)) / len(rows))

    return in_pairs(each(), add_sums)
