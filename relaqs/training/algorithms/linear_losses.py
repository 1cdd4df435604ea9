"""The losses of linear models by scikit-learn's names: each gives the rows' losses and their slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from scipy.special import expit, log_expit

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
