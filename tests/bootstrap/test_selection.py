"""Intervals of what is shown because it was found large enough."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap import most_in_all, selection_factor
from scipy.stats import norm, poisson


def test_what_is_far_above_its_bar_keeps_its_interval() -> None:
    assert selection_factor(np.array([4.0, np.inf]), 0.95) == pytest.approx([1.0, 1.0], abs=1e-6)


@pytest.mark.parametrize("slack", [0.1, 0.5, 1.0, 2.0])
def test_the_lower_end_is_as_unlikely_as_it_should_be_given_that_it_passed(slack: float) -> None:
    half = norm.ppf(0.975)
    far = float(selection_factor(np.array([slack]), 0.95)[0]) * half
    assert norm.sf(far) / norm.sf(far - slack * half) == pytest.approx(0.025, rel=1e-3)


@pytest.mark.parametrize("correlation", [1.0, 0.7, 0.0, -0.7])
@pytest.mark.parametrize("truth", [-2.0, -1.0, 0.0, 1.0, 3.0])
def test_intervals_hold_of_what_passed_wherever_the_truth_is(truth: float, correlation: float) -> None:
    """100,000 estimates with standard error 1, shown above 0: of those shown 95 % hold, up to chance.

    At a truth of −2 two in a hundred are shown, and 1.5 points are three standard errors. Without the factor
    none of them would hold, at a correlation of 1.
    """
    generator = np.random.default_rng(1)
    chance = generator.standard_normal((2, 100_000))
    decides = truth + chance[0]
    other = correlation * chance[0] + np.sqrt(1 - correlation**2) * chance[1]
    half = norm.ppf(0.975)
    shown = decides > 0
    factor = selection_factor(decides[shown] / half, 0.95)
    assert np.mean(np.abs(other[shown]) <= factor * half) > 0.935


def test_most_in_all_is_the_upper_poisson_limit() -> None:
    most = most_in_all(np.array([0.0, 3.0]), 0.1, 1e-3)
    assert poisson.cdf([0, 3], most * 0.1) == pytest.approx([1e-3, 1e-3])
