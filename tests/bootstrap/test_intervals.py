"""Intervals: the cases with a known answer, the edges, and the laws."""

from __future__ import annotations

from dataclasses import replace
from math import e, exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_bootstrap import (
    Intervals,
    Level,
    Variance,
    anytime_multiplier,
    confidence_intervals,
    gamma_interval,
    student_interval,
    unseen_units_bound,
)
from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.intervals import logarithmic_interval, pooled_half_widths
from scipy.special import gammainccinv, gammaincinv, polygamma, stdtrit
from scipy.stats import binom

SURE = Level.of(0.95, anytime=False, fraction=0.1)


def one_total_one_ratio(**changes: Any) -> Intervals:
    """Return the intervals of a SUM of 5000 (500 of it seen) and an AVG of 5, over 100 rows."""
    arguments: dict[str, Any] = {
        "estimate": np.array([[5000.0, 5.0]]),
        "variance": Variance(np.array([[250_000.0, 0.25]]), np.full((1, 2), 40.0)),
        "fraction": 0.1,
        "confidence": 0.95,
        "anytime": False,
        "rows_matched": np.array([100]),
        "nonnegative_total": np.array([True, False]),
        "observed_total": np.array([[500.0, np.nan]]),
        "unit_ceiling": np.array([70.0, np.nan]),
        "possible_influence": np.array([[700.0, 0.5]]),
    }
    arguments |= changes
    return confidence_intervals(arguments.pop("estimate"), arguments.pop("variance"), **arguments)


def test_a_ratio_has_the_student_interval() -> None:
    intervals = one_total_one_ratio()
    half = stdtrit(40, 0.975) * 0.5
    assert intervals.low[0, 1] == pytest.approx(5 - half, rel=1e-6)
    assert intervals.high[0, 1] == pytest.approx(5 + half, rel=1e-6)
    assert intervals.certified.all()


def test_a_value_that_keeps_its_sign_has_the_interval_of_its_logarithm() -> None:
    kept = one_total_one_ratio(keeps_sign=np.ones((1, 2), dtype=bool))
    error = stdtrit(40, 0.975) * 0.5 / 5
    shape = (1.959963985 / error) ** 2
    assert kept.low[0, 1] == pytest.approx(5 * gammaincinv(shape, 0.025) / shape, rel=1e-5)
    assert kept.high[0, 1] == pytest.approx(5 * exp(error), rel=1e-6)
    total = one_total_one_ratio()
    assert (kept.low[0, 0], kept.high[0, 0]) == (total.low[0, 0], total.high[0, 0])
    assert (kept.doubt == total.doubt).all()


@given(size=st.floats(1e-3, 1e3), relative=st.floats(1e-6, 0.9))
def test_a_root_and_its_square_have_one_far_end(size: float, relative: float) -> None:
    """The error of a square is twice that of its root, relative to it. Where both are below the value, at
    that."""
    root, square = np.array([size]), np.array([size**2])
    ends = np.stack(logarithmic_interval(root, root * relative / 2, SURE))
    far = logarithmic_interval(square, square * relative, SURE)[1]
    assert far == pytest.approx(ends[1] ** 2)
    assert 0.0 <= ends[0] <= root * exp(-relative / 2) * (1 + 1e-9)
    mirrored = np.stack(logarithmic_interval(-root, root * relative / 2, SURE))
    assert mirrored == pytest.approx(-ends[::-1])


@pytest.mark.parametrize(("rows", "share"), [(16, 0.02), (40, 0.01), (40, 0.05), (80, 0.01), (200, 0.02)])
def test_a_share_of_rare_rows_holds_where_some_were_met(rows: int, share: float) -> None:
    """Summed over how many rows are met, 97.7 to 98.7 %. With e^-r, r the relative error, 81 to 95 % held."""
    met = np.arange(1, rows)
    found = met / rows
    half = stdtrit(rows - 1, 0.975) * np.sqrt(found * (1 - found) / (rows - 1))
    low, high = logarithmic_interval(found, half, SURE)
    chance = binom.pmf(met, rows, share) / binom.pmf(met, rows, share).sum()
    assert 0.97 < chance[(low <= share) & (share <= high)].sum() < 0.99
    assert chance[found * np.exp(-half / found) <= share].sum() < 0.955


