"""Bins: features as small whole numbers, so that sums by value are sums by index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.training.algorithms.trees import Bins


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where each feature is cut, rising, in single precision as XGBoost compares. Bin b lies below cut b."""

    of_feature: tuple[FloatArray, ...]

    @property
    def counts(self) -> IntArray:
        return np.array([len(cuts) for cuts in self.of_feature], dtype=np.int64)

    @property
    def width(self) -> int:
        """How many bins the feature with most of them has."""
        return int(self.counts.max()) + 1


def cuts_of(sample: FloatArray, bins: int) -> Cuts:
    """Return cuts into at most so many bins: between all values of the sample, or at its quantiles."""
    return Cuts(tuple(_cuts(column, bins) for column in sample.astype(np.float32).T))


def _cuts(values: FloatArray, bins: int) -> FloatArray:
    distinct = np.unique(values)
    if len(distinct) > bins:
        ranks = np.arange(1, bins) / bins
        distinct = np.unique([distinct[0], *np.quantile(values, ranks, method="higher")])
    return distinct[1:].astype(np.float32)


def binned(features: FloatArray, cuts: Cuts) -> Bins:
    """Return each value's bin, shape (rows, features)."""
    result = np.empty(features.shape, dtype=np.uint8 if cuts.width <= 256 else np.uint16)
    for feature, column in enumerate(features.astype(np.float32).T):
        result[:, feature] = np.searchsorted(cuts.of_feature[feature], column, side="right")
    return result
