"""Checks of what a training job or run is given, and of what it needs to be installed."""

from __future__ import annotations

import math
from importlib.util import find_spec
from numbers import Integral, Real

from relaqs.arguments import ArgumentError
from relaqs.plugins import needed

_DISTRIBUTIONS = {"sklearn": "scikit-learn", "threadpoolctl": "threadpoolctl", "xgboost": "xgboost"}


def require(*packages: str) -> None:
    """Raise MissingPackageError if one of them cannot be imported. Nothing is imported here."""
    for package in packages:
        if find_spec(package) is None:
            name = _DISTRIBUTIONS.get(package, package)
            extra = "torch" if package == "torch" else "train"
            raise needed(name, "this training", extra)


def check_count(name: str, count: int, least: int = 1) -> int:
    """Return the whole number. Raises ArgumentError if it is below the least."""
    if not isinstance(count, Integral) or isinstance(count, bool) or count < least:
        raise ArgumentError(f"{name} is {count!r}; it must be a whole number from {least} on")
    return int(count)


def check_positive(name: str, value: float) -> float:
    """Return the number. Raises ArgumentError if it is not finite and above 0."""
    if not _is_finite(value) or not value > 0:
        raise ArgumentError(f"{name} is {value!r}; it must be a finite number above 0")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """Return the number. Raises ArgumentError if it is not finite and at least 0."""
    if not _is_finite(value) or not value >= 0:
        raise ArgumentError(f"{name} is {value!r}; it must be a finite number, 0 or above")
    return float(value)


def _is_finite(value: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
