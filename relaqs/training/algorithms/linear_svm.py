"""Linear support vector machine, by L-BFGS on the squared hinge loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.algorithms.linear import Coefficients, LinearDescent, Objective, gradient_sums
from relaqs.training.arguments import check_positive, require
from relaqs.training.profile import Profile, known_classes
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.svm


@dataclass(frozen=True, slots=True)
class LinearSVM:
    """The linear model of widest margin. With more than two classes each is set against the rest.

    The loss is the mean squared hinge plus ‖weights, intercept‖² / (2 · strength · rows), summed over the
    outputs. scikit-learn's LinearSVC minimises the same; it too counts the intercept among the weights.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of classes, numbers or text.
        strength: how much the data count against the penalty, as scikit-learn's C.
        tolerance: training has converged when the gradient is smaller than this.

    >>> import duckdb, pandas, relaqs
    >>> from relaqs.training import LinearSVM
    >>> rows = duckdb.sql("SELECT i / 100 AS x, i >= 500 AS late FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(LinearSVM("SELECT x, late FROM points", target="late")).result()
    >>> model.predict(pandas.DataFrame({"x": [1.0, 9.0]})).tolist()
    [False, True]
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

    def right(self, model: Coefficients, rows: Rows) -> int:
        return model.right(rows)

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
