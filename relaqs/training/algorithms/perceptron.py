"""Multi-layer perceptron that tells classes apart: by L-BFGS on summed gradients, or by mini-batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from scipy.special import expit, log_expit, log_softmax

from relaqs.arguments import ArgumentError, check_not_negative, check_positive, check_whole
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.algorithms.linear import Descent
from relaqs.training.protocol import Fold, MiniBatches, Scaling
from relaqs.training.rows import Profile, Rows, Sums, class_codes, known_classes, right_of

if TYPE_CHECKING:
    import sklearn.neural_network

LEAST_DECREASE = 1e7 * np.finfo(float).eps  # scipy's default, which scikit-learn leaves as it is here


@dataclass(frozen=True, slots=True)
class Layers:
    """The weights between layers, shape (inputs, outputs) each, and biases, shape (outputs,) each.

    The last layer has one output for two classes, and one for each of more classes.
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    classes: NDArray[Any]

    def activations(self, features: FloatArray) -> list[FloatArray]:
        """Return what each layer gives, the features first and the scores last, shape (rows, width) each."""
        found = [features]
        for weights, biases in zip(self.weights[:-1], self.biases[:-1], strict=True):
            found.append(np.maximum(found[-1] @ weights + biases, 0.0))
        return [*found, found[-1] @ self.weights[-1] + self.biases[-1]]


@dataclass(frozen=True, slots=True)
class Perceptron:
    """Layers of rectified linear units with a softmax of the classes on top, or a sigmoid of two classes.

    The loss is the mean log loss plus penalty · ‖weights‖² / (2 · rows), as in scikit-learn.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature. Scale the features in SQL.
        target: the column of classes, numbers or text.
        hidden: the widths of the layers between input and output.
        penalty: scikit-learn's alpha.
        tolerance: training has converged when the gradient is smaller than this.
        seed: of the initial weights (Glorot, Bengio 2010), drawn as scikit-learn draws them.

    >>> import pandas
    >>> from relaqs.training import Perceptron
    >>> sql = "SELECT x / 100 - 5 AS x, abs(x - 500) < 200 AS inside FROM numbers"
    >>> model = db.train(Perceptron(sql, target="inside", hidden=(8,))).result()
    >>> model.predict(pandas.DataFrame({"x": [-4.0, 0.0, 4.0]})).tolist()
    [False, True, False]
    """

    sql: str
    target: str
    hidden: tuple[int, ...] = (100,)
    penalty: float = 1e-4
    tolerance: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        require("sklearn")
        check_widths(self.hidden)
        check_not_negative("penalty", self.penalty)
        check_positive("tolerance", self.tolerance)
        check_whole("seed", self.seed, least=0)

    def begin(self, profile: Profile) -> PerceptronDescent:
        start = first_layers(profile, self.target, self.hidden, self.seed)
        return PerceptronDescent(start, self.penalty, profile.row_count, self.tolerance)

    def partial(self, model: Layers, rows: Rows) -> Sums:
        return layer_sums(model, rows)

    def right(self, model: Layers, rows: Rows) -> int:
        return right_of(model.activations(rows.features)[-1], model.classes, rows.target)

    def estimator(self, profile: Profile, model: Layers) -> sklearn.neural_network.MLPClassifier:
        from sklearn.neural_network import MLPClassifier

        estimator = MLPClassifier(
            self.hidden, alpha=self.penalty, tol=self.tolerance, random_state=self.seed, solver="lbfgs"
        )
        return classifier_of(estimator, profile, model)


class PerceptronDescent:
    """L-BFGS over all weights and biases, as one vector."""

    def __init__(self, start: Layers, penalty: float, row_count: int, tolerance: float) -> None:
        self.model = start
        self._penalty, self._row_count = penalty, row_count
        vector = _vector([*start.weights, *start.biases])
        self._descent = Descent(vector, tolerance, least_decrease=LEAST_DECREASE)

    def fold(self, sums: Sums) -> Fold:
        loss, *slopes = sums
        weights = self.model.weights
        total = float(loss) + self._penalty / 2 * sum(float((each**2).sum()) for each in weights)
        for layer, each in enumerate(weights):
            slopes[layer] = slopes[layer] + self._penalty * each
        self._descent.tell(total / self._row_count, _vector(slopes) / self._row_count)
        if self._descent.wanted is not None:
            self.model = self._layers(self._descent.wanted)
        return Fold(self._layers(self._descent.best), self._descent.loss, self._descent.wanted is None)

    def close(self) -> None:
        self._descent.close()

    def _layers(self, point: FloatArray) -> Layers:
        model = self.model
        arrays = list(_shaped(point, [*model.weights, *model.biases]))
        count = len(model.weights)
        return Layers(tuple(arrays[:count]), tuple(arrays[count:]), model.classes)


