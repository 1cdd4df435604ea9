"""What curves are fitted to: the newest observations of many jobs, weighted by their age."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

DECAY = 0.8  # weight of an observation relative to the next newer one (the thesis and SLAQ)
WINDOW = 16  # observations kept a job: longer windows predict worse (benchmarks/prediction.py)


@dataclass(frozen=True, slots=True)
class Series:
    """The observations of J jobs, each job a row. Arrays have shape (J, W), oldest first.

    All numbers are finite. A job without any observation has x = y = 0 and no weight.

    Attributes:
        x: positions, such as the number of the step or the share of the work. They never fall.
        y: what was observed there.
        weight: how much each observation counts. 0 marks padding.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray, decay: float = DECAY) -> Series:
        """Return the series of observations padded with NaN; those that are not finite are left out."""
        known = np.isfinite(x) & np.isfinite(y)
        newer = known[:, ::-1].cumsum(axis=1)[:, ::-1] - known
        weight = np.where(known, decay**newer, 0.0)
        return cls(_filled(x, known), _filled(y, known), weight)

    @property
    def counts(self) -> IntArray:
        """How many observations each job has, shape (J,)."""
        counts: IntArray = np.count_nonzero(self.weight, axis=1)
        return counts

    @property
    def newest(self) -> tuple[FloatArray, FloatArray]:
        """The position and the value of each job's newest observation, shape (J,) both."""
        last = _last(self.weight > 0)
        rows = np.arange(len(last))
        return self.x[rows, last], self.y[rows, last]

    def of_jobs(self, jobs: IntArray | BoolArray) -> Series:
        """Return the series of some of the jobs."""
        return Series(self.x[jobs], self.y[jobs], self.weight[jobs])

    def before(self, held_out: IntArray) -> Series:
        """Return the series as it was some observations ago.

        Args:
            held_out: how many observations to leave out of each job, shape (J,).
        """
        known = self.weight > 0
        newer = known[:, ::-1].cumsum(axis=1)[:, ::-1] - known
        return Series(self.x, self.y, np.where(newer >= held_out[:, None], self.weight, 0.0))


def _last(known: BoolArray) -> IntArray:
    """Return the column of each row's last True, or the last column where there is none."""
    last: IntArray = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return last


def _filled(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return the values with the newest known one in every gap, 0 in rows that know nothing."""
    newest = values[np.arange(len(values)), _last(known)]
    newest = np.where(known.any(axis=1), newest, 0.0)
    return np.where(known, values, newest[:, None])
