"""What is certified, and what is not however calm it looks."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap import Doubt, Variance, doubts, largest_influence

# What a row adds 1 to a COUNT and its value to a SUM by: the second column goes with the first.
TOGETHER = np.array([-1, 0])


def variance(value: float) -> Variance:
    return Variance(np.array([[value]]), np.array([[30.0]]))


@pytest.mark.parametrize(
    ("rows", "value", "expected"),
    [
        (10, 4.0, True),
        (9, 4.0, False),
        (5000, 0.0, False),
        (5000, np.nan, False),
        (5000, np.inf, False),
    ],
)
def test_rows_and_a_finite_variance(rows: int, value: float, expected: bool) -> None:
    found = doubts(
        variance(value), fraction=0.1, rows_matched=np.array([rows]), possible_influence=np.array([[1.0]])
    )
    assert (found[0, 0] == Doubt.NONE) == expected


@pytest.mark.parametrize(
    ("influence", "expected"),
    [(3.99, True), (4.01, False), (np.inf, False), (np.nan, False)],  # two standard errors are 4
)
def test_no_unseen_row_may_move_the_answer_far_and_what_is_unknown_may(
    influence: float, expected: bool
) -> None:
    # A variance of 2 after finite-population correction by one half is one of 4 before.
    found = doubts(
        variance(2.0),
        fraction=0.5,
        rows_matched=np.array([50]),
        possible_influence=np.array([[influence]]),
    )
    assert (found[0, 0] == Doubt.NONE) == expected


def test_everything_is_certified_once_everything_is_scanned() -> None:
    unknown = np.array([[np.nan]])
    found = doubts(variance(0.0), fraction=1.0, rows_matched=np.array([1]), possible_influence=unknown)
    assert found[0, 0] == Doubt.NONE


def test_one_row_moves_count_by_the_scale_sum_by_its_value_and_average_by_its_distance() -> None:
    rows, average, scale = 20.0, 3.0, 50.0
    gradient = np.array([[[scale, 0.0], [0.0, scale], [-average / rows, 1 / rows]]])
    influence = largest_influence(gradient, np.array([1.0, -2.0]), np.array([1.0, 10.0]), TOGETHER)
    np.testing.assert_allclose(influence, [[50.0, 500.0, 7.0 / 20]])


def test_an_average_of_values_far_from_zero_moves_by_their_distance_alone() -> None:
    """Years from 1992 to 1998, on average 1995: one more moves the average of ten rows by 0.3 at most."""
    gradient = np.array([[[-1995.0 / 10, 1 / 10]]])
    ends = np.array([1.0, 1992.0]), np.array([1.0, 1998.0])
    np.testing.assert_allclose(largest_influence(gradient, *ends, TOGETHER), [[0.3]])
    apart = largest_influence(gradient, *ends, np.array([-1, -1]))
    assert apart[0, 0] > 100.0  # a sum and a count of other rows


def test_bounds_may_differ_by_group_and_be_unknown_in_columns_that_do_not_matter() -> None:
    gradient = np.array([[[2.0, 0.0]], [[2.0, 0.0]], [[2.0, 1.0]]])
    lowest = np.array([[-1.0, np.nan], [-7.0, -np.inf], [0.0, np.nan]])
    highest = np.array([[3.0, np.nan], [3.0, np.inf], [3.0, np.nan]])
    influence = largest_influence(gradient, lowest, highest, np.array([-1, -1]))
    np.testing.assert_allclose(influence, [[6.0], [14.0], [np.nan]])
