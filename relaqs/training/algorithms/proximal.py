"""Softmax regression and lasso, by accelerated proximal gradients.

The descent of both is made element by element, so that their parameters can be cut into shards: a gradient
step from a point ahead, where momentum carries, then the proximal step. For the ridge of softmax regression
that shrinks each weight by a share; for lasso it moves each towards zero by a constant, and leaves it there.

Sources: Beck and Teboulle, A Fast Iterative Shrinkage-Thresholding Algorithm, 2009, section 4 (the steps);
O'Donoghue and Candès, Adaptive Restart for Accelerated Gradient Schemes, 2015, section 3.2 (begin anew
where the loss rises).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError
from scipy.special import log_softmax

from relaqs.arguments import check_not_negative, check_positive
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.protocol import ShardCourse, ShardState, WholeParameters
from relaqs.training.rows import Profile, Rows, Sums, class_codes, known_classes, numeric_target, right_of

if TYPE_CHECKING:
    import sklearn.linear_model

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


@dataclass(frozen=True, slots=True)
class SoftmaxRegression:
    """The linear model of log odds with a ridge penalty, for many classes and features.

    It minimises what `LogisticRegression` minimises, and takes more passes. In return its parameters can lie
    in shards on the workers of a cluster: `db.train(job, parameters="sharded")`. The step size follows from a
    bound on the curvature of the log loss. Source: Böhning, Multinomial Logistic Regression Algorithm, 1992.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of classes, numbers or text.
        strength: how much the data count against the penalty, as scikit-learn's C.
        tolerance: training has converged when five passes in a row change the loss by a smaller share.

    >>> import pandas
    >>> from relaqs.training import SoftmaxRegression
    >>> sql = "SELECT x / 100 AS x, x // 334 AS third FROM numbers"
    >>> model = db.train(SoftmaxRegression(sql, target="third")).result()
    >>> model.predict(pandas.DataFrame({"x": [1.0, 6.0, 11.0]})).tolist()
    [0, 1, 2]
    """

    sql: str
    target: str
    strength: float = 1.0
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        require("sklearn")
        check_positive("strength", self.strength)
        check_positive("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> WholeParameters:
        return WholeParameters(self.descent(profile))

    def descent(self, profile: Profile) -> ProximalDescent:
        """Return how the parameters begin, change and are judged, in shards or not."""
        classes = known_classes(profile, self.target)
        scale = scale_of(profile)
        # Two outputs that differ by w are w/2 and -w/2 at the minimum: half of the penalty on w itself.
        penalty = (2 if len(classes) == 2 else 1) / (self.strength * profile.row_count)
        return ProximalDescent(
            profile.mean,
            scale,
            classes,
            np.zeros(len(classes)),
            profile.row_count,
            largest_eigenvalue(profile) / 2,
            np.append(penalty / scale**2, 0.0),
            np.zeros(len(scale) + 1),
            self.tolerance,
        )

    def partial(self, model: CentredScores, rows: Rows) -> Sums:
        assert model.classes is not None
        centred = model.centred(rows.features)
        shares = log_softmax(model.scores(centred), axis=1)
        is_class = class_codes(rows.target, model.classes)[:, None] == np.arange(len(model.classes))
        return gradient_of(centred, np.exp(shares) - is_class), np.asarray(-shares[is_class].sum())

    def right(self, model: CentredScores, rows: Rows) -> int:
        assert model.classes is not None
        return right_of(model.told(rows), model.classes, rows.target)

    def estimator(self, profile: Profile, model: CentredScores) -> sklearn.linear_model.LogisticRegression:
        from sklearn.linear_model import LogisticRegression as Estimator

        weights, intercepts = model.coefficients()
        if len(intercepts) == 2:
            weights, intercepts = weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
        return fitted(
            Estimator(C=self.strength),
            profile.names,
            classes_=model.classes,
            coef_=weights,
            intercept_=intercepts,
        )


@dataclass(frozen=True, slots=True)
class Lasso:
    """Linear regression with an absolute penalty, which leaves features out by weights of exactly zero.

    The loss is half the mean squared error plus `alpha · Σ |weight|`, as scikit-learn minimises it. Its
    parameters can lie in shards on the workers of a cluster: `db.train(job, parameters="sharded")`.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of numbers to predict.
        alpha: how much weights cost.
        tolerance: training has converged when five passes in a row change the loss by a smaller share.

    >>> from relaqs.training import Lasso
    >>> sql = "SELECT x % 10 AS x, x % 7 AS z, 3 * (x % 10) AS y FROM numbers WHERE x < 700"
    >>> model = db.train(Lasso(sql, target="y", alpha=0.5)).result()
    >>> model.coef_.round(2).tolist()
    [2.94, 0.0]
    """

    sql: str
    target: str
    alpha: float = 1.0
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        require("sklearn")
        check_not_negative("alpha", self.alpha)
        check_positive("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> WholeParameters:
        return WholeParameters(self.descent(profile))

    def descent(self, profile: Profile) -> ProximalDescent:
        """Return how the parameters begin, change and are judged, in shards or not."""
        mean, _ = numeric_target(profile, self.target)
        scale = scale_of(profile)
        return ProximalDescent(
            profile.mean,
            scale,
            None,
            np.array([mean]),
            profile.row_count,
            largest_eigenvalue(profile),
            np.zeros(len(scale) + 1),
            np.append(self.alpha / scale, 0.0),
            self.tolerance,
        )

    def partial(self, model: CentredScores, rows: Rows) -> Sums:
        assert rows.target is not None
        centred = model.centred(rows.features)
        off = model.scores(centred) - rows.target[:, None]
        return gradient_of(centred, off), np.asarray((off**2).sum() / 2)

    def estimator(self, profile: Profile, model: CentredScores) -> sklearn.linear_model.Lasso:
        from sklearn.linear_model import Lasso as Estimator

        weights, intercepts = model.coefficients()
        return fitted(
            Estimator(alpha=self.alpha), profile.names, coef_=weights[0], intercept_=float(intercepts[0])
        )
