"""Support vector machine with a polynomial kernel, approximated by Nyström's method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.arguments import check_not_negative, check_positive, check_whole
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.algorithms.linear import (
    Coefficients,
    LinearDescent,
    hinge_objective,
    hinge_sums,
    margin_classifier,
)
from relaqs.training.protocol import Fold
from relaqs.training.rows import Profile, Rows, Sums, known_classes

if TYPE_CHECKING:
    import sklearn.kernel_approximation
    import sklearn.pipeline


@dataclass(frozen=True, slots=True)
class MappedModel:
    """A linear model of mapped features. map: fitted on the landmarks, features → components."""

    map: sklearn.kernel_approximation.Nystroem
    coefficients: Coefficients


@dataclass(frozen=True, slots=True)
class PolynomialSVM:
    """The widest margin in the space of the kernel (gamma · x·y + offset)^degree.

    The kernel is approximated: rows are mapped to their similarities to some landmark rows, and a linear
    machine is trained on those (Williams, Seeger 2001, Using the Nyström method). With as many landmarks as
    rows it is the kernel itself. The loss is that of `LinearSVM` in the mapped space.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of classes, numbers or text.
        degree: of the kernel.
        gamma: of the kernel. Default: 1 / (features · their mean variance).
        offset: of the kernel.
        landmarks: how many rows to compare with. Time and memory of a pass grow with them.
        strength: how much the data count against the penalty, as scikit-learn's C.
        tolerance: training has converged when the gradient is smaller than this.
        seed: picks the landmarks from a sample of the rows.

    >>> import duckdb, pandas, relaqs
    >>> from relaqs.training import PolynomialSVM
    >>> rows = duckdb.sql("SELECT i / 100 - 5 AS x, abs(i - 500) < 200 AS inside FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(PolynomialSVM("SELECT * FROM points", target="inside", degree=2)).result()
    >>> model.predict(pandas.DataFrame({"x": [-4.0, 0.0, 4.0]})).tolist()
    [False, True, False]
    """

    sql: str
    target: str
    degree: int = 3
    gamma: float | None = None
    offset: float = 1.0
    landmarks: int = 100
    strength: float = 1.0
    tolerance: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        require("sklearn")
        check_whole("degree", self.degree)
        check_whole("landmarks", self.landmarks)
        check_whole("seed", self.seed, least=0)
        check_not_negative("offset", self.offset)
        for name in ("strength", "tolerance"):
            check_positive(name, getattr(self, name))
        if self.gamma is not None:
            check_positive("gamma", self.gamma)

    def begin(self, profile: Profile) -> MappedDescent:
        from sklearn.kernel_approximation import Nystroem

        classes = known_classes(profile, self.target)
        spread = float(profile.variance.mean()) or 1.0
        map_ = Nystroem(
            kernel="poly",
            degree=self.degree,
            gamma=self.gamma or 1 / (len(profile.names) * spread),
            coef0=self.offset,
            n_components=min(self.landmarks, len(profile.sample)),
            random_state=self.seed,
        ).fit(profile.sample)
        mapped: FloatArray = map_.transform(profile.sample)
        objective = hinge_objective(profile.row_count, self.strength)
        moments = mapped.mean(axis=0), np.atleast_2d(np.cov(mapped.T, bias=True))
        return MappedDescent(map_, LinearDescent(*moments, objective, self.tolerance, classes))

    def partial(self, model: MappedModel, rows: Rows) -> Sums:
        return hinge_sums(model.coefficients, _mapped(model, rows), model.coefficients.signs(rows.target))

    def right(self, model: MappedModel, rows: Rows) -> int:
        return model.coefficients.right(Rows(_mapped(model, rows), rows.target))

    def estimator(self, profile: Profile, model: MappedModel) -> sklearn.pipeline.Pipeline:
        """Return a pipeline of the map and the linear classifier."""
        from sklearn.pipeline import make_pipeline

        return make_pipeline(
            fitted(model.map, profile.names), margin_classifier(model.coefficients, self.strength)
        )


def _mapped(model: MappedModel, rows: Rows) -> FloatArray:
    """Return the mapped features, made once for these rows."""
    if "mapped" not in rows.kept:
        empty = len(rows) == 0  # scikit-learn transforms no empty array
        mapped = model.coefficients.weights[:0] if empty else model.map.transform(rows.features)
        rows.kept["mapped"] = (0, mapped)
    return rows.kept["mapped"][1]


class MappedDescent:
    """The descent of a linear model behind a map that stays as it is."""

    def __init__(self, map_: sklearn.kernel_approximation.Nystroem, descent: LinearDescent) -> None:
        self._map, self._descent = map_, descent

    @property
    def model(self) -> MappedModel:
        return MappedModel(self._map, self._descent.model)

    def fold(self, sums: Sums) -> Fold:
        fold = self._descent.fold(sums)
        return replace(fold, model=MappedModel(self._map, fold.model))

    def close(self) -> None:
        self._descent.close()
