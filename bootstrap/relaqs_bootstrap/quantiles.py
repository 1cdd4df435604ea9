"""Quantiles of the normal, Student's t and the gamma distribution, fast and safe for any number of cells.

Most cells need no more than a series in their shape. For the others `special.py` finds a few quantiles, and a
polynomial through these has the rest: that takes a tenth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_bootstrap.special import gamma_exceeded, gamma_reached, student_exceeded

_NORMAL = NormalDist()

NODES = 48  # quantiles that the polynomial goes through; with them it is right to 1e-11
LEAST_SHAPE = 0.5  # below, quantiles fall too fast for a polynomial


def normal_quantile(probability: float) -> float:
    return _NORMAL.inv_cdf(probability)


def normal_tail(deviate: float) -> float:
    """Return the probability of exceeding this many standard errors, on one side."""
    return 0.5 * math.erfc(deviate / math.sqrt(2.0))


def student_quantile(freedom: FloatArray, probability: float) -> FloatArray:
    """Return the t quantile of an upper probability, for real or infinite degrees of freedom.

    From max(20, 5z²) degrees on it uses the Cornish-Fisher series, with a relative error below 1e-6. That is
    ten times faster. Source: Abramowitz and Stegun 26.7.5.

    >>> student_quantile(np.array([5.0, np.inf]), 0.975).round(2).tolist()
    [2.57, 1.96]
    """
    z = normal_quantile(probability)
    with np.errstate(divide="ignore", invalid="ignore"):
        v = 1.0 / freedom
    terms = (
        79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z,
        240 * (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z),
        960 * (5 * z**5 + 16 * z**3 + 3 * z),
        23040 * (z**3 + z),
        92160 * z,
    )
    quantile = np.asarray(np.polyval(terms, v) / 92160.0, dtype=np.float64)
    few = freedom < max(20.0, 5.0 * z * z)  # what is not a number stays so
    if few.any():
        quantile[few] = _small_shapes(
            student_exceeded, freedom[few], 1.0 - probability, max(20.0, 5.0 * z * z)
        )
    return quantile


def gamma_lower(shape: FloatArray, tail: float) -> FloatArray:
    """Return the gamma quantile with probability `tail` below it, with a relative error below 6e-6."""
    z = normal_quantile(tail)
    quantile, few = _gamma(shape, z)
    if few.any():
        quantile[few] = _small_shapes(gamma_reached, shape[few], tail, _series_least(z))
    return quantile


def gamma_upper(shape: FloatArray, tail: float) -> FloatArray:
    """Return the gamma quantile with probability `tail` above it, with a relative error below 6e-6."""
    z = -normal_quantile(tail)
    quantile, few = _gamma(shape, z)
    if few.any():
        quantile[few] = _small_shapes(gamma_exceeded, shape[few], tail, _series_least(z))
    return quantile


def _gamma(shape: FloatArray, z: float) -> tuple[FloatArray, BoolArray]:
    """Return quantiles by Cornish-Fisher, and which of them are not near enough."""
    with np.errstate(divide="ignore", invalid="ignore"):
        root = 1.0 / np.sqrt(shape)
        terms = (-(6 * z**4 + 14 * z**2 - 32) / 1620, (z**3 - 7 * z) / 36, (z**2 - 1) / 3, z, 1.0)
        quantile = np.asarray(shape * np.polyval(terms, root), dtype=np.float64)
    return quantile, shape < _series_least(z)


def _series_least(z: float) -> float:
    """Return the shape from which on the series has a relative error below 6e-6."""
    return 10.0 * max(z * z, 4.0)


def _small_shapes(
    inverse: Callable[[FloatArray, float], FloatArray], shape: FloatArray, tail: float, most: float
) -> FloatArray:
    """Return the quantiles of shapes up to `most`, by `inverse` or by a polynomial through values of it."""
    quantile = np.empty_like(shape)
    is_inside = shape >= LEAST_SHAPE
    quantile[~is_inside] = inverse(shape[~is_inside], tail)
    place = np.log(shape[is_inside] / LEAST_SHAPE) / math.log(most / LEAST_SHAPE)
    quantile[is_inside] = np.exp(_at(2.0 * place - 1.0, _polynomial(inverse, tail, most)))
    return quantile


@lru_cache(maxsize=64)
def _polynomial(inverse: Callable[[FloatArray, float], FloatArray], tail: float, most: float) -> FloatArray:
    """Return the logarithm of quantiles by that of the shape, as coefficients of Chebyshev's polynomials.

    LEAST_SHAPE is at -1, and `most` at 1.
    """
    order = np.arange(NODES)
    angles = math.pi * (order + 0.5) / NODES
    place = (np.cos(angles) + 1.0) / 2.0
    values = np.log(inverse(LEAST_SHAPE * (most / LEAST_SHAPE) ** place, tail))
    return np.asarray(np.cos(order[:, None] * angles) @ values * np.where(order == 0, 1.0, 2.0) / NODES)


def _at(place: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Return a sum of Chebyshev's polynomials between -1 and 1. Source: Clenshaw 1955."""
    last, before = np.zeros_like(place), np.zeros_like(place)
    for coefficient in coefficients[:0:-1]:
        last, before = 2.0 * place * last - before + coefficient, last
    return np.asarray(place * last - before + coefficients[0])
