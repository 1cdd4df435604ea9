"""Lasso: least squares that prefer weights of zero, by accelerated proximal gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.arguments import check_not_negative, check_positive, require
from relaqs.training.profile import Profile, numeric_target
from relaqs.training.rows import Rows, Sums
from relaqs.training.sharded.protocol import WholeParameters
from relaqs.training.sharded.proximal import (
    CentredScores,
    ProximalDescent,
    gradient_of,
    largest_eigenvalue,
    scale_of,
)

if TYPE_CHECKING:
    import sklearn.linear_model


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

    >>> import duckdb, relaqs
    >>> from relaqs.training import Lasso
    >>> rows = duckdb.sql("SELECT i % 10 AS x, i % 7 AS z, 3 * (i % 10) AS y FROM range(700) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=8, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(Lasso("SELECT x, z, y FROM points", target="y", alpha=0.5)).result()
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
            Estimator(alpha=self.alpha),
            profile.names,
            coef_=weights[0],
            intercept_=float(intercepts[0]),
        )
