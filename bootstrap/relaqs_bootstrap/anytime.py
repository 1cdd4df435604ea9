"""Intervals that hold at every look at once, however often somebody looks and whenever they stop."""

from __future__ import annotations

from functools import lru_cache
from math import exp, log, sqrt

from relaqs_bootstrap.variance import check_fraction

EFFICIENT_FROM = 0.01
EFFICIENT_TO = 0.50


def anytime_multiplier(fraction: float, confidence: float) -> float:
    """Return how many standard errors on either side cover the truth at all scanned fractions together.

    It stands in for z. With t degrees of freedom, multiply it by t/z as `student_interval` does. It is
    infinite at fraction 1, where the standard error is zero.

    Let f be the fraction and τ = f/(1−f). Prefixes of a random order are a Brownian bridge in f, so
    τ·(estimate − truth) is a Brownian motion in τ. Robbins' normal mixture bounds its whole path by
    √((1+1/(ρ²τ))·ln((ρ²τ+1)/α²)). Every ρ is valid. The ρ chosen here makes f = 1 % and f = 50 % cost the
    same, which gives the least maximum between them. At 95 % that is 3.34 at both ends and 3.03 in the middle
    (1.55 to 1.71 times z). Below 1 % it grows, to 6.6 at f = 0.1 %.

    Source: Robbins 1970, Statistical methods related to the law of the iterated logarithm; Waudby-Smith and
    Ramdas 2020, Confidence sequences for sampling without replacement.

    >>> [round(anytime_multiplier(fraction, 0.95), 2) for fraction in (0.001, 0.01, 0.5)]
    [6.59, 3.34, 3.34]
    """
    check_fraction(fraction)
    if fraction == 1.0:
        return float("inf")
    return _multiplier(_mixture(confidence) * fraction / (1.0 - fraction), confidence)


def _multiplier(mixed_time: float, confidence: float) -> float:
    """Return the multiplier at ρ²τ = mixed_time."""
    return sqrt((1.0 + 1.0 / mixed_time) * (log(mixed_time + 1.0) - 2.0 * log(1.0 - confidence)))


@lru_cache(maxsize=64)
def _mixture(confidence: float) -> float:
    """Return ρ², by bisection. A larger one lowers the early end's multiplier and raises the late end's."""
    early = EFFICIENT_FROM / (1.0 - EFFICIENT_FROM)
    late = EFFICIENT_TO / (1.0 - EFFICIENT_TO)
    low, high = log(1e-6 / late), log(1e6 / early)
    while high - low > 1e-12:
        middle = (low + high) / 2.0
        rho_squared = exp(middle)
        if _multiplier(rho_squared * early, confidence) > _multiplier(rho_squared * late, confidence):
            low = middle
        else:
            high = middle
    return exp(low)
