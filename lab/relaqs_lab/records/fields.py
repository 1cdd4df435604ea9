"""Reading single fields of a record: null is NaN, or infinity where that is what a number can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from relaqs_bootstrap.arrays import FloatArray


def number(content: Mapping[str, Any], name: str, missing: float = np.nan) -> float:
    """Return a number, `missing` for null. Raises KeyError or ValueError."""
    value = content[name]
    return missing if value is None else float(value)


def column(content: Mapping[str, Any], name: str, missing: float = np.nan) -> FloatArray:
    """Return a list of numbers, `missing` for null. Raises KeyError or ValueError."""
    return array(content[name], missing)


def array(values: Sequence[float | None], missing: float = np.nan) -> FloatArray:
    if not isinstance(values, list):
        raise ValueError(f"{values!r} is no list of numbers")
    return np.array([missing if value is None else value for value in values], dtype=np.float64)
