"""The values between whose ranks a quantile is said to lie hold it, however the values are spread."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from relaqs_bootstrap import Variance, quantile_ranks, share_variance_of_blocks, share_variance_of_rows

Floats = NDArray[np.float64]

SEEDS = 400
ROWS = 8_000
BLOCKS = 64

COLUMNS = {
    "lognormal": np.random.default_rng(0).lognormal(size=ROWS),
    "seven values": np.random.default_rng(1).integers(0, 7, ROWS).astype(float),
    "two values, half of each": np.repeat([0.0, 1.0], ROWS // 2),
}


def held(samples: list[tuple[Floats, Variance]], truth: float, share: float, fraction: float) -> list[bool]:
    """Return whether the truth lies between the two values, of each sample that is certified."""
    found = []
    for values, variance in samples:
        count = np.array([len(values)])
        low, high, certified = quantile_ranks(
            count, share, variance, fraction=fraction, confidence=0.95, anytime=False
        )
        ranked = np.sort(values)
        if certified[0]:
            found.append(bool(ranked[low[0] - 1] <= truth <= ranked[high[0] - 1]))
    return found


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", COLUMNS)
def test_sampled_rows(name: str, share: float, fraction: float) -> None:
    """Ranks are rounded outward, so at least 95 %, less 2.6 standard errors of 400 samples: 92.2 %."""
    table, rng = COLUMNS[name], np.random.default_rng(7)
    samples = []
    for _ in range(SEEDS):
        drawn = rng.choice(table, round(fraction * ROWS), replace=False)
        samples.append((drawn, share_variance_of_rows(np.array([len(drawn)]), share, fraction)))
    found = held(samples, float(np.quantile(table, share)), share, fraction)
    assert len(found) >= 0.9 * SEEDS
    assert np.mean(found) >= 0.922


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("ties", [False, True])
def test_sampled_clusters(share: float, ties: bool) -> None:
    """Ten like rows a cluster: by rows the interval would hold in three of four samples, by blocks it does.

    The blocks' variance has about 60 degrees of freedom at the best: 95 % less 2.6 standard errors, and one
    percent for what a linear approximation leaves out.
    """
    rng = np.random.default_rng(3)
    centre = rng.normal(size=ROWS // 10)
    table = (centre[:, None] + 0.3 * rng.normal(size=(ROWS // 10, 10))) * (2 if ties else 1)
    table = np.round(table) if ties else table
    fraction, samples = 0.4, []
    for _ in range(SEEDS):
        drawn = rng.permutation(len(table))[: round(fraction * len(table))]
        block = rng.integers(0, BLOCKS, len(drawn))
        samples.append((table[drawn].ravel(), of_blocks(table[drawn], block, share, fraction)))
    found = held(samples, float(np.quantile(table, share)), share, fraction)
    assert len(found) >= 0.9 * SEEDS
    assert np.mean(found) >= 0.912


def of_blocks(clusters: Floats, block: NDArray[np.int64], share: float, fraction: float) -> Variance:
    quantile = np.quantile(clusters, share)
    columns = ((clusters < quantile).sum(axis=1), (clusters <= quantile).sum(axis=1), np.full(len(block), 10))
    below, up_to, counts = (np.bincount(block, each, BLOCKS).astype(np.int64) for each in columns)
    pairs = np.flatnonzero(counts)
    group = np.zeros(len(pairs), dtype=np.int64)
    return share_variance_of_blocks(
        below[pairs], up_to[pairs], counts[pairs], group, pairs, counts, 1, fraction
    )


def test_the_ends_of_the_sample_bound_nothing_beyond() -> None:
    """Of the largest value only "at least" is known, of the smallest "at most"; without values nothing."""
    counts = np.array([50, 0])
    for share, ranks in ((1.0, (50, 0)), (0.0, (0, 1))):
        variance = share_variance_of_rows(counts, share, 0.5)
        low, high, certified = quantile_ranks(
            counts, share, variance, fraction=0.5, confidence=0.95, anytime=False
        )
        assert (low[0], high[0]) == ranks
        assert (low[1], high[1]) == (0, 0)
        assert not certified.any()
