"""Linear models: scores, losses of rows, and two ways to their coefficients.

**By passes** (`LinearDescent`). Three models are descended by L-BFGS (scipy, one evaluation at a time):
least squares (`LinearRegression`), the logistic loss of two or more classes (`LogisticRegression`), and
the squared hinge loss (`LinearSVM`). They differ in the loss of a row and in the estimator that is made at
the end. The optimiser sees weights along the axes in which the loss is about as steep (`Axes`): few steps
lead to its minimum then, whatever the units of the features. `PolynomialSVM` is a linear one behind a map of
the features, which approximates its kernel by Nyström's method.

**By mini-batches** (`MiniBatchLinear`). Stochastic gradient descent, with the losses of linear models by
scikit-learn's names (`OF_CLASSES`, `OF_NUMBERS`): each gives the rows' losses and their slopes.

Example: of a row with the score 0.5 whose class is the second, the hinge loss is 1 − 0.5 and its slope −1.
A pass sums losses and slopes · features over all rows, which is the gradient.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from scipy.special import expit, log_expit, log_softmax

from relaqs.arguments import ArgumentError, check_not_negative, check_positive, check_whole
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.protocol import Fold, MiniBatches
from relaqs.training.rows import Profile, Rows, Sums, class_codes, known_classes, numeric_target, right_of

if TYPE_CHECKING:
    import sklearn.kernel_approximation
    import sklearn.linear_model
    import sklearn.pipeline
    import sklearn.svm

MOST_EVALUATIONS = 1_000_000  # who stops a run is its user, not the optimiser
SMALLEST_DECREASE = 64 * np.finfo(float).eps  # of the loss, relative: there is nothing more to gain below it


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Where the loss is wanted next."""

    point: FloatArray


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A point that was better than all before, and its loss."""

    point: FloatArray
    loss: float


@dataclass(frozen=True, slots=True)
class _Ended:
    """The optimiser is done: converged, or it failed with an error."""

    error: BaseException | None


_Event: TypeAlias = _Wanted | _Accepted | _Ended
_Answer: TypeAlias = tuple[float, FloatArray] | None


MOST_TOLD_BYTES = 256 << 20
"""Of the gradients that a `Descent` keeps for another process."""


class _ClosedError(Exception):
    """Ends the optimiser's thread: no more losses will come."""


class Descent:
    """A minimisation from a start point. Ask for `wanted`, `tell` what the loss is there, until it is None.

    Args:
        gradient_tolerance: it has converged where no component of the gradient is larger.
        least_decrease: it has also converged where a step lowers the loss by a smaller share than this.

    Attributes:
        best: the best point accepted so far; the start at first.
        loss: the loss at the best point.
    """

    def __init__(
        self, start: FloatArray, gradient_tolerance: float, *, least_decrease: float = SMALLEST_DECREASE
    ) -> None:
        self.best = start
        self.loss = np.inf
        self.wanted: FloatArray | None = None
        self._begin = start, gradient_tolerance, least_decrease
        self._told: list[tuple[float, FloatArray]] = []
        self._is_told_whole = True
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._answers: SimpleQueue[_Answer] = SimpleQueue()
        threading.Thread(
            target=_minimise,
            args=(start, gradient_tolerance, least_decrease, self._events, self._answers),
            name="relaqs-descent",
            daemon=True,
        ).start()
        self._finalizer = weakref.finalize(self, self._answers.put, None)
        self._advance()

    def tell(self, loss: float, gradient: FloatArray) -> None:
        """Say what the loss and its gradient are at `wanted`."""
        if self.loss == np.inf:  # the start itself is a point accepted
            self.loss = loss
        self._note(loss, gradient)
        self._answers.put((loss, gradient))
        self._advance()

    def _note(self, loss: float, gradient: FloatArray) -> None:
        """Keep what was told, as long as all of it is not too much."""
        if self._is_told_whole:
            self._told.append((loss, gradient))
            if len(self._told) * gradient.nbytes > MOST_TOLD_BYTES:
                self._told, self._is_told_whole = [], False

    def __reduce__(self) -> tuple[Any, ...]:
        """The optimiser does not show its state, so another process tells it all again: to the same bits.

        Raises UnkeepableError where that was too much to be kept.
        """
        if not self._is_told_whole:
            from relaqs.jobs.checkpoint import UnkeepableError

            raise UnkeepableError(
                f"the gradients of all passes of a model of {self.best.size:,} parameters take more than "
                f"{MOST_TOLD_BYTES >> 20} MiB"
            )
        return _told_again, (*self._begin, self._told)

    def close(self) -> None:
        """End the optimiser's thread, if it is still there."""
        self._finalizer()

    def _advance(self) -> None:
        while isinstance(event := self._events.get(), _Accepted):
            self.best, self.loss = event.point, event.loss
        self.wanted = event.point if isinstance(event, _Wanted) else None
        if isinstance(event, _Ended) and event.error is not None:
            raise event.error


