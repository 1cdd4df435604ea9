"""Intervals for what is shown because it was found large enough: some of it passed the bar by luck alone."""

from __future__ import annotations

import numpy as np

from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.quantiles import normal_quantile
from relaqs_bootstrap.special import log_normal_below

_STEPS = 40  # of bisection, which leave 1e-8 of the bracket
_LEAST_SLACK = 1e-3  # in half-widths: a factor of about a thousand
_FAR_SLACK = 8.0  # beyond it the factor is 1 to the last digit


def selection_factor(slack: FloatArray, confidence: float) -> FloatArray:
    """Return the factor on half-widths where an estimate is shown only above a bar, at least 1.

    Args:
        slack: how far each estimate is above its bar, in half-widths at this confidence. It is inf where
            there is no bar.
        confidence: of the interval.

    The interval is that of a normal estimate that is known to lie above the bar. Its lower end is the value
    for which an estimate so large, given that it passed, has just the probability left on one side. Only the
    side towards the bar needs the factor. Another number of the same row needs less of it, the less it varies
    with the number that has to pass.

    Source: Lee, Sun, Sun, Taylor 2016, Exact post-selection inference, with application to the lasso, section
    5 (the truncated normal).

    >>> selection_factor(np.array([2.0, 1.0, 0.5, np.inf]), 0.95).round(2).tolist()
    [1.01, 1.22, 2.04, 1.0]
    """
    factor: FloatArray = np.ones(slack.shape)
    near = ~(slack >= _FAR_SLACK)  # most answers have no bar at all: they cost nothing
    if near.any():
        factor[near] = _factor_near(slack[near], confidence)
    return factor


def _factor_near(slack: FloatArray, confidence: float) -> FloatArray:
    """Return the factor of estimates that are near a bar, by bisection."""
    usual = normal_quantile((1.0 + confidence) / 2.0)
    tail = np.log((1.0 - confidence) / 2.0)
    bar = np.maximum(slack, _LEAST_SLACK) * usual  # standard errors below the estimate
    low, high = np.full(bar.shape, usual), usual + 1.2 * (-tail) / bar
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        unlikely = log_normal_below(-middle) - log_normal_below(bar - middle) <= tail
        low, high = np.where(unlikely, low, middle), np.where(unlikely, middle, high)
    return np.asarray(high / usual)
