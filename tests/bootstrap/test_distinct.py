"""The interval of a number of distinct values holds it, whatever the column's shape."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from relaqs_bootstrap import distinct_interval

FRACTIONS = (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.9)
SEEDS = 200

Counts = NDArray[np.int64]


def zipf(exponent: float) -> Counts:
    shares = 1.0 / np.arange(1, 20_001) ** exponent
    return np.random.default_rng(1).multinomial(100_000, shares / shares.sum())


# Rows of each value of a column.
COLUMNS = {
    "uniform": np.random.default_rng(0).multinomial(100_000, np.full(10_000, 1e-4)),
    "zipf 1.1": zipf(1.1),
    "zipf 2": zipf(2.0),
    "all once": np.ones(20_000, dtype=np.int64),
    "few": np.full(7, 10_000),
    "ten often, many once": np.append(np.full(10, 5_000), np.ones(2_000, dtype=np.int64)),
    "a single value": np.array([1]),
}


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_the_truth_lies_inside_for_95_of_100_samples(name: str, fraction: float) -> None:
    counts = COLUMNS[name][COLUMNS[name] > 0]
    drawn = np.random.default_rng(7).binomial(counts, fraction, (SEEDS, len(counts)))
    seen, once = (drawn > 0).sum(axis=1).astype(float), (drawn == 1).sum(axis=1).astype(float)
    low, high = distinct_interval(seen, once, fraction, 0.95)
    assert (low == seen).all()
    assert np.mean((low <= len(counts)) & (len(counts) <= high)) >= 0.95


def test_it_closes_at_the_end_and_is_wider_for_more_confidence() -> None:
    seen, once = np.array([40.0]), np.array([9.0])
    assert distinct_interval(seen, once, 1.0, 0.95) == (seen, seen)
    _, high = distinct_interval(seen, once, 0.3, 0.95)
    _, higher = distinct_interval(seen, once, 0.3, 0.99)
    assert 40.0 < high[0] < higher[0]
