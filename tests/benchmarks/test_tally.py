"""Coverage is counted by run, and called outside its band only by more than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.tally import FIELDS, EveryLook, FloatArray, Look, counts_of, coverage_of

NAN = float("nan")


def look(truth: Any, low: Any, high: Any, certified: Any) -> Look:
    arrays = [np.array(values, dtype=np.float64) for values in (truth, low, high)]
    return Look(arrays[0], arrays[1], arrays[2], np.array(certified, dtype=bool))


def counted(counts: FloatArray, field: str) -> list[float]:
    return list(counts[:, FIELDS.index(field)])


def test_a_look_is_counted_by_column() -> None:
    counts = counts_of(
        look(
            truth=[[10.0, 5.0], [20.0, NAN], [30.0, 7.0]],
            low=[[9.0, 6.0], [21.0, 1.0], [NAN, 6.0]],
            high=[[13.0, 8.0], [23.0, 2.0], [40.0, 8.0]],
            certified=[[True, True], [True, True], [False, False]],
        )
    )
    assert counted(counts, "cells") == [3, 2]  # what has no truth is no cell
    assert counted(counts, "certified") == [2, 1]
    assert counted(counts, "held") == [1, 0]
    assert counted(counts, "half_width") == [3.0, 1.0]
    assert counted(counts, "size") == [30.0, 5.0]
    assert counted(counts, "bounded") == [2, 2]
    assert counted(counts, "bounded_held") == [1, 1]


@pytest.mark.parametrize(
    ("low", "high", "held"),
    [(4.0, 6.0, True), (5.0, 5.0, True), (5.0 + 1e-10, 6.0, True), (5.1, 6.0, False), (NAN, 4.9, False)],
)
def test_an_interval_holds_the_truth_but_for_rounding(low: float, high: float, held: bool) -> None:
    assert look([[5.0]], [[low]], [[high]], [[True]]).held.item() is held


def test_an_end_that_is_missing_excludes_nothing() -> None:
    half_open = look([[5.0]], [[4.0]], [[NAN]], [[False]])
    assert half_open.held.item() is True
    assert half_open.bounded.item() is False


def runs(coverage: float, count: int, cells: int, *, together: bool, seed: int = 0) -> FloatArray:
    """Return the counts of runs whose certified cells are covered with this probability."""
    draws = np.random.default_rng(seed).random((count, 1 if together else cells)) < coverage
    held = draws.mean(axis=1) * cells
    counts = np.zeros((count, 1, len(FIELDS)))
    for field in ("cells", "certified", "size", "half_width", "bounded"):
        counts[:, 0, FIELDS.index(field)] = cells
    counts[:, 0, FIELDS.index("held")] = counts[:, 0, FIELDS.index("bounded_held")] = held
    return counts


# √(0.0475/200) = 1.54 points for a cell, with 5 % of 200 runs the estimate of it is good to about a quarter.
@pytest.mark.parametrize("cells", [1, 20])
def test_cells_that_go_together_count_once(cells: int) -> None:
    found = coverage_of(runs(0.95, 200, cells, together=True), layouts=200)
    assert found.standard_error == pytest.approx(0.0154, rel=0.25)


def test_independent_cells_make_coverage_surer() -> None:
    found = coverage_of(runs(0.95, 200, 100, together=False), layouts=200)
    assert found.standard_error == pytest.approx(0.00154, rel=0.25)


def test_many_orders_of_one_layout_are_not_as_good_as_many_layouts() -> None:
    counts = runs(0.95, 200, 20, together=True)
    one, many = coverage_of(counts, layouts=1), coverage_of(counts, layouts=200)
    assert one.coverage == many.coverage
    assert one.standard_error == pytest.approx(many.standard_error * (1 + 200 / 186) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("coverage", "count", "verdict"),
    [(0.95, 200, ""), (0.88, 200, "low"), (1.0, 400, "high"), (0.91, 20, ""), (1.0, 20, "")],
)
def test_the_verdict_allows_for_chance(coverage: float, count: int, verdict: str) -> None:
    assert coverage_of(runs(coverage, count, 1, together=True), layouts=4).verdict == verdict


def test_nothing_certified_has_no_coverage_and_no_verdict() -> None:
    counts = np.zeros((10, 1, len(FIELDS)))
    counts[:, :, FIELDS.index("cells")] = 3
    found = coverage_of(counts, layouts=2)
    assert (found.cells, found.certified_share, found.verdict) == (30, 0.0, "")
    assert np.isnan(found.coverage)


def test_a_width_is_relative_to_the_size_of_its_own_column() -> None:
    counts = np.zeros((1, 2, len(FIELDS)))
    counts[0, :, FIELDS.index("half_width")] = [1.0, 30.0]
    counts[0, :, FIELDS.index("size")] = [10.0, 100.0]
    assert coverage_of(counts, layouts=1).half_width == pytest.approx((0.1 + 0.3) / 2)


def test_one_miss_at_any_look_is_a_miss_and_uncertified_looks_do_not_count() -> None:
    truth = np.array([[1.0], [2.0], [3.0], [4.0]])
    every = EveryLook(truth)
    first = np.array([0, 1, 2])
    every.add(first, look(truth[first], [[0.0], [9.0], [9.0]], [[5.0], [9.5], [9.5]], [[1], [1], [0]]))
    then = np.array([2, 1, 3])
    every.add(then, look(truth[then], [[0.0], [0.0], [9.0]], [[5.0], [5.0], [9.5]], [[1], [1], [0]]))
    counts = every.counts()
    assert counted(counts, "cells") == [4]
    assert counted(counts, "certified") == [3]
    assert counted(counts, "held") == [2]
