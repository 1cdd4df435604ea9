"""The journal of a run: how many rows each step had, at which rate, on how many ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray


class Change(NamedTuple):
    """From this step on, steps had so many rows and ranks.

    >>> Change(step=0, batch_rows=64, ranks=1).batch_rows
    64
    """

    step: int
    batch_rows: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Journal:
    """All that time and other work may have decided about a run. It gives the same model again, to the bit.

    See `replay`. Ranks are how many tasks or workers shared a step; they change no bit of the model.

    Attributes:
        batch_rows: the rows of each step, shape (steps,). The last step of a pass takes what is left.
        rates: each step's learning rate, shape (steps,).
        ranks: shape (steps,).

    >>> journal = Journal(np.array([64, 64, 128]), np.array([0.1, 0.1, 0.2]), np.array([1, 1, 1]))
    >>> list(journal.changes())
    [Change(step=0, batch_rows=64, ranks=1), Change(step=2, batch_rows=128, ranks=1)]
    """

    batch_rows: IntArray
    rates: FloatArray
    ranks: IntArray

    def __len__(self) -> int:
        return len(self.batch_rows)

    def then(self, later: Journal) -> Journal:
        """Return this journal with the steps that came after it."""
        return Journal(
            np.concatenate([self.batch_rows, later.batch_rows]),
            np.concatenate([self.rates, later.rates]),
            np.concatenate([self.ranks, later.ranks]),
        )

    def until(self, step: int) -> Journal:
        """Return the steps before one."""
        return Journal(self.batch_rows[:step], self.rates[:step], self.ranks[:step])

    def changes(self) -> Iterator[Change]:
        """Yield the first step and those at which the rows or the ranks changed."""
        both = np.column_stack([self.batch_rows, self.ranks])
        is_new = np.append(np.ones(min(len(self), 1), dtype=bool), (both[1:] != both[:-1]).any(axis=1))
        for step in np.flatnonzero(is_new):
            yield Change(int(step), int(self.batch_rows[step]), int(self.ranks[step]))
