"""Which rows come next: a pass is a permutation of pieces, and a step takes the next few of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import IntArray
from relaqs_bootstrap.split_mix import MASK, STEP, mixed, mixed_word

MOST_PIECE_ROWS = 256
WINDOW_ROWS = 1 << 22  # of whole partitions: a pass mixes their pieces, and reads no further apart

_PASS, _PARTITION, _DRAW, _WINDOW = range(4)  # streams of draws from one seed


@dataclass(frozen=True, slots=True)
class Order:
    """The pieces of the partitions, and the order in which a pass takes them.

    A piece is at most `piece_rows` rows of one partition. Its rows are drawn from the partition once, by the
    seed, because a partition keeps the order that its rows had in the source. Partitions of a layout are
    random samples, so pieces are, too. A pass mixes the pieces of as many whole partitions at a time as have
    about WINDOW_ROWS rows, and takes partitions in another order each time.

    Every row comes once a pass, whatever numbers of pieces are taken.

    Attributes:
        partition_rows: how many rows each partition has.
        piece_rows: the rows of a piece; the last of a partition may have fewer.
        seed: of all draws.

    >>> order = Order(partition_rows=(5, 0, 3), piece_rows=2, seed=0)
    >>> order.piece_count, [order.place(piece) for piece in range(5)]
    (5, [(0, 0, 2), (0, 2, 4), (0, 4, 5), (2, 0, 2), (2, 2, 3)])
    >>> sorted(order.of_pass(0).tolist()), order.of_pass(1).tolist() == order.of_pass(0).tolist()
    ([0, 1, 2, 3, 4], False)
    """

    partition_rows: tuple[int, ...]
    piece_rows: int
    seed: int
    _firsts: IntArray = field(init=False, repr=False, compare=False)  # of each partition; last, their number
    _sizes: IntArray = field(init=False, repr=False, compare=False)  # of each piece, in rows

    def __post_init__(self) -> None:
        rows = np.array(self.partition_rows, dtype=np.int64)
        firsts = np.concatenate([[0], np.cumsum(-(-rows // self.piece_rows))])
        sizes = np.full(firsts[-1], self.piece_rows, dtype=np.int64)
        sizes[firsts[1:][rows > 0] - 1] = (rows[rows > 0] - 1) % self.piece_rows + 1
        object.__setattr__(self, "_firsts", firsts)
        object.__setattr__(self, "_sizes", sizes)

    @property
    def piece_count(self) -> int:
        return len(self._sizes)

    @property
    def row_count(self) -> int:
        return sum(self.partition_rows)

    def of_pass(self, index: int) -> IntArray:
        """Return all pieces in the order of one pass, shape (pieces,)."""
        return _pieces_of_pass(self.partition_rows, self.piece_rows, self.seed, index)

    def place(self, piece: int) -> tuple[int, int, int]:
        """Return a piece's partition, and the positions of its rows in `rows_of` that: first and end."""
        partition = int(np.searchsorted(self._firsts, piece, side="right")) - 1
        first = (piece - int(self._firsts[partition])) * self.piece_rows
        return partition, first, min(first + self.piece_rows, self.partition_rows[partition])

    def rows_of(self, partition: int) -> IntArray:
        """Return the order in which a partition's rows are cut into pieces, shape (rows,)."""
        keys = hashes(self.partition_rows[partition], self.seed, _PARTITION, partition)
        return np.argsort(keys, kind="stable")

    def row_count_of(self, pieces: IntArray) -> int:
        """Return how many rows some pieces have together."""
        return int(self._sizes[pieces].sum())

    def draw(self, step: int, piece: int) -> int:
        """Return the number that is drawn for a piece in a step, from 0 to below 2^63."""
        return hash_of(self.seed, _DRAW, step, piece) >> 1


def piece_rows_of(start_rows: int) -> int:
    """Return how many rows a piece has: few, and so that a first step is a power of two of pieces.

    >>> piece_rows_of(64), piece_rows_of(1000), piece_rows_of(257)
    (64, 250, 129)
    """
    pieces = 1 << (-(-start_rows // MOST_PIECE_ROWS) - 1).bit_length()
    return -(-start_rows // pieces)


def pieces_of_step(batch_rows: int, piece_rows: int) -> int:
    """Return how many pieces come nearest to so many rows; one at least."""
    return max(1, round(batch_rows / piece_rows))


def subtrees(pieces: int, ranks: int) -> Iterator[slice]:
    """Yield the neighbouring pieces of a step that each rank sums up. The last ranks may have none.

    Each has the same power of two of them, but for the last one that has any. So each share is a subtree
    of the tree in which `in_pairs` adds pieces, and the shares added in pairs give the same bits as all
    pieces added in pairs.

    >>> list(subtrees(5, 2)), list(subtrees(5, 4))[2:]
    ([slice(0, 4, None), slice(4, 5, None)], [slice(4, 5, None), slice(5, 5, None)])
    """
    size = 1 << (-(-pieces // ranks) - 1).bit_length()
    for rank in range(ranks):
        yield slice(min(rank * size, pieces), min((rank + 1) * size, pieces))


def hashes(count: int, *words: int) -> NDArray[np.uint64]:
    """Return numbers that look random, shape (count,): a hash of the words and of each position."""
    places = np.arange(count, dtype=np.uint64) + np.uint64(hash_of(*words)) + np.uint64(1)
    return mixed(places * np.uint64(STEP))


def hash_of(*words: int) -> int:
    """Return a number that looks random, from 0 to below 2^64: a hash of some words."""
    found = 0
    for word in words:
        found = mixed_word((found + word + 1) * STEP & MASK)
    return found


@lru_cache(maxsize=4)
def _pieces_of_pass(partition_rows: tuple[int, ...], piece_rows: int, seed: int, index: int) -> IntArray:
    rows = np.array(partition_rows, dtype=np.int64)
    pieces = -(-rows // piece_rows)
    turns = np.argsort(hashes(len(rows), seed, _WINDOW, index), kind="stable")
    window = np.empty(len(rows), dtype=np.int64)
    window[turns] = (np.cumsum(rows[turns]) - 1) // WINDOW_ROWS
    found = np.lexsort((hashes(int(pieces.sum()), seed, _PASS, index), np.repeat(window, pieces)))
    found.setflags(write=False)
    return found
