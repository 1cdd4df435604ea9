"""Each family finds its own curves again, for all jobs at once, and no observations break it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relaqs.prediction import FAMILIES, INVERSE_SQUARE, WINDOW, Family, Series, fit_curves, spacing

STEPS = np.arange(1.0, WINDOW + 1)
AHEAD = WINDOW + np.array([1.0, 5.0, 10.0])

OWN_CURVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "inverse square": lambda i: 1 / (0.02 * i**2 + 1.5),
    "result delta": lambda i: 0.7 / np.sqrt(np.maximum(i, 2) * (np.maximum(i, 2) - 1)),
    "standard error": lambda i: 0.3 * np.sqrt(100 / i - 1),
    "last value": lambda i: np.full(i.shape, 2.5),
    "sublinear": lambda k: 1 / (0.01 * k**2 + 0.2 * k + 0.4) + 3.0,
    "geometric": lambda k: 5.0 * 0.9**k + 7.0,
    "harmonic": lambda k: 4.0 / k + 1.0,
}

everyone = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def position_of(family: Family, step: np.ndarray) -> np.ndarray:
    """Standard errors are a function of the scanned fraction, moves of the spacing, all else of the step."""
    if family.name == "result delta":
        return 1 / np.sqrt(np.maximum(step, 2) * (np.maximum(step, 2) - 1))
    return step / 100 if family.name == "standard error" else step


def one_job(family: Family, steps: np.ndarray, values: np.ndarray) -> Series:
    return Series.of(position_of(family, steps)[None, :], values[None, :])


@everyone
def test_a_family_finds_its_own_curve(family: Family) -> None:
    curve = OWN_CURVES[family.name]
    fitted = fit_curves(family, one_job(family, STEPS, curve(STEPS)), through_newest=False)
    ahead = fitted.at(position_of(family, AHEAD)[None, :])[0]
    fall = curve(STEPS).max() - curve(AHEAD).min() or 1.0
    assert ahead == pytest.approx(curve(AHEAD), abs=2e-3 * fall)


@everyone
def test_a_curve_passes_through_the_newest_observation(family: Family) -> None:
    noise = np.random.default_rng(3).uniform(0.9, 1.1, WINDOW)
    values = OWN_CURVES[family.name](STEPS) * noise
    fitted = fit_curves(family, one_job(family, STEPS, values))
    assert fitted.at(position_of(family, STEPS[None, -1:]))[0, 0] == pytest.approx(values[-1])


@everyone
def test_the_unit_of_a_value_does_not_matter(family: Family) -> None:
    values = OWN_CURVES[family.name](STEPS)
    ahead = position_of(family, AHEAD)[None, :]
    plain = fit_curves(family, one_job(family, STEPS, values)).at(ahead)
    for unit in (1e-6, 1e9):
        scaled = fit_curves(family, one_job(family, STEPS, unit * values)).at(ahead)
        assert scaled == pytest.approx(unit * plain, rel=1e-4)


observations = hnp.arrays(
    np.float64, (3, 8), elements=st.one_of(st.floats(-1e6, 1e6), st.sampled_from([np.nan, np.inf, 0.0]))
)


@everyone
@given(values=observations)
@settings(max_examples=60)
def test_any_observations_give_a_finite_curve_that_does_not_rise(family: Family, values: np.ndarray) -> None:
    steps = np.tile(position_of(family, np.arange(1.0, 9.0)), (3, 1))
    fitted = fit_curves(family, Series.of(steps, np.abs(values)))
    ahead = fitted.at(np.tile(position_of(family, np.array([8.0, 8.5, 9.0, 10.0])), (3, 1)))
    assert np.isfinite(ahead).all()
    rounding = 1e-9 * np.nanmax(np.where(np.isfinite(values), np.abs(values), 0.0), axis=1, keepdims=True)
    assert (np.diff(ahead, axis=1) <= rounding + 1e-9).all()


@everyone
def test_a_job_is_fitted_as_if_it_were_alone(family: Family) -> None:
    random = np.random.default_rng(5)
    values = 1 / STEPS * random.uniform(0.5, 2.0, (20, WINDOW))
    values[::3, :10] = np.nan  # young jobs beside old ones
    steps = np.where(np.isnan(values), np.nan, position_of(family, STEPS))
    ahead = np.tile(position_of(family, AHEAD), (20, 1))
    together = fit_curves(family, Series.of(steps, values)).at(ahead)
    alone = [
        fit_curves(family, Series.of(steps[j : j + 1], values[j : j + 1])).at(ahead[:1])[0] for j in range(20)
    ]
    assert together == pytest.approx(np.array(alone), rel=1e-6)


@pytest.mark.parametrize(("a", "b"), [(0.02, 1.5), (0.0, 2.0), (3.0, 1e-9)], ids=["falling", "flat", "steep"])
@pytest.mark.parametrize("n", [1, 3, 40])
def test_the_sum_of_steps_is_the_sum_of_the_curve(a: float, b: float, n: int) -> None:
    parameters = np.array([[a, b, 0, 0, 0]])
    start, step = 5.0, 0.5
    expected = INVERSE_SQUARE.at(parameters, start + step * np.arange(1.0, n + 1)[None, :]).sum()
    total = INVERSE_SQUARE.sum_of_steps(
        parameters, np.array([start]), np.array([step]), np.array([[float(n)]])
    )
    assert total[0, 0] == pytest.approx(expected, rel=0.01)


def test_the_sum_of_no_steps_is_nothing_and_grows_with_each_part_of_one() -> None:
    parameters = np.array([[0.02, 1.5, 0, 0, 0]])
    steps = np.linspace(0, 4, 17)[None, :]
    sums = INVERSE_SQUARE.sum_of_steps(parameters, np.array([5.0]), np.array([1.0]), steps)[0]
    assert sums[0] == 0
    assert (np.diff(sums) > 0).all()
    assert (np.diff(sums, 2) < 0).all()


def test_moves_fall_with_the_rows_between_results() -> None:
    """Equal mini-batches give 1/√(i·(i−1)); those that grow, what samples without replacement do."""
    i = np.arange(1.0, 11.0)
    equal = spacing(i / 10)
    assert np.isnan(equal[0])
    assert equal[1:] == pytest.approx(np.sqrt(10 / (i[1:] * (i[1:] - 1))))
    random = np.random.default_rng(1)
    fraction = np.array([0.02, 0.05, 0.2, 0.5, 1.0])
    values = np.array([random.permutation(np.arange(100.0)) for _ in range(4_000)])
    means = values.cumsum(axis=1)[:, (100 * fraction).astype(int) - 1] / (100 * fraction)
    # A standard deviation of 4,000 draws is within 4/√8000 = 4.5 % of its expectation.
    assert np.diff(means).std(axis=0) == pytest.approx(
        spacing(fraction)[1:] * np.arange(100.0).std(ddof=1) / 10, rel=0.045
    )
