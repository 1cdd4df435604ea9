"""Quantiles of the normal, Student's t and the gamma distribution, fast and safe for any number of cells.

Most cells need no more than a series. scipy, which takes a quarter of a second to import, is loaded for the
first cell that does.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray

_NORMAL = NormalDist()


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
        from scipy.special import stdtrit

        quantile[few] = stdtrit(freedom[few], probability)
    return quantile


def gamma_lower(shape: FloatArray, tail: float) -> FloatArray:
    """Return the gamma quantile with probability `tail` below it."""
    quantile, few = _gamma(shape, normal_quantile(tail))
    if few.any():
        from scipy.special import gammaincinv

        quantile[few] = gammaincinv(shape[few], tail)
    return quantile


def gamma_upper(shape: FloatArray, tail: float) -> FloatArray:
    """Return the gamma quantile with probability `tail` above it."""
    quantile, few = _gamma(shape, -normal_quantile(tail))
    if few.any():
        from scipy.special import gammainccinv

        quantile[few] = gammainccinv(shape[few], tail)
    return quantile


def _gamma(shape: FloatArray, z: float) -> tuple[FloatArray, BoolArray]:
    """Return quantiles by Cornish-Fisher, and which of them are not near enough.

    From shape 10·max(z², 4) on the relative error is below 6e-6.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        root = 1.0 / np.sqrt(shape)
        terms = (-(6 * z**4 + 14 * z**2 - 32) / 1620, (z**3 - 7 * z) / 36, (z**2 - 1) / 3, z, 1.0)
        quantile = np.asarray(shape * np.polyval(terms, root), dtype=np.float64)
    return quantile, shape < 10.0 * max(z * z, 4.0)
