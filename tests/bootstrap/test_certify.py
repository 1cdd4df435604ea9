"""What is certified, and what is not however calm it looks."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap import Variance, is_certified, largest_influence


def variance(value: float = 4.0, effective_terms: float = 20.0) -> Variance:
    return Variance(np.array([[value]]), np.array([[30.0]]), np.array([[effective_terms]]))


@pytest.mark.parametrize(
    ("rows", "value", "terms", "expected"),
    [
        (10, 4.0, 8.0, True),
        (9, 4.0, 20.0, False),
        (10, 4.0, 7.9, False),
        (5000, 0.0, 0.0, False),
        (5000, np.nan, 20.0, False),
        (5000, np.inf, 20.0, False),
        (5000, 4.0, np.nan, False),
    ],
)
def test_rows_terms_and_a_finite_variance(rows: int, value: float, terms: float, expected: bool) -> None:
    assert is_certified(variance(value, terms), fraction=0.1, rows_matched=np.array([rows]))[0, 0] == expected


@pytest.mark.parametrize(
    ("influence", "terms", "expected"),
    [
        (5.99, 20.0, True),  # three standard errors are 6
        (5.99, 1.1, True),
        (6.01, 20.0, False),
        (np.nan, 8.0, True),
        (np.nan, 7.9, False),
        (np.inf, 20.0, False),
    ],
)
def test_a_known_bound_on_unseen_rows_stands_in_for_terms(
    influence: float, terms: float, expected: bool
) -> None:
    # A variance of 2 after finite-population correction by one half is one of 4 before.
    certified = is_certified(
        variance(2.0, terms),
        fraction=0.5,
        rows_matched=np.array([50]),
        possible_influence=np.array([[influence]]),
    )
    assert certified[0, 0] == expected


def test_everything_is_certified_once_everything_is_scanned() -> None:
    assert is_certified(variance(0.0, 0.0), fraction=1.0, rows_matched=np.array([1]))[0, 0]


def test_one_row_moves_count_by_the_scale_sum_by_its_value_and_average_by_its_distance() -> None:
    rows, average, scale = 20.0, 3.0, 50.0
    gradient = np.array([[[scale, 0.0], [0.0, scale], [-average / rows, 1 / rows]]])
    influence = largest_influence(gradient, np.array([1.0, -2.0]), np.array([1.0, 10.0]))
    np.testing.assert_allclose(influence, [[50.0, 500.0, 7.0 / 20]])


def test_bounds_may_differ_by_group_and_be_unknown_in_columns_that_do_not_matter() -> None:
    gradient = np.array([[[2.0, 0.0]], [[2.0, 0.0]], [[2.0, 1.0]]])
    lowest = np.array([[-1.0, np.nan], [-7.0, -np.inf], [0.0, np.nan]])
    highest = np.array([[3.0, np.nan], [3.0, np.inf], [3.0, np.nan]])
    np.testing.assert_allclose(largest_influence(gradient, lowest, highest), [[6.0], [14.0], [np.nan]])
