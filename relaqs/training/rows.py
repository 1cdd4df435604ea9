"""What a training task reads and what it computes: rows of one partition, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray

Sums: TypeAlias = tuple[FloatArray, ...]
"""What a pass computes: arrays that add up, the same shapes for every partition."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Neighbouring pieces of a partition. cut: how many it has. first, end: which these are."""

    cut: int
    first: int
    end: int

    def of(self, row_count: int) -> slice:
        """Return where they are among the partition's rows."""
        return slice(row_count * self.first // self.cut, row_count * self.end // self.cut)


ALL = Pieces(1, 0, 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one partition.

    Attributes:
        features: the numbers to learn from, shape (rows, features).
        target: the column to predict, shape (rows,). None where there is nothing to predict.
        kept: what this run stored beside these rows at its last pass. Each name has a version and an array.
            It may be empty at any time. Two tasks may see it at once, so replace entries and never write
            into arrays.

    >>> import numpy as np
    >>> rows = Rows(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), target=np.array([0, 1, 1]))
    >>> len(rows), rows.features.sum(axis=0).tolist()
    (3, [9.0, 12.0])
    """

    features: FloatArray
    target: NDArray[Any] | None
    kept: dict[str, tuple[int, NDArray[Any]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.features)

    def part(self, of: slice) -> Rows:
        """Return some of the rows, with nothing stored beside them."""
        return Rows(self.features[of], None if self.target is None else self.target[of])
