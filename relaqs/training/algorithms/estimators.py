"""Fitted estimators from numbers, by scikit-learn's public attributes and nothing of its inside."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

ScikitEstimator = TypeVar("ScikitEstimator")


def fitted(estimator: ScikitEstimator, names: tuple[str, ...], **attributes: Any) -> ScikitEstimator:
    """Return the estimator with the attributes that fitting would have given it, each documented there.

    names: of the features, in order. scikit-learn compares them with those of a data frame it predicts for.
    """
    for name, value in attributes.items():
        setattr(estimator, name, value)
    estimator.n_features_in_ = len(names)  # type: ignore[attr-defined]
    estimator.feature_names_in_ = np.array(names, dtype=object)  # type: ignore[attr-defined]
    return estimator
