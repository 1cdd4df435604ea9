"""Linear regression: least squares by L-BFGS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.algorithms.linear import Coefficients, LinearDescent, Objective, gradient_sums
from relaqs.training.arguments import check_positive, require
from relaqs.training.profile import Profile, numeric_target
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.linear_model


@dataclass(frozen=True, slots=True)
class LinearRegression:
    """Least squares. The loss is the mean squared error, in the target's unit squared.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: a numeric column.
        tolerance: training has converged when the gradient, for standardised features and target, is smaller
            than this.

    >>> import duckdb, relaqs
    >>> from relaqs.training import LinearRegression
    >>> rows = duckdb.sql("SELECT i / 100 AS x, 2 * i / 100 + 1 AS y FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(LinearRegression("SELECT x, y FROM points", target="y")).result()
    >>> round(float(model.coef_[0]), 3), round(float(model.intercept_), 3)
    (2.0, 1.0)
    """

    sql: str
    target: str
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        require("sklearn")
        check_positive("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> LinearDescent:
        mean, variance = numeric_target(profile, self.target)
        objective = Objective(profile.row_count, score_mean=mean, score_unit=math.sqrt(variance) or 1.0)
        return LinearDescent(profile.mean, profile.covariance, objective, self.tolerance)

    def partial(self, model: Coefficients, rows: Rows) -> Sums:
        assert rows.target is not None
        error = model.scores(rows.features)[:, 0] - rows.target
        return gradient_sums(rows.features, error**2, 2 * error[:, None])

    def estimator(self, profile: Profile, model: Coefficients) -> sklearn.linear_model.LinearRegression:
        from sklearn.linear_model import LinearRegression as Estimator

        return fitted(
            Estimator(), profile.names, coef_=model.weights[0], intercept_=np.float64(model.intercepts[0])
        )
