"""Linear models by stochastic gradient descent on mini-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.arguments import ArgumentError
from relaqs.training.algorithms.estimators import fitted
from relaqs.training.algorithms.linear import OF_CLASSES, OF_NUMBERS, Coefficients, gradient_sums
from relaqs.training.arguments import check_not_negative, check_positive, require
from relaqs.training.elastic.protocol import MiniBatches
from relaqs.training.profile import Profile, class_codes, known_classes, numeric_target
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.linear_model

Schedule: TypeAlias = Literal["constant", "invscaling", "optimal"]


@dataclass(frozen=True, slots=True)
class MiniBatchLinear(MiniBatches):
    """A linear model, for classes or for numbers, by gradient steps on mini-batches.

    With `start_rows=1` each step is that of scikit-learn's SGDClassifier or SGDRegressor: the weights shrink
    by rate · penalty, and then go against the gradient. With more rows it is the mean gradient. More than two
    classes are each set against the rest. The loss is the mean over rows and outputs' sum, without penalty.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature. Scale the features in SQL.
        target: the column of classes or numbers.
        loss: for classes "log_loss", "hinge", "squared_hinge", "modified_huber" or "perceptron"; for numbers
            "squared_error", "huber", "epsilon_insensitive" or "squared_epsilon_insensitive".
        penalty: scikit-learn's alpha.
        schedule: "constant": the rate stays. "invscaling": it is first_rate / t^power at step t. "optimal":
            scikit-learn's 1 / (penalty · (t₀ + t)).
        first_rate: of the first step, scikit-learn's eta0.
        power: of "invscaling".
        epsilon: of the losses that have one.
        start_rows: and all that `MiniBatches` has.

    >>> import duckdb, pandas, relaqs
    >>> from relaqs.training import MiniBatchLinear
    >>> rows = duckdb.sql("SELECT i / 500 - 1 AS x, i >= 500 AS late FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     job = MiniBatchLinear("SELECT x, late FROM points", target="late", first_rate=0.5)
    ...     model = db.train(job, batch="elastic").result()
    >>> model.predict(pandas.DataFrame({"x": [-0.8, 0.8]})).tolist()
    [False, True]
    """

    sql: str
    target: str
    loss: str = "log_loss"
    penalty: float = 1e-4
    schedule: Schedule = "invscaling"
    first_rate: float = 0.01
    power: float = 0.25
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        MiniBatches.__post_init__(self)
        require("sklearn")
        if self.loss not in OF_CLASSES | OF_NUMBERS:
            raise ArgumentError(
                f"loss is {self.loss!r}; for classes it is one of {', '.join(OF_CLASSES)}, "
                f"for numbers one of {', '.join(OF_NUMBERS)}"
            )
        if self.schedule not in ("constant", "invscaling", "optimal"):
            raise ArgumentError(f"schedule is {self.schedule!r}; it must be constant, invscaling or optimal")
        check_not_negative("penalty", self.penalty)
        check_not_negative("power", self.power)
        check_not_negative("epsilon", self.epsilon)
        check_positive("first_rate", self.first_rate)
        if self.schedule == "optimal":
            check_positive("penalty", self.penalty)

    @property
    def tells_classes(self) -> bool:
        """Whether the loss is one of classes."""
        return self.loss in OF_CLASSES

    def begin(self, profile: Profile) -> Coefficients:
        count = len(profile.names)
        if not self.tells_classes:
            numeric_target(profile, self.target)
            return Coefficients(np.zeros((1, count)), np.zeros(1))
        classes = known_classes(profile, self.target)
        outputs = 1 if len(classes) == 2 else len(classes)
        return Coefficients(np.zeros((outputs, count)), np.zeros(outputs), classes)

    def rate(self, progress: float) -> float:
        if self.schedule == "constant":
            return self.first_rate
        if self.schedule == "invscaling":
            return float(self.first_rate / (progress + 1.0) ** self.power)
        return 1.0 / (self.penalty * (self._first_time() + progress))

    def partial(self, state: Coefficients, rows: Rows, draw: int) -> Sums:
        losses, slopes = self._losses(state, rows)
        return gradient_sums(rows.features, losses, slopes)

    def gradients(self, sums: Sums) -> Sums:
        return sums[1:]

    def update(self, state: Coefficients, sums: Sums, rows: int, rate: float) -> Coefficients:
        _, weights, intercepts = sums
        kept = max(0.0, 1.0 - rate * self.penalty)
        return Coefficients(
            kept * state.weights - (rate / rows) * weights,
            state.intercepts - (rate / rows) * intercepts,
            state.classes,
        )

    def evaluate(self, state: Coefficients, rows: Rows) -> Sums:
        losses, _ = self._losses(state, rows)
        if state.classes is None:
            return (np.asarray(losses.sum()),)
        scores = state.scores(rows.features)
        told = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)
        right = (told == class_codes(rows.target, state.classes)).sum()
        return np.asarray(losses.sum()), np.asarray(float(right))

    def estimator(
        self, profile: Profile, state: Coefficients
    ) -> sklearn.linear_model.SGDClassifier | sklearn.linear_model.SGDRegressor:
        from sklearn.linear_model import SGDClassifier, SGDRegressor

        numbers: dict[str, Any] = {"coef_": state.weights, "intercept_": state.intercepts}
        kind = SGDClassifier if self.tells_classes else SGDRegressor
        if self.tells_classes:
            numbers["classes_"] = state.classes
        else:
            numbers["coef_"] = state.weights[0]
        estimator = kind(
            loss=self.loss,
            alpha=self.penalty,
            learning_rate=self.schedule,
            eta0=self.first_rate,
            power_t=self.power,
            epsilon=self.epsilon,
        )
        return fitted(estimator, profile.names, **numbers)

    def _losses(self, state: Coefficients, rows: Rows) -> tuple[FloatArray, FloatArray]:
        scores = state.scores(rows.features)
        if self.tells_classes:
            return OF_CLASSES[self.loss](scores, state.signs(rows.target), self.epsilon)
        assert rows.target is not None
        return OF_NUMBERS[self.loss](scores, rows.target.astype(np.float64)[:, None], self.epsilon)

    def _first_time(self) -> float:
        """Return t₀ of "optimal": the first step suits scores of the size that the penalty lets expect."""
        score = np.sqrt(1.0 / np.sqrt(self.penalty))
        _, slopes = (OF_CLASSES | OF_NUMBERS)[self.loss](
            np.array([[-score]]), np.array([[1.0]]), self.epsilon
        )
        return float(max(1.0, float(slopes[0, 0])) / (score * self.penalty))
