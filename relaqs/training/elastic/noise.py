"""The gradient's noise scale: from how many rows on a larger step saves little.

With few rows a gradient is mostly noise, and twice the rows make a step worth twice as much. With many it is
mostly signal, and more rows bring nothing. The noise scale φ is the number of rows at which both are equal:
the variance of one row's gradient over the square of the true gradient.
Source: McCandlish et al. 2018, An empirical model of large-batch training, appendix A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relaqs.training.rows import Sums

KEPT_SHARE = 0.95  # of what earlier steps say, at each step


@dataclass(frozen=True, slots=True)
class Noise:
    """What the steps so far say about the noise: two averages that forget slowly. It has no state of its own.

    Attributes:
        variance: of one row's gradient, summed over all parameters, times `weight`.
        square: of the true gradient, times `weight`.
        weight: of the steps, to below 1.
        last: the gradients of the last step, where that was a single piece, and its rows.

    >>> two = (np.array([3.0]), np.array([1.0]))  # sums of two pieces of one row each
    >>> squares = sum(float(each @ each) for each in two)
    >>> Noise().after((two[0] + two[1],), squares, pieces=2, rows=2).rows  # variance 2, square 4 - 1
    0.6666666666666666
    """

    variance: float = 0.0
    square: float = 0.0
    weight: float = 0.0
    last: tuple[Sums, int] | None = None

    @property
    def rows(self) -> float:
        """The noise scale φ. NaN while nothing is known, inf where no signal is seen."""
        if not self.weight:
            return math.nan
        return max(self.variance, 0.0) / self.square if self.square > 0 else math.inf

    def after(self, gradients: Sums, squares: float, pieces: int, rows: int) -> Noise:
        """Return what is known with one step more.

        Two steps of a single piece each are compared with each other, as if they were one step.

        Args:
            gradients: the sums over the step.
            squares: Σ |g|²/n over its pieces: g a piece's sums, n its rows.
            pieces: how many these were.
            rows: how many rows they had.
        """
        if pieces > 1:
            return self._seen(gradients, squares, pieces, rows)
        if self.last is None:
            return Noise(self.variance, self.square, self.weight, (gradients, rows))
        before, rows_before = self.last
        both = tuple(one + other for one, other in zip(before, gradients, strict=True))
        return self._seen(both, squares + norm(before) / rows_before, 2, rows + rows_before)

    def _seen(self, gradients: Sums, squares: float, pieces: int, rows: int) -> Noise:
        of_mean = norm(gradients) / rows**2
        variance = (squares - rows * of_mean) / (pieces - 1)
        square = of_mean - variance / rows
        share = 1.0 - KEPT_SHARE
        return Noise(
            KEPT_SHARE * self.variance + share * variance,
            KEPT_SHARE * self.square + share * square,
            KEPT_SHARE * self.weight + share,
        )


def norm(gradients: Sums) -> float:
    """Return the sum of the squares of all numbers in some arrays."""
    return float(sum(np.vdot(each, each) for each in gradients))
