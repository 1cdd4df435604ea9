"""Confidence intervals from a variance: for one look or for all looks, and of quantiles by rank.

- `confidence_intervals`: Student's t, on the logarithm's scale for values with one sign, gamma for totals
  that cannot be negative, bounds for the unseen.
- `anytime_multiplier`: makes them hold at every look at once, however often somebody looks and whenever
  they stop.
- `quantile_ranks`: between which values of a sample a quantile of the whole table lies, by their ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, log1p, sqrt

import numpy as np

from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import MAX_UNSEEN_ERRORS, Doubt, doubts
from relaqs_bootstrap.quantiles import (
    gamma_lower,
    gamma_upper,
    normal_quantile,
    normal_tail,
    student_quantile,
)
from relaqs_bootstrap.variance import Variance, check_fraction, linearised_variance

EFFICIENT_FROM = 0.01
EFFICIENT_TO = 0.50
_MOST_FREEDOM = 1e6


def anytime_multiplier(fraction: float, confidence: float) -> float:
    """Return how many standard errors on either side cover the truth at all scanned fractions together.

    It stands in for z. With t degrees of freedom, multiply it by t/z as `student_interval` does. It is
    infinite at fraction 1, where the standard error is zero.

    Let f be the fraction and τ = f/(1−f). Prefixes of a random order are a Brownian bridge in f, so
    τ·(estimate − truth) is a Brownian motion in τ. Robbins' normal mixture bounds its whole path by
    √((1+1/(ρ²τ))·ln((ρ²τ+1)/α²)). Every ρ is valid. The ρ chosen here makes f = 1 % and f = 50 % cost the
    same, which gives the least maximum between them. At 95 % that is 3.34 at both ends and 3.03 in the middle
    (1.55 to 1.71 times z). Below 1 % it grows, to 6.6 at f = 0.1 %.

    Source: Robbins 1970, Statistical methods related to the law of the iterated logarithm; Waudby-Smith and
    Ramdas 2020, Confidence sequences for sampling without replacement.

    >>> [round(anytime_multiplier(fraction, 0.95), 2) for fraction in (0.001, 0.01, 0.5)]
    [6.59, 3.34, 3.34]
    """
    check_fraction(fraction)
    if fraction == 1.0:
        return float("inf")
    return _multiplier(_mixture(confidence) * fraction / (1.0 - fraction), confidence)


def _multiplier(mixed_time: float, confidence: float) -> float:
    """Return the multiplier at ρ²τ = mixed_time."""
    return sqrt((1.0 + 1.0 / mixed_time) * (log(mixed_time + 1.0) - 2.0 * log(1.0 - confidence)))


@lru_cache(maxsize=64)
def _mixture(confidence: float) -> float:
    """Return ρ², by bisection. A larger one lowers the early end's multiplier and raises the late end's."""
    early = EFFICIENT_FROM / (1.0 - EFFICIENT_FROM)
    late = EFFICIENT_TO / (1.0 - EFFICIENT_TO)
    low, high = log(1e-6 / late), log(1e6 / early)
    while high - low > 1e-12:
        middle = (low + high) / 2.0
        rho_squared = exp(middle)
        if _multiplier(rho_squared * early, confidence) > _multiplier(rho_squared * late, confidence):
            low = middle
        else:
            high = middle
    return exp(low)


MIN_CONFIDENCE = 0.5
MAX_CONFIDENCE = 1.0 - 1e-12  # of one interval: a table of many cells asks for far more than 95 %


@dataclass(frozen=True, slots=True)
class Intervals:
    """An interval for each cell, all of shape (G, C).

    Attributes:
        low: the lower ends, NaN where nothing bounds the value below.
        high: the upper ends, NaN where nothing bounds it above.
        doubt: why each interval is not certified, a `Doubt`.
    """

    low: FloatArray
    high: FloatArray
    doubt: IntArray

    @property
    def certified(self) -> BoolArray:
        """Whether each interval can be trusted."""
        return np.asarray(self.doubt == Doubt.NONE)


@dataclass(frozen=True, slots=True)
class Level:
    """How sure an interval is to be. Make one with `Level.of`.

    Attributes:
        confidence: as asked for, both sides together.
        deviates: the standard errors on either side if the variance were known: z, or the anytime multiplier.
    """

    confidence: float
    deviates: float

    @classmethod
    def of(cls, confidence: float, *, anytime: bool, fraction: float) -> Level:
        """Return the level after this scanned fraction. Raises ValueError outside 0.5..1 − 1e-12."""
        if not MIN_CONFIDENCE <= confidence <= MAX_CONFIDENCE:
            raise ValueError(
                f"confidence is {confidence}; it must be at least 0.5 and at most 1 - 1e-12, e.g. 0.95"
            )
        if anytime:
            return cls(confidence, anytime_multiplier(fraction, confidence))
        return cls(confidence, normal_quantile((1.0 + confidence) / 2.0))

    @property
    def tail(self) -> float:
        """Return the probability left out on one side. It is smaller when every look has to hold."""
        return normal_tail(self.deviates)

    def inflation(self, degrees_of_freedom: FloatArray) -> FloatArray:
        """Return t/z: the factor on a standard error for having been estimated itself."""
        probability = (1.0 + self.confidence) / 2.0
        return student_quantile(degrees_of_freedom, probability) / normal_quantile(probability)


def confidence_intervals(
    estimate: FloatArray,
    variance: Variance,
    *,
    fraction: float,
    confidence: float,
    anytime: bool,
    rows_matched: IntArray,
    nonnegative_total: BoolArray,
    observed_total: FloatArray,
    unit_ceiling: FloatArray,
    possible_influence: FloatArray,
    known_total: FloatArray | None = None,
    largest_unit: FloatArray | None = None,
    keeps_sign: BoolArray | None = None,
) -> Intervals:
    """Return the interval of every cell, and whether it is certified.

    Args:
        estimate: shape (G, C).
        variance: of the estimates.
        fraction: the scanned share of the table. At 1 every interval is the estimate itself.
        confidence: of both sides together.
        anytime: whether the interval has to hold at all looks together.
        rows_matched: the scanned rows of each group, shape (G,), or behind each estimate, shape (G, C).
        nonnegative_total: which columns are a SUM or COUNT whose rows cannot be negative, shape (C,).
        observed_total: the unscaled total over the scanned rows, shape (G, C). It is read in those columns
            alone.
        unit_ceiling: the most that one sampling unit can add to each of those columns (1 for COUNT by rows),
            shape (C,). NaN where it is not known.
        possible_influence: the most that one row could move each estimate, see `doubts`.
        known_total: the part of each of those totals that needs no estimate, shape (G, C). Both the estimate
            and the observed total contain it.
        largest_unit: the most that one sampling unit can add to the estimate of each of those totals, shape
            (G, C). Such a total may be certified, with a wider interval, where there are fewer than 10
            rows (see `bounded_interval`). NaN where it is not known, None where it is of no cell.
        keeps_sign: which of the other estimates cannot change their sign, whatever is read, shape (G, C).
            None where nothing is known of it.

    A NaN or infinite estimate or variance gives NaN on both sides. So does a ratio over fewer than two rows.
    A ratio has at most rows − 1 degrees of freedom. Gamma intervals need no such cap: at 1.5 rows a group it
    would widen COUNT 13-fold for 0.5 points of coverage.

    An average of 50 with a standard error of 2, from 1,000 rows. One row could move it by at most 1:

    >>> found = confidence_intervals(
    ...     np.array([[50.0]]),
    ...     Variance(np.array([[4.0]]), np.array([[np.inf]])),
    ...     fraction=0.1,
    ...     confidence=0.95,
    ...     anytime=False,
    ...     rows_matched=np.array([1000]),
    ...     nonnegative_total=np.array([False]),
    ...     observed_total=np.array([[np.nan]]),
    ...     unit_ceiling=np.array([np.nan]),
    ...     possible_influence=np.array([[1.0]]),
    ... )
    >>> found.low.round(1).item(), found.high.round(1).item(), found.certified.item()
    (46.1, 53.9, True)
    """
    check_fraction(fraction)
    if fraction == 1.0:
        return Intervals(estimate.copy(), estimate.copy(), np.zeros(estimate.shape, dtype=np.int64))
    level = Level.of(confidence, anytime=anytime, fraction=fraction)
    rows = np.broadcast_to(rows_matched.T, estimate.T.shape).T  # of groups or of cells
    ratio, total = ~nonnegative_total, nonnegative_total
    low, high = np.full(estimate.shape, np.nan), np.full(estimate.shape, np.nan)
    spread, freedom = variance.variance, variance.degrees_of_freedom
    own = np.minimum(freedom, np.where(rows >= 2, rows - 1.0, np.nan))[:, ratio]
    low[:, ratio], high[:, ratio] = student_interval(estimate[:, ratio], spread[:, ratio], own, level)
    if keeps_sign is not None:
        skewed = keeps_sign & ratio & (estimate != 0.0)
        half = high[skewed] - estimate[skewed]
        low[skewed], high[skewed] = logarithmic_interval(estimate[skewed], half, level)
    known = np.zeros(estimate.shape) if known_total is None else known_total
    unknown, seen = estimate - known, observed_total - known
    low[:, total], high[:, total] = gamma_interval(
        unknown[:, total], spread[:, total], freedom[:, total], seen[:, total], level
    )
    empty = nonnegative_total & (seen == 0.0)
    low[empty] = 0.0
    high[empty] = (unseen_units_bound(level, fraction) * np.broadcast_to(unit_ceiling, empty.shape))[empty]
    doubt = doubts(variance, fraction=fraction, rows_matched=rows, possible_influence=possible_influence)
    if largest_unit is not None:
        left = nonnegative_total & (doubt != Doubt.NONE)
        wide_low, wide_high = bounded_interval(
            unknown[left], spread[left] / (1.0 - fraction), largest_unit[left], seen[left], rows[left], level
        )
        is_bounded = np.isfinite(wide_high)
        low[left] = np.where(is_bounded, wide_low, low[left])
        high[left] = np.where(is_bounded, wide_high, high[left])
        doubt[left] = np.where(is_bounded, Doubt.NONE, doubt[left])
    low[:, total], high[:, total] = low[:, total] + known[:, total], high[:, total] + known[:, total]
    doubt[(doubt == Doubt.NONE) & ~(np.isfinite(low) & np.isfinite(high))] = Doubt.NO_NUMBER
    return Intervals(low, high, doubt)


def student_interval(
    estimate: FloatArray, variance: FloatArray, degrees_of_freedom: FloatArray, level: Level
) -> tuple[FloatArray, FloatArray]:
    """Return estimate ∓ t·standard error, elementwise. NaN wherever an argument is not finite.

    Degrees of freedom may be infinite. With 5 of them the factor is 2.57, with infinitely many 1.96:

    >>> level = Level.of(0.95, anytime=False, fraction=0.1)
    >>> mean, variance = np.array([100.0, 100.0]), np.array([4.0, 4.0])
    >>> low, high = student_interval(mean, variance, np.array([5.0, np.inf]), level)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([94.86, 96.08], [105.14, 103.92])
    """
    with np.errstate(invalid="ignore"):
        half = level.deviates * level.inflation(degrees_of_freedom) * np.sqrt(variance)
        half = np.where(np.isfinite(estimate) & np.isfinite(half), half, np.nan)
        return estimate - half, estimate + half


def pooled_half_widths(half_widths: FloatArray, rows: FloatArray, freedom: FloatArray) -> FloatArray:
    """Return Student half-widths of a column's cells, pooled as far as luck explains that they differ.

    Args:
        half_widths: at 95 %, shape (G,). Those that are 0 or not finite stay as they are.
        rows: behind each cell, in the same shape.
        freedom: the degrees of freedom of the variances, at least 1 and maybe infinite, in the same shape.

    By luck, logarithms of variances on ν degrees of freedom vary by ψ′(ν/2). What they vary beyond that,
    about a line over the logarithms of the rows, says how unlike the true ones are: as if all came from one
    variance, known on ν₀ degrees of freedom. A cell's own and that one are averaged, on ν₀ + ν of them. Few
    cells say little of how unlike they are. So they are taken for as unlike as they could be and still vary
    so little in one of ten samples, and ν₀ is at most what the line is known on. Cells above it by more than
    luck exceeds in one of 100 are not made narrower: the answer's error is theirs.

    Sources: Smyth 2004, Linear models and empirical Bayes methods, Statistical Applications in Genetics and
    Molecular Biology 3, section 6; Phipson et al. 2016, Robust hyperparameter estimation protects against
    hypervariable genes, Annals of Applied Statistics 10, of which the last rule is a simple form.
    """
    known = np.isfinite(half_widths) & (half_widths > 0.0) & (rows > 0.0) & (freedom >= 1.0)
    place = np.log(rows[known]) - np.log(rows[known]).mean() if known.any() else np.empty(0)
    has_slope = bool(place @ place > 1e-9)
    degrees = int(known.sum()) - 1 - has_slope
    if degrees < 1:
        return half_widths
    half = np.minimum(freedom[known], _MOST_FREEDOM) / 2.0
    variance = 2.0 * np.log(half_widths[known] / student_quantile(2.0 * half, 0.975))  # its logarithm
    # Series of ψ(h) − ln h, negated, and of ψ′(h): how far the mean logarithm is off, and its variance.
    off = 1 / (2 * half) + 1 / (12 * half**2) - 1 / (120 * half**4)
    luck = 1 / half + 1 / (2 * half**2) + 1 / (6 * half**3) - 1 / (30 * half**5)
    away = variance + off - (variance + off).mean()
    slope = place / sqrt(place @ place) if has_slope else 0.0 * place
    away -= slope * (slope @ away)
    others = np.maximum(1.0 - 1.0 / len(away) - slope**2, 0.0)  # how much of a cell's place others say
    least = 2.0 * gamma_lower(np.array([degrees / 2.0]), 0.1).item()
    beyond = max(float(away @ away) / least - float(luck.mean()), 1.0 / _MOST_FREEDOM)
    prior = np.minimum(
        (1.0 + sqrt(1.0 + 2.0 * beyond)) / (2.0 * beyond), others / (1.0 - others) / luck.mean()
    )
    says = prior >= 0.5  # others are not so unlike that they say nothing of a cell
    prior = np.maximum(prior, 0.5)
    shared = variance + off - away - 1 / (2 * prior) - 1 / (12 * prior**2) + 1 / (120 * prior**4)
    pooled = np.logaddexp(np.log(prior) + shared, np.log(half) + variance) - np.log(prior + half)
    width = np.exp(pooled / 2.0) * student_quantile(2.0 * (prior + half), 0.975)
    lucky = away <= np.sqrt(others) * (np.log(gamma_upper(half, 0.01) / half) + off)
    found = half_widths.copy()
    found[known] = np.where(says, np.where(lucky, width, np.maximum(width, found[known])), found[known])
    return found


def logarithmic_interval(
    estimate: FloatArray, half_width: FloatArray, level: Level
) -> tuple[FloatArray, FloatArray]:
    """Return intervals for values that cannot change their sign, skewed as such values are, elementwise.

    Args:
        estimate: the values, not 0.
        half_width: of their symmetric intervals.
        level: how sure these are.

    Averages of values that are never negative, variances and their ratios vary in proportion to their size: a
    sample that shows too little of the value shows too little of its error, too. So most misses of a
    symmetric interval are truths above it. With r = half_width/|estimate| the far end is e^r times the value,
    the straight line's error of the logarithm. From r = 1 on it goes on along its tangent: of errors as large
    as the value the logarithm is not straight either. The near end is that of a gamma distribution with the
    relative error r, as the share of rows that are rare has it: below e^−r, the more so the fewer were met.
    The result is NaN where the half-width is.

    Of variances of Pareto values by clusters, 2 % read, 90.8 % of the symmetric intervals held and 96.0 % of
    these, which are 1.04 times as wide (docs/decisions/0016-heavy-tails.md).
    """
    size = np.abs(estimate)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        relative = half_width / size
        shape = (level.deviates / relative) ** 2
        share = np.where(shape > 0.0, gamma_lower(shape, level.tail) / shape, 0.0)  # none where r is infinite
        near = np.where(relative == 0.0, size, size * np.where(np.isnan(relative), np.nan, share))
        far = size * np.exp(np.minimum(relative, 1.0)) * np.maximum(relative, 1.0)
    return np.where(estimate > 0.0, near, -far), np.where(estimate > 0.0, far, -near)


def gamma_interval(
    total: FloatArray,
    variance: FloatArray,
    degrees_of_freedom: FloatArray,
    observed: FloatArray,
    level: Level,
) -> tuple[FloatArray, FloatArray]:
    """Return intervals for totals that cannot be negative, elementwise, skewed as sums of few rows are.

    Args:
        total: the estimates.
        variance: their variances, V.
        degrees_of_freedom: of these variances.
        observed: the unscaled total over the scanned rows. The low end never falls below it.
        level: how sure the interval is to be.

    With k = total²/V, and V inflated by (t/z)², the ends are total·χ²₂ₖ(α/2)/2k and total·χ²₂ₖ₊₂(1−α/2)/2k.
    For a COUNT over a tiny scanned share, that is the exact Poisson interval. The result is NaN
    wherever an argument is not finite or the total is 0.

    Source: Fay and Feuer 1997, Confidence intervals for directly standardized rates.

    Four rows seen in one percent of a table: the Poisson interval of 4 is 1.09 to 10.24, here a hundredfold:

    >>> level = Level.of(0.95, anytime=False, fraction=0.01)
    >>> count, variance = np.array([400.0]), np.array([4 * 100.0**2])
    >>> low, high = gamma_interval(count, variance, np.array([np.inf]), np.array([4.0]), level)
    >>> round(low.item()), round(high.item())
    (109, 1024)
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shape = total**2 / (variance * level.inflation(degrees_of_freedom) ** 2)
        scale = total / shape
        low = scale * gamma_lower(shape, level.tail)
        high = scale * gamma_upper(shape + 1.0, level.tail)
    certain = (variance == 0.0) & (total > 0.0)
    low, high = np.where(certain, total, np.maximum(low, observed)), np.where(certain, total, high)
    known = np.isfinite(total) & np.isfinite(low) & np.isfinite(high)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def bounded_interval(
    total: FloatArray,
    variance: FloatArray,
    largest: FloatArray,
    observed: FloatArray,
    rows: IntArray,
    level: Level,
) -> tuple[FloatArray, FloatArray]:
    """Return intervals for totals that cannot be negative, by the most that one more unit could add.

    Args:
        variance: their variances without finite-population correction, V. It is at least total²/rows, as for
            equal rows.
        largest: the most that one sampling unit can add to the estimate, w.
        observed: the unscaled total over the scanned rows. The low end never falls below it.
        rows: that were scanned of each group.
        level: how sure the interval is to be.

    The low end is that of `gamma_interval`. The high end is the quantile of the gamma distribution with mean
    total + w and variance V + w². For a COUNT, w is the scale, and both are the exact Poisson interval. It
    asks nothing of the sample's largest row. The result is NaN where nothing was seen, where w is not known,
    and where w is more than two standard errors: the interval would say little.

    Source: Fay and Feuer 1997, Confidence intervals for directly standardized rates, equations 3 and 4.

    Three rows of 10, 20 and 30 in an eighth of a table, where a row may have 50, are 480 in all: between 83
    and 2095 with a confidence of 95 %.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        spread = np.maximum(variance, total**2 / rows)
        narrow = largest**2 <= MAX_UNSEEN_ERRORS**2 * spread
        low = gamma_lower(total**2 / spread, level.tail) * spread / total
        mean, spread = total + largest, spread + largest**2
        high = gamma_upper(mean**2 / spread, level.tail) * spread / mean
    known = narrow & (observed > 0.0) & (rows > 0) & np.isfinite(low) & np.isfinite(high)
    return np.where(known, np.maximum(low, observed), np.nan), np.where(known, high, np.nan)


def bounded_average(
    average: FloatArray, rows: FloatArray, lowest: FloatArray, highest: FloatArray, level: Level
) -> tuple[FloatArray, FloatArray]:
    """Return intervals for averages of values that lie between known ends, elementwise, by proof.

    Args:
        average: of the values that were met. Where it is NaN, so is the result.
        rows: how many these are, n.
        lowest, highest: the ends. NaN, where they are not known, gives NaN.
        level: how sure the interval is to be.

    Nothing is assumed of how the values are spread, nor of how many there are. With p and q for where the
    average met and the true one lie between the ends, from 0 to 1, one side is missed with a probability of
    exp(−n · 9(p−q)² / (2(p+2q)(3−p−2q))) at most. It is solved for q. The true average is between the ends in
    any case, so of few rows these are the interval.

    Sources: Hoeffding 1963, Probability inequalities for sums of bounded random variables, theorem 1, and
    section 6 for samples without replacement; Massart 1990, The tight constant in the
    Dvoretzky–Kiefer–Wolfowitz inequality, theorem 2.

    Values from 40 to 60, of which 2, 20 and 200 were met, with an average of 48:

    >>> level, ends = Level.of(0.95, anytime=False, fraction=0.1), (np.array(40.0), np.array(60.0))
    >>> low, high = bounded_average(np.full(3, 48.0), np.array([2.0, 20.0, 200.0]), *ends, level)
    >>> low.round(1).tolist(), high.round(1).tolist()
    ([40.0, 42.9, 46.2], [60.0, 54.0, 49.9])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        width, miss = highest - lowest, -8.0 * log(max(level.tail, 5e-324))
        place = np.where(width > 0.0, np.clip((average - lowest) / width, 0.0, 1.0), 0.0)
        of_square, of_line = 9.0 * rows + miss, 0.75 * miss * (1.0 - 2.0 * place)
        root = np.sqrt(of_line**2 + 2.25 * miss * place * (1.0 - place) * of_square)
        low = lowest + width * np.maximum(place + (of_line - root) / of_square, 0.0)
        high = lowest + width * np.minimum(place + (of_line + root) / of_square, 1.0)
    seen = np.where(rows > 0.0, average, np.nan)
    return np.minimum(low, seen), np.maximum(high, seen)


