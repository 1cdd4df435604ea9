"""The machines of a cluster, and the slots that each of them has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """N machines as columns. A slot is a place that one rank holds alone: a worker's thread, or a GPU.

    Attributes:
        ids: the machines' names.
        slots: how many slots each has, shape (N,).
        alive: which machines can be used now, shape (N,).

    Raises:
        ValueError: two machines have one name, the columns have different lengths, or slots are negative.

    >>> nodes = Nodes.equal(count=2, slots=4)
    >>> nodes.ids, nodes.usable_slots.tolist()
    (('node 0', 'node 1'), [4, 4])
    """

    ids: tuple[str, ...]
    slots: IntArray
    alive: BoolArray

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("two nodes have the same id; give each machine a name of its own")
        if self.slots.shape != (len(self.ids),) or self.alive.shape != (len(self.ids),):
            raise ValueError(
                f"there are {len(self.ids)} nodes, but slots has shape {self.slots.shape} and alive has "
                f"shape {self.alive.shape}; both must be ({len(self.ids)},)"
            )
        if (self.slots < 0).any():
            raise ValueError(f"slots is {self.slots.tolist()}; no node can have fewer than 0")

    @classmethod
    def equal(cls, count: int, slots: int) -> Nodes:
        """Return machines that are all alike.

        >>> len(Nodes.equal(count=16, slots=4))
        16
        """
        names = tuple(f"node {i}" for i in range(count))
        return cls(names, np.full(count, slots, dtype=np.int64), np.ones(count, dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def usable_slots(self) -> IntArray:
        """The slots of each machine, 0 where it is not alive, shape (N,)."""
        return np.where(self.alive, self.slots, 0)
