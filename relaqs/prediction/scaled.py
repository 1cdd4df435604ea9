"""Families with one free number, the scale of a known shape: c·s(x). They fit from one observation on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.family import PARAMETERS
from relaqs.prediction.series import Series


@dataclass(frozen=True, slots=True)
class ScaledShape:
    """The family c·s(x) with c ≥ 0. Its one parameter is c."""

    name: str
    shape: Callable[[FloatArray], FloatArray]

    def fit(self, series: Series) -> FloatArray:
        shape = self.shape(series.x)
        squares = (series.weight * shape**2).sum(axis=1)
        scale = (series.weight * shape * series.y).sum(axis=1) / np.where(squares > 0, squares, 1.0)
        return _column(np.maximum(scale, 0.0))

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        return parameters[:, :1] * self.shape(x)

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        shape = self.shape(x)
        return np.where((shape > 0)[:, None], _column(y / np.where(shape > 0, shape, 1.0)), parameters)


def standard_error_shape(fraction: FloatArray) -> FloatArray:
    """Return √(1/x − 1) for a scanned fraction x: how a standard error falls, to zero at the end.

    With x = i/N it is √N·√(1/i − 1/N): simple random sampling without replacement (Cochran 1977, 2.6).
    """
    inside = np.clip(fraction, 1e-12, 1.0)
    return np.sqrt(1.0 / inside - 1.0)


def spacing(fraction: FloatArray) -> FloatArray:
    """Return √(1/x₁ − 1/x₂) of each scanned fraction x₂ and the one before, shape (..., steps); NaN first.

    So |X₂ − X₁| falls, where X₁ and X₂ are estimated from the rows so far: one is part of the other, and
    their difference has variance σ²/n·(1/x₁ − 1/x₂), n rows in all (Cochran 1977, 2.6). Mini-batches may
    grow; with equal ones it is 1/√(i·(i−1)), but for a factor.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = 1.0 / fraction[..., :-1] - 1.0 / fraction[..., 1:]
    found = np.full(fraction.shape, np.nan)
    found[..., 1:] = np.sqrt(np.maximum(apart, 0.0))
    return found


def line_to_end_shape(fraction: FloatArray) -> FloatArray:
    """Return 1 − x for a scanned fraction x: what falls evenly to zero at the end."""
    return 1.0 - np.clip(fraction, 0.0, 1.0)


def _column(scale: FloatArray) -> FloatArray:
    parameters = np.zeros((len(scale), PARAMETERS))
    parameters[:, 0] = scale
    return parameters


LAST_VALUE = ScaledShape("last value", np.ones_like)
STANDARD_ERROR = ScaledShape("standard error", standard_error_shape)
LINE_TO_END = ScaledShape("line to the end", line_to_end_shape)
RESULT_DELTA = ScaledShape("result delta", np.asarray)  # its position is the `spacing`
