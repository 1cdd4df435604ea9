"""Totals from a stratified sample of units, sharpened by what is predicted of all of them.

A population is cut into strata, and in each a simple random sample of units is asked. A unit i adds y_i to a
total, which only asking tells, and p_i by a prediction that is known of every unit. With λ chosen from the
sample, the total is what is predicted of all, put right by how wrong the sample says that is:

    T = λ P + Σ_h N_h/n_h Σ_i (y_i − λ p_i)        N_h units in stratum h, n_h of them asked, P = Σ_i p_i

Any prediction is right in the mean: what it gets wrong is measured. A good one leaves small residuals
y − λp, and so narrow intervals. A useless one has λ near 0, and costs nothing. The variance is that of
residuals, with finite-population correction:

    V = Σ_h N_h² (1 − n_h/N_h)/n_h · s²_h

Sources: Cochran 1977, Sampling Techniques, sections 5.4 and 7.3 (stratified totals; regression estimators);
Angelopoulos, Duchi and Zrnic 2023, PPI++, section 3 (the same with λ from the sample, for predictions of
models).

**What a sample has not met.** Where answers are yes or no, a unit can add no more than a known bound. One
that was not asked may still be a yes in a stratum of no's. So each variance is widened as if one more unit
had been met that differs as much as it can, and is that of four such units at least. Where all that was asked
agrees, a 95 % interval reaches 3.9 such units far, and by the rule of three it needs 3.7. Of a count of k the
interval is k ± 1.96 √(k + 1), near that of Agresti and Coull 1998.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relaqs_bootstrap.arrays import FloatArray, IntArray

FEWEST_MET = 4.0
"""Units that differ as much as they can, of which a variance is at least."""


@dataclass(frozen=True, slots=True)
class Strata:
    """How many units there are, and how many of them were asked, both of shape (H,).

    >>> Strata(np.array([100.0, 10.0]), np.array([20.0, 10.0])).weights.tolist()
    [5.0, 1.0]
    """

    units: FloatArray
    asked: FloatArray

    @property
    def weights(self) -> FloatArray:
        """Return how many units each unit that was asked stands for; 0 where none was."""
        return np.divide(self.units, self.asked, out=np.zeros_like(self.units), where=self.asked > 0)

    @property
    def fraction(self) -> float:
        """Return the share of the units that was asked."""
        return float(self.asked.sum() / max(self.units.sum(), 1.0))


@dataclass(frozen=True, slots=True)
class SampledSums:
    """What the units that were asked say, summed by group and stratum; most pairs of these have none.

    Attributes:
        group: of each pair, in 0 to G − 1, shape (R,).
        stratum: of each pair, in 0 to H − 1, shape (R,).
        sums: Σ z over the units of the pair, of K values and K predictions z, shape (R, 2K).
        products: Σ z zᵀ, shape (R, 2K, 2K).
        counts: units of the pair that count, shape (R,).
    """

    group: IntArray
    stratum: IntArray
    sums: FloatArray
    products: FloatArray
    counts: FloatArray


@dataclass(frozen=True, slots=True)
class Totals:
    """Estimated totals of G groups and K columns.

    Attributes:
        values: shape (G, K).
        covariance: of a group's totals, shape (G, K, K).
        by_stratum: the same of each pair of the sample, shape (R, K, K), summed in `covariance`.
        slope: λ of each column, shape (K,).
    """

    values: FloatArray
    covariance: FloatArray
    by_stratum: FloatArray
    slope: FloatArray


def estimated_totals(sample: SampledSums, strata: Strata, predicted: FloatArray) -> Totals:
    """Return the totals of each group, and how far off they may be.

    Args:
        sample: of the units that were asked.
        strata: how many units there are and were asked.
        predicted: the total of each prediction over all units, shape (G, K). A column without a prediction
            has zeros here and in the sample.

    Ten units in one stratum, five of them asked. All that is predicted is 1 each, and three of the five say
    1. The total is 6, with a variance of 3.
    """
    groups, columns = predicted.shape
    spread = _covariances(sample, strata)
    slope = _slopes(spread, columns)
    residual = np.concatenate([np.eye(columns), -np.diag(slope)], axis=1)  # (K, 2K)
    weights = strata.weights[sample.stratum]
    scaled = np.zeros((groups, 2 * columns))
    np.add.at(scaled, sample.group, weights[:, None] * sample.sums)
    by_stratum = residual @ spread @ residual.T
    covariance = np.zeros((groups, columns, columns))
    np.add.at(covariance, sample.group, by_stratum)
    return Totals(scaled @ residual.T + slope * predicted, covariance, by_stratum, slope)


def _covariances(sample: SampledSums, strata: Strata) -> FloatArray:
    """Return the covariances of the scaled sums of each pair, shape (R, 2K, 2K).

    Units of the stratum that are not in the group add zero, and count.
    """
    asked, units = strata.asked[sample.stratum], strata.units[sample.stratum]
    centred = sample.products - sample.sums[:, :, None] * sample.sums[:, None, :] / asked[:, None, None]
    variance = centred / np.maximum(asked - 1.0, 1.0)[:, None, None]
    return np.asarray(units[:, None, None] ** 2 * ((1.0 - asked / units) / asked)[:, None, None] * variance)


def _slopes(spread: FloatArray, columns: int) -> FloatArray:
    """Return λ of each column: the slope that leaves the least variance, over all groups together."""
    pooled = spread.sum(axis=0)
    mixed = np.array([pooled[k, columns + k] for k in range(columns)])
    own = np.array([pooled[columns + k, columns + k] for k in range(columns)])
    return np.asarray(np.divide(mixed, own, out=np.zeros(columns), where=own > 0.0))


def with_unmet_units(totals: Totals, most: FloatArray) -> Totals:
    """Return the totals with variances as if more units had been met, of the most that one may add.

    most: by which one unit that was not asked may move each total, shape (G, K); NaN where that is not known.
    """
    columns = range(totals.values.shape[1])
    covariance = totals.covariance.copy()
    own, unit = covariance[:, columns, columns], np.where(np.isnan(most), 0.0, most**2)
    covariance[:, columns, columns] = np.maximum(own + unit, FEWEST_MET * unit)
    return replace(totals, covariance=covariance)


def degrees_of_freedom(
    gradient: FloatArray, totals: Totals, sample: SampledSums, strata: Strata
) -> FloatArray:
    """Return the degrees of freedom of the variance of smooth functions of totals, shape (G, C).

    gradient: of C functions by the totals, shape (G, C, K).

    Source: Satterthwaite 1946, An approximate distribution of estimates of variance components.
    """
    own = gradient[sample.group]  # (R, C, K)
    parts = np.einsum("rck,rkl,rcl->rc", own, totals.by_stratum, own)
    whole, squares = (np.zeros(gradient.shape[:2]) for _ in range(2))
    np.add.at(whole, sample.group, parts)
    free = np.maximum(strata.asked[sample.stratum] - 1.0, 1.0)
    np.add.at(squares, sample.group, parts**2 / free[:, None])
    return np.divide(whole**2, squares, out=np.full_like(whole, np.inf), where=squares > 0.0)


def shares_of_calls(importance: FloatArray, strata: Strata, count: int) -> IntArray:
    """Return how many more units to ask in each stratum, `count` in all, or all that are left.

    In the end each stratum has as many as its importance says (Neyman's allocation: units times standard
    deviation), and those that have more already get none.

    Args:
        importance: of each stratum, shape (H,).
        strata: how many units there are and were asked.
        count: of units to ask now.

    >>> strata = Strata(units=np.array([50.0, 50.0]), asked=np.array([5.0, 5.0]))
    >>> shares_of_calls(np.array([3.0, 1.0]), strata, 10).tolist()
    [10, 0]
    """
    left = strata.units - strata.asked
    count = int(min(count, left.sum()))
    wanted = (
        importance / max(float(importance.sum()), 1e-300) + _LEAST_SHARE * strata.units / strata.units.sum()
    )

    def given(level: float) -> FloatArray:
        return np.asarray(np.clip(level * wanted - strata.asked, 0.0, left))

    low, high = 0.0, float((strata.units / wanted).max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if given(middle).sum() >= count else (middle, high)
    return _rounded(given(high), left, count)


_LEAST_SHARE = 1e-6  # of calls, by units: strata without importance are asked at last
_HALVINGS = 100


def _rounded(given: FloatArray, left: FloatArray, count: int) -> IntArray:
    """Return whole numbers next to those given, `count` in all: the largest remainders are rounded up."""
    whole = np.minimum(np.floor(given + 1e-9), left).astype(np.int64)
    room = left - whole
    order = np.lexsort((-room, -(given - whole) * (room > 0)))
    while (missing := count - int(whole.sum())) > 0:
        up = [i for i in order if whole[i] < left[i]][:missing]
        whole[up] += 1
    for i in order[::-1]:
        over = int(whole.sum()) - count
        if over <= 0:
            break
        whole[i] -= min(over, whole[i])
    return whole
