"""The journal of a run: how many rows each step had, at which rate, on how many ranks.

By its journal a model is trained again, bit by bit the same (`replay`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.training.elastic.protocol import MiniBatchTraining


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


class Replays(Protocol):
    """What can train a job again: a session over the same data."""

    def train(self, job: MiniBatchTraining, *, batch: Journal) -> Any:
        """Start training, step by step as the journal says."""
        ...


def replay(journal: Journal, job: MiniBatchTraining, db: Replays) -> Any:
    """Return the fitted estimator that a run gave, trained again. It is the same to the bit.

    However many ranks the run had, and whatever happened to them, one core is enough to train it again.

    Args:
        journal: of the run, `run.journal`.
        job: what it trained.
        db: a session over the same data.

    Raises:
        ArgumentError: the journal has no steps.
        RelaqsError: the run failed.

    >>> import duckdb, relaqs
    >>> from relaqs.training import MiniBatchLinear, replay
    >>> points = duckdb.sql("SELECT x / 1000 AS x, x > 500 AS late FROM range(1000) AS t(x)")
    >>> layout = relaqs.shuffle(points, "data/points", partitions=10, force=True)
    >>> db = relaqs.connect("data", threads=2)
    >>> job = MiniBatchLinear("SELECT x, late FROM points", target="late", passes_most=3)
    >>> run = db.train(job, batch="elastic")
    >>> model = run.result()
    >>> replay(run.journal, job, db).coef_.tolist() == model.coef_.tolist()
    True
    """
    return db.train(job, batch=journal).result()
