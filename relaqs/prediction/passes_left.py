"""How many passes a training run still needs, told from runs that ended, by Gaussian-process regression.

A pass is once through the training rows. A point is what was known of a run at some moment, and how many
passes it then still made. A run that goes on is compared with these points.

Source: Rasmussen, Williams 2006, Gaussian Processes for Machine Learning, algorithm 2.1 and equation 5.9.
ONES (Bian et al. 2021) predicts progress so, and names the features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

FEATURES = 5  # rows of a pass, first loss, rows done, fall of the loss as a share of the first, accuracy
MOST_POINTS = 256
LIKELIHOOD_POINTS = 128  # the likelihood is maximised on so many: its gradient costs n³, twenty times
GRADIENT_STEPS = 20
FEWEST_POINTS = 5
START = np.log(np.array([1.0] * FEATURES + [1.0, 0.1]))  # lengths of the features, signal, noise: deviations
LEAST, MOST = np.log(1e-2), np.log(1e2)
FIRST_STEP, LARGEST_STEP, LONGER, SHORTER = 0.2, 1.0, 1.2, 0.5


@dataclass(frozen=True, slots=True)
class PassesLeft:
    """Passes that runs still need, by what is known of them.

    Args:
        features: of the points, standardised, shape (n, 5).
        weights: of the points, shape (n,): the prediction is a weighted sum of likenesses.
        logs: logarithms of the hyperparameters, shape (7,).
        centre, scale: what standardises features, shape (5,) each.
        level, spread: what standardises the logarithm of the passes left.
    """

    features: FloatArray
    weights: FloatArray
    logs: FloatArray
    centre: FloatArray
    scale: FloatArray
    level: float
    spread: float

    @classmethod
    def fitted(cls, points: FloatArray) -> PassesLeft:
        """Return the prediction from points, shape (n, 6): five features, and the passes then left.

        Fewer than 5 points tell nothing, and more than 256 cost too much: a caller keeps some of them.
        """
        assert FEWEST_POINTS <= len(points) <= MOST_POINTS
        known = _as_numbers(points[:, :FEATURES])
        centre, scale = _centre(known), _scale(known)
        features = _standardised(known, centre, scale)
        target = np.log(np.maximum(points[:, FEATURES], 1.0))
        level, spread = float(target.mean()), float(target.std()) or 1.0
        target = (target - level) / spread
        places = np.linspace(0, len(points) - 1, min(len(points), LIKELIHOOD_POINTS))
        some = np.unique(places.round().astype(np.int64))
        logs = _most_likely(features[some], target[some])
        kernel = _covariance(_distances(features), logs)
        weights = np.linalg.solve(kernel, target).astype(np.float64)
        return cls(features, weights, logs, centre, scale, level, spread)

    def at(self, features: FloatArray) -> FloatArray:
        """Return the passes that runs with these features still need, at least 1. features: shape (m, 5)."""
        asked = _standardised(_as_numbers(features), self.centre, self.scale)
        distance = (asked[:, None, :] - self.features[None, :, :]) ** 2
        likeness = np.exp(2.0 * self.logs[FEATURES] - distance @ (0.5 * np.exp(-2.0 * self.logs[:FEATURES])))
        log_left = self.level + self.spread * (likeness @ self.weights)
        return np.asarray(np.maximum(np.exp(np.minimum(log_left, np.log(1e9))), 1.0))


def _as_numbers(features: FloatArray) -> FloatArray:
    """Return features with logarithms of rows and of the first loss."""
    found = features.astype(np.float64)
    found[:, 0] = np.log(np.maximum(found[:, 0], 1.0))
    found[:, 1] = np.log(np.maximum(found[:, 1], 1e-12))
    found[:, 2] = np.log1p(np.maximum(found[:, 2], 0.0))
    return found


def _centre(known: FloatArray) -> FloatArray:
    seen = np.isfinite(known)
    return np.asarray(np.where(seen, known, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1))


def _scale(known: FloatArray) -> FloatArray:
    away = np.where(np.isfinite(known), known - _centre(known), 0.0)
    scale = np.sqrt((away**2).mean(axis=0))
    return np.where(scale > 0, scale, 1.0)


def _standardised(known: FloatArray, centre: FloatArray, scale: FloatArray) -> FloatArray:
    """Return how many deviations features lie from their means; what is unknown lies at the mean."""
    return np.asarray(np.where(np.isfinite(known), (known - centre) / scale, 0.0))


def _distances(features: FloatArray) -> FloatArray:
    """Return squared distances in each feature, shape (5, n, n)."""
    columns = features.T
    return np.asarray((columns[:, :, None] - columns[:, None, :]) ** 2)


def _covariance(distances: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the covariance of the points, noise and all, shape (n, n)."""
    kernel = _signal(distances, logs)
    kernel[np.diag_indices(len(kernel))] += np.exp(2.0 * logs[-1]) + 1e-8
    return kernel


def _signal(distances: FloatArray, logs: FloatArray) -> FloatArray:
    closeness = np.tensordot(0.5 * np.exp(-2.0 * logs[:FEATURES]), distances, axes=1)
    return np.asarray(np.exp(2.0 * logs[FEATURES] - closeness))


def log_likelihood(distances: FloatArray, target: FloatArray, logs: FloatArray) -> tuple[float, FloatArray]:
    """Return the logarithm of the marginal likelihood, and its gradient by the hyperparameters' logs."""
    signal = _signal(distances, logs)
    inverse = np.linalg.inv(_covariance(distances, logs))
    weights = inverse @ target
    sign, log_determinant = np.linalg.slogdet(inverse)
    value = -0.5 * (target @ weights) + 0.5 * log_determinant - 0.5 * len(target) * np.log(2.0 * np.pi)
    half = 0.5 * (np.outer(weights, weights) - inverse)
    pulls = half * signal
    by_length = distances.reshape(FEATURES, -1) @ pulls.ravel() * np.exp(-2.0 * logs[:FEATURES])
    by_signal = 2.0 * pulls.sum()
    by_noise = 2.0 * np.exp(2.0 * logs[-1]) * np.trace(half)
    return float(value) if sign > 0 else -np.inf, np.concatenate([by_length, [by_signal, by_noise]])


def _most_likely(features: FloatArray, target: FloatArray) -> FloatArray:
    """Return the hyperparameters' logarithms that make the points most likely, after 20 steps uphill.

    Each step's length is of its own: it grows while the slope keeps its sign and shrinks where it turns
    (Riedmiller, Braun 1993). The best point seen is the answer, so a last step too far does no harm.
    """
    distances = _distances(features)
    logs, step, before = START.copy(), np.full(len(START), FIRST_STEP), np.zeros(len(START))
    best: FloatArray = logs
    best_value = -np.inf
    for _ in range(GRADIENT_STEPS):
        value, slope = log_likelihood(distances, target, logs)
        if value > best_value:
            best, best_value = logs, value
        turned = slope * before
        step = np.where(turned > 0, step * LONGER, np.where(turned < 0, step * SHORTER, step))
        step = np.minimum(step, LARGEST_STEP)
        logs = np.clip(logs + np.sign(slope) * step, LEAST, MOST)
        before = slope
    return np.asarray(best)
