"""What one job has reported: its newest observations, and what older ones are remembered by."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.series import WINDOW


class Observation(NamedTuple):
    """One folded step.

    Args:
        work_done: in the job's unit (see `JobView`).
        quality: error or loss, inf if it is unknown.
        core_seconds: measured over the step's tasks.
        progress: by one of the metrics of `relaqs.progress`, in [0, 1]; NaN where it is not measured.

    >>> Observation(work_done=0.1, quality=0.04, core_seconds=0.2).quality
    0.04
    """

    work_done: float
    quality: float
    core_seconds: float
    progress: float = math.nan


def _nothing_yet() -> FloatArray:
    return np.full((WINDOW, len(Observation._fields)), np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A job's observations, bounded in memory however many steps it takes.

    Attributes:
        newest: the columns of Observation, shape (WINDOW, 4), oldest first, NaN where there are fewer.
        count: the number of all observations.
        first_quality: the first that was finite, NaN before.
        largest_change: of quality between two consecutive steps so far, 0 before.

    >>> seen = History().followed_by(Observation(0.1, 0.08, 0.2), Observation(0.2, 0.05, 0.2))
    >>> seen.count, seen.first_quality, round(seen.largest_change, 2)
    (2, 0.08, 0.03)
    """

    newest: FloatArray = field(default_factory=_nothing_yet)
    count: int = 0
    first_quality: float = math.nan
    largest_change: float = 0.0

    def followed_by(self, *observations: Observation) -> History:
        """Return the history after further steps."""
        history = self
        for observation in observations:
            history = history._followed_by_one(observation)
        return history

    def _followed_by_one(self, observation: Observation) -> History:
        quality, before = observation.quality, float(self.newest[-1, 1])
        is_known = math.isfinite(quality)
        change = abs(quality - before) if is_known and math.isfinite(before) else 0.0
        return History(
            newest=np.vstack([self.newest[1:], observation]),
            count=self.count + 1,
            first_quality=quality if is_known and math.isnan(self.first_quality) else self.first_quality,
            largest_change=max(self.largest_change, change),
        )
