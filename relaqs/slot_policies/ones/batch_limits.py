"""The largest batch that each job may have now: R in the paper, section 3.3.2.

A limit starts with the job's start batch and only ever is that batch times a power of two.

- Start: the start batch, on one slot, until a few warm-up steps and a first pass are done.
- Scale-up: twice as much after each pass.
- Resume: as before while a job waits, and half as much each time a new schedule leaves it waiting.
- Scale-down: less for a job that ran long, by how many mean times between two arrivals it ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.gangs.gangs import Gangs
from relaqs.slot_policies.ones.utilisation import slot_rows

MOST_DOUBLINGS = 60.0  # beyond all batches: so that a limit stays a number


@dataclass(frozen=True, slots=True, eq=False)
class BatchLimits:
    """Limits of jobs as columns.

    Attributes:
        start: the rows of the start batch, shape (E,).
        doublings: how often the limit is doubled, a whole number from 0 on, shape (E,).
        passes: the passes that are counted in it, shape (E,).
    """

    start: FloatArray
    doublings: FloatArray
    passes: FloatArray

    @classmethod
    def grown(
        cls, gangs: Gangs, before: Mapping[str, tuple[float, float]], warm_up_steps: int
    ) -> BatchLimits:
        """Return the limits now, from (doublings, passes) of the jobs that were there before, by their id.

        A job that was not there before has the batch it runs with. A job that waits has no more than the
        batch it ran with.
        """
        start = slot_rows(gangs)
        ran_with = np.floor(np.log2(np.maximum(gangs.batch_rows / start, 1.0)) + 1e-9)
        unknown = zip(ran_with, gangs.passes_done, strict=True)
        kept = [before.get(each, other) for each, other in zip(gangs.ids, unknown, strict=True)]
        doublings, passes = np.array(kept, dtype=np.float64).reshape(-1, 2).T
        is_warm = gangs.rows_done >= warm_up_steps * start
        doublings = doublings + np.where(is_warm, np.maximum(gangs.passes_done - passes, 0.0), 0.0)
        doublings = np.minimum(doublings, np.where(gangs.is_running, MOST_DOUBLINGS, ran_with))
        return cls(start, doublings, np.where(is_warm, gangs.passes_done, passes))

    def after_rejection(self, still_waits: BoolArray) -> BatchLimits:
        """Return the limits after a new schedule, which left some jobs waiting."""
        fewer = np.where(still_waits, np.maximum(self.doublings - 1.0, 0.0), self.doublings)
        return BatchLimits(self.start, fewer, self.passes)

    def rows(self, executed_seconds: FloatArray, per_second: float, rows_most: FloatArray) -> FloatArray:
        """Return the limits in rows, after the penalty for long runs and within the user's, shape (E,).

        The paper's formula is lost in the text that we have. This is a reading of what is said about it: a
        limit is divided by the number of mean times between arrivals (1 / per_second) that the job has run,
        rounded up. It is never below the start batch.
        """
        divisor = np.ceil(np.maximum(1.0, per_second * executed_seconds))
        left = self.doublings - np.ceil(np.log2(divisor) - 1e-9)
        allowed = np.floor(np.log2(rows_most / self.start) + 1e-9)
        return np.asarray(self.start * 2.0 ** np.clip(left, 0.0, np.maximum(allowed, 0.0)))

    def by_id(self, ids: tuple[str, ...]) -> dict[str, tuple[float, float]]:
        """Return (doublings, passes) of each job: what `grown` is handed next time."""
        columns = zip(self.doublings.tolist(), self.passes.tolist(), strict=True)
        return dict(zip(ids, columns, strict=True))
