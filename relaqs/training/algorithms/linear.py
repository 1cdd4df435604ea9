"""What linear models share: scores, gradients over a partition, and the descent of their coefficients.

The losses of linear models by scikit-learn's names: each gives the rows' losses and their slopes.

The directions in which a linear model is descended: those in which its loss is about as steep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from scipy.special import expit, log_expit

from relaqs.training.algorithms.optimiser import Descent
from relaqs.training.profile import class_codes, told_classes
from relaqs.training.protocol import Fold
from relaqs.training.rows import Rows, Sums

LEAST_EIGENVALUE = 1e-10  # of a matrix with ones on its diagonal; below it columns depend on each other


@dataclass(frozen=True, slots=True)
class Axes:
    """A linear map from the optimiser's coordinates to a model's.

    matrix: shape (coordinates, coordinates), or (coordinates,) if each is an axis of its own.
    """

    matrix: FloatArray

    @classmethod
    def of(cls, curvature: FloatArray) -> Axes:
        """Return the axes along which a loss of such curvature is round: few steps lead to its minimum.

        curvature: positive semi-definite, shape (coordinates, coordinates), or its diagonal alone.
        """
        is_whole = curvature.ndim == 2
        scale = np.sqrt(np.diag(curvature) if is_whole else curvature)
        scale = np.where(scale > 0, scale, 1.0)
        if not is_whole:
            return cls(1 / scale)
        eigenvalues, directions = np.linalg.eigh(curvature / np.outer(scale, scale))
        lengths = np.sqrt(np.maximum(eigenvalues, LEAST_EIGENVALUE))
        return cls(directions / lengths / scale[:, None])

    def position(self, point: FloatArray) -> FloatArray:
        """Return a point in the model's coordinates, shape (outputs, coordinates) both."""
        return point @ self.matrix.T if self.matrix.ndim == 2 else point * self.matrix

    def slopes(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient along the axes, of that in the model's coordinates, same shapes."""
        return gradient @ self.matrix if self.matrix.ndim == 2 else gradient * self.matrix


LinearLoss: TypeAlias = Callable[[FloatArray, FloatArray, float], tuple[FloatArray, FloatArray]]
"""(scores, wanted, epsilon) → losses, and their slopes for each score. All of shape (rows, outputs)."""


def hinge(scores: FloatArray, signs: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    slack = 1.0 - signs * scores
    return np.maximum(slack, 0.0), np.where(slack >= 0, -signs, 0.0)


def squared_hinge(scores: FloatArray, signs: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    slack = np.maximum(1.0 - signs * scores, 0.0)
    return slack**2, -2.0 * signs * slack


def perceptron(scores: FloatArray, signs: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    margins = signs * scores
    return np.maximum(-margins, 0.0), np.where(margins <= 0, -signs, 0.0)


def log_loss(scores: FloatArray, signs: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    margins = signs * scores
    return -log_expit(margins), -signs * expit(-margins)


def modified_huber(scores: FloatArray, signs: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    margins = signs * scores
    slack = np.maximum(1.0 - margins, 0.0)
    is_far = margins < -1.0
    return np.where(is_far, -4.0 * margins, slack**2), -signs * np.where(is_far, 4.0, 2.0 * slack)


def squared_error(scores: FloatArray, wanted: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    off = scores - wanted
    with np.errstate(over="ignore"):  # an infinite loss ends the run with an error of its own
        return off**2 / 2.0, off


def huber(scores: FloatArray, wanted: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    off = scores - wanted
    size = np.abs(off)
    losses = np.where(size <= epsilon, off**2 / 2.0, epsilon * (size - epsilon / 2.0))
    return losses, np.clip(off, -epsilon, epsilon)


def epsilon_insensitive(
    scores: FloatArray, wanted: FloatArray, epsilon: float
) -> tuple[FloatArray, FloatArray]:
    off = scores - wanted
    beyond = np.abs(off) - epsilon
    return np.maximum(beyond, 0.0), np.where(beyond > 0, np.sign(off), 0.0)


def squared_epsilon_insensitive(
    scores: FloatArray, wanted: FloatArray, epsilon: float
) -> tuple[FloatArray, FloatArray]:
    off = scores - wanted
    beyond = np.maximum(np.abs(off) - epsilon, 0.0)
    return beyond**2, 2.0 * np.sign(off) * beyond


OF_CLASSES: dict[str, LinearLoss] = {
    "hinge": hinge,
    "log_loss": log_loss,
    "modified_huber": modified_huber,
    "perceptron": perceptron,
    "squared_hinge": squared_hinge,
}
OF_NUMBERS: dict[str, LinearLoss] = {
    "epsilon_insensitive": epsilon_insensitive,
    "huber": huber,
    "squared_epsilon_insensitive": squared_epsilon_insensitive,
    "squared_error": squared_error,
}


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Two classes have one output, which is positive for the second; more have one each.

    Attributes:
        weights: shape (outputs, features).
        intercepts: shape (outputs,).
        classes: the classes to tell apart, if any.
    """

    weights: FloatArray
    intercepts: FloatArray
    classes: NDArray[Any] | None = None

    def scores(self, features: FloatArray) -> FloatArray:
        """Return each row's score for each output, shape (rows, outputs)."""
        return features @ self.weights.T + self.intercepts

    def right(self, rows: Rows) -> int:
        """Return how many rows' classes are told rightly."""
        assert self.classes is not None
        return int((told_classes(self.scores(rows.features), self.classes) == rows.target).sum())

    def signs(self, target: NDArray[Any] | None) -> FloatArray:
        """Return whether each row is of each output's class, 1 or -1, shape (rows, outputs)."""
        assert self.classes is not None
        codes = class_codes(target, self.classes)
        wanted = np.arange(len(self.classes)) if len(self.intercepts) > 1 else np.array([1])
        return np.where(codes[:, None] == wanted, 1.0, -1.0)


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised: (Σ loss + ½ penalty·‖weights‖²) / row_count.

    Attributes:
        penalises_intercepts: whether intercepts count among the weights.
        score_mean: the score that a model without weights should give.
        score_unit: what scores are measured in. Losses are measured in its square, so the unit of a target
            does not matter.
    """

    row_count: int
    penalty: float = 0.0
    penalises_intercepts: bool = False
    score_mean: float = 0.0
    score_unit: float = 1.0

    def curvature(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """Return about how the objective curves over weights and score at the mean, see `Axes.of`.

        For squared errors it is half of the hessian. Hinge and log loss curve less where rows are far from
        the margin.

        Args:
            mean: of the features, shape (features,).
            covariance: of the features, shape (features, features), or their variances alone.
        """
        ridge = self.penalty / self.row_count
        ridge_of_intercept = ridge if self.penalises_intercepts else 0.0
        if covariance.ndim == 1:
            return np.append(covariance + ridge + ridge_of_intercept * mean**2, 1.0 + ridge_of_intercept)
        found = np.pad(covariance + ridge * np.eye(len(mean)), (0, 1))
        found[-1, -1] = 1.0
        slopes = np.append(-mean, 1.0)  # of the intercept, which is the score at zero
        return found + ridge_of_intercept * np.outer(slopes, slopes)


def gradient_sums(features: FloatArray, losses: FloatArray, slopes: FloatArray) -> Sums:
    """Return one partition's loss, and its gradient for weights and intercepts.

    Args:
        losses: of the rows, any shape.
        slopes: of the loss for each score, shape (rows, outputs).
    """
    return np.asarray(losses.sum()), slopes.T @ features, slopes.sum(axis=0)


class LinearDescent:
    """L-BFGS over the coefficients of a linear model, from constant scores.

    The optimiser sees weights and the score at the mean, along axes in which the objective is about as
    steep. It is the same objective, so it has the same minimum.

    Args:
        mean, covariance: of the features, see `Objective.curvature`.
        classes: for a classifier.
    """

    def __init__(
        self,
        mean: FloatArray,
        covariance: FloatArray,
        objective: Objective,
        tolerance: float,
        classes: NDArray[Any] | None = None,
    ) -> None:
        outputs = 1 if classes is None or len(classes) == 2 else len(classes)
        self._shape = (outputs, len(mean) + 1)
        self._classes = classes
        self._mean = mean
        self._axes = Axes.of(objective.curvature(mean, covariance))
        self._objective = objective
        self._descent = Descent(np.zeros(outputs * (len(mean) + 1)), tolerance)
        self.model = self._coefficients(self._descent.best)

    def fold(self, sums: Sums) -> Fold:
        objective = self._objective
        loss, weight_slopes, intercept_slopes = sums
        weights, intercepts = self.model.weights, self.model.intercepts
        total = float(loss) + objective.penalty / 2 * float((weights**2).sum())
        weight_slopes = weight_slopes + objective.penalty * weights
        if objective.penalises_intercepts:
            total += objective.penalty / 2 * float((intercepts**2).sum())
            intercept_slopes = intercept_slopes + objective.penalty * intercepts
        self._tell(total, weight_slopes, intercept_slopes)
        best = self._coefficients(self._descent.best)
        return Fold(best, self._descent.loss * objective.score_unit**2, self._descent.wanted is None)

    def close(self) -> None:
        self._descent.close()

    def _tell(self, total: float, weight_slopes: FloatArray, intercept_slopes: FloatArray) -> None:
        """Tell the optimiser, in its own coordinates and unit, and take over where it goes next."""
        count, unit = self._objective.row_count, self._objective.score_unit
        centred = weight_slopes - intercept_slopes[:, None] * self._mean
        gradient = self._axes.slopes(np.column_stack([centred, intercept_slopes]))
        self._descent.tell(total / (count * unit**2), gradient.ravel() / (count * unit))
        if self._descent.wanted is not None:
            self.model = self._coefficients(self._descent.wanted)

    def _coefficients(self, point: FloatArray) -> Coefficients:
        """Return the coefficients for the features as they are."""
        position = self._axes.position(point.reshape(self._shape)) * self._objective.score_unit
        weights = position[:, :-1]
        intercepts = self._objective.score_mean + position[:, -1] - weights @ self._mean
        return Coefficients(weights, intercepts, self._classes)
