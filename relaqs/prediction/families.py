"""The families of curves: formulas of quality over work, each fitted to all jobs at once.

| family | formula | of |
|---|---|---|
| inverse square | 1/(A·x² + B) | a query's progress (the thesis) |
| sublinear | 1/(a·k² + b·k + c) + d | training by first-order methods (SLAQ) |
| geometric | μ^(k − b) + c | training by second-order methods (SLAQ) |
| harmonic | s/k + c | a training run's first losses, where two points must do |
| scaled | c·s(x) | a known shape s, such as √(1/x − 1); one observation must do |

Two ways of fitting are shared. A formula that is linear in all but one number is a straight-line fit for
each value of that number, which is searched on a grid. So that one grid fits every job, observations are
brought to one scale first (`Window`): both axes go from 0 to 1 where there is something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.prediction.curves import PARAMETERS, Series

TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Window:
    """A series in units of its own extent. t, z: shape (J, W), in [0, 1] where observed.

    x = origin + width·t, y = lowest + span·z, all of shape (J,).
    """

    t: FloatArray
    z: FloatArray
    weight: FloatArray
    origin: FloatArray
    width: FloatArray
    lowest: FloatArray
    span: FloatArray

    @classmethod
    def of(cls, series: Series) -> Window:
        known = series.weight > 0
        origin = _least(series.x, known)
        width = np.maximum(series.newest[0] - origin, TINY)
        lowest = _least(series.y, known)
        span = np.maximum(-_least(-series.y, known) - lowest, TINY)
        t = np.where(known, (series.x - origin[:, None]) / width[:, None], 0.0)
        z = np.where(known, (series.y - lowest[:, None]) / span[:, None], 0.0)
        return cls(t, z, series.weight, origin, width, lowest, span)

    def of_jobs(self, jobs: slice) -> Window:
        """Return the windows of some of the jobs."""
        return Window(*(getattr(self, each.name)[jobs] for each in fields(self)))


def _least(values: FloatArray, known: BoolArray) -> FloatArray:
    least = np.where(known, values, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


@dataclass(frozen=True, slots=True)
class InverseSquare:
    """1/(A·x² + B), A ≥ 0 and B > 0: flat or falling. Parameters: A, B.

    1/y = A·x² + B is linear; an error of y is an error of 1/y divided by y², hence the weights w·y⁴.
    Source: the thesis, ch. 4, prediction of progress.
    """

    name: str = "inverse square"

    def fit(self, series: Series) -> FloatArray:
        largest = series.y.max(axis=1, initial=TINY)
        end = np.abs(series.x).max(axis=1, initial=TINY)
        y = np.maximum(series.y / largest[:, None], 1e-6)
        square = (series.x / end[:, None]) ** 2
        slope, offset = _line(square, 1.0 / y, series.weight * y**4)
        parameters = np.zeros((len(y), PARAMETERS))
        parameters[:, 0] = slope / (largest * end**2)
        parameters[:, 1] = offset / largest
        return parameters

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        return 1.0 / (parameters[:, :1] * x**2 + parameters[:, 1:2])

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        now = self.at(parameters, x[:, None])[:, 0]
        can_be = y > 1e-9 * now  # the curve never comes to zero
        return parameters * np.where(can_be, now / np.where(can_be, y, 1.0), 1.0)[:, None]

    def sum_of_steps(
        self, parameters: FloatArray, x: FloatArray, step: FloatArray, n: FloatArray
    ) -> FloatArray:
        """Return Σ over k = 1..n of the curve at x + k·step, shape (J, K), for n that need not be whole.

        It is the integral from half a step after x on, an arctangent. From a job's second step on it is
        within 1 % of the sum.

        Args:
            parameters: of the curves, shape (J, PARAMETERS).
            x: where each job is, shape (J,).
            step: how far one step goes, shape (J,).
            n: how many steps, shape (J, K).
        """
        a, b = parameters[:, :1], parameters[:, 1:2]
        start = (x + 0.5 * step)[:, None]
        width = n * step[:, None]
        across = b + a * start * (start + width)
        root = np.sqrt(a * b)
        angle = root * width / across
        factor = np.where(angle > 1e-6, np.arctan(angle) / np.maximum(angle, TINY), 1.0)
        return width / across * factor / step[:, None]


def _line(x: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return slope ≥ 0 and offset > 0 of each row's weighted least-squares line."""
    total = np.maximum(weight.sum(axis=1), TINY)
    mean_x, mean_y = (weight * x).sum(axis=1) / total, (weight * y).sum(axis=1) / total
    from_mean = x - mean_x[:, None]
    spread = (weight * from_mean**2).sum(axis=1)
    slope = (weight * from_mean * y).sum(axis=1) / np.where(spread > TINY, spread, 1.0)
    slope = np.where(spread > TINY, np.maximum(slope, 0.0), 0.0)
    offset = mean_y - slope * mean_x
    # Where the best offset is not positive, the curve is 1/(A·x²) and a little.
    through_zero = (weight * x * y).sum(axis=1) / np.maximum((weight * x**2).sum(axis=1), TINY)
    return np.where(offset > TINY, slope, through_zero), np.where(offset > TINY, offset, 1e-6)


