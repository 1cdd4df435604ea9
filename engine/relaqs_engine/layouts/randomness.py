"""Whether counts look as equal chances make them: chi-square tests on where sampling units fell.

This is pure arithmetic on counts. Deviations are by Wilson and Hilferty's cube-root normal approximation
(1931). From three degrees of freedom on it is close enough to tell a broken hash from luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

_FEWEST_EXPECTED = 5.0
"""A cell must be expected to hold this many units for the chi-square distribution to fit (Cochran 1954)."""
_SUSPICIOUS_DEVIATION = 5.0
"""Standard deviations from chance, either way. One sound layout in two million is further away."""


@dataclass(frozen=True, slots=True)
class RandomnessTest:
    """The result of one test.

    Attributes:
        chi_square: the statistic.
        degrees: its degrees of freedom.
        deviation: the same in standard normal deviations. Large means uneven. Far below zero means too even
            to be chance.
    """

    chi_square: float
    degrees: int
    deviation: float

    @property
    def is_plausible(self) -> bool:
        return abs(self.deviation) <= _SUSPICIOUS_DEVIATION


def evenness(counts: Counts) -> RandomnessTest | None:
    """Test counts, shape (cells,), against equal chances. None if there are too few units to tell.

    >>> evenness(np.array([250, 250, 240, 260])).is_plausible
    True
    >>> evenness(np.array([400, 200, 200, 200])).is_plausible
    False
    """
    expected = counts.sum() / max(len(counts), 1)
    if len(counts) < 4 or expected < _FEWEST_EXPECTED:
        return None
    return _test(float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1)


def independence(table: Counts) -> RandomnessTest | None:
    """Test whether row and column of a unit are independent, given counts of shape (rows, columns).

    Rows and columns without units do not count. Neighbouring rows are taken together until each cell is
    expected to hold enough units. None if fewer than two rows are left.
    """
    used = table[table.any(axis=1)][:, table.any(axis=0)]
    rows, columns = used.shape
    groups = min(rows, int(used.sum() / (_FEWEST_EXPECTED * max(columns, 1))))
    if groups < 2 or columns < 2:
        return None
    merged = np.add.reduceat(used, np.arange(groups) * rows // groups, axis=0)
    expected = np.outer(merged.sum(axis=1), merged.sum(axis=0)) / merged.sum()
    chi_square = float(((merged - expected) ** 2 / expected).sum())
    return _test(chi_square, (groups - 1) * (columns - 1))


def _test(chi_square: float, degrees: int) -> RandomnessTest:
    spread = 2.0 / (9.0 * degrees)
    deviation = ((chi_square / degrees) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return RandomnessTest(chi_square, degrees, deviation)
