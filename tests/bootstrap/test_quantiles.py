"""Fast quantiles agree with the slow ones, on both sides of where the series take over."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from relaqs_bootstrap.quantiles import gamma_lower, gamma_upper, student_quantile
from scipy.special import gammainccinv, gammaincinv, ndtri, stdtrit

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


@pytest.mark.parametrize("count", [2_000, 40_000])  # by scipy, and by a table of it
@pytest.mark.parametrize("tail", [(1 - c) / 2 for c in CONFIDENCES] + [1e-6, 1e-9])
def test_gamma(tail: float, count: int) -> None:
    shape = np.geomspace(0.01, 1e7, count)
    np.testing.assert_allclose(gamma_lower(shape, tail), gammaincinv(shape, tail), rtol=1e-5)
    np.testing.assert_allclose(gamma_upper(shape, tail), gammainccinv(shape, tail), rtol=1e-5)


def test_gamma_of_huge_shapes_stays_finite() -> None:
    shape = np.array([1e12, 1e100, 1e300])
    np.testing.assert_allclose(gamma_lower(shape, 0.025) / shape, 1.0, rtol=1e-5)
    np.testing.assert_allclose(gamma_upper(shape, 0.025) / shape, 1.0, rtol=1e-5)


def test_unknown_and_large_ones_load_no_scipy() -> None:
    """A quarter of a second of the first estimate: one unknown cell is in almost every answer of groups."""
    program = (
        "import sys, numpy as np\n"
        "from relaqs_bootstrap.quantiles import gamma_lower, gamma_upper, student_quantile\n"
        "unknown = np.array([np.nan, np.inf, 1e4])\n"
        "assert np.isnan(student_quantile(unknown, 0.975)[0])\n"
        "assert np.isnan(gamma_lower(unknown, 0.025)[0]) and np.isnan(gamma_upper(unknown, 0.025)[0])\n"
        "assert 'scipy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
