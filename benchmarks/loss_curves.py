"""Real loss curves of SLAQ's nine training algorithms, on the flights and the weather of New York City 2013.

Each trainer is a generator of losses, one a pass over its data, in numpy and as plain as can be: what matters
here is the shape of the curves that prediction meets, not the models. Same seed, same curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.optimize import minimize

from relaqs.cli import data as flights

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROWS = 4_000
STEPS = 60
LEAST_STEPS = 25  # shorter runs converged before there was anything to predict
BINS = 32


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The losses of one training run. losses: shape (steps,), one after each pass over the data."""

    algorithm: str
    losses: FloatArray


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """features: standardised, shape (rows, features). target: standardised, shape (rows,)."""

    features: FloatArray
    target: FloatArray

    @property
    def sign(self) -> FloatArray:
        """The target as two classes, -1 and 1, parted at its upper third."""
        return np.where(self.target > np.quantile(self.target, 2 / 3), 1.0, -1.0)

    def shuffled(self, seed: int, rows: int = ROWS) -> TrainingSet:
        picked = np.random.default_rng(seed).permutation(len(self.target))[:rows]
        return TrainingSet(self.features[picked], self.target[picked])


Trainer = Callable[[TrainingSet], Iterator[float]]


def loss_curves(seed: int = 0) -> list[LossCurve]:
    """Return every algorithm's curves over the data and several settings, at most STEPS long."""
    runs = [
        (name, trainer(data))
        for data in (_flights().shuffled(seed), _weather().shuffled(seed))
        for name, trainer in _trainers(seed)
    ]
    runs += [("LDA", topic_model(topics, seed)) for topics in (5, 20)]
    curves = [LossCurve(name, np.fromiter(islice(run, STEPS), dtype=np.float64)) for name, run in runs]
    return [curve for curve in curves if len(curve.losses) >= LEAST_STEPS]


def _trainers(seed: int) -> list[tuple[str, Trainer]]:
    trainers: list[tuple[str, Trainer]] = []
    trainers += [("K-Means", partial(k_means, clusters=k, seed=seed)) for k in (8, 20, 50)]
    trainers += [("logistic regression", partial(logistic_regression, rate=r)) for r in (0.3, 1.0, 3.0)]
    trainers += [("linear SVM", partial(linear_svm, rate=r)) for r in (0.03, 0.1, 0.3)]
    trainers += [("polynomial SVM", partial(polynomial_svm, rate=r)) for r in (0.003, 0.01)]
    trainers += [("boosted trees, classes", partial(boosted_classifier, rate=r)) for r in (0.1, 0.3, 1.0)]
    trainers += [("boosted trees, regression", partial(boosted_regressor, rate=r)) for r in (0.1, 0.3, 1.0)]
    trainers += [("perceptron, L-BFGS", partial(perceptron, hidden=h, seed=seed)) for h in (5, 20)]
    trainers += [("linear regression, L-BFGS", partial(linear_regression, degree=d)) for d in (2, 3)]
    return trainers


def k_means(data: TrainingSet, clusters: int, seed: int) -> Iterator[float]:
    """Lloyd's algorithm: the mean squared distance to the nearest centre."""
    points = data.features
    centres = points[np.random.default_rng(seed).permutation(len(points))[:clusters]]
    while True:
        distances = (points**2).sum(1)[:, None] - 2 * points @ centres.T + (centres**2).sum(1)
        nearest = distances.argmin(1)
        yield float(distances.min(1).mean())
        counts = np.bincount(nearest, minlength=clusters)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)


def logistic_regression(data: TrainingSet, rate: float) -> Iterator[float]:
    """Gradient descent on the mean log loss."""
    signed = data.features * data.sign[:, None]
    weights = np.zeros(signed.shape[1])
    while True:
        margins = signed @ weights
        yield float(np.logaddexp(0.0, -margins).mean())
        weights += rate * (signed / (1.0 + np.exp(margins))[:, None]).mean(0)


def linear_svm(data: TrainingSet, rate: float) -> Iterator[float]:
    """Subgradient descent on the mean hinge loss, with steps that shrink like 1/√k."""
    return _hinge_descent(data.features * data.sign[:, None], rate)


def polynomial_svm(data: TrainingSet, rate: float) -> Iterator[float]:
    """The same in the space of a cubic kernel, over 500 rows."""
    few = data.shuffled(0, rows=500)
    kernel = (few.features @ few.features.T / few.features.shape[1] + 1.0) ** 3
    return _hinge_descent(kernel / np.abs(kernel).mean() * few.sign[:, None], rate)


def _hinge_descent(signed: FloatArray, rate: float) -> Iterator[float]:
    weights = np.zeros(signed.shape[1])
    step = 0
    while True:
        step += 1
        slack = 1.0 - signed @ weights
        yield float(np.maximum(slack, 0.0).mean())
        weights += rate / np.sqrt(step) * (signed * (slack > 0)[:, None]).mean(0)


def boosted_regressor(data: TrainingSet, rate: float) -> Iterator[float]:
    """Stumps on the residuals: the mean squared error, one tree a step."""
    binned = _binned(data.features)
    residual = data.target.copy()
    while True:
        yield float((residual**2).mean())
        residual -= rate * _stump(binned, residual, np.ones_like(residual))