def check_widths(hidden: object) -> None:
    """Raise ArgumentError for what are no widths of layers."""
    if not isinstance(hidden, tuple):
        raise ArgumentError(f"hidden is {hidden!r}; it must be a tuple of widths, such as (100,)")
    for width in hidden:
        check_whole("hidden", width)


def first_layers(profile: Profile, target: str, hidden: tuple[int, ...], seed: int) -> Layers:
    """Return the layers before training, drawn as scikit-learn draws them."""
    classes = known_classes(profile, target)
    widths = [len(profile.names), *hidden, 1 if len(classes) == 2 else len(classes)]
    return _initial(widths, classes, np.random.RandomState(seed))


def layer_sums(model: Layers, rows: Rows) -> Sums:
    """Return the log loss of some rows and its gradient for all weights, then all biases."""
    activations = model.activations(rows.features)
    loss, slope = _log_loss(activations[-1], class_codes(rows.target, model.classes))
    weight_slopes, bias_slopes = [], []
    for layer in reversed(range(len(model.weights))):
        weight_slopes.append(activations[layer].T @ slope)
        bias_slopes.append(slope.sum(axis=0))
        if layer:
            slope = (slope @ model.weights[layer].T) * (activations[layer] > 0)
    return np.asarray(loss), *reversed(weight_slopes), *reversed(bias_slopes)


def layer_right(model: Layers, rows: Rows) -> tuple[float, int]:
    """Return the log loss of some rows, and how many of them are told rightly."""
    scores, codes = model.activations(rows.features)[-1], class_codes(rows.target, model.classes)
    return _log_loss(scores, codes)[0], right_of(scores, model.classes, rows.target)


def classifier_of(
    estimator: sklearn.neural_network.MLPClassifier, profile: Profile, model: Layers
) -> sklearn.neural_network.MLPClassifier:
    """Return scikit-learn's estimator with the layers."""
    most = estimator.max_iter
    with warnings.catch_warnings():  # it has not converged, of course
        warnings.simplefilter("ignore")
        estimator.set_params(max_iter=1).fit(
            np.zeros((len(model.classes), len(profile.names))), model.classes
        )
    estimator.set_params(max_iter=most)
    return fitted(estimator, profile.names, coefs_=list(model.weights), intercepts_=list(model.biases))


def _initial(widths: Sequence[int], classes: NDArray[Any], random: np.random.RandomState) -> Layers:
    weights, biases = [], []
    for inputs, outputs in pairwise(widths):
        bound = np.sqrt(6.0 / (inputs + outputs))
        weights.append(random.uniform(-bound, bound, (inputs, outputs)))
        biases.append(random.uniform(-bound, bound, outputs))
    return Layers(tuple(weights), tuple(biases), classes)


def _log_loss(scores: FloatArray, codes: NDArray[np.int64]) -> tuple[float, FloatArray]:
    """Return the rows' log loss, summed, and its slope for each score, shape (rows, outputs)."""
    if scores.shape[1] == 1:
        signs = np.where(codes[:, None] == 1, 1.0, -1.0)
        return -float(log_expit(signs * scores).sum()), -signs * expit(-signs * scores)
    shares = log_softmax(scores, axis=1)
    is_class = codes[:, None] == np.arange(scores.shape[1])
    return -float(shares[is_class].sum()), np.exp(shares) - is_class


