"""Logistic regression of two or more classes, by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, log_expit, log_softmax

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.algorithms.linear import Coefficients, LinearDescent, Objective, gradient_sums
from relaqs.training.arguments import check_positive, require
from relaqs.training.profile import Profile, known_classes
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.linear_model


@dataclass(frozen=True, slots=True)
class LogisticRegression:
    """The linear model of log odds, with a ridge penalty. With more than two classes it is a softmax.

    The loss is the mean log loss plus ‖weights‖² / (2 · strength · rows), as scikit-learn minimises it.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of classes, numbers or text.
        strength: how much the data count against the penalty, as scikit-learn's C.
        tolerance: training has converged when the gradient is smaller than this.

    >>> import duckdb, pandas, relaqs
    >>> from relaqs.training import LogisticRegression
    >>> rows = duckdb.sql("SELECT i / 100 AS x, i >= 500 AS late FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(LogisticRegression("SELECT x, late FROM points", target="late")).result()
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
        objective = Objective(profile.row_count, penalty=1 / self.strength)
        return LinearDescent(profile.mean, profile.covariance, objective, self.tolerance, classes)

    def partial(self, model: Coefficients, rows: Rows) -> Sums:
        scores = model.scores(rows.features)
        if scores.shape[1] == 1:
            signs = model.signs(rows.target)
            margins = signs * scores
            return gradient_sums(rows.features, -log_expit(margins), -signs * expit(-margins))
        is_class = model.signs(rows.target) > 0
        shares = log_softmax(scores, axis=1)
        return gradient_sums(rows.features, -shares[is_class], np.exp(shares) - is_class)

    def right(self, model: Coefficients, rows: Rows) -> int:
        return model.right(rows)

    def estimator(self, profile: Profile, model: Coefficients) -> sklearn.linear_model.LogisticRegression:
        from sklearn.linear_model import LogisticRegression as Estimator

        return fitted(
            Estimator(C=self.strength, tol=self.tolerance),
            profile.names,
            classes_=model.classes,
            coef_=model.weights,
            intercept_=model.intercepts,
        )
