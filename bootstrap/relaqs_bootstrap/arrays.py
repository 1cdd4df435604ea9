"""The array types of this package, and the product that passes over what it does not use."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def product(derivative: FloatArray, sums: FloatArray) -> FloatArray:
    """Return derivative · sums, elementwise; 0 where the derivative is 0, be the sum NaN or infinite.

    An estimate that does not depend on a sum must not lose its interval to it.
    """
    with np.errstate(invalid="ignore"):
        return np.where(derivative == 0.0, 0.0, derivative * sums)
