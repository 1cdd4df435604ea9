"""The profile: numpy's moments, whatever the partitions, and a sample of all of them."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_engine.errors import DataError

from relaqs.training.rows import MOST_CLASSES, MOST_CROSSED, Profile, Rows, profile_of

RANDOM = np.random.default_rng(5)
FEATURES = RANDOM.normal(1e3, [0.1, 50.0], (40, 2))
TARGET = RANDOM.integers(0, 4, 40)


def profile(part: slice, target: np.ndarray = TARGET) -> Profile:
    return profile_of(Rows(FEATURES[part], target[part]), ("a", "b"), 100, seed=0)


@given(st.lists(st.integers(0, 40), max_size=5))
def test_any_split_of_the_rows_gives_the_same_profile(cuts: list[int]) -> None:
    edges = sorted([0, *cuts, 40])
    parts = [profile(slice(a, b)) for a, b in pairwise(edges)]
    merged = reduce(Profile.merged, parts)
    assert merged.row_count == 40
    assert merged.mean == pytest.approx(FEATURES.mean(axis=0))
    assert merged.covariance == pytest.approx(np.cov(FEATURES.T, bias=True))
    assert merged.variance == pytest.approx(FEATURES.var(axis=0))
    assert merged.target_mean == pytest.approx(TARGET.mean())
    assert merged.target_spread == pytest.approx(40 * TARGET.var())
    assert merged.classes is not None
    assert merged.class_rows is not None
    assert merged.classes.tolist() == [0, 1, 2, 3]
    assert merged.class_rows.tolist() == np.bincount(TARGET).tolist()
    assert sorted(merged.sample[:, 0]) == sorted(FEATURES[:, 0])


def test_many_features_are_not_crossed() -> None:
    wide = RANDOM.normal(size=(30, MOST_CROSSED + 1))
    names = tuple(map(str, range(MOST_CROSSED + 1)))
    parts = [profile_of(Rows(part, None), names, 0, seed=0) for part in np.array_split(wide, 3)]
    merged = reduce(Profile.merged, parts)
    assert merged.covariance == pytest.approx(wide.var(axis=0))
    assert merged.variance == pytest.approx(wide.var(axis=0))


def test_text_has_classes_and_no_moments() -> None:
    words = np.array(["b", "a"])[TARGET % 2]
    merged = profile(slice(0, 20), words).merged(profile(slice(20, 40), words))
    assert merged.classes is not None
    assert merged.classes.tolist() == ["a", "b"]
    assert np.isnan(merged.target_mean)


def test_an_empty_partition_does_not_change_the_type_of_the_classes() -> None:
    empty = profile_of(Rows(np.empty((0, 2)), np.empty(0)), ("a", "b"), 100, seed=0)
    for merged in (empty.merged(profile(slice(40))), profile(slice(40)).merged(empty)):
        assert merged.classes is not None
        assert merged.classes.dtype == np.int64


def test_a_quantity_has_no_classes() -> None:
    halves = np.arange(MOST_CLASSES + 1).astype(np.float64)
    parts = [profile_of(Rows(part[:, None], part), ("a",), 0, seed=0) for part in np.array_split(halves, 2)]
    assert parts[0].classes is not None
    assert parts[0].merged(parts[1]).classes is None
    assert profile_of(Rows(halves[:, None], halves), ("a",), 0, seed=0).classes is None


def test_a_sample_is_drawn_from_the_whole_partition() -> None:
    rows = Rows(np.arange(1000.0)[:, None], None)
    sample = profile_of(rows, ("a",), 100, seed=1).sample[:, 0]
    assert len(set(sample)) == 100
    assert 400 < sample.mean() < 600  # 500 ± 3.5 standard errors of 28


@pytest.mark.parametrize("features", [2, MOST_CROSSED + 1])
def test_a_variance_that_no_float_holds_is_said_by_name(features: int) -> None:
    """Its root would be taken for the scale, and the feature for one that says nothing: a weight of 0."""
    values = RANDOM.normal(size=(40, features)) * np.where(np.arange(features) == 1, 1e200, 1.0)
    names = tuple(f"x{i}" for i in range(features))
    halves = [profile_of(Rows(values[part], None), names, 10, seed=0) for part in (slice(20), slice(20, 40))]
    merged = halves[0].merged(halves[1])
    for moment in ("variance", "covariance"):
        with pytest.raises(DataError, match=r"the variance of 'x1' is beyond 1.8e308.* scale the column"):
            getattr(merged, moment)


def test_a_target_whose_spread_no_float_holds_has_a_mean_all_the_same() -> None:
    merged = profile(slice(20), TARGET * 1e200).merged(profile(slice(20, 40), TARGET * 1e200))
    assert merged.target_mean == pytest.approx(TARGET.mean() * 1e200)
    assert merged.target_spread == np.inf