INVERSE_SQUARE = InverseSquare()


FLOORS = np.concatenate([[1e-3], np.geomspace(10**-2.5, 5.0, 23)])  # tried for (lowest − d) / span
JOBS_AT_ONCE = 128  # on the grid: what fits a processor's cache
REFINEMENTS = 4


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


RATES = np.geomspace(0.03, 60.0, 10)  # of decay over the whole window, where the search starts
HALVINGS = 8
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
LEAST_WEIGHT = 1e-300


@dataclass(frozen=True, slots=True)
class Geometric:
    """s·μ^(x − origin) + c with s ≥ 0 and μ = e^(−rate) < 1. Parameters: s, rate, c, origin.

    This is μ^(k − b) + c with s = μ^(origin − b). For a known rate, s and c are a straight-line fit; the rate
    is found by a grid and golden-section search on its logarithm (Kiefer 1953), for all jobs at once.
    Source: SLAQ, algorithms of linear or superlinear convergence.
    """

    name: str = "geometric"

    def fit(self, series: Series) -> FloatArray:
        window = Window.of(series)
        rate = _best_rate(window)
        scale, floor, _ = _scale_and_floor(window, rate)
        parameters = np.zeros((len(rate), PARAMETERS))
        parameters[:, 0] = scale * window.span
        parameters[:, 1] = rate / window.width
        parameters[:, 2] = window.lowest + floor * window.span
        parameters[:, 3] = window.origin
        return parameters

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        scale, rate, floor, origin = (parameters[:, i : i + 1] for i in range(4))
        return scale * np.exp(-rate * np.maximum(x - origin, 0.0)) + floor

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        moved = parameters.copy()
        moved[:, 2] += y - self.at(parameters, x[:, None])[:, 0]
        return moved


def _best_rate(window: Window) -> FloatArray:
    jobs = len(window.t)
    errors = np.stack([_scale_and_floor(window, np.full(jobs, rate))[2] for rate in RATES], axis=1)
    nearest, gap = np.log(RATES)[errors.argmin(axis=1)], np.log(RATES[1] / RATES[0])
    low: FloatArray = nearest - gap
    high: FloatArray = nearest + gap
    for _ in range(HALVINGS):
        inner_low, inner_high = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        goes_low = (
            _scale_and_floor(window, np.exp(inner_low))[2] < _scale_and_floor(window, np.exp(inner_high))[2]
        )
        low, high = np.where(goes_low, low, inner_low), np.where(goes_low, inner_high, high)
    rate: FloatArray = np.exp((low + high) / 2)
    return rate