def test_an_error_beyond_the_value_goes_on_along_the_tangent_and_stays_above_zero() -> None:
    value, half = np.full(4, 10.0), np.array([9.999, 10.001, 200.0, np.nan])
    low, high = logarithmic_interval(value, half, SURE)
    assert high[0] == pytest.approx(high[1], rel=1e-3)
    assert high[2] == pytest.approx(10 * e * 20)
    assert (low[:3] > 0.0).all()
    assert np.isnan([low[3], high[3]]).all()


def test_variances_of_skewed_values_hold_more_often_on_the_logarithms_scale() -> None:
    """2,000 samples of 40 exponential values: two standard errors of the difference are 0.8 points."""
    values = np.random.default_rng(0).exponential(size=(2_000, 40))
    found = values.var(axis=1, ddof=1)
    squares = (values - values.mean(axis=1, keepdims=True)) ** 2
    half = stdtrit(39, 0.975) * squares.std(axis=1, ddof=1) / 40**0.5
    low, high = logarithmic_interval(found, half, SURE)
    held, symmetric = np.mean((low <= 1) & (high >= 1)), np.mean(np.abs(found - 1) <= half)
    assert held > symmetric + 0.02


def test_a_ratio_over_few_rows_has_no_more_freedom_than_rows() -> None:
    intervals = one_total_one_ratio(rows_matched=np.array([4]))
    assert intervals.high[0, 1] == pytest.approx(5 + stdtrit(3, 0.975) * 0.5)


def test_a_total_has_the_gamma_interval_of_its_inflated_variance() -> None:
    intervals = one_total_one_ratio()
    shape = 5000**2 / (250_000 * (stdtrit(40, 0.975) / 1.959963985) ** 2)
    assert intervals.low[0, 0] == pytest.approx(5000 * gammaincinv(shape, 0.025) / shape, rel=1e-5)
    assert intervals.high[0, 0] == pytest.approx(5000 * gammainccinv(shape + 1, 0.025) / shape, rel=1e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.9999])
def test_a_count_scanned_almost_nowhere_has_the_exact_poisson_interval(count: int, confidence: float) -> None:
    level, total = Level.of(confidence, anytime=False, fraction=1e-9), np.array([count * 1e9])
    low, high = gamma_interval(total, total * 1e9, np.array([np.inf]), np.array([float(count)]), level)
    assert low[0] == pytest.approx(max(gammaincinv(count, level.tail) * 1e9, count), rel=1e-5)
    assert high[0] == pytest.approx(gammainccinv(count + 1, level.tail) * 1e9, rel=1e-5)


def test_a_total_is_never_said_to_be_below_what_was_seen() -> None:
    assert one_total_one_ratio(observed_total=np.array([[4990.0, np.nan]])).low[0, 0] == 4990.0


def test_no_row_seen_bounds_the_units_that_can_have_been_missed() -> None:
    intervals = one_total_one_ratio(
        estimate=np.array([[0.0, np.nan]]),
        variance=Variance(np.array([[0.0, np.nan]]), np.ones((1, 2))),
        observed_total=np.zeros((1, 2)),
        rows_matched=np.array([0]),
    )
    assert intervals.low[0, 0] == 0.0
    assert intervals.high[0, 0] == pytest.approx(70 * log(0.025) / log(0.9))
    assert np.isnan([intervals.low[0, 1], intervals.high[0, 1]]).all()
    assert not intervals.certified.any()


