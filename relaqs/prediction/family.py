"""What every family of curves offers: a fit to all jobs at once, and values at any position."""

from __future__ import annotations

from typing import Protocol

from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.series import Series

PARAMETERS = 5  # columns every family's parameters fit into; the rest are zero


class Family(Protocol):
    """A formula of quality over position with free parameters, such as 1/(A·x² + B). It has no state.

    Parameters have shape (J, PARAMETERS), one row for each job."""

    @property
    def name(self) -> str: ...

    def fit(self, series: Series) -> FloatArray:
        """Return the parameters that fit each job's weighted observations best, in least squares.

        Never raises for few or odd observations: the curve is then flat, or as steep as they allow.
        """
        ...

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        """Return the value of each job's curve at its positions.

        Args:
            parameters: shape (J, PARAMETERS).
            x: positions, shape (J, K). The result has the same shape.
        """
        ...

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return the parameters, moved so that each job's curve passes through one point.

        Args:
            parameters: shape (J, PARAMETERS).
            x: the position of each job's point, shape (J,).
            y: its value, shape (J,).
        """
        ...
