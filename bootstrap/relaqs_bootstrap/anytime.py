"""Intervals that hold at every look at once, however often one looks and whenever one stops."""

from __future__ import annotations

from functools import lru_cache
from math import exp, log, sqrt

from relaqs_bootstrap.variance import check_fraction

EFFICIENT_FROM = 0.01
EFFICIENT_TO = 0.50


def anytime_multiplier(fraction: float, confidence: float) -> float:
    """Return how many standard errors either side cover the truth at all scanned fractions together.

    It stands in for z; with t degrees of freedom, multiply by t/z as
    `student_interval` does. Infinite at fraction 1, where the standard error is zero.

    Seen as a process in τ = f/(1−f), τ·(estimate − truth) is a Brownian motion (prefixes of a random order
    are a Brownian bridge in f), so Robbins' normal mixture bounds its whole path:
    √((1+1/(ρ²τ))·ln((ρ²τ+1)/α²)). Every ρ is valid. It is chosen so that f = 1 % and f = 50 % cost the same,
    which minimises the largest between them: at 95 %, 3.34 at both ends and 3.03 in the middle (1.55–1.71
    times z), growing below 1 % (6.6 at f = 0.1 %).
    Source: Robbins 1970, Statistical methods related to the law of the iterated logarithm; Waudby-Smith and
    Ramdas 2020, Confidence sequences for sampling without replacement.
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
    """Return ρ², by bisection: raising it lowers the early end's multiplier and raises the late end's."""
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
