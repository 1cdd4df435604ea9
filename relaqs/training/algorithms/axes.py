"""The directions in which a linear model is descended: those in which its loss is about as steep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

LEAST_EIGENVALUE = 1e-10  # of a matrix with ones on its diagonal; below it columns depend on each other


@dataclass(frozen=True, slots=True)
class Axes:
    """A linear map from the optimiser's coordinates to a model's.

    matrix: shape (coordinates, coordinates), or (coordinates,) if each is an axis of its own.
    """

    matrix: FloatArray

    @classmethod
    def of(cls, curvature: FloatArray) -> Axes:
        """Return the axes along which a loss of such curvature is round: few steps lead to its minimum.

        curvature: positive semi-definite, shape (coordinates, coordinates), or its diagonal alone.
        """
        is_whole = curvature.ndim == 2
        scale = np.sqrt(np.diag(curvature) if is_whole else curvature)
        scale = np.where(scale > 0, scale, 1.0)
        if not is_whole:
            return cls(1 / scale)
        eigenvalues, directions = np.linalg.eigh(curvature / np.outer(scale, scale))
        lengths = np.sqrt(np.maximum(eigenvalues, LEAST_EIGENVALUE))
        return cls(directions / lengths / scale[:, None])

    def position(self, point: FloatArray) -> FloatArray:
        """Return a point in the model's coordinates, shape (outputs, coordinates) both."""
        return point @ self.matrix.T if self.matrix.ndim == 2 else point * self.matrix

    def slopes(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient along the axes, of that in the model's coordinates, same shapes."""
        return gradient @ self.matrix if self.matrix.ndim == 2 else gradient * self.matrix
