"""Linear support vector machine, by L-BFGS on the squared hinge loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relaqs.arrays import FloatArray
from relaqs.training.algorithms.estimators import fitted
from relaqs.training.algorithms.linear import Coefficients, LinearDescent, Objective, gradient_sums
from relaqs.training.arguments import check_positive, require
from relaqs.training.profile import Profile, known_classes
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.svm


@dataclass(frozen=True, slots=True)
class LinearSVM:
    """The linear model of widest margin, one class against the rest where there are more than two.

    sql: the rows; every column but the target is a feature. target: the column of classes, numbers or text.
    strength: how much the data count against the penalty, scikit-learn's C. tolerance: of the gradient.
    The loss is the mean squared hinge plus ‖weights, intercept‖² / (2 · strength · rows), summed over the
    outputs: what scikit-learn's LinearSVC minimises, which also counts the intercept among the weights.
    """

    sql: str
    target: str
    strength: float = 1.0
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        require("sklearn")
        check_positive("strength", self.strength)
        check_positive("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> LinearDescent:
        classes = known_classes(profile, self.target)
        objective = hinge_objective(profile.row_count, self.strength)
        return LinearDescent(profile.mean, profile.covariance, objective, self.tolerance, classes)

    def partial(self, model: Coefficients, rows: Rows) -> Sums:
        return hinge_sums(model, rows.features, model.signs(rows.target))

    def estimator(self, profile: Profile, model: Coefficients) -> sklearn.svm.LinearSVC:
        return fitted(margin_classifier(model, self.strength), profile.names)


def hinge_objective(row_count: int, strength: float) -> Objective:
    return Objective(row_count, penalty=1 / strength, penalises_intercepts=True)


def hinge_sums(model: Coefficients, features: FloatArray, signs: FloatArray) -> Sums:
    """Return the squared hinge loss of some rows, and its gradient. signs: shape (rows, outputs)."""
    slack = np.maximum(1.0 - signs * model.scores(features), 0.0)
    return gradient_sums(features, slack**2, -2 * signs * slack)


def margin_classifier(model: Coefficients, strength: float) -> sklearn.svm.LinearSVC:
    """Return scikit-learn's estimator of the coefficients, without names of features."""
    from sklearn.svm import LinearSVC

    classifier = LinearSVC(C=strength)
    classifier.classes_ = model.classes
    classifier.coef_, classifier.intercept_ = model.weights, model.intercepts
    classifier.n_features_in_ = model.weights.shape[1]
    return classifier
