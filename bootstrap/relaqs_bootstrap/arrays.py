"""The array types of this package, and arithmetic that ignores unused sums and mere rounding."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def product(derivative: FloatArray, sums: FloatArray) -> FloatArray:
    """Return derivative · sums, elementwise, with 0 where the derivative is 0, even if the sum is NaN.

    An estimate that does not depend on a sum must not lose its interval to it.

    >>> product(np.array([0.0, 2.0]), np.array([np.nan, 3.0])).tolist()
    [0.0, 6.0]
    """
    with np.errstate(invalid="ignore"):
        return np.where(derivative == 0.0, 0.0, derivative * sums)


def beyond_rounding(difference: FloatArray, magnitude: FloatArray) -> FloatArray:
    """Return the difference, elementwise, with 0 where it is only the rounding of what cancelled.

    A difference counts as rounding if it is below 1e-12 of the magnitude. No real block moves an estimate by
    so little. The average of equal values does not vary, nor does a count that all blocks share equally.
    An infinite difference stays infinite.

    >>> beyond_rounding(np.array([1e-15, 0.5]), np.array([1.0, 1.0])).tolist()
    [0.0, 0.5]
    """
    return np.where(np.abs(difference) < 1e-12 * magnitude, 0.0, difference)
