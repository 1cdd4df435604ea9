"""Fast quantiles agree with the slow ones, on both sides of where the series take over."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from relaqs_bootstrap.quantiles import (
    gamma_exceeded,
    gamma_lower,
    gamma_reached,
    gamma_upper,
    log_normal_below,
    misses_exceeded,
    student_exceeded,
    student_quantile,
)
from scipy import stats
from scipy.special import gammainccinv, gammaincinv, log_ndtr, nbdtrik, ndtri, stdtrit

CONFIDENCES = [0.5, 0.8, 0.95, 0.99, 0.9999, 1 - 1e-6, 1 - 1e-9]


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_student(confidence: float) -> None:
    probability = (1 + confidence) / 2
    freedom = np.concatenate([np.linspace(1, 100, 397), [1e3, 1e6, 1e12]])
    expected = stdtrit(freedom, probability)
    np.testing.assert_allclose(student_quantile(freedom, probability), expected, rtol=1.5e-6)


def test_student_with_infinite_freedom_is_normal_and_with_none_is_unknown() -> None:
    quantiles = student_quantile(np.array([np.inf, np.nan]), 0.975)
    assert quantiles[0] == pytest.approx(ndtri(0.975), rel=1e-14)
    assert np.isnan(quantiles[1])


@pytest.mark.parametrize("tail", [0.45, *((1 - c) / 2 for c in CONFIDENCES), 1e-6])
def test_those_of_small_shapes_are_those_of_scipy(tail: float) -> None:
    """Its stdtrit is right to 2e-10 alone, so t is compared with stats.t, which is another program."""
    freedom, shape = np.geomspace(0.1, 400, 3_000), np.geomspace(0.05, 1_000, 3_000)
    np.testing.assert_allclose(student_exceeded(freedom, tail), stats.t.isf(tail, freedom), rtol=1e-12)
    np.testing.assert_allclose(gamma_reached(shape, tail), gammaincinv(shape, tail), rtol=1e-12)
    np.testing.assert_allclose(gamma_exceeded(shape, tail), gammainccinv(shape, tail), rtol=1e-12)


def test_a_shape_of_nothing_reaches_nothing() -> None:
    assert (
        gamma_reached(np.array([0.0]), 0.025).tolist()
        == gamma_exceeded(np.array([0.0]), 0.025).tolist()
        == [0]
    )


def test_log_normal_is_that_of_scipy() -> None:
    deviates = np.linspace(-100, 30, 30_001)
    np.testing.assert_allclose(log_normal_below(deviates), log_ndtr(deviates), rtol=1e-12)


@pytest.mark.parametrize("chance", [1e-3, 0.01, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("tail", [0.25, 0.025, 1e-3, 1e-6])
def test_misses_are_those_of_scipy(chance: float, tail: float) -> None:
    """Of a million hits logarithms of factorials have ten digits less, on both sides."""
    for hits in (1, 2, 3, 5, 10, 30, 100, 1_000, 30_000):
        found, expected = misses_exceeded(hits, chance, tail), nbdtrik(1 - tail, hits, chance)
        assert found == pytest.approx(expected, rel=1e-9) or expected <= 0 > found
    assert misses_exceeded(10**6, chance, tail) == pytest.approx(nbdtrik(1 - tail, 10**6, chance), rel=1e-7)


@pytest.mark.parametrize("count", [2_000, 40_000])
@pytest.mark.parametrize("tail", [(1 - c) / 2 for c in CONFIDENCES] + [1e-6, 1e-9])
def test_gamma(tail: float, count: int) -> None:
    shape = np.geomspace(0.01, 1e7, count)
    np.testing.assert_allclose(gamma_lower(shape, tail), gammaincinv(shape, tail), rtol=1e-5)
    np.testing.assert_allclose(gamma_upper(shape, tail), gammainccinv(shape, tail), rtol=1e-5)


def test_gamma_of_huge_shapes_stays_finite() -> None:
    shape = np.array([1e12, 1e100, 1e300])
    np.testing.assert_allclose(gamma_lower(shape, 0.025) / shape, 1.0, rtol=1e-5)
    np.testing.assert_allclose(gamma_upper(shape, 0.025) / shape, 1.0, rtol=1e-5)


def test_none_loads_scipy() -> None:
    """A quarter of a second of the first estimate, and 140 MB."""
    program = (
        "import sys, numpy as np\n"
        "from relaqs_bootstrap.quantiles import gamma_lower, gamma_upper, student_quantile\n"
        "unknown = np.array([np.nan, np.inf, 1e4, 2.0])\n"
        "assert np.isnan(student_quantile(unknown, 0.975)[0])\n"
        "assert np.isnan(gamma_lower(unknown, 0.025)[0]) and np.isnan(gamma_upper(unknown, 0.025)[0])\n"
        "assert 'scipy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
