"""How far each job has come, as a distribution: equation 6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.gangs.gangs import Gangs
from relaqs.prediction.passes_left import FEATURES, FEWEST_POINTS, MOST_POINTS, PassesLeft

Predictor = Callable[[Gangs, FloatArray], FloatArray]
"""(jobs, points of ended jobs) → the passes that each job still needs, shape (E,); NaN: nothing tells."""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Beta distributions of the share of its work that each job has done.

    Attributes:
        alpha: about the passes done, at least 1, shape (E,).
        beta: about the passes left, at least 1, shape (E,).
        is_predicted: whether something tells the passes left, shape (E,). Else a job counts as half done.
    """

    alpha: FloatArray
    beta: FloatArray
    is_predicted: BoolArray

    @classmethod
    def of(cls, gangs: Gangs, finished: FloatArray, predictor: Predictor) -> Progress:
        """Return the progress of jobs, from points of ended jobs (`SlotView.finished`)."""
        left = predictor(gangs, finished)
        is_predicted = ~np.isnan(left)
        done = np.maximum(gangs.passes_done, 1.0)
        return cls(done, np.where(is_predicted, np.maximum(left, 1.0), done), is_predicted)

    @property
    def mean(self) -> FloatArray:
        """The expected progress, shape (E,)."""
        return self.alpha / (self.alpha + self.beta)


def by_ended_jobs(gangs: Gangs, finished: FloatArray) -> FloatArray:
    """Return the passes that jobs still need, by regression on ended jobs; NaN for fewer than 5 points."""
    if len(finished) < FEWEST_POINTS:
        return np.full(len(gangs), np.nan)
    some = finished[np.linspace(0, len(finished) - 1, min(len(finished), MOST_POINTS)).astype(np.int64)]
    fallen = 1.0 - gangs.loss / gangs.first_loss
    known = (gangs.pass_rows, gangs.first_loss, gangs.rows_done, fallen, gangs.accuracy)
    return _fitted(np.ascontiguousarray(some).tobytes()).at(np.stack(known, axis=1))


@lru_cache(maxsize=4)
def _fitted(points: bytes) -> PassesLeft:
    """Return the regression on these points. It is fitted anew only when a job has ended."""
    return PassesLeft.fitted(np.frombuffer(points).reshape(-1, FEATURES + 1))
