"""Progress is how far a result moved, relative to its largest move, over the cells that count."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate, Reason

from relaqs.progress import Cells, LossDelta, ResultDelta, UserDelta, cells_of

X = math.nan  # a cell that does not count


def cells(rows: dict[str, list[float]], columns: int) -> Cells:
    """One result: a row of values a group; NaN marks a cell that is left out."""
    values = np.array(list(rows.values()), dtype=float).reshape(len(rows), columns)
    return Cells(tuple(rows), values, ~np.isnan(values))


def progress_of(*results: dict[str, list[float]]) -> list[float]:
    metric = ResultDelta()
    columns = max((len(row) for result in results for row in result.values()), default=1)
    return [metric.update(cells(result, columns)) for result in results]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param([{"a": [10]}, {"a": [14]}, {"a": [13]}, {"a": [13]}], [1, 1, 1 / 4, 0], id="one cell"),
        pytest.param(
            [{"a": [10]}, {"a": [11]}, {"a": [19]}], [1, 1, 1], id="a larger move is the new measure"
        ),
        pytest.param(
            [{"a": [0, 0]}, {"a": [4, 9]}, {"a": [2, 9]}], [1, 1, 1 / 4], id="averaged over columns"
        ),
        pytest.param(
            [{"a": [0], "b": [0]}, {"a": [8], "b": [1]}, {"b": [2], "a": [12]}],
            [1, 1, (1 / 2 + 1) / 2],
            id="groups are matched by key, not by row",
        ),
        pytest.param(
            [{"a": [0]}, {"a": [8]}, {"a": [10], "b": [5]}, {"a": [10], "b": [6]}],
            [1, 1, (1 / 4 + 1) / 2, (0 + 1) / 2],
            id="a new group is all new",
        ),
        pytest.param(
            [{"a": [0]}, {"a": [8]}, {}, {"a": [10]}],
            [1, 1, 0, 1 / 4],
            id="a group that vanishes and comes back",
        ),
        pytest.param(
            [{"a": [0], "b": [X]}, {"a": [8], "b": [X]}, {"a": [10], "b": [X]}],
            [1, 1, 1 / 4],
            id="groups with too few rows are left out",
        ),
        pytest.param(
            [{"a": [0]}, {"a": [8]}, {"a": [X]}, {"a": [10]}],
            [1, 1, 0, 1 / 4],
            id="a cell left out for a while",
        ),
        pytest.param([{"a": [7]}, {"a": [7]}, {"a": [7]}], [1, 0, 0], id="an answer that never moves"),
        pytest.param([{"a": [-1]}, {"a": [-5]}, {"a": [-4]}], [1, 1, 1 / 4], id="negative values"),
    ],
)
def test_result_delta(results: list[dict[str, list[float]]], expected: list[float]) -> None:
    assert progress_of(*results) == pytest.approx(expected)


numbers = st.integers(-(10**9), 10**9).map(lambda number: number / 1024)  # halves of them are exact, too
runs = st.lists(
    st.dictionaries(st.sampled_from("abcde"), st.lists(numbers, min_size=2, max_size=2)), max_size=8
)


@given(runs)
def test_progress_is_a_share(results: list[dict[str, list[float]]]) -> None:
    assert all(0.0 <= progress <= 1.0 for progress in progress_of(*results))


@given(runs, st.sampled_from([0.5, 4.0, 1024.0]))
def test_the_unit_of_the_answer_does_not_matter(results: list[dict[str, list[float]]], unit: float) -> None:
    scaled = [{key: [unit * value for value in row] for key, row in result.items()} for result in results]
    assert progress_of(*scaled) == pytest.approx(progress_of(*results))


def test_averages_of_equal_batches_move_as_one_over_i() -> None:
    """E|X_i − X_{i−1}| is proportional to 1/√(i(i−1)), so from i = 5 to i = 50 it falls 11 times."""
    batches = np.random.default_rng(1).normal(size=(50, 2000))
    metric, moves = ResultDelta(), []
    for i in range(1, 51):
        means = batches[:i].mean(axis=0)[:, None]
        moves.append(metric.update(Cells(tuple(range(2000)), means, np.ones_like(means, dtype=bool))))
    # Each mean is over 2,000 half-normal values: standard error 1.7 %, and 2.4 % of a ratio; four of them.
    assert moves[4] / moves[49] == pytest.approx(math.sqrt(50 * 49 / (5 * 4)), rel=0.1)


@pytest.mark.parametrize(
    ("keys", "values", "counts", "message"),
    [
        ((1,), np.zeros((2, 1)), np.ones((2, 1), bool), "do not fit"),
        ((1, 2), np.zeros((2, 1)), np.ones((2, 2), bool), "do not fit"),
        ((1, 1), np.zeros((2, 1)), np.ones((2, 1), bool), "the same key"),
    ],
)
def test_cells_that_do_not_fit(keys: tuple[int, ...], values, counts, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cells(keys, values, counts)


def test_the_watched_columns_stay_the_same() -> None:
    metric = ResultDelta()
    metric.update(cells({"a": [1, 2]}, 2))
    with pytest.raises(ValueError, match="1 watched columns; the ones before had 2"):
        metric.update(cells({"a": [1]}, 1))


def estimate(keys: list[object], values: list[list[float]], certified: list[list[bool]]) -> Estimate:
    columns = np.array(values, dtype=float)
    table = pa.table({"k": keys, "total": columns[:, 0], "mean": columns[:, 1]})
    approximate = tuple(
        ApproximateColumn(n, f"{n}_low", f"{n}_high", f"{n}_certified", i)
        for i, n in enumerate(("total", "mean"), start=1)
    )
    doubts = np.where(certified, Reason.NONE, Reason.FEW_ROWS)
    return Estimate(table, ("k", "total", "mean"), approximate, 0.5, False, columns, columns * 0.1, doubts)


def test_an_estimate_gives_its_certified_cells() -> None:
    found = cells_of(estimate(["x", "y"], [[1, 2], [3, 4]], [[True, False], [True, True]]))
    assert found.values.tolist() == [[1, 2], [3, 4]]
    assert found.counts.tolist() == [[True, False], [True, True]]


def test_only_watched_columns_count() -> None:
    found = cells_of(estimate(["x", "y"], [[1, 2], [3, 4]], [[True, True]] * 2), watch=("mean",))
    assert found.values.tolist() == [[2], [4]]
    with pytest.raises(
        ValueError, match=r"\['k'\] cannot be watched; the approximate columns are \['total', 'mean'\]"
    ):
        cells_of(estimate(["x"], [[1, 2]], [[True, True]]), watch=("k",))


@pytest.mark.parametrize("keys", [["x", "y"], [None, math.nan], [[1, 2], [3]], ["same", "same"]], ids=repr)
def test_rows_of_an_estimate_are_matched_whatever_their_key(keys: list[object]) -> None:
    metric = ResultDelta()
    sure = [[True, True]] * 2
    metric.update(cells_of(estimate(keys, [[0, 0], [0, 0]], sure)))
    metric.update(cells_of(estimate(keys, [[4, 4], [8, 8]], sure)))
    assert metric.update(cells_of(estimate(keys, [[3, 3], [8, 8]], sure))) == pytest.approx(1 / 8)


def test_progress_by_a_function_of_the_user() -> None:
    metric = UserDelta(lambda before, after: len(after - before))
    results = [{"a", "b", "c"}, {"b", "c", "d", "e"}, {"c", "d", "e", "f"}, {"c", "d", "e", "f"}]
    assert [metric.update(each) for each in results] == [1.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("distance", [-1.0, math.nan, math.inf])
def test_a_function_that_is_no_distance(distance: float) -> None:
    metric: UserDelta[int] = UserDelta(lambda before, after: distance)
    metric.update(1)
    with pytest.raises(ValueError, match="the progress function returned"):
        metric.update(2)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([10, 6, 5, 5], [1, 1, 1 / 4, 0]),
        ([10, 6, 8], [1, 1, 1 / 2]),
        ([10, math.nan, 6, 5], [1, 0, 1, 1 / 4]),
        ([3, 3], [1, 0]),
    ],
)
def test_loss_delta(losses: list[float], expected: list[float]) -> None:
    metric = LossDelta()
    assert [metric.update(loss) for loss in losses] == pytest.approx(expected)


def test_the_largest_change_of_a_loss_keeps_its_unit() -> None:
    metric = LossDelta()
    for loss in (10.0, 6.0, 5.0):
        metric.update(loss)
    assert metric.largest_change == 4.0