def test_no_row_seen_and_no_ceiling_known_leaves_the_high_end_unknown() -> None:
    intervals = one_total_one_ratio(
        estimate=np.array([[0.0, 5.0]]), observed_total=np.zeros((1, 2)), unit_ceiling=np.full(2, np.nan)
    )
    assert intervals.low[0, 0] == 0.0
    assert np.isnan(intervals.high[0, 0])
    assert not intervals.certified[0, 0]


def test_the_bound_on_unseen_units_holds() -> None:
    level = Level.of(0.9, anytime=False, fraction=0.2)
    bound = unseen_units_bound(level, 0.2)
    assert 0.8**bound == pytest.approx(0.05)
    assert unseen_units_bound(level, 1.0) == 0.0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), confidence=st.floats(0.5, 0.9999), anytime=st.booleans())
def test_every_interval_is_the_estimate_once_everything_is_scanned(
    seed: int, confidence: float, anytime: bool
) -> None:
    rng = np.random.default_rng(seed)
    estimate = rng.choice([0.0, -1.5, 7e300, 1e-300, np.nan, np.inf, 3.25], (6, 2))
    intervals = one_total_one_ratio(
        estimate=estimate,
        variance=Variance(np.zeros((6, 2)), np.ones((6, 2))),
        rows_matched=rng.integers(0, 50, 6),
        observed_total=estimate,
        fraction=1.0,
        confidence=confidence,
        anytime=anytime,
    )
    np.testing.assert_array_equal(intervals.low, estimate)
    np.testing.assert_array_equal(intervals.high, estimate)
    assert intervals.certified.all()


@settings(max_examples=100, deadline=None)
@given(
    total=st.floats(1e-3, 1e12),
    relative_error=st.floats(1e-9, 10.0),
    freedom=st.floats(1.0, 1e9),
    fraction=st.floats(1e-4, 0.999),
    anytime=st.booleans(),
)
def test_intervals_hold_the_estimate_and_widen_with_confidence(
    total: float, relative_error: float, freedom: float, fraction: float, anytime: bool
) -> None:
    estimate = np.full((1, 2), total)
    spread = Variance((relative_error * estimate) ** 2, np.full((1, 2), freedom))
    inner, outer = (
        one_total_one_ratio(
            estimate=estimate,
            variance=spread,
            fraction=fraction,
            observed_total=estimate * fraction,
            confidence=confidence,
            anytime=anytime,
        )
        for confidence in (0.8, 0.95)
    )
    assert (outer.low <= inner.low).all()
    assert (inner.low <= estimate).all()
    assert (estimate <= inner.high).all()
    assert (inner.high <= outer.high).all()


def test_anytime_stands_in_for_z_and_multiplies_t() -> None:
    pointwise, anytime = one_total_one_ratio(), one_total_one_ratio(anytime=True)
    wider = anytime_multiplier(0.1, 0.95) / 1.959963985
    half = (pointwise.high - pointwise.low)[0, 1]
    assert (anytime.high - anytime.low)[0, 1] == pytest.approx(wider * half, rel=1e-6)
    assert anytime.low[0, 0] < pointwise.low[0, 0] < pointwise.high[0, 0] < anytime.high[0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_unknown_estimate_or_variance_leaves_both_ends_unknown(bad: float) -> None:
    spread = Variance(np.array([[abs(bad), abs(bad)]]), np.full((1, 2), 40.0))
    for intervals in (
        one_total_one_ratio(estimate=np.full((1, 2), bad)),
        one_total_one_ratio(variance=spread),
    ):
        assert np.isnan(intervals.low).all()
        assert np.isnan(intervals.high).all()
        assert not intervals.certified.any()


def test_a_ratio_over_one_row_is_unknown() -> None:
    intervals = one_total_one_ratio(rows_matched=np.array([1]))
    assert np.isnan(intervals.low[0, 1])
    assert np.isfinite(intervals.low[0, 0])


def test_a_total_without_variation_has_no_width_and_is_not_certified() -> None:
    intervals = one_total_one_ratio(variance=Variance(np.array([[0.0, 0.25]]), np.full((1, 2), 40.0)))
    assert intervals.low[0, 0] == intervals.high[0, 0] == 5000.0
    assert intervals.certified.tolist() == [[False, True]]


def test_an_answer_without_rows_or_without_columns_has_no_intervals() -> None:
    for shape in ((0, 2), (1, 0)):
        empty = np.zeros(shape)
        intervals = one_total_one_ratio(
            estimate=empty,
            variance=Variance(empty, empty),
            observed_total=empty,
            rows_matched=np.zeros(shape[0], dtype=int),
            nonnegative_total=np.ones(shape[1], dtype=bool),
            unit_ceiling=np.ones(shape[1]),
            possible_influence=empty,
        )
        assert intervals.low.shape == intervals.certified.shape == shape


@pytest.mark.parametrize("confidence", [0.0, 0.49, 1.0, 95.0, float("nan")])
def test_a_confidence_out_of_range_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"must be at least 0\.5 and at most 1 - 1e-12"):
        Level.of(confidence, anytime=False, fraction=0.1)