def _vector(arrays: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([array.ravel() for array in arrays])


def _shaped(vector: FloatArray, like: Sequence[FloatArray]) -> Iterator[FloatArray]:
    """Yield the vector's pieces in the shapes of other arrays."""
    start = 0
    for array in like:
        yield vector[start : start + array.size].reshape(array.shape)
        start += array.size


Solver: TypeAlias = Literal["adam", "sgd"]
Moves: TypeAlias = tuple[list[FloatArray], tuple[FloatArray, ...], tuple[FloatArray, ...], float]
"""Directions of a step, the means and the squares after it, and what the rate is multiplied by."""

MOMENTUM = 0.9  # this and below: scikit-learn's defaults
FORGETS_MEAN, FORGETS_SQUARE = 0.9, 0.999
LEAST_ROOT = 1e-8


@dataclass(frozen=True, slots=True)
class Steered:
    """Layers, and what their optimiser remembers of each weight and bias.

    Attributes:
        means: of past gradients, as the solver keeps them.
        squares: of past gradients; empty for "sgd".
        step: how many steps were made.
    """

    layers: Layers
    means: tuple[FloatArray, ...]
    squares: tuple[FloatArray, ...]
    step: int = 0


@dataclass(frozen=True, slots=True)
class MiniBatchPerceptron(MiniBatches):
    """Layers of rectified linear units with a softmax of the classes on top, or a sigmoid of two classes.

    Each step is that of scikit-learn's MLPClassifier with `batch_size=start_rows`: Adam, or gradient descent
    with Nesterov's momentum. The penalty weighs against `start_rows` rows, also in larger steps. The loss is
    the mean log loss.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature. Scale the features in SQL.
        target: the column of classes, numbers or text.
        hidden: the widths of the layers between input and output.
        solver: "adam" or "sgd".
        penalty: scikit-learn's alpha.
        first_rate: the learning rate of a step of `start_rows` rows. "adam" divides by the size of gradients,
            so `scaling="sqrt"` suits it, which is its default here.
        start_rows: and all that `MiniBatches` has.

    >>> import pandas
    >>> from relaqs.training import MiniBatchPerceptron
    >>> sql = "SELECT x / 100 - 5 AS x, abs(x - 500) < 200 AS inside FROM numbers"
    >>> job = MiniBatchPerceptron(sql, "inside", hidden=(8,), first_rate=0.03)
    >>> model = db.train(job, batch="elastic").result()
    >>> model.predict(pandas.DataFrame({"x": [-4.0, 0.0, 4.0]})).tolist()
    [False, True, False]
    """

    sql: str
    target: str
    hidden: tuple[int, ...] = (100,)
    solver: Solver = "adam"
    penalty: float = 1e-4
    first_rate: float = 0.001
    scaling: Scaling = field(default="sqrt", kw_only=True)

    def __post_init__(self) -> None:
        MiniBatches.__post_init__(self)
        require("sklearn")
        check_widths(self.hidden)
        if self.solver not in ("adam", "sgd"):
            raise ArgumentError(f"solver is {self.solver!r}; it must be adam or sgd")
        check_not_negative("penalty", self.penalty)
        check_positive("first_rate", self.first_rate)

    @property
    def tells_classes(self) -> bool:
        """Always: its target is a column of classes."""
        return True

    def begin(self, profile: Profile) -> Steered:
        layers = first_layers(profile, self.target, self.hidden, self.seed)
        nothing = tuple(np.zeros_like(each) for each in (*layers.weights, *layers.biases))
        return Steered(layers, nothing, nothing if self.solver == "adam" else ())

    def rate(self, progress: float) -> float:
        return self.first_rate

    def partial(self, state: Steered, rows: Rows, draw: int) -> Sums:
        return layer_sums(state.layers, rows)

    def gradients(self, sums: Sums) -> Sums:
        return sums[1:]

    def update(self, state: Steered, sums: Sums, rows: int, rate: float) -> Steered:
        layers, shrink = state.layers, self.penalty / self.start_rows
        gradients = [each / rows for each in sums[1:]]
        for layer, weights in enumerate(layers.weights):
            gradients[layer] = gradients[layer] + shrink * weights
        moves = self._adam if self.solver == "adam" else self._momentum
        directions, means, squares, scale = moves(state, gradients)
        points = [
            point - rate * scale * direction
            for point, direction in zip((*layers.weights, *layers.biases), directions, strict=True)
        ]
        count = len(layers.weights)
        moved = Layers(tuple(points[:count]), tuple(points[count:]), layers.classes)
        return Steered(moved, means, squares, state.step + 1)

    def evaluate(self, state: Steered, rows: Rows) -> Sums:
        loss, right = layer_right(state.layers, rows)
        return np.asarray(loss), np.asarray(float(right))

    def estimator(self, profile: Profile, state: Steered) -> sklearn.neural_network.MLPClassifier:
        from sklearn.neural_network import MLPClassifier

        estimator = MLPClassifier(
            self.hidden,
            alpha=self.penalty,
            batch_size=self.start_rows,
            learning_rate_init=self.first_rate,
            random_state=self.seed,
            solver=self.solver,
        )
        return classifier_of(estimator, profile, state.layers)

    def _momentum(self, state: Steered, gradients: list[FloatArray]) -> Moves:
        """Return the directions of a step by Nesterov's momentum. The rate multiplies past gradients, too."""
        means = tuple(MOMENTUM * mean + each for mean, each in zip(state.means, gradients, strict=True))
        directions = [MOMENTUM * mean + each for mean, each in zip(means, gradients, strict=True)]
        return directions, means, (), 1.0

    def _adam(self, state: Steered, gradients: list[FloatArray]) -> Moves:
        """Return the directions of a step of Adam (Kingma, Ba 2015)."""
        step = state.step + 1
        means = tuple(
            FORGETS_MEAN * mean + (1 - FORGETS_MEAN) * each
            for mean, each in zip(state.means, gradients, strict=True)
        )
        squares = tuple(
            FORGETS_SQUARE * square + (1 - FORGETS_SQUARE) * each**2
            for square, each in zip(state.squares, gradients, strict=True)
        )
        scale = np.sqrt(1 - FORGETS_SQUARE**step) / (1 - FORGETS_MEAN**step)
        directions = [
            mean / (np.sqrt(square) + LEAST_ROOT) for mean, square in zip(means, squares, strict=True)
        ]
        return directions, means, squares, float(scale)
