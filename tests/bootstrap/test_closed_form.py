"""The closed form is the textbook formula on COUNT, SUM and AVG, with the freedom of what it estimates."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from relaqs_bootstrap import Variance, closed_form_variance

Array = NDArray[np.float64]
POPULATION = 40_000


def closed_form(values: Array, rows_scanned: int) -> Variance:
    """Return the variance of COUNT, SUM and AVG of one group of these values."""
    scale, count, total = POPULATION / rows_scanned, float(len(values)), values.sum()
    gradient = np.array([[[scale, 0.0], [0.0, scale], [-total / count**2, 1.0 / count]]])
    return closed_form_variance(
        gradient,
        np.array([[count, total]]),
        np.array([[count, total, (values**2).sum()]]),
        np.array([len(values)]),
        rows_scanned,
        rows_scanned / POPULATION,
    )


def textbook_total(contributions: Array, rows_scanned: int) -> float:
    """Return N²(1−f)/n·s² of contributions, those of unmatched rows being zero."""
    padded = np.concatenate([contributions, np.zeros(rows_scanned - len(contributions))])
    return float(POPULATION**2 * (1 - rows_scanned / POPULATION) / rows_scanned * padded.var(ddof=1))


def test_count_is_the_textbook_formula_and_as_good_as_known() -> None:
    variance = closed_form(np.random.default_rng(1).random(37), 2000)
    assert variance.variance[0, 0] == pytest.approx(textbook_total(np.ones(37), 2000), rel=1e-12)
    assert variance.degrees_of_freedom[0, 0] == np.inf


def test_a_sum_over_all_rows_is_the_textbook_formula() -> None:
    values = np.random.default_rng(2).lognormal(0, 1, 500)
    variance = closed_form(values, 500)
    assert variance.variance[0, 1] == pytest.approx(textbook_total(values, 500), rel=1e-12)
    assert variance.degrees_of_freedom[0, 1] == pytest.approx(499)


def test_a_filtered_sum_corrects_the_spread_within_its_group() -> None:
    values = np.random.default_rng(3).lognormal(0, 1, 12)
    variance = closed_form(values, 2000)
    # Bessel's correction by the 12 rows, not by all 2000, adds at most 1/11 to the textbook formula.
    textbook = textbook_total(values, 2000)
    assert textbook < variance.variance[0, 1] < textbook * 12 / 11
    assert variance.degrees_of_freedom[0, 1] > 11


def test_an_average_is_the_ratio_formula_on_one_less_than_its_rows() -> None:
    values, fraction = np.random.default_rng(4).lognormal(0, 1, 25), 3000 / POPULATION
    variance = closed_form(values, 3000)
    assert variance.variance[0, 2] == pytest.approx((1 - fraction) * values.var(ddof=1) / 25, rel=1e-12)
    assert variance.degrees_of_freedom[0, 2] == pytest.approx(24)


def test_nothing_is_uncertain_once_everything_is_scanned() -> None:
    assert (closed_form(np.random.default_rng(5).random(20), POPULATION).variance == 0.0).all()


def test_equal_values_do_not_vary_despite_rounding() -> None:
    variance = closed_form(np.full(30, 0.1), 2000)
    assert variance.variance[0, 2] == 0.0
    assert variance.variance[0, 1] == pytest.approx(0.01 * variance.variance[0, 0])


def test_a_group_of_one_row_or_none_gives_no_nonsense() -> None:
    single = closed_form(np.array([3.0]), 2000)
    assert np.isfinite(single.variance).all()
    assert single.variance[0, 2] == 0.0
    empty = closed_form_variance(
        np.full((1, 1, 1), 20.0), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1, int), 2000, 0.05
    )
    assert empty.variance[0, 0] == 0.0


def test_a_sum_that_is_no_number_leaves_estimates_of_others_alone() -> None:
    values = np.random.default_rng(7).random(30)
    clean = closed_form(values, 2000).variance[0]
    for odd in (np.nan, np.inf):
        spoilt = closed_form(np.append(values[1:], odd), 2000).variance[0]
        assert spoilt[0] == clean[0]
        assert np.isnan(spoilt[1:]).all()