def test_a_variance_of_mixed_shapes_is_refused() -> None:
    good = Variance(np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="must have one shape"):
        replace(good, degrees_of_freedom=np.ones((1, 2)))


def test_infinite_freedom_gives_the_normal_interval() -> None:
    level = Level.of(0.95, anytime=False, fraction=0.1)
    low, high = student_interval(np.array([1.0]), np.array([4.0]), np.array([np.inf]), level)
    assert (high - low)[0] == pytest.approx(4 * 1.959963985)


def drawn_half_widths(scales: FloatArray, freedom: int, count: int) -> FloatArray:
    """Return Student half-widths of cells with these standard deviations, shape (count, cells)."""
    squares = np.random.default_rng(3).chisquare(freedom, (count, len(scales)))
    return np.asarray(scales * np.sqrt(squares / freedom) * stdtrit(freedom, 0.975))


@pytest.mark.parametrize("freedom", [7, 23])
def test_what_luck_explains_is_pooled(freedom: int) -> None:
    """Twenty cells whose variance falls as rows rise: the logarithms of their half-widths scatter by luck.

    Their variance is ψ′(ν/2)/4 by luck. Pooled, it is what remains of the line that was found, 2/20 of that,
    and what a prior leaves that is too weak by chance: a quarter of it at most on average.
    """
    rows = np.geomspace(10.0, 1e4, 20)
    scales = 1.0 / np.sqrt(rows)
    found = drawn_half_widths(scales, freedom, 200)
    pooled = [pooled_half_widths(each, rows, np.full(20, float(freedom))) for each in found]
    apart, together = (np.var(np.log(each / scales)) for each in (found, np.array(pooled)))
    assert apart == pytest.approx(polygamma(1, freedom / 2) / 4, rel=0.1)
    assert together < 0.35 * apart
    assert np.median(pooled / scales) == pytest.approx(1.96, abs=0.1)


def test_a_cell_far_above_the_others_is_not_made_narrower() -> None:
    like, unlike = np.array([0.8, 1.0, 1.1, 1.3]), np.array([1.0, 1.0, 1.1, 3.0])
    pooled = [pooled_half_widths(each, np.ones(4), np.full(4, 7.0)) for each in (like, unlike)]
    assert pooled[0] == pytest.approx([0.82, 0.92, 0.98, 1.1], abs=0.005)
    assert pooled[1] == pytest.approx(unlike, abs=0.005)


def test_a_level_has_its_standard_errors() -> None:
    assert Level.of(0.95, anytime=False, fraction=0.1).deviates == pytest.approx(1.96, abs=0.005)
    assert Level.of(0.95, anytime=True, fraction=0.01).deviates == pytest.approx(3.34, abs=0.005)


def test_cells_that_are_truly_unlike_keep_their_half_widths() -> None:
    """Each of 20 is three times as wide as the one before. The prior has less than one degree of freedom."""
    found = drawn_half_widths(3.0 ** np.arange(20), 7, 1)[0]
    assert pooled_half_widths(found, np.ones(20), np.full(20, 7.0)) == pytest.approx(found, rel=1e-9)


