"""Histograms against counting, splits against trying them all, and rows that find their leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.training.algorithms.boosted_trees import (
    Growth,
    binned,
    cuts_of,
    grown,
    histograms,
    leaves_of,
    root,
)

GROWTH = Growth(learning_rate=1.0, ridge=1.0, least_hessian=0.5)
seeds = st.integers(0, 2**32 - 1)


def rows(seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    features = random.integers(0, 6, (count, 3)).astype(np.float64)
    return features, np.stack([random.normal(size=count), random.uniform(0.1, 1.0, count)], axis=1)


def gain(slopes: np.ndarray) -> float:
    total = slopes.sum(axis=0)
    return float(total[0] ** 2 / (total[1] + GROWTH.ridge))


@given(seeds)
def test_histograms_are_sums_by_node_feature_and_bin(seed: int) -> None:
    features, slopes = rows(seed)
    bins = binned(features, cuts_of(features, 256))
    node = np.random.default_rng(seed).integers(0, 4, len(bins))
    sums = histograms(bins, node, np.array([3, 1]), slopes, width=6)
    assert sums.shape == (2, 3, 6, 2)
    for place, number in enumerate([3, 1]):
        for feature in range(3):
            for bin_ in range(6):
                inside = (node == number) & (bins[:, feature] == bin_)
                assert sums[place, feature, bin_] == pytest.approx(slopes[inside].sum(axis=0))


@given(seeds)
def test_a_split_is_the_best_of_all(seed: int) -> None:
    features, slopes = rows(seed)
    cuts = cuts_of(features, 256)
    bins = binned(features, cuts)
    node = np.zeros(len(bins), dtype=np.int64)
    sums = histograms(bins, node, np.zeros(1, dtype=np.int64), slopes, cuts.width)
    tree, children = grown(root(), np.zeros(1, dtype=np.int64), sums, cuts.counts, GROWTH)
    best = 0.0
    for feature, cut in np.ndindex(3, int(cuts.counts.max())):
        left = bins[:, feature] <= cut
        if cut < cuts.counts[feature] and min(slopes[left, 1].sum(), slopes[~left, 1].sum()) >= 0.5:
            best = max(best, gain(slopes[left]) + gain(slopes[~left]) - gain(slopes))
    if best <= 1e-6:
        assert len(tree) == 1
        return
    assert tree["gain"][0] == pytest.approx(best)
    assert children.tolist() == [1, 2]
    leaves = leaves_of(tree, bins)
    for child in (1, 2):
        inside = slopes[leaves == child].sum(axis=0)
        assert tree["hessian"][child] == pytest.approx(inside[1])
        assert tree["value"][child] == pytest.approx(-inside[0] / (inside[1] + 1.0))


@given(seeds)
def test_a_row_below_a_cut_goes_left_of_it(seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(300, 2))
    cuts = cuts_of(features, 16)
    bins = binned(features, cuts)
    assert bins.max() < 16
    single = features.astype(np.float32)
    for feature in range(2):
        for cut, value in enumerate(cuts.of_feature[feature]):
            assert np.array_equal(bins[:, feature] <= cut, single[:, feature] < value)


def test_a_feature_of_few_values_is_cut_between_all_of_them() -> None:
    cuts = cuts_of(np.array([[3.0], [1.0], [2.0], [3.0]]), 256)
    assert cuts.of_feature[0].tolist() == [2.0, 3.0]
    assert binned(np.array([[0.0], [1.0], [2.5], [9.0]]), cuts)[:, 0].tolist() == [0, 0, 1, 2]


def test_a_constant_feature_is_not_cut() -> None:
    cuts = cuts_of(np.ones((5, 2)), 256)
    assert cuts.counts.tolist() == [0, 0]
    assert cuts.width == 1
