"""The anytime multiplier: what it costs, and that it holds at every look together."""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest
from relaqs_bootstrap import Level, anytime_multiplier, closed_form_variance, confidence_intervals


def test_it_costs_the_same_early_and_late_and_less_between() -> None:
    early, middle, late = (anytime_multiplier(f, 0.95) / 1.959964 for f in (0.01, 0.05, 0.5))
    assert early == pytest.approx(late)
    assert early == pytest.approx(1.705, abs=0.005)
    assert middle == pytest.approx(1.55, abs=0.005)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99, 0.9999])
def test_it_exceeds_the_pointwise_multiplier_at_every_fraction(confidence: float) -> None:
    pointwise = Level.of(confidence, anytime=False, fraction=0.1).deviates
    for fraction in np.geomspace(1e-5, 0.99999, 60):
        assert anytime_multiplier(float(fraction), confidence) > pointwise


def test_it_is_the_normal_mixture_bound_for_one_rho() -> None:
    """Two multipliers fix ρ²; the bound with that ρ² must give a third."""
    time = 0.1 / 0.9
    candidates = np.geomspace(1, 1e5, 200_001)
    bound = np.sqrt((1 + 1 / (candidates * time)) * (np.log(candidates * time + 1) - 2 * log(0.05)))
    end = np.sqrt((1 + 1 / candidates) * (np.log(candidates + 1) - 2 * log(0.05)))
    gap = abs(bound - anytime_multiplier(0.1, 0.95)) + abs(end - anytime_multiplier(0.5, 0.95))
    rho_squared = candidates[gap.argmin()]
    early = rho_squared * 0.01 / 0.99
    expected = sqrt((1 + 1 / early) * (log(early + 1) - 2 * log(0.05)))
    assert anytime_multiplier(0.01, 0.95) == pytest.approx(expected, rel=1e-3)


def test_after_everything_is_scanned_no_multiplier_is_needed() -> None:
    assert anytime_multiplier(1.0, 0.95) == inf


def test_it_holds_at_95_looks_together_where_the_pointwise_interval_does_not() -> None:
    rng = np.random.default_rng(7)
    fractions = np.arange(1, 96) / 100
    # Errors of a total over a random order are a Brownian bridge in f, divided by f: variance (1−f)/f.
    steps = rng.standard_normal((4000, 100)) / 10
    path = steps.cumsum(axis=1)
    bridge = path[:, :95] - fractions * path[:, -1:]
    deviates = np.abs(bridge) / np.sqrt(fractions * (1 - fractions))
    multipliers = np.array([anytime_multiplier(float(f), 0.95) for f in fractions])
    missed_once = (deviates > multipliers).any(axis=1).mean()
    # The bound allows 5 %; discrete looks and a horizon use less. The standard error is 0.35 points.
    assert 0.005 < missed_once < 0.05
    assert (deviates > 1.959964).any(axis=1).mean() > 0.4


def test_gamma_intervals_of_small_counts_hold_at_95_looks_together() -> None:
    rng, fractions = np.random.default_rng(3), np.arange(1, 96) / 100
    population, members, runs = 1_000_000, 200, 1500
    arrival = np.sort(rng.random((runs, members)), axis=1)
    missed = {True: np.zeros(runs, dtype=bool), False: np.zeros(runs, dtype=bool)}
    for fraction in fractions:
        seen, rows = (arrival < fraction).sum(axis=1), round(fraction * population)
        count = seen[:, None].astype(np.float64)
        scale = np.full((runs, 1, 1), 1 / fraction)
        variance = closed_form_variance(scale, count, count, seen, rows, float(fraction))
        for anytime, misses in missed.items():
            intervals = confidence_intervals(
                count / fraction,
                variance,
                fraction=float(fraction),
                confidence=0.95,
                anytime=anytime,
                rows_matched=seen,
                nonnegative_total=np.array([True]),
                observed_total=count,
                unit_ceiling=np.ones(1),
                possible_influence=np.full(variance.variance.shape, 1 / fraction),
            )
            misses |= ((intervals.high < members) | (intervals.low > members))[:, 0]
    # The bound allows 5 %; 1500 runs have a standard error of 0.56 points.
    assert missed[True].mean() < 0.05
    assert missed[False].mean() > 0.3