def share_above_the_largest(scales: FloatArray, half_widths: FloatArray) -> float:
    """Return how often the largest true error is above what 95 of 100 drawn largest ones stay below."""
    rng = np.random.default_rng(4)
    sizes = np.abs(rng.standard_normal((400, len(scales)))) / 1.96
    told = [np.partition((each * sizes).max(axis=1), 380)[380] for each in half_widths]
    errors = np.abs(rng.standard_normal(half_widths.shape)) * scales
    return float(np.mean(errors.max(axis=1) > told))


@pytest.mark.parametrize(
    ("scales", "freedom"),
    [([1] * 6, 7), ([1] * 3 + [2], 7), ([1] * 11 + [3], 7), ([1] * 5 + [2], 19)],
    ids=str,
)
def test_a_cell_among_like_ones_that_is_truly_wider_is_not_told_too_narrow(
    scales: list[int], freedom: int
) -> None:
    """At most 7 of 100 are wanted above the largest: 5, and three standard errors of 1,000 samples.

    Of six like cells on 7 degrees of freedom it is 0.006 without pooling, and 0.028 with it: above 0.013.
    """
    true = np.array(scales, dtype=np.float64)
    found = drawn_half_widths(true, freedom, 1000)
    rows, known = np.ones(len(true)), np.full(len(true), float(freedom))
    pooled = np.array([pooled_half_widths(each, rows, known) for each in found])
    assert share_above_the_largest(true, pooled) <= 0.07
    if len(set(scales)) == 1:
        assert share_above_the_largest(true, pooled) >= 0.013


@pytest.mark.parametrize("size", [1e-320, 1e-162, 1e155, 1e300])
def test_half_widths_of_any_size_are_pooled_alike(size: float) -> None:
    widths, freedom = np.array([1.0, 1.1, 1.3, 5.0]), np.full(4, 7.0)
    expected = pooled_half_widths(widths, np.ones(4), freedom) * size
    assert pooled_half_widths(widths * size, np.ones(4), freedom) == pytest.approx(expected, rel=1e-3, abs=0)


def test_a_cell_of_which_others_say_nothing_keeps_its_half_width() -> None:
    """The line over the rows goes through the only cell with many rows, wherever that is."""
    rows, widths = np.array([10.0, 10.0, 10.0, 10.0, 1e5]), np.array([1.0, 1.1, 0.9, 1.0, 0.1])
    found = pooled_half_widths(widths, rows, np.full(5, 7.0))
    assert found[4] == widths[4]
    assert (found[:4] != widths[:4]).all()


def test_what_has_no_luck_is_not_pooled() -> None:
    widths = np.array([0.0, np.inf, np.nan, 1.0, 2.0, 4.0])
    found = pooled_half_widths(widths, np.ones(6), np.full(6, np.inf))
    assert found == pytest.approx(widths, rel=1e-4, nan_ok=True)
    few = np.array([1.0, np.nan])
    assert pooled_half_widths(few, np.ones(2), np.full(2, 7.0)) is few
    assert len(pooled_half_widths(np.empty(0), np.empty(0), np.empty(0))) == 0


def test_ends_of_values_whose_error_is_beyond_all_numbers_are_no_nan() -> None:
    """NaN comes of NaN alone: what may be anything may be nearly nothing, and as large as can be."""
    half_widths = np.array([np.inf, 1e300, 1.0, np.nan])
    low, high = logarithmic_interval(np.full(4, 1e-10), half_widths, SURE)
    assert low[:2].tolist() == [0.0, 0.0]
    assert (high[:2] > 1e280).all()
    assert 0.0 <= low[2] < 1e-10 < high[2]
    assert np.isnan([low[3], high[3]]).all()
    extreme = np.stack(logarithmic_interval(np.array([-1e308]), np.array([1e307]), SURE))
    assert np.isfinite(extreme[1]).all()
