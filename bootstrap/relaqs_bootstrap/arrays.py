"""The array types of this package, and arithmetic that passes over what is unused, or mere rounding."""

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


def beyond_rounding(difference: FloatArray, magnitude: FloatArray) -> FloatArray:
    """Return the difference, elementwise; 0 where it is mere rounding of what cancelled, of that magnitude.

    No real block moves an estimate by a relative 1e-12. The average of equal values does not vary, nor does a
    count of which each block has its share. What is infinite stays so.
    """
    return np.where(np.abs(difference) < 1e-12 * magnitude, 0.0, difference)
