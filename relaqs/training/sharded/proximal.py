"""Accelerated proximal descent of a linear model, element by element, so that its parameters can be cut.

Sources: Beck and Teboulle, A Fast Iterative Shrinkage-Thresholding Algorithm, 2009, section 4 (the steps);
O'Donoghue and Candès, Adaptive Restart for Accelerated Gradient Schemes, 2015, section 3.2 (begin anew where
the loss rises).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums
from relaqs.training.sharded.protocol import ShardCourse, ShardState

CALM_STEPS = 5  # in a row that change the loss less than the tolerance: a descent with momentum ripples
SAMPLE_MARGIN = 1.2  # by which a sample may show too little curvature
POWER_STEPS = 60  # of the power method for the largest eigenvalue


@dataclass(frozen=True, slots=True)
class CentredScores:
    """A linear model over features of mean 0 and variance 1, as COMP is given it.

    Attributes:
        values: the weights, and the score at the mean as the last row, shape (features + 1, outputs).
        mean, scale: of the features as they are, shape (features,).
        classes: what the outputs stand for, None for a number.
    """

    values: FloatArray
    mean: FloatArray
    scale: FloatArray
    classes: NDArray[Any] | None

    def centred(self, features: FloatArray) -> FloatArray:
        return np.asarray((features - self.mean) / self.scale)

    def scores(self, centred: FloatArray) -> FloatArray:
        """Return each row's score for each output, shape (rows, outputs)."""
        return np.asarray(centred @ self.values[:-1] + self.values[-1])

    def told(self, rows: Rows) -> FloatArray:
        return self.scores(self.centred(rows.features))

    def coefficients(self) -> tuple[FloatArray, FloatArray]:
        """Return weights and intercepts for features as they are, shapes (outputs, features), (outputs,)."""
        weights = (self.values[:-1] / self.scale[:, None]).T
        return weights, self.values[-1] - weights @ self.mean


def gradient_of(centred: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return the gradient for the parameters. slopes: of each row's loss, shape (rows, outputs)."""
    return np.vstack([centred.T @ slopes, slopes.sum(axis=0)])


@dataclass(frozen=True, slots=True)
class ProximalDescent:
    """Minimises Σ loss / row_count + Σ ½ ridge·w² + Σ lasso·|w| over a linear model.

    Attributes:
        mean, scale: of the features, shape (features,).
        classes: as `CentredScores` has them.
        start: the first scores at the mean, shape (outputs,).
        row_count: of the training rows.
        curvature: no direction of Σ loss / row_count curves more.
        ridge, lasso: of each row of the parameters, shape (features + 1,).
        tolerance: the relative change of the loss under which a step counts as calm.
    """

    mean: FloatArray
    scale: FloatArray
    classes: NDArray[Any] | None
    start: FloatArray
    row_count: int
    curvature: float
    ridge: FloatArray
    lasso: FloatArray
    tolerance: float

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.mean) + 1, len(self.start)

    def first(self, rows: slice) -> ShardState:
        count, columns = self.shape
        values = np.zeros((count, columns))
        values[-1] = self.start
        return values[rows], values[rows]

    def model(self, values: FloatArray) -> CentredScores:
        return CentredScores(values, self.mean, self.scale, self.classes)

    def penalty(self, values: FloatArray) -> float:
        ridge = (self.ridge[:, None] * values**2).sum() / 2
        return float(ridge + (self.lasso[:, None] * np.abs(values)).sum())

    def update(
        self, state: ShardState, gradient: FloatArray, pace: tuple[float, ...], rows: slice
    ) -> ShardState:
        ahead, at = state
        rate, momentum = pace
        moved = ahead - (rate / self.row_count) * gradient
        shrunk = np.maximum(np.abs(moved) - rate * self.lasso[rows, None], 0.0)
        reached = np.copysign(shrunk, moved) / (1.0 + rate * self.ridge[rows, None])
        return reached + momentum * (reached - at), reached

    def begin(self) -> ShardCourse:
        return ShardCourse(0, (1 / self.curvature, 0.0), memory=(1.0, 0.0, 0.0))

    def judge(self, course: ShardCourse, totals: Sums, penalty: float) -> ShardCourse:
        (rate, momentum), (weight, calm, momentum_before) = course.pace, course.memory
        loss = float(totals[0]) / self.row_count + penalty
        if not math.isfinite(loss):
            raise DataError(f"the loss is {loss} after {course.step} passes; scale the columns of the SELECT")
        if loss > course.loss:
            if momentum_before == 0.0:  # a plain step went too far
                rate /= 2
            weight = 1.0
        is_calm = abs(course.loss - loss) <= self.tolerance * abs(loss)
        calm = calm + 1 if is_calm else 0.0
        heavier = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        pace = (rate, (weight - 1) / heavier)
        is_final = calm >= CALM_STEPS
        return ShardCourse(course.step + 1, pace, loss, is_final, (heavier, calm, momentum))


def scale_of(profile: Profile) -> FloatArray:
    """Return what each feature is divided by: its standard deviation, or 1 where it does not vary."""
    spread = np.sqrt(profile.variance)
    return np.where(spread > 0, spread, 1.0)


def largest_eigenvalue(profile: Profile) -> float:
    """Return that of the features' correlations, at least 1, the score at the mean's own."""
    scale = scale_of(profile)
    covariance = profile.covariance
    if covariance.ndim == 2:
        return max(1.0, float(np.linalg.eigvalsh(covariance / np.outer(scale, scale))[-1]))
    centred = (profile.sample - profile.mean) / scale
    direction: FloatArray = np.random.default_rng(0).standard_normal((centred.shape[1],))
    size = 0.0
    for _ in range(POWER_STEPS):
        direction = centred.T @ (centred @ (direction / np.linalg.norm(direction)))
        size = float(np.linalg.norm(direction))
    return max(1.0, SAMPLE_MARGIN * size / max(len(centred), 1))
