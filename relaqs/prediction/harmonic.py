"""The curve for a training run's first losses: s/k + c, where two points must do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.family import PARAMETERS
from relaqs.prediction.series import Series
from relaqs.prediction.window import Window


@dataclass(frozen=True, slots=True)
class Harmonic:
    """s/k + c, k = x − origin + 1, s ≥ 0, through the newest two observations. Parameters: s, c, origin.

    The slowest rate first-order methods promise on convex losses (Nesterov 2004, 2.1.5). With two or three
    losses the richer families fit anything, mostly a flat line, and a young job would look finished.
    """

    name: str = "harmonic"

    def fit(self, series: Series) -> FloatArray:
        origin = Window.of(series).origin
        x, y = series.newest
        x_before, y_before = series.before(np.ones(len(x), dtype=np.int64)).newest
        fall = _inverse(x_before, origin) - _inverse(x, origin)
        has_two = (series.counts > 1) & (fall > 0)
        slope = (y_before - y) / np.where(has_two, fall, 1.0)
        parameters = np.zeros((len(x), PARAMETERS))
        parameters[:, 0] = np.where(has_two, np.maximum(slope, 0.0), 0.0)
        parameters[:, 1] = y - parameters[:, 0] * _inverse(x, origin)
        parameters[:, 2] = origin
        return parameters

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        origin = parameters[:, 2]
        return parameters[:, :1] * _inverse(x.T, origin).T + parameters[:, 1:2]

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        moved = parameters.copy()
        moved[:, 1] += y - self.at(parameters, x[:, None])[:, 0]
        return moved


def _inverse(x: FloatArray, origin: FloatArray) -> FloatArray:
    return 1.0 / (np.maximum(x - origin, 0.0) + 1.0)


HARMONIC = Harmonic()