def boosted_classifier(data: TrainingSet, rate: float) -> Iterator[float]:
    """Stumps on the gradient of the log loss, with Newton leaves, one tree a step."""
    binned = _binned(data.features)
    label = (data.sign + 1) / 2
    score = np.zeros_like(label)
    while True:
        yield float(np.logaddexp(0.0, -data.sign * score).mean())
        share = 1.0 / (1.0 + np.exp(-score))
        score += rate * _stump(binned, label - share, share * (1 - share))


def _binned(features: FloatArray) -> IntArray:
    """Return each value's histogram cell, cells of different features apart, shape (rows, features)."""
    ranks = features.argsort(0).argsort(0) * BINS // len(features)
    return ranks + np.arange(features.shape[1]) * BINS


def _stump(binned: IntArray, gradient: FloatArray, hessian: FloatArray) -> FloatArray:
    """Return the values of the best tree with two leaves, found from histogram sums."""
    features = binned.shape[1]

    def sums_left(weights: FloatArray) -> FloatArray:
        cells = np.bincount(binned.ravel(), np.repeat(weights, features), features * BINS)
        return cells.reshape(features, BINS).cumsum(1)

    gradients, hessians = sums_left(gradient), sums_left(hessian) + 1e-9
    rest, rest_hessian = gradient.sum() - gradients, hessian.sum() - hessians + 1e-6
    gain = gradients**2 / hessians + rest**2 / np.maximum(rest_hessian, 1e-6)
    feature, cut = np.unravel_index(gain[:, :-1].argmax(), (features, BINS - 1))
    is_left = binned[:, feature] <= feature * BINS + cut
    left, right = (
        gradients[feature, cut] / hessians[feature, cut],
        rest[feature, cut] / rest_hessian[feature, cut],
    )
    return np.where(is_left, left, right)


def perceptron(data: TrainingSet, hidden: int, seed: int) -> Iterator[float]:
    """One hidden layer of tanh, squared error, by L-BFGS."""
    inputs = data.features.shape[1]
    shape = (inputs, hidden)

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        first, second = flat[: inputs * hidden].reshape(shape), flat[inputs * hidden :]
        activation = np.tanh(data.features @ first)
        error = activation @ second - data.target
        back = (error[:, None] * second) * (1 - activation**2)
        slope = np.concatenate([(data.features.T @ back).ravel(), activation.T @ error])
        return float((error**2).mean()), 2 * slope / len(error)

    start = np.random.default_rng(seed).normal(0.0, 0.3, inputs * hidden + hidden)
    return iter(_l_bfgs(loss, start))


def linear_regression(data: TrainingSet, degree: int) -> Iterator[float]:
    """Least squares on powers of the features, by L-BFGS."""
    powers = np.hstack([data.features**power for power in range(1, degree + 1)])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        error = powers @ weights - data.target
        return float((error**2).mean()), 2 * powers.T @ error / len(error)

    return iter(_l_bfgs(loss, np.zeros(powers.shape[1])))


def _l_bfgs(loss: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray) -> list[float]:
    losses = [loss(start)[0]]
    minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS},
        callback=lambda weights: losses.append(loss(weights)[0]),
    )  # fmt: skip
    return losses


def topic_model(topics: int, seed: int) -> Iterator[float]:
    """LDA by expectation and maximisation with smoothed counts: nats a word; a day is a document."""
    counts = _destinations_by_day()
    generator = np.random.default_rng(seed)
    mixture = generator.dirichlet(np.ones(topics), len(counts))
    topic = generator.dirichlet(np.ones(counts.shape[1]), topics)
    while True:
        expected = mixture @ topic
        yield float(-(counts * np.log(expected)).sum() / counts.sum())
        ratio = counts / expected
        mixture, topic = mixture * (ratio @ topic.T) + 0.1, topic * (mixture.T @ ratio) + 0.01
        mixture /= mixture.sum(1, keepdims=True)
        topic /= topic.sum(1, keepdims=True)


@cache
def _flights() -> TrainingSet:
    """Arrival delay from what is known at departure."""
    columns = ("month", "day", "hour", "minute", "distance", "dep_delay", "air_time", "flight")
    return _training_set("flights", columns, "arr_delay")


@cache
def _weather() -> TrainingSet:
    """Temperature from the other readings of the hour."""
    columns = ("month", "hour", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
    return _training_set("weather", columns, "temp")


def _training_set(table: str, columns: tuple[str, ...], target: str) -> TrainingSet:
    read = flights.read_table(table).select([*columns, target]).drop_null()
    values = np.stack([column.to_numpy().astype(np.float64) for column in read.columns], axis=1)
    low, high = np.quantile(values, [0.001, 0.999], axis=0)
    values = np.clip(values, low, high)
    values = (values - values.mean(0)) / values.std(0)
    return TrainingSet(values[:, :-1], values[:, -1])


@cache
def _destinations_by_day() -> FloatArray:
    """Return the flights to each destination on each day, shape (365, destinations)."""
    table = flights.read_table("flights")
    day = table["month"].to_numpy() * 31 + table["day"].to_numpy()
    days = np.unique(day, return_inverse=True)[1]
    destinations = np.unique(
        pc.fill_null(table["dest"], "").to_numpy(zero_copy_only=False), return_inverse=True
    )[1]
    counts = np.zeros((days.max() + 1, destinations.max() + 1))
    np.add.at(counts, (days, destinations), 1.0)
    return counts
