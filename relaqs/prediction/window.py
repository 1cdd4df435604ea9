"""Observations brought to one scale, so that one grid of starting points fits every job."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.prediction.series import Series

TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Window:
    """A series in units of its own extent. t, z: shape (J, W), in [0, 1] where observed.

    x = origin + width·t, y = lowest + span·z, all of shape (J,).
    """

    t: FloatArray
    z: FloatArray
    weight: FloatArray
    origin: FloatArray
    width: FloatArray
    lowest: FloatArray
    span: FloatArray

    @classmethod
    def of(cls, series: Series) -> Window:
        known = series.weight > 0
        origin = _least(series.x, known)
        width = np.maximum(series.newest[0] - origin, TINY)
        lowest = _least(series.y, known)
        span = np.maximum(-_least(-series.y, known) - lowest, TINY)
        t = np.where(known, (series.x - origin[:, None]) / width[:, None], 0.0)
        z = np.where(known, (series.y - lowest[:, None]) / span[:, None], 0.0)
        return cls(t, z, series.weight, origin, width, lowest, span)

    def of_jobs(self, jobs: slice) -> Window:
        """Return the windows of some of the jobs."""
        return Window(*(getattr(self, each.name)[jobs] for each in fields(self)))


def _least(values: FloatArray, known: BoolArray) -> FloatArray:
    least = np.where(known, values, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)
