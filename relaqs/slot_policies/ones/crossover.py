"""Uniform crossover: on each slot, the genes of two parents go to two children in random order."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray


def crossed(one: IntArray, other: IntArray, first_to_first: BoolArray) -> IntArray:
    """Return the children of pairs of parents, shape (2K, G). All arguments have shape (K, G).

    >>> crossed(np.array([[0, 0]]), np.array([[1, 2]]), np.array([[True, False]])).tolist()
    [[0, 2], [1, 0]]
    """
    return np.concatenate([np.where(first_to_first, one, other), np.where(first_to_first, other, one)])
