"""Numbers that look random and follow from a seed alone, and quantiles of Beta distributions.

A policy draws no random numbers of its own, since equal views must give equal plans. A number here is a hash
of (seed, generation, stream, index). Two streams of a generation never share a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_bootstrap.split_mix import MASK, STEP, mixed, mixed_word

GRID_POINTS = 512
GRID_REACH = 8.0  # standard deviations of log odds on either side of the middle: e⁻⁸ of the mass lies beyond


@dataclass(frozen=True, slots=True)
class Draws:
    """The numbers of one generation.

    >>> Draws(seed=1, generation=0).uniform(0, 3).round(3).tolist()
    [0.885, 0.403, 0.838]
    """

    seed: int
    generation: int

    def uniform(self, stream: int, *shape: int) -> FloatArray:
        """Return numbers from 0 to below 1, evenly spread."""
        key = 0
        for part in (self.seed, self.generation, stream):
            key = mixed_word((key ^ (part & MASK)) + STEP & MASK)
        index = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
        words = mixed(np.uint64(key) + index * np.uint64(STEP))
        high = (words >> np.uint64(11)).astype(np.float64)
        return (high * 2.0**-53).reshape(shape)

    def integers(self, stream: int, below: int, *shape: int) -> IntArray:
        """Return whole numbers from 0 to below `below`, evenly spread."""
        return (self.uniform(stream, *shape) * below).astype(np.int64)


@dataclass(frozen=True, slots=True)
class BetaQuantiles:
    """Quantiles of Beta distributions, from their cumulative probabilities on a grid.

    Quantiles rise with the probability that is asked for, so equal probabilities compare jobs fairly. They
    are within 1e-3 of the exact ones for parameters from 1 to 200.

    Args:
        points: shape (J, 512), rising along a row.
        below: the probability below each point, shape (J, 512), from 0 to 1.
    """

    points: FloatArray
    below: FloatArray

    @classmethod
    def of(cls, alpha: FloatArray, beta: FloatArray) -> BetaQuantiles:
        """Return the quantiles for parameters of shape (J,).

        The grid is even in the log odds t = log(x / (1 − x)). There the density is x^α (1 − x)^β, which is
        smooth and falls off at both ends.
        """
        middle = np.log(alpha / beta)
        reach = GRID_REACH * np.sqrt(_trigamma(alpha) + _trigamma(beta))
        log_odds = middle[:, None] + reach[:, None] * np.linspace(-1.0, 1.0, GRID_POINTS)
        log_above = -np.logaddexp(0.0, log_odds)
        log_density = alpha[:, None] * (log_odds + log_above) + beta[:, None] * log_above
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        below = np.cumsum(density, axis=1) - (density + density[:, :1]) / 2.0
        return cls(np.exp(log_odds + log_above), below / below[:, -1:])

    def at(self, probability: FloatArray) -> FloatArray:
        """Return the quantiles at probabilities of shape (n, J), which need not be the same for each job."""
        found = np.empty(probability.shape)
        for job, (below, points) in enumerate(zip(self.below, self.points, strict=True)):
            found[:, job] = np.interp(probability[:, job], below, points)
        return found


def _trigamma(x: FloatArray) -> FloatArray:
    """Return the variance of the logarithm of Gamma(x), to 1e-4, by its asymptotic series from x + 3."""
    near = sum(1.0 / (x + step) ** 2 for step in range(3))
    x = x + 3.0
    return np.asarray(near + 1.0 / x + 1.0 / (2.0 * x**2) + 1.0 / (6.0 * x**3))
