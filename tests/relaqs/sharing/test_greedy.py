"""On concave gains the selection equals the plain greedy loop; on others the envelope finds more."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import isotonic_regression

from relaqs.sharing.division import allocate_greedily, envelope_slopes, take_most_valued


def greedy_loop(gains: np.ndarray, most: np.ndarray, units: int) -> np.ndarray:
    """One unit after another to the job that gains most by it, while anybody gains: the papers' algorithm."""
    taken = np.zeros(len(gains), dtype=int)
    offers = [(-(gains[job, 1] - gains[job, 0]), job) for job in range(len(gains)) if most[job]]
    heapq.heapify(offers)
    while units and offers:
        gain, job = heapq.heappop(offers)
        if gain >= 0:
            break
        taken[job] += 1
        units -= 1
        if taken[job] < most[job]:
            heapq.heappush(offers, (-(gains[job, taken[job] + 1] - gains[job, taken[job]]), job))
    return taken


def table(gains: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A gain table as the function that allocations ask; constant beyond its last column."""
    return lambda jobs, units: gains[jobs[:, None], np.minimum(units.astype(int), gains.shape[1] - 1)]


def interpolated(gains: np.ndarray, units: np.ndarray) -> float:
    """What the jobs gain in sum, a part of a unit counting as that part of its gain."""
    columns = np.arange(gains.shape[1])
    return sum(float(np.interp(share, columns, row)) for share, row in zip(units, gains, strict=True))


@st.composite
def concave_tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    jobs, columns = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    marginal = -np.sort(-random.exponential(random.uniform(0.1, 5.0, (jobs, 1)), (jobs, columns)), axis=1)
    gains = np.concatenate([np.zeros((jobs, 1)), marginal.cumsum(axis=1)], axis=1)
    most = random.integers(0, columns + 1, jobs)
    return gains, most, draw(st.integers(0, jobs * columns + 5))


@given(concave_tables())
def test_the_selection_is_the_greedy_loop_on_concave_gains(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    gains, most, units = case
    expected = greedy_loop(gains, most, units)
    assert allocate_greedily(table(gains), most, units).tolist() == expected.tolist()


@given(concave_tables(), st.integers(1, 3))
def test_with_ties_the_selection_gains_as_much_as_the_loop(case, decimals: int) -> None:
    gains, most, units = case
    steps = np.round(np.diff(gains, axis=1), decimals - 1)  # many equal gains, many of nothing
    gains = np.concatenate([np.zeros((len(gains), 1)), steps.cumsum(axis=1)], axis=1)
    found = allocate_greedily(table(gains), most, units)
    assert found.sum() <= units + 1e-9
    assert interpolated(gains, found) == pytest.approx(interpolated(gains, greedy_loop(gains, most, units)))


def test_equal_jobs_share_the_last_units() -> None:
    gains = np.tile([0.0, 3.0, 5.0, 6.0], (4, 1))
    assert allocate_greedily(table(gains), np.full(4, 3), 6).tolist() == [1.5] * 4


def test_units_that_nobody_gains_by_are_not_given() -> None:
    gains = np.array([[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert allocate_greedily(table(gains), np.array([3, 3]), 6).tolist() == [1, 0]


def test_one_job_may_want_nearly_everything() -> None:
    columns = np.arange(1001.0)
    gains = np.stack([1000 * np.sqrt(columns), *(np.minimum(columns, 1) for _ in range(99))])
    found = allocate_greedily(table(gains), np.full(100, 1000), 400)
    assert found.tolist() == [400] + [0] * 99


def test_values_are_taken_from_the_largest_on() -> None:
    values = np.array([[9.0, 7.0, 5.0, 3.0, 1.0], [8.0, 2.0, 2.0, 2.0, 2.0]])
    wide = lambda jobs, n: np.pad(values, ((0, 0), (0, 60)))[jobs, :n]  # noqa: E731
    assert take_most_valued(wide, np.array([5, 5]), 4).tolist() == [3, 1]
    assert take_most_valued(wide, np.array([1, 5]), 4).tolist() == [1, 3]
    assert take_most_valued(wide, np.array([5, 5]), 0).tolist() == [0, 0]


gain_rows = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.just(9)), elements=st.integers(-5, 5))
point_sets = st.lists(st.integers(1, 6), min_size=8, max_size=8).map(lambda gaps: np.cumsum([0.0, *gaps]))


@given(gain_rows, point_sets)
def test_the_envelope_is_the_antitonic_regression_of_the_slopes(
    gains: np.ndarray, points: np.ndarray
) -> None:
    slopes = envelope_slopes(points, gains)
    run = np.diff(points)
    expected = [isotonic_regression(np.diff(row) / run, weights=run, increasing=False).x for row in gains]
    assert slopes == pytest.approx(np.array(expected), abs=1e-12)


@given(gain_rows, point_sets)
def test_the_envelope_lies_above_and_touches_both_ends(gains: np.ndarray, points: np.ndarray) -> None:
    envelope = gains[:, :1] + np.cumsum(envelope_slopes(points, gains) * np.diff(points), axis=1)
    assert (envelope >= gains[:, 1:] - 1e-9).all()
    assert envelope[:, -1] == pytest.approx(gains[:, -1])


def best_integer_total(gains: np.ndarray, units: int) -> float:
    """The optimum over whole units, by dynamic programming over the jobs."""
    best = np.zeros(units + 1)
    for row in gains:
        best = np.array(
            [max(best[total - own] + row[own] for own in range(total + 1)) for total in range(units + 1)]
        )
    return float(best[units])


def waves(units: np.ndarray, pace: float, tasks: int) -> np.ndarray:
    """Steps of so many tasks run in waves: a core more helps only when it saves a wave."""
    rounds = np.ceil(tasks / np.clip(units, 1, tasks))
    return np.where(units > 0, 1 - 1 / (1 + pace * tasks / rounds), 0)


def whole_steps(units: np.ndarray, pace: float, tasks: int) -> np.ndarray:
    return 1 - 1 / (1 + np.floor(pace * units / tasks * 4))


def gangs(units: np.ndarray, pace: float, tasks: int) -> np.ndarray:
    """Nothing happens below so many cores at once."""
    return np.where(units >= tasks / 2, 1 - 1 / (1 + pace * units), 0)


@pytest.mark.parametrize(("shape", "of_loop"), [(waves, 0.95), (whole_steps, 0.8), (gangs, 0.2)])
def test_the_envelope_reaches_the_optimum_where_the_loop_does_not(shape, of_loop: float) -> None:
    random = np.random.default_rng(11)
    units = 32
    columns = np.arange(units + 1)
    shares_of_loop = []
    for _ in range(20):
        gains = np.stack(
            [shape(columns, random.uniform(0.2, 2.0), int(random.choice([4, 8, 16]))) for _ in range(8)]
        )
        optimum = best_integer_total(gains, units)
        found = allocate_greedily(table(gains), np.full(8, units), units, far_doublings=3)
        # Time shared between the corners of the envelopes, which is at least as good as whole units.
        envelopes = np.zeros_like(gains)
        envelopes[:, 1:] = np.cumsum(envelope_slopes(columns.astype(float), gains), axis=1)
        assert interpolated(envelopes, found) >= optimum * (1 - 1e-9)
        loop = greedy_loop(gains, np.full(8, units), units)
        shares_of_loop.append(gains[np.arange(8), loop].sum() / optimum)
    assert np.mean(shares_of_loop) < of_loop
