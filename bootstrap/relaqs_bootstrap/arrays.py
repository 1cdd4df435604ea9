"""The array types of this package, and numbers that look random and follow from whole numbers alone.

They are the same on every machine. Source: Steele, Lea, Flood 2014, SplitMix64.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15  # the golden ratio as a fraction of 2⁶⁴
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a number that looks random for each word, elementwise.

    >>> mixed(np.array([STEP], dtype=np.uint64)).tolist() == [mixed_word(STEP)]
    True
    """
    for shift, factor in _ROUNDS:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(_LAST_SHIFT))


def mixed_word(word: int) -> int:
    """Return what `mixed` gives for one word, from 0 to below 2⁶⁴.

    The first number of the generator of the paper with seed 0:

    >>> hex(mixed_word(STEP))
    '0xe220a8397b1dcdaf'
    """
    for shift, factor in _ROUNDS:
        word = (word ^ (word >> shift)) * factor & MASK
    return word ^ (word >> _LAST_SHIFT)
