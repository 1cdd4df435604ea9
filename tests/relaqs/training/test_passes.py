"""How a pass is cut and added up: the grouping of partitions changes no bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_engine.errors import DataError

from relaqs.training import Rows, TellsClasses
from relaqs.training.passes import add_sums, in_pairs, pieces_of, pieces_per_task, sample_rows

numbers = st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=40)


@given(numbers, st.integers(0, 6))
def test_groups_of_a_power_of_two_add_up_to_the_same_bits(values: list[float], power: int) -> None:
    def add(a: float, b: float) -> float:
        return a + b

    size = 1 << power
    groups = [in_pairs(values[i : i + size], add) for i in range(0, len(values), size)]
    assert in_pairs(groups, add) == in_pairs(values, add)


def test_pairs_are_neighbours() -> None:
    assert in_pairs(list("abcde"), lambda a, b: f"({a}{b})") == "(((ab)(cd))e)"


def test_sums_of_other_shapes_are_refused() -> None:
    one, other = (np.zeros(2), np.zeros((2, 3))), (np.zeros(2), np.zeros((2, 4)))
    assert [each.shape for each in add_sums(one, one)] == [(2,), (2, 3)]
    with pytest.raises(DataError, match=r"\(2, 3\).*\(2, 4\)"):
        add_sums(one, other)
    with pytest.raises(DataError, match="shapes"):
        add_sums(one, one[:1])


@pytest.mark.parametrize(
    ("core_seconds", "pieces", "expected"),
    [
        (100 * 0.06, 100, 1),  # slow pieces stay alone
        (100 * 0.008, 100, 4),  # 0.032 s; eight would take 0.064
        (100 * 0.0001, 100, 128),  # all in one task
        (0.0, 7, 8),
        (1.0, 1, 1),
    ],
)
def test_a_task_covers_as_much_as_its_time_allows(core_seconds: float, pieces: int, expected: int) -> None:
    assert pieces_per_task(core_seconds, pieces) == expected


@pytest.mark.parametrize(
    ("row_counts", "expected"),
    [([8192, 100], 1), ([8193, 8000], 2), ([60_000, 59_000], 8), ([600_000], 128), ([0, 0], 1)],
)
def test_partitions_are_cut_by_their_rows_into_powers_of_two(row_counts: list[int], expected: int) -> None:
    assert pieces_of(row_counts, 8192) == expected


def test_the_sample_is_in_proportion_to_the_partitions() -> None:
    assert sample_rows([400, 200, 0, 1], wanted=60) == [40, 20, 0, 1]
    assert sample_rows([40, 30], wanted=1000) == [40, 30]
    assert sample_rows([0, 0], wanted=1000) == [0, 0]


def test_a_job_that_counts_right_answers_tells_classes() -> None:
    class Sign:
        def right(self, model: float, rows: Rows) -> int:
            return int(((rows.features[:, 0] > model) == rows.target).sum())

    assert isinstance(Sign(), TellsClasses)
    assert not isinstance(object(), TellsClasses)
    assert Sign().right(0.5, Rows(np.array([[0.2], [0.9]]), np.array([False, False]))) == 1
