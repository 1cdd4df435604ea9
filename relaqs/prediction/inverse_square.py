"""The thesis's curve for a query's progress: 1/(A·x² + B)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.family import PARAMETERS
from relaqs.prediction.series import Series

TINY = 1e-12


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