def _scale_and_floor(window: Window, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return s ≥ 0 and c of the best s·e^(−rate·t) + c, and its weighted squared error, shape (J,) each."""
    share = window.weight / np.maximum(window.weight.sum(axis=1, keepdims=True), LEAST_WEIGHT)
    decay = np.exp(-rate[:, None] * window.t)
    mean_decay, mean_z = (share * decay).sum(axis=1), (share * window.z).sum(axis=1)
    decay -= mean_decay[:, None]
    deviation = window.z - mean_z[:, None]
    spread = (share * decay**2).sum(axis=1)
    scale = np.maximum((share * decay * deviation).sum(axis=1) / np.maximum(spread, LEAST_WEIGHT), 0.0)
    error = (share * (deviation - scale[:, None] * decay) ** 2).sum(axis=1)
    return scale, mean_z - scale * mean_decay, error


GEOMETRIC = Geometric()


@dataclass(frozen=True, slots=True)
class Harmonic:
    """s/k + c, k = x − origin + 1, s ≥ 0, through the newest two observations. Parameters: s, c, origin.

    The slowest rate first-order methods promise on convex losses (Nesterov 2004, 2.1.5). With two or three
    losses the richer families fit anything, mostly a flat line, and a young job would look finished.
    """

    name: str = "harmonic"

    def fit(self, series: Series) -> FloatArray:
        origin = Window.of(series).origin
        x, y = series.newest
        x_before, y_before = series.before(np.ones(len(x), dtype=np.int64)).newest
        fall = _inverse(x_before, origin) - _inverse(x, origin)
        has_two = (series.counts > 1) & (fall > 0)
        slope = (y_before - y) / np.where(has_two, fall, 1.0)
        parameters = np.zeros((len(x), PARAMETERS))
        parameters[:, 0] = np.where(has_two, np.maximum(slope, 0.0), 0.0)
        parameters[:, 1] = y - parameters[:, 0] * _inverse(x, origin)
        parameters[:, 2] = origin
        return parameters

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        origin = parameters[:, 2]
        return parameters[:, :1] * _inverse(x.T, origin).T + parameters[:, 1:2]

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        moved = parameters.copy()
        moved[:, 1] += y - self.at(parameters, x[:, None])[:, 0]
        return moved


def _inverse(x: FloatArray, origin: FloatArray) -> FloatArray:
    return 1.0 / (np.maximum(x - origin, 0.0) + 1.0)


HARMONIC = Harmonic()


@dataclass(frozen=True, slots=True)
class ScaledShape:
    """The family c·s(x) with c ≥ 0. Its one parameter is c."""

    name: str
    shape: Callable[[FloatArray], FloatArray]

    def fit(self, series: Series) -> FloatArray:
        shape = self.shape(series.x)
        squares = (series.weight * shape**2).sum(axis=1)
        scale = (series.weight * shape * series.y).sum(axis=1) / np.where(squares > 0, squares, 1.0)
        return _column(np.maximum(scale, 0.0))

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        return parameters[:, :1] * self.shape(x)

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        shape = self.shape(x)
        return np.where((shape > 0)[:, None], _column(y / np.where(shape > 0, shape, 1.0)), parameters)


def standard_error_shape(fraction: FloatArray) -> FloatArray:
    """Return √(1/x − 1) for a scanned fraction x: how a standard error falls, to zero at the end.

    With x = i/N it is √N·√(1/i − 1/N): simple random sampling without replacement (Cochran 1977, 2.6).
    """
    inside = np.clip(fraction, 1e-12, 1.0)
    return np.sqrt(1.0 / inside - 1.0)


def spacing(fraction: FloatArray) -> FloatArray:
    """Return √(1/x₁ − 1/x₂) of each scanned fraction x₂ and the one before, shape (..., steps); NaN first.

    So |X₂ − X₁| falls, where X₁ and X₂ are estimated from the rows so far: one is part of the other, and
    their difference has variance σ²/n·(1/x₁ − 1/x₂), n rows in all (Cochran 1977, 2.6). Mini-batches may
    grow; with equal ones it is 1/√(i·(i−1)), but for a factor.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = 1.0 / fraction[..., :-1] - 1.0 / fraction[..., 1:]
    found = np.full(fraction.shape, np.nan)
    found[..., 1:] = np.sqrt(np.maximum(apart, 0.0))
    return found


def line_to_end_shape(fraction: FloatArray) -> FloatArray:
    """Return 1 − x for a scanned fraction x: what falls evenly to zero at the end."""
    return 1.0 - np.clip(fraction, 0.0, 1.0)


def _column(scale: FloatArray) -> FloatArray:
    parameters = np.zeros((len(scale), PARAMETERS))
    parameters[:, 0] = scale
    return parameters


LAST_VALUE = ScaledShape("last value", np.ones_like)
STANDARD_ERROR = ScaledShape("standard error", standard_error_shape)
LINE_TO_END = ScaledShape("line to the end", line_to_end_shape)
RESULT_DELTA = ScaledShape("result delta", np.asarray)  # its position is the `spacing`
