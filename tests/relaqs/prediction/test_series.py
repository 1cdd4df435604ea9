"""Observations padded with NaN become finite arrays with weights that fall by 0.8 an observation."""

from __future__ import annotations

import numpy as np
import pytest

from relaqs.prediction import Series

X = np.nan


def test_the_newest_weighs_most_and_padding_nothing() -> None:
    series = Series.of(np.array([[X, 1.0, 2.0, 3.0]]), np.array([[X, 9.0, 8.0, 7.0]]))
    assert series.weight.tolist() == [[0.0, pytest.approx(0.64), 0.8, 1.0]]
    assert series.counts.tolist() == [3]


def test_what_is_not_finite_is_left_out_and_costs_no_weight() -> None:
    series = Series.of(np.array([[1.0, 2.0, 3.0]]), np.array([[9.0, np.inf, 7.0]]))
    assert series.weight.tolist() == [[0.8, 0.0, 1.0]]
    assert np.isfinite(series.y).all()


def test_the_newest_observation_may_be_followed_by_unknown_ones() -> None:
    series = Series.of(np.array([[1.0, 2.0, 3.0]]), np.array([[9.0, 8.0, np.inf]]))
    assert [each.tolist() for each in series.newest] == [[2.0], [8.0]]


def test_a_job_without_observations() -> None:
    series = Series.of(np.full((1, 3), X), np.full((1, 3), X))
    assert series.counts.tolist() == [0]
    assert [each.tolist() for each in series.newest] == [[0.0], [0.0]]


def test_the_series_as_it_was_before() -> None:
    series = Series.of(np.array([[1.0, 2.0, 3.0]] * 2), np.array([[9.0, 8.0, 7.0]] * 2))
    before = series.before(np.array([1, 2]))
    assert before.counts.tolist() == [2, 1]
    assert before.newest[1].tolist() == [8.0, 9.0]


def test_some_of_the_jobs() -> None:
    series = Series.of(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]]))
    assert series.of_jobs(np.array([1])).y.tolist() == [[7.0, 8.0]]
    assert series.of_jobs(np.array([True, False])).y.tolist() == [[5.0, 6.0]]
