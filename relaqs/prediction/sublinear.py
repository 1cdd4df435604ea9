"""SLAQ's curve for training by first-order methods: 1/(a·k² + b·k + c) + d."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.prediction.family import PARAMETERS
from relaqs.prediction.series import Series
from relaqs.prediction.window import Window

FLOORS = np.concatenate([[1e-3], np.geomspace(10**-2.5, 5.0, 23)])  # tried for (lowest − d) / span
JOBS_AT_ONCE = 128  # on the grid: what fits a processor's cache
REFINEMENTS = 4
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class SubLinear:
    """1/(a·k² + b·k + c) + d, with k = x − origin ≥ 0, a, b ≥ 0, c > 0. Parameters: a, b, c, d, origin.

    For a known d, 1/(y − d) is a quadratic: a weighted linear fit, tried for a grid of d. The best start is
    refined by damped Gauss-Newton steps (Levenberg 1944; Marquardt 1963) in all four, for all jobs at once.
    Source: SLAQ, algorithms of sublinear convergence.
    """

    name: str = "sublinear"

    def fit(self, series: Series) -> FloatArray:
        window = Window.of(series)
        start = _best_of_grid(window)
        a, b, c, d = _refined(window, start).T
        parameters = np.zeros((len(a), PARAMETERS))
        parameters[:, 0] = a / (window.width**2 * window.span)
        parameters[:, 1] = b / (window.width * window.span)
        parameters[:, 2] = c / window.span
        parameters[:, 3] = window.lowest + window.span * d
        parameters[:, 4] = window.origin
        return parameters

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        a, b, c, d, origin = (parameters[:, i : i + 1] for i in range(5))
        k = np.maximum(x - origin, 0.0)
        return 1.0 / ((a * k + b) * k + c) + d

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        moved = parameters.copy()
        moved[:, 3] += y - self.at(parameters, x[:, None])[:, 0]
        return moved


def _best_of_grid(window: Window) -> FloatArray:
    """Return a, b, c, d of the best linear fit over the grid of d, shape (J, 4), in the window's units."""
    parts = range(0, len(window.t), JOBS_AT_ONCE)
    return np.concatenate(
        [_best_of_grid_of_few(window.of_jobs(slice(start, start + JOBS_AT_ONCE))) for start in parts]
        or [np.empty((0, 4))]
    )


def _best_of_grid_of_few(window: Window) -> FloatArray:
    """The same for so few jobs that arrays of (jobs, grid, observations) are small."""
    powers = window.t[:, :, None] ** np.arange(5)
    above = window.z[:, None, :] + FLOORS[:, None]
    weight = window.weight[:, None, :] * above**4  # an error of y is one of 1/(y − d) divided by (y − d)²
    moments, targets = weight @ powers, (weight / above) @ powers[:, :, :3]
    quadratics = _quadratic(moments.reshape(-1, 5), targets.reshape(-1, 3))
    every = np.column_stack([quadratics, np.tile(-FLOORS, len(above))]).reshape(len(above), len(FLOORS), 4)
    curves = 1.0 / _denominator(window.t[:, None, :], every) + every[:, :, 3:]
    errors = (window.weight[:, None, :] * (window.z[:, None, :] - curves) ** 2).sum(axis=2)
    best: FloatArray = every[np.arange(len(every)), errors.argmin(axis=1)]
    return best


def _quadratic(moments: FloatArray, targets: FloatArray) -> FloatArray:
    """Return a, b ≥ 0 and c > 0 of the weighted quadratic, shape (J, 3).

    Args:
        moments: Σ w·t^p for p = 0..4.
        targets: Σ w·t^p·y for p = 0..2.

    Where a or b comes out negative, it is 0.
    """
    m0, m1, m2, m3, m4 = moments.T
    r0, r1, r2 = targets.T
    matrix = np.stack([m0, m1, m2, m1, m2, m3, m2, m3, m4], axis=1).reshape(-1, 3, 3)
    c, b, a = _solve(matrix, targets).T
    c_line, b_line = _solve_two(m0, m1, m2, r0, r1)
    c_square, a_square = _solve_two(m0, m2, m4, r0, r2)
    drop_a: BoolArray = a < 0
    drop_b: BoolArray = ~drop_a & (b < 0)
    a = np.where(drop_a, 0.0, np.where(drop_b, a_square, a))
    b = np.where(drop_a, b_line, np.where(drop_b, 0.0, b))
    c = np.where(drop_a, c_line, np.where(drop_b, c_square, c))
    return np.column_stack([np.maximum(a, 0.0), np.maximum(b, 0.0), np.maximum(c, TINY)])


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Return the solutions of J small systems, with a ridge that keeps those of few observations solvable."""
    diagonal = np.arange(matrix.shape[1])
    matrix = matrix.copy()
    matrix[:, diagonal, diagonal] *= 1 + 1e-10
    matrix[:, diagonal, diagonal] += 1e-200
    return np.asarray(np.linalg.solve(matrix, right[:, :, None])[:, :, 0], dtype=np.float64)


def _solve_two(
    m00: FloatArray, m01: FloatArray, m11: FloatArray, r0: FloatArray, r1: FloatArray
) -> tuple[FloatArray, FloatArray]:
    determinant = m00 * m11 * (1 + 1e-10) - m01**2 + 1e-200
    return (r0 * m11 - m01 * r1) / determinant, (m00 * r1 - m01 * r0) / determinant


def _refined(window: Window, start: FloatArray) -> FloatArray:
    """Return the parameters after a few damped Gauss-Newton steps, each kept only where it fits better."""
    best: FloatArray = start
    best_error = _squared_error(window, start)
    damping = np.full(len(start), 1e-3)
    for _ in range(REFINEMENTS):
        candidate = _gauss_newton_step(window, best, damping)
        error = _squared_error(window, candidate)
        better = error < best_error
        best = np.where(better[:, None], candidate, best)
        best_error = np.minimum(error, best_error)
        damping = np.where(better, damping / 5, damping * 8)
    return best


def _gauss_newton_step(window: Window, parameters: FloatArray, damping: FloatArray) -> FloatArray:
    t = window.t
    bend = 1.0 / _denominator(t, parameters)
    residual = window.z - bend - parameters[:, 3:4]
    jacobian = np.stack([-((bend * t) ** 2), -(bend**2) * t, -(bend**2), np.ones_like(t)], axis=2)
    weighted = (jacobian * window.weight[:, :, None]).transpose(0, 2, 1)
    normal = weighted @ jacobian
    diagonal = np.arange(4)
    normal[:, diagonal, diagonal] *= 1 + damping[:, None]
    moved = parameters + _solve(normal, (weighted @ residual[:, :, None])[:, :, 0])
    return np.column_stack(
        [np.maximum(moved[:, :2], 0.0), np.maximum(moved[:, 2], TINY), np.minimum(moved[:, 3], 0.0)]
    )


def _squared_error(window: Window, parameters: FloatArray) -> FloatArray:
    curve = 1.0 / _denominator(window.t, parameters) + parameters[:, 3:4]
    error: FloatArray = (window.weight * (window.z - curve) ** 2).sum(axis=1)
    return error


def _denominator(t: FloatArray, parameters: FloatArray) -> FloatArray:
    return (parameters[..., :1] * t + parameters[..., 1:2]) * t + parameters[..., 2:3]


SUBLINEAR = SubLinear()