def unseen_units_bound(level: Level, fraction: float) -> float:
    """Return the most sampling units that a group can have in the whole table if none of them was scanned.

    All of u units are missed with probability (1−f)ᵘ, so the bound is ln(α/2) / ln(1−f). It is 0 when
    everything was scanned. At a tenth of the table, 35 units are missed with probability 0.9³⁵ = 0.025:

    >>> round(unseen_units_bound(Level.of(0.95, anytime=False, fraction=0.1), 0.1))
    35
    """
    if fraction >= 1.0:
        return 0.0
    return log(max(level.tail, 5e-324)) / log1p(-fraction)


def share_variance_of_rows(values: IntArray, share: float, fraction: float) -> Variance:
    """Return the variance of the share of sampled values below a quantile, where rows are the sampling units.

    Args:
        values: how many values each group has, shape (G,).
        share: p of the quantile.
        fraction: f, the scanned share of the table.

    Returns shape (G, 1): p(1 − p)(1 − f)/n. Source: Cochran 1977, Sampling Techniques, §3.2.

    The median of 100 values, half of the table read: 0.5 · 0.5 · 0.5 / 100:

    >>> share_variance_of_rows(np.array([100]), share=0.5, fraction=0.5).variance.tolist()
    [[0.00125]]
    """
    check_fraction(fraction)
    count = values.astype(np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(count > 0.0, share * (1.0 - share) * (1.0 - fraction) / count, np.nan)
    return Variance(variance, np.maximum(count - 1.0, 1.0))


def share_variance_of_blocks(
    below: IntArray,
    up_to: IntArray,
    values: IntArray,
    group_index: IntArray,
    block_index: IntArray,
    block_rows: IntArray,
    group_count: int,
    fraction: float,
) -> Variance:
    """Return the variance of the share of values below a quantile, by leaving out one block at a time.

    Args:
        below: for each (group, block), how many values are less than the group's quantile so far, shape (P,).
        up_to: how many are at most the quantile, shape (P,).
        values: how many values there are, shape (P,).
        group_index, block_index, block_rows, fraction: as for `linearised_variance`.
        group_count: G.

    Returns shape (G, 1). Where many values equal the quantile, the two shares differ, and the larger variance
    is taken: the quantile may be next to its true place on either side.

    Source: Woodruff 1952, Confidence intervals for medians and other position measures; Särndal, Swensson,
    Wretman 1992, Model Assisted Survey Sampling, §5.11.

    Three blocks of ten values have 4, 6 and 5 values below the median. The shares 0.4, 0.6 and 0.5 have the
    variance 0.01, their mean a third of it, and half of the table is read:

    >>> below, ten = np.array([4, 6, 5]), np.array([10, 10, 10])
    >>> group, block = np.array([0, 0, 0]), np.array([0, 1, 2])
    >>> found = share_variance_of_blocks(below, below, ten, group, block, ten, 1, 0.5)
    >>> round(found.variance.item(), 6), round(0.01 / 3 / 2, 6)
    (0.001667, 0.001667)
    """
    sums = np.stack([below, up_to, values], axis=1).astype(np.float64)
    less, at_most, count = (np.bincount(group_index, column, group_count) for column in sums.T)
    gradient = np.zeros((group_count, 2, 3))
    with np.errstate(divide="ignore", invalid="ignore"):
        gradient[:, 0, 0] = gradient[:, 1, 1] = 1.0 / count
        gradient[:, 0, 2], gradient[:, 1, 2] = -less / count**2, -at_most / count**2
    rows = count.astype(np.int64)
    both = linearised_variance(gradient, group_index, block_index, sums, block_rows, rows, fraction)
    larger = np.argmax(both.variance, axis=1)[:, None]
    return Variance(
        np.take_along_axis(both.variance, larger, axis=1),
        np.take_along_axis(both.degrees_of_freedom, larger, axis=1),
    )


def quantile_ranks(
    values: IntArray, share: float, variance: Variance, *, fraction: float, confidence: float, anytime: bool
) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the ranks, from 1, of the values on both sides of each quantile, and if they are certified.

    Args:
        values: how many values each group has, shape (G,).
        share: p of the quantile.
        variance: of the share of values below the quantile, shape (G, 1).
        fraction: the scanned share of the table.
        confidence: of both sides together.
        anytime: whether the ranks have to hold at all looks together.

    A rank is 0 on a side where no value of the sample is low, or high, enough.

    The share below the median of 100 values has a standard error of 0.05, so the median lies between the 40th
    and the 61st value:

    >>> variance = share_variance_of_rows(np.array([100]), 0.5, fraction=0.01)
    >>> low, high, certified = quantile_ranks(
    ...     np.array([100]), 0.5, variance, fraction=0.01, confidence=0.95, anytime=False
    ... )
    >>> low.item(), high.item(), certified.item()
    (40, 61, True)
    """
    shares = np.full((len(values), 1), share)
    with np.errstate(divide="ignore"):
        one_value = max(share, 1.0 - share) / values.astype(np.float64)[:, None]
    found = confidence_intervals(
        shares,
        variance,
        fraction=fraction,
        confidence=confidence,
        anytime=anytime,
        rows_matched=values,
        nonnegative_total=np.array([False]),
        observed_total=np.full_like(shares, np.nan),
        unit_ceiling=np.array([np.nan]),
        possible_influence=one_value,
    )
    low = np.floor(found.low[:, 0] * values)
    high = np.ceil(found.high[:, 0] * values) + 1.0
    low_rank = np.where(low >= 1.0, low, 0.0).astype(np.int64)
    high_rank = np.where(high <= values, high, 0.0).astype(np.int64)
    return low_rank, high_rank, found.certified[:, 0] & (low_rank > 0) & (high_rank > 0)
