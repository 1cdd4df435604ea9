"""Totals of stratified samples with predictions: unbiased, with variances that say how far off they are."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_bootstrap.regression import (
    SampledSums,
    Strata,
    estimated_totals,
    shares_of_calls,
    with_unmet_units,
)

UNITS = 4_000
DRAWS = 1_000
ASKED = np.array([60.0, 60.0, 40.0])


def population(kind: str) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return answers, predictions and strata of a population."""
    rng = np.random.default_rng(3)
    chance = rng.random(UNITS) ** 2
    answers = (rng.random(UNITS) < chance).astype(float)
    predictions = {
        "good": np.clip(chance + rng.normal(0.0, 0.1, UNITS), 0.0, 1.0),
        "noise": rng.random(UNITS),
        "contrary": 1.0 - answers,
        "none": np.zeros(UNITS),
    }[kind]
    return answers, predictions, np.searchsorted([0.5, 0.8], chance)


def sampled(answers: FloatArray, predictions: FloatArray, strata: IntArray, seed: int) -> SampledSums:
    rng = np.random.default_rng(seed)
    sums, products = [], []
    for stratum, asked in enumerate(ASKED):
        chosen = rng.choice(np.flatnonzero(strata == stratum), int(asked), replace=False)
        z = np.stack([answers[chosen], predictions[chosen]], axis=1)
        sums.append(z.sum(axis=0))
        products.append(z.T @ z)
    order = np.arange(len(ASKED))
    return SampledSums(np.zeros_like(order), order, np.array(sums), np.array(products), ASKED)


@pytest.mark.parametrize("kind", ["good", "noise", "contrary", "none"])
def test_totals_are_right_in_the_mean_and_their_intervals_hold(kind: str) -> None:
    answers, predictions, which = population(kind)
    strata = Strata(np.bincount(which).astype(float), ASKED)
    most = np.array([[float(strata.weights.max())]])
    errors, squares, widened = [], [], []
    for seed in range(DRAWS):
        found = estimated_totals(
            sampled(answers, predictions, which, seed), strata, np.array([[predictions.sum()]])
        )
        errors.append(found.values[0, 0] - answers.sum())
        squares.append(found.covariance[0, 0, 0])
        widened.append(with_unmet_units(found, most).covariance[0, 0, 0])
    if kind == "contrary":  # it tells all, the wrong way round, and λ is -1
        assert np.abs(errors).max() < 1e-6
        return
    spread = float(np.std(errors))
    assert abs(np.mean(errors)) < 4.0 * spread / sqrt(DRAWS)
    # A variance of 1,000 draws is known to within 4.5 %, and that of a regression is a little too small.
    assert np.mean(squares) == pytest.approx(spread**2, rel=0.2)
    holds = np.abs(errors) < 1.96 * np.sqrt(widened)
    assert np.mean(holds) > 0.95 - 4.0 * sqrt(0.95 * 0.05 / DRAWS)


def test_a_good_prediction_is_worth_something_and_noise_costs_nothing() -> None:
    def variance(kind: str) -> float:
        answers, predictions, which = population(kind)
        strata = Strata(np.bincount(which).astype(float), ASKED)
        sample = sampled(answers, predictions, which, 1)
        return float(estimated_totals(sample, strata, np.array([[predictions.sum()]])).covariance[0, 0, 0])

    assert variance("good") < variance("none")
    assert variance("noise") < 1.01 * variance("none")


@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.floats(0.0, 1.0), st.floats(0.0, 1e6)), min_size=1, max_size=12
    ),
    st.integers(0, 4_000),
)
def test_shares_are_whole_and_all_that_was_asked_for(
    strata: list[tuple[int, float, float]], count: int
) -> None:
    units = np.array([float(n) for n, *_ in strata])
    asked = np.floor(units * np.array([share for _, share, _ in strata]))
    found = shares_of_calls(np.array([worth for *_, worth in strata]), Strata(units, asked), count)
    assert found.sum() == min(count, (units - asked).sum())
    assert (found >= 0).all()
    assert (found <= units - asked).all()
