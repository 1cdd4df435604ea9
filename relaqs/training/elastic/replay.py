"""Training the same model again, by the journal of a run."""

from __future__ import annotations

from typing import Any, Protocol

from relaqs.training.elastic.journal import Journal
from relaqs.training.elastic.protocol import MiniBatchTraining


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
