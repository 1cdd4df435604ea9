"""The chi-square tests against scipy's exact distribution, and on counts that are not random."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_engine.layouts.verification import evenness, independence
from scipy import stats


@pytest.mark.parametrize("cells", [4, 10, 100, 2_000])
@pytest.mark.parametrize("seed", range(3))
def test_deviation_is_the_normal_quantile_of_the_exact_p_value(cells: int, seed: int) -> None:
    counts = np.random.default_rng(seed).multinomial(cells * 50, np.full(cells, 1 / cells))
    test = evenness(counts)
    assert test is not None
    chi_square, p_value = stats.chisquare(counts)
    assert test.chi_square == pytest.approx(chi_square)
    # Wilson and Hilferty's approximation is off by under 0.05 deviations from three degrees of freedom on.
    assert test.deviation == pytest.approx(stats.norm.isf(p_value), abs=0.05)


def test_independence_has_the_chi_square_of_the_contingency_table() -> None:
    table = np.random.default_rng(5).poisson(40.0, size=(30, 8))
    test = independence(table)
    expected = stats.chi2_contingency(table)
    assert test is not None
    assert test.chi_square == pytest.approx(expected.statistic)
    assert test.degrees == expected.dof
    assert test.is_plausible


def test_uneven_and_too_even_counts_are_implausible() -> None:
    uneven, too_even = evenness(np.array([1000, 1000, 1000, 1300])), evenness(np.full(100, 1000))
    assert uneven is not None
    assert too_even is not None
    assert not uneven.is_plausible
    assert not too_even.is_plausible


def test_blocks_that_follow_from_the_partition_are_implausible() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**62, 200_000)
    table = np.zeros((100, 64), dtype=np.int64)
    np.add.at(table, (hashes % 100, hashes % 64), 1)  # the classic trap: both share a factor of four
    dependent = independence(table)
    assert dependent is not None
    assert not dependent.is_plausible


def test_sparse_tables_are_tested_with_neighbours_taken_together() -> None:
    table = np.random.default_rng(2).poisson(0.5, size=(100, 64))
    test = independence(table)
    assert test is not None
    assert test.degrees == 63 * (int(table.sum() / 320) - 1)
    assert test.is_plausible


def test_too_few_units_tell_nothing() -> None:
    assert evenness(np.array([1, 0, 2, 1])) is None
    assert independence(np.ones((2, 64), dtype=np.int64)) is None
