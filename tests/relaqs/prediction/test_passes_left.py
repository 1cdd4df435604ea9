"""Gaussian-process regression of the passes left: beside dense algebra, finite differences, made-up runs."""

from __future__ import annotations

import numpy as np
import pytest

from relaqs.prediction.passes_left import (
    FEATURES,
    START,
    PassesLeft,
    _distances,
    log_likelihood,
)


def made_up_points(count: int, seed: int = 0) -> np.ndarray:
    """Runs whose loss falls as they go on; the share of the fall that is left tells the passes left."""
    random = np.random.default_rng(seed)
    part = random.uniform(0.05, 1.0, count)
    total = random.uniform(10.0, 40.0, count)
    rows = random.uniform(1e4, 1e5, count)
    fall = 0.9 * part + random.normal(0, 0.01, count)
    loss, accuracy = random.uniform(1.0, 3.0, count), 0.5 + 0.4 * part
    return np.stack([rows, loss, rows * total * part, fall, accuracy, total * (1.0 - part)], axis=1)


def test_predictions_are_those_of_dense_algebra() -> None:
    points = made_up_points(60)
    fitted = PassesLeft.fitted(points)
    known = np.stack(
        [np.log(points[:, 0]), np.log(points[:, 1]), np.log1p(points[:, 2]), points[:, 3], points[:, 4]],
        axis=1,
    )
    known = (known - known.mean(axis=0)) / known.std(axis=0)
    target = np.log(np.maximum(points[:, 5], 1.0))
    lengths, signal, noise = np.exp(fitted.logs[:FEATURES]), np.exp(fitted.logs[5]), np.exp(fitted.logs[6])
    kernel = np.empty((60, 60))
    for i in range(60):
        for j in range(60):
            kernel[i, j] = signal**2 * np.exp(-0.5 * (((known[i] - known[j]) / lengths) ** 2).sum())
    inverse = np.linalg.inv(kernel + (noise**2 + 1e-8) * np.eye(60))
    mean = kernel @ inverse @ ((target - target.mean()) / target.std()) * target.std() + target.mean()
    np.testing.assert_allclose(fitted.at(points[:, :5]), np.maximum(np.exp(mean), 1.0), rtol=1e-6)


def test_the_gradient_is_that_of_finite_differences() -> None:
    points = made_up_points(20)
    distances, target = _distances(points[:, 3:5].repeat(3, axis=1)[:, :FEATURES]), points[:, 5] / 20.0
    _, gradient = log_likelihood(distances, target, START)
    for at in range(len(START)):
        step = np.zeros(len(START))
        step[at] = 1e-5
        above, _ = log_likelihood(distances, target, START + step)
        below, _ = log_likelihood(distances, target, START - step)
        assert gradient[at] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-6)


def test_fitting_makes_the_points_likelier_and_runs_are_foretold() -> None:
    points, others = made_up_points(120), made_up_points(200, seed=1)
    fitted = PassesLeft.fitted(points)
    off = np.log(fitted.at(others[:, :5])) - np.log(np.maximum(others[:, 5], 1.0))
    spread = np.log(np.maximum(others[:, 5], 1.0)).std()
    assert np.sqrt((off**2).mean()) < 0.5 * spread


def test_what_is_not_known_of_a_run_is_taken_as_usual() -> None:
    points = made_up_points(30)
    points[:, 4] = np.nan
    fitted = PassesLeft.fitted(points)
    assert np.isfinite(fitted.at(np.full((1, 5), np.nan))).all()
    assert (fitted.at(points[:, :5]) >= 1.0).all()