def _told_again(
    start: FloatArray,
    gradient_tolerance: float,
    least_decrease: float,
    told: Sequence[tuple[float, FloatArray]],
) -> Descent:
    descent = Descent(start, gradient_tolerance, least_decrease=least_decrease)
    for loss, gradient in told:
        descent.tell(loss, gradient)
    return descent


def _minimise(
    start: FloatArray,
    gradient_tolerance: float,
    least_decrease: float,
    events: SimpleQueue[_Event],
    answers: SimpleQueue[_Answer],
) -> None:
    """Run on a thread of its own, which must not refer to the Descent: it ends when that is forgotten."""
    from scipy.optimize import OptimizeResult, minimize  # a quarter of a second, for those who need it

    def loss_and_gradient(point: FloatArray) -> tuple[float, FloatArray]:
        events.put(_Wanted(point.copy()))
        if (answer := answers.get()) is None:
            raise _ClosedError
        return answer

    def note(intermediate_result: OptimizeResult) -> None:
        events.put(_Accepted(intermediate_result.x.copy(), float(intermediate_result.fun)))

    try:
        minimize(
            loss_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options={
                "gtol": gradient_tolerance,
                "ftol": least_decrease,
                "maxiter": MOST_EVALUATIONS,
                "maxfun": MOST_EVALUATIONS,
            },
        )
    except _ClosedError:
        return
    except BaseException as error:  # whatever it is, it belongs to the job
        events.put(_Ended(error))
        return
    events.put(_Ended(None))


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
        return right_of(self.scores(rows.features), self.classes, rows.target)

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


