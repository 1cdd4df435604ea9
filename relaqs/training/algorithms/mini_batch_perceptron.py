"""Multi-layer perceptron that tells classes apart, by gradient steps on mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.arguments import ArgumentError
from relaqs.training.algorithms.perceptron import (
    Layers,
    check_widths,
    classifier_of,
    first_layers,
    layer_right,
    layer_sums,
)
from relaqs.training.arguments import check_not_negative, check_positive, require
from relaqs.training.elastic.protocol import MiniBatches, Scaling
from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.neural_network

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

    >>> import duckdb, pandas, relaqs
    >>> from relaqs.training import MiniBatchPerceptron
    >>> rows = duckdb.sql("SELECT i / 100 - 5 AS x, abs(i - 500) < 200 AS inside FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> job = MiniBatchPerceptron("SELECT * FROM points", "inside", hidden=(8,), first_rate=0.03)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(job, batch="elastic").result()
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
