"""Softmax regression by accelerated gradients, whose parameters can lie in shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_softmax

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.arguments import check_positive, require
from relaqs.training.profile import Profile, class_codes, known_classes, told_classes
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

    >>> import duckdb, pandas, relaqs
    >>> from relaqs.training import SoftmaxRegression
    >>> rows = duckdb.sql("SELECT i / 100 AS x, i // 400 AS third FROM range(1200) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=8, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(SoftmaxRegression("SELECT x, third FROM points", target="third")).result()
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
        return int((told_classes(model.told(rows), model.classes) == rows.target).sum())

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
