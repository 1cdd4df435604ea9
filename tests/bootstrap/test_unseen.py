"""The number of groups not met yet."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap import most_unseen_groups, unseen_groups
from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.certify import enough_to_be_met


@pytest.mark.parametrize(
    ("singletons", "doubletons", "rows", "fraction", "expected"),
    [
        (0, 5, 100, 0.1, 0.0),
        (12, 5, 100, 1.0, 0.0),
        (9, 0, 100, 0.1, 81.0),  # only the sampled share speaks: f₁·(1−q)/q
        (10, 4, 101, 0.5, 100 / (8 * 1.01 + 10)),
    ],
)
def test_table(singletons: int, doubletons: int, rows: int, fraction: float, expected: float) -> None:
    assert unseen_groups(singletons, doubletons, rows, fraction) == pytest.approx(expected)


def test_it_is_near_the_truth_for_groups_of_equal_size_and_below_it_otherwise() -> None:
    rng = np.random.default_rng(5)
    for sizes, low, high in ((np.full(2000, 8), 0.95, 1.05), (rng.zipf(2.0, 2000).clip(1, 500), 0.4, 1.0)):
        group = np.repeat(np.arange(2000), sizes)
        ratios = []
        for _ in range(30):
            seen = rng.choice(group, len(group) // 5, replace=False)
            counts = np.bincount(np.bincount(seen, minlength=2000), minlength=3)
            ratios.append(unseen_groups(int(counts[1]), int(counts[2]), len(seen), 0.2) / counts[0])
        assert low < np.mean(ratios) < high


@pytest.mark.parametrize(("singletons", "doubletons", "rows"), [(-1, 0, 10), (0, -1, 10), (3, 4, 10)])
def test_impossible_counts_are_refused(singletons: int, doubletons: int, rows: int) -> None:
    with pytest.raises(ValueError, match=f"do not fit into {rows} rows"):
        unseen_groups(singletons, doubletons, rows, 0.1)


@pytest.mark.parametrize("sizes", [np.full(300, 1), np.full(300, 9), np.arange(300) // 20 + 1])
def test_more_groups_are_seldom_missed_than_is_said(sizes: FloatArray) -> None:
    """Groups of one row are the worst case. There the bound is met: more are missed in 2.5 % of the draws."""
    rng = np.random.default_rng(3)
    seen = rng.binomial(sizes, 0.125, (4_000, len(sizes)))
    most = most_unseen_groups((seen == 1).sum(axis=1), 0.125, 0.025)
    assert ((seen == 0).sum(axis=1) > most).mean() <= 0.025 + 3 * np.sqrt(0.025 / 4_000)


@pytest.mark.parametrize("fraction", [0.01, 0.12, 0.6])
def test_a_group_as_large_as_the_smallest_is_missed_as_seldom_as_is_said(fraction: float) -> None:
    """A hundred of 10,000 draws miss it, and 32 more are 3.2 standard deviations. Units come as wholes."""
    units = round(enough_to_be_met(fraction, 0.01) / fraction)
    missed = int((np.random.default_rng(2).binomial(units, fraction, 10_000) == 0).sum())
    assert missed <= 10_000 * (1.0 - fraction) ** (units - 0.5) + 3.2 * 10
    assert enough_to_be_met(1.0, 0.01) == 0.0
