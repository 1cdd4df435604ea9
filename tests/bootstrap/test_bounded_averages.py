"""Averages of values between known ends: intervals that hold by proof, however few the values are."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.intervals import Level, bounded_average
from scipy.special import xlogy

LEVEL = Level.of(0.95, anytime=False, fraction=0.1)


def bounded(average: FloatArray, rows: int, ends: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    low, high = (np.full(len(average), end) for end in ends)
    return bounded_average(average, np.full(len(average), float(rows)), low, high, LEVEL)


def at_an_end(count: int) -> FloatArray:
    return np.where(np.arange(count) < 0.03 * count, 1.0, 0.0)


def at_both_ends(count: int) -> FloatArray:
    return np.where(np.arange(count) % 2 == 0, 1.0, 0.0)


def evenly(count: int) -> FloatArray:
    return np.linspace(0.0, 1.0, count)


def skewed(count: int) -> FloatArray:
    return np.linspace(0.0, 1.0, count) ** 6


@pytest.mark.parametrize("values", [at_an_end, at_both_ends, evenly, skewed])
@pytest.mark.parametrize("rows", [1, 2, 5, 9, 30, 90])
def test_averages_of_a_sample_without_replacement_are_covered(values: object, rows: int) -> None:
    """20,000 samples of 100 values on a line of other ends. Of 95 %, two standard errors are 0.3 points."""
    random, all_values = np.random.default_rng(1), 40.0 + 20.0 * values(100)  # type: ignore[operator]
    places = np.argsort(random.random((20_000, 100)), axis=1)[:, :rows]
    low, high = bounded(all_values[places].mean(axis=1), rows, (40.0, 60.0))
    truth = all_values.mean()
    assert np.mean((low <= truth) & (truth <= high)) >= 0.947
    assert (low >= 40.0).all()
    assert (high <= 60.0).all()


@pytest.mark.parametrize("rows", [1, 5, 50, 5_000])
def test_the_ends_are_those_of_chernoffs_bound_or_a_little_wider(rows: int) -> None:
    place, other = np.linspace(0.0, 1.0, 21), np.linspace(0.0, 1.0, 4_001)[1:-1]
    low, high = bounded(place, rows, (0.0, 1.0))
    for p, least, most in zip(place, low, high, strict=True):
        far = xlogy(p, p / other) + xlogy(1.0 - p, (1.0 - p) / (1.0 - other))
        inside = other[rows * far <= np.log(40.0)]
        assert not len(inside) or (least <= inside.min() and inside.max() <= most)
    usual = np.sqrt(np.log(40.0) / (2.0 * rows))  # Hoeffding's own
    assert (high - low <= 2.0 * min(usual, 0.5) + 1e-9).all()


def test_what_is_not_known_has_no_interval() -> None:
    unknown = bounded_average(
        np.array([np.nan, 5.0, 5.0, 5.0]),
        np.array([3.0, 3.0, 3.0, 0.0]),
        np.array([0.0, np.nan, 0.0, 0.0]),
        np.array([9.0, 9.0, np.nan, 9.0]),
        LEVEL,
    )
    assert not (np.isfinite(unknown[0]) & np.isfinite(unknown[1])).any()


def test_where_all_values_are_one_it_is_that_one() -> None:
    low, high = bounded(np.array([-60.0]), 1, (-60.0, -60.0))
    assert low.item() == high.item() == -60.0
