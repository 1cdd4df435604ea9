"""Totals of groups with a few rows: certified by the most that a row may add, and covered."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.intervals import Intervals, Level, bounded_interval, confidence_intervals
from relaqs_bootstrap.variance import Variance
from scipy.special import gammaincinv

LEVEL = Level.of(0.95, anytime=False, fraction=0.125)


def total_of_three_rows(estimate: float = 24.0, **changes: object) -> Intervals:
    """Return the interval of a COUNT of 3 rows in an eighth of a table. A block of it varies as one row."""
    arguments: dict[str, object] = {
        "fraction": 0.125,
        "confidence": 0.95,
        "anytime": False,
        "rows_matched": np.array([3]),
        "nonnegative_total": np.array([True]),
        "observed_total": np.array([[3.0]]),
        "unit_ceiling": np.array([1.0]),
        "possible_influence": np.array([[8.0]]),
        "largest_unit": np.array([[8.0]]),
    }
    variance = Variance(np.array([[3 * 8.0**2 * 0.875]]), np.array([[5.0]]))
    return confidence_intervals(np.array([[estimate]]), variance, **(arguments | changes))  # type: ignore[arg-type]


def test_a_count_of_three_rows_has_the_exact_poisson_interval() -> None:
    found = total_of_three_rows()
    assert found.certified.all()
    assert found.low.item() == pytest.approx(8 * gammaincinv(3, 0.025), rel=1e-6)
    assert found.high.item() == pytest.approx(8 * gammaincinv(4, 0.975), rel=1e-6)


def test_what_is_known_beside_the_sample_is_added_to_both_ends() -> None:
    known, alone = np.array([[100.0]]), total_of_three_rows()
    found = total_of_three_rows(124.0, known_total=known, observed_total=np.array([[103.0]]))
    assert found.certified.all()
    assert found.low.item() == pytest.approx(100 + alone.low.item())
    assert found.high.item() == pytest.approx(100 + alone.high.item())


@pytest.mark.parametrize(
    "changes",
    [
        {"largest_unit": None},
        {"largest_unit": np.array([[np.nan]])},
        {"largest_unit": np.array([[28.0]])},  # two standard errors are 27.7
        {"nonnegative_total": np.array([False])},
        {"observed_total": np.array([[0.0]])},
        {"rows_matched": np.array([0])},
    ],
)
def test_a_total_of_few_rows_needs_a_bound_and_a_row(changes: dict[str, object]) -> None:
    assert not total_of_three_rows(**changes).certified.any()


def equal(shape: tuple[int, ...]) -> FloatArray:
    return np.ones(shape)


def uniform(shape: tuple[int, ...]) -> FloatArray:
    return np.random.default_rng(1).random(shape)


def skewed(shape: tuple[int, ...]) -> FloatArray:
    return np.minimum(np.random.default_rng(2).lognormal(-2.0, 1.0, shape), 1.0)


@pytest.mark.parametrize("values", [equal, uniform, skewed])
@pytest.mark.parametrize("rows", [2, 8, 32, 128])
def test_groups_of_any_size_are_covered_once_they_are_seen(values: object, rows: int) -> None:
    """20,000 samples of a group each. At 95 %, two standard errors are 0.3 points for 20,000 certified cells.

    Of skewed values in small groups few are certified, 300 of 2 rows, so that 2.5 points are two errors.
    """
    fraction = 0.125
    population = values((200, rows))  # type: ignore[operator]
    seen = np.random.default_rng(3).random((100, 200, rows)) < fraction
    observed, squares = (seen * population).sum(axis=2), (seen * population**2).sum(axis=2)
    low, high = bounded_interval(
        observed / fraction,
        squares / fraction**2,
        np.full(observed.shape, 1.0 / fraction),
        observed,
        seen.sum(axis=2),
        LEVEL,
    )
    certified, truth = np.isfinite(high), population.sum(axis=1)
    covered = (low <= truth + 1e-9) & (truth <= high + 1e-9)
    assert certified.sum() > 100
    assert covered[certified].mean() >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / certified.sum())