@dataclass(frozen=True, slots=True)
class LinearRegression:
    """Least squares. The loss is the mean squared error, in the target's unit squared.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: a numeric column.
        tolerance: training has converged when the gradient, for standardised features and target, is smaller
            than this.

    >>> from relaqs.training import LinearRegression
    >>> sql = "SELECT x / 100 AS x, 2 * x / 100 + 1 AS y FROM numbers"
    >>> model = db.train(LinearRegression(sql, target="y")).result()
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


@dataclass(frozen=True, slots=True)
class LinearClassifier:
    """What a linear model of classes has, whatever the loss of a row: a ridge penalty, and L-BFGS."""

    sql: str
    target: str
    strength: float = 1.0
    tolerance: float = 1e-5
    penalises_intercepts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require("sklearn")
        check_positive("strength", self.strength)
        check_positive("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> LinearDescent:
        classes = known_classes(profile, self.target)
        objective = Objective(profile.row_count, 1 / self.strength, self.penalises_intercepts)
        return LinearDescent(profile.mean, profile.covariance, objective, self.tolerance, classes)

    def right(self, model: Coefficients, rows: Rows) -> int:
        return model.right(rows)


@dataclass(frozen=True, slots=True)
class LogisticRegression(LinearClassifier):
    """The linear model of log odds, with a ridge penalty. With more than two classes it is a softmax.

    The loss is the mean log loss plus ‖weights‖² / (2 · strength · rows), as scikit-learn minimises it.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of classes, numbers or text.
        strength: how much the data count against the penalty, as scikit-learn's C.
        tolerance: training has converged when the gradient is smaller than this.

    >>> import pandas
    >>> from relaqs.training import LogisticRegression
    >>> sql = "SELECT x / 100 AS x, x >= 500 AS late FROM numbers"
    >>> model = db.train(LogisticRegression(sql, target="late")).result()
    >>> model.predict(pandas.DataFrame({"x": [1.0, 9.0]})).tolist()
    [False, True]
    """

    def partial(self, model: Coefficients, rows: Rows) -> Sums:
        scores, signs = model.scores(rows.features), model.signs(rows.target)
        if scores.shape[1] == 1:
            return gradient_sums(rows.features, *log_loss(scores, signs, 0.0))
        is_class = signs > 0
        shares = log_softmax(scores, axis=1)
        return gradient_sums(rows.features, -shares[is_class], np.exp(shares) - is_class)

    def estimator(self, profile: Profile, model: Coefficients) -> sklearn.linear_model.LogisticRegression:
        from sklearn.linear_model import LogisticRegression as Estimator

        return fitted(
            Estimator(C=self.strength, tol=self.tolerance),
            profile.names,
            classes_=model.classes,
            coef_=model.weights,
            intercept_=model.intercepts,
        )


@dataclass(frozen=True, slots=True)
class LinearSVM(LinearClassifier):
    """The linear model of widest margin. With more than two classes each is set against the rest.

    The loss is the mean squared hinge plus ‖weights, intercept‖² / (2 · strength · rows), summed over the
    outputs. scikit-learn's LinearSVC minimises the same; it too counts the intercept among the weights.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column of classes, numbers or text.
        strength: how much the data count against the penalty, as scikit-learn's C.
        tolerance: training has converged when the gradient is smaller than this.

    >>> import pandas
    >>> from relaqs.training import LinearSVM
    >>> sql = "SELECT x / 100 AS x, x >= 500 AS late FROM numbers"
    >>> model = db.train(LinearSVM(sql, target="late")).result()
    >>> model.predict(pandas.DataFrame({"x": [1.0, 9.0]})).tolist()
    [False, True]
    """

    penalises_intercepts: ClassVar[bool] = True

    def partial(self, model: Coefficients, rows: Rows) -> Sums:
        return hinge_sums(model, rows.features, model.signs(rows.target))

    def estimator(self, profile: Profile, model: Coefficients) -> sklearn.svm.LinearSVC:
        return fitted(margin_classifier(model, self.strength), profile.names)


def hinge_objective(row_count: int, strength: float) -> Objective:
    return Objective(row_count, penalty=1 / strength, penalises_intercepts=True)


def hinge_sums(model: Coefficients, features: FloatArray, signs: FloatArray) -> Sums:
    """Return the squared hinge loss of some rows, and its gradient. signs: shape (rows, outputs)."""
    return gradient_sums(features, *squared_hinge(model.scores(features), signs, 0.0))


def margin_classifier(model: Coefficients, strength: float) -> sklearn.svm.LinearSVC:
    """Return scikit-learn's estimator of the coefficients, without names of features."""
    from sklearn.svm import LinearSVC

    classifier = LinearSVC(C=strength)
    classifier.classes_ = model.classes
    classifier.coef_, classifier.intercept_ = model.weights, model.intercepts
    classifier.n_features_in_ = model.weights.shape[1]
    return classifier


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

    >>> import pandas
    >>> from relaqs.training import PolynomialSVM
    >>> sql = "SELECT x / 100 - 5 AS x, abs(x - 500) < 200 AS inside FROM numbers"
    >>> model = db.train(PolynomialSVM(sql, target="inside", degree=2)).result()
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

    >>> import pandas
    >>> from relaqs.training import MiniBatchLinear
    >>> sql = "SELECT x / 500 - 1 AS x, x >= 500 AS late FROM numbers"
    >>> job = MiniBatchLinear(sql, target="late", first_rate=0.5)
    >>> model = db.train(job, batch="elastic").result()
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
        return np.asarray(losses.sum()), np.asarray(float(state.right(rows)))

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
