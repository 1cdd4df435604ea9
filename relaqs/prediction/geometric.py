"""SLAQ's curve for training by second-order methods: μ^(k − b) + c."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.family import PARAMETERS
from relaqs.prediction.series import Series
from relaqs.prediction.window import Window

RATES = np.geomspace(0.03, 60.0, 10)  # of decay over the whole window, where the search starts
HALVINGS = 8
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Geometric:
    """s·μ^(x − origin) + c with s ≥ 0 and μ = e^(−rate) < 1. Parameters: s, rate, c, origin.

    This is μ^(k − b) + c with s = μ^(origin − b). For a known rate, s and c are a straight-line fit; the rate
    is found by a grid and golden-section search on its logarithm (Kiefer 1953), for all jobs at once.
    Source: SLAQ, algorithms of linear or superlinear convergence.
    """

    name: str = "geometric"

    def fit(self, series: Series) -> FloatArray:
        window = Window.of(series)
        rate = _best_rate(window)
        scale, floor, _ = _line(window, rate)
        parameters = np.zeros((len(rate), PARAMETERS))
        parameters[:, 0] = scale * window.span
        parameters[:, 1] = rate / window.width
        parameters[:, 2] = window.lowest + floor * window.span
        parameters[:, 3] = window.origin
        return parameters

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        scale, rate, floor, origin = (parameters[:, i : i + 1] for i in range(4))
        return scale * np.exp(-rate * np.maximum(x - origin, 0.0)) + floor

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        moved = parameters.copy()
        moved[:, 2] += y - self.at(parameters, x[:, None])[:, 0]
        return moved


def _best_rate(window: Window) -> FloatArray:
    jobs = len(window.t)
    errors = np.stack([_line(window, np.full(jobs, rate))[2] for rate in RATES], axis=1)
    nearest, gap = np.log(RATES)[errors.argmin(axis=1)], np.log(RATES[1] / RATES[0])
    low: FloatArray = nearest - gap
    high: FloatArray = nearest + gap
    for _ in range(HALVINGS):
        inner_low, inner_high = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        goes_low = _line(window, np.exp(inner_low))[2] < _line(window, np.exp(inner_high))[2]
        low, high = np.where(goes_low, low, inner_low), np.where(goes_low, inner_high, high)
    rate: FloatArray = np.exp((low + high) / 2)
    return rate


def _line(window: Window, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return s ≥ 0 and c of the best s·e^(−rate·t) + c, and its weighted squared error, shape (J,) each."""
    share = window.weight / np.maximum(window.weight.sum(axis=1, keepdims=True), TINY)
    decay = np.exp(-rate[:, None] * window.t)
    mean_decay, mean_z = (share * decay).sum(axis=1), (share * window.z).sum(axis=1)
    decay -= mean_decay[:, None]
    deviation = window.z - mean_z[:, None]
    spread = (share * decay**2).sum(axis=1)
    scale = np.maximum((share * decay * deviation).sum(axis=1) / np.maximum(spread, TINY), 0.0)
    error = (share * (deviation - scale[:, None] * decay) ** 2).sum(axis=1)
    return scale, mean_z - scale * mean_decay, error


GEOMETRIC = Geometric()
