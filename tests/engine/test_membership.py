"""Which groups of an estimate surely belong to the answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.execution.membership import decided_groups
from relaqs_engine.plan import Decider, Mode, OnlinePlan, OutputColumn, OutputKind

VALUE = OutputColumn("s", OutputKind.ESTIMATE, "DOUBLE", "b0 * scale", total="b0")
PLAN = OnlinePlan("", Mode.MERGEABLE, (), (), (), outputs=(VALUE,))
MARGIN = replace(PLAN, deciders=(Decider(VALUE, ranks=False),), has_having=True)
TOP_2 = replace(PLAN, deciders=(Decider(VALUE, ranks=True),), shown_rows=2, has_limit=True)
MANY_ROWS = np.full(3, 1000.0)


def cells(decider: list[float], error: float = 1.0) -> CellIntervals:
    """Return groups with one shown output, of no interest here, and one decider with this standard error."""
    value = np.stack([np.zeros(len(decider)), np.array(decider)], axis=1)
    sure = np.ones(value.shape, dtype=bool)
    return CellIntervals(value, value, value, sure, np.full(value.shape, error))


def test_every_group_is_decided_where_nothing_decides() -> None:
    assert decided_groups(PLAN, cells([1.0, 2.0, 3.0]), MANY_ROWS).all()


@pytest.mark.parametrize(
    ("margins", "rows", "decided"),
    [
        ([3.1, -3.1, 2.9], [30.0, 30.0, 30.0], [True, True, False]),  # beyond three standard errors or not
        ([9.0, 9.0, 9.0], [29.0, 30.0, 31.0], [False, True, True]),  # of at least thirty rows
        ([float("nan"), 0.0, 9.0], [99.0, 99.0, 99.0], [False, False, True]),
    ],
)
def test_a_margin_decides_beyond_three_standard_errors(
    margins: list[float], rows: list[float], decided: list[bool]
) -> None:
    assert decided_groups(MARGIN, cells(margins), np.array(rows)).tolist() == decided


def test_a_rank_is_told_by_the_distance_to_the_first_group_left_out() -> None:
    # The difference of two estimates with standard error 1 has 1.41: three of them are 4.24.
    assert decided_groups(TOP_2, cells([10.0, 4.0, 0.0]), MANY_ROWS).tolist() == [True, False]
    assert decided_groups(TOP_2, cells([10.0, 4.3, 0.0]), MANY_ROWS).tolist() == [True, True]


def test_a_ranking_that_leaves_nobody_out_is_decided() -> None:
    assert decided_groups(TOP_2, cells([2.0, 1.0]), np.full(2, 1000.0)).tolist() == [True, True]


def test_a_rank_needs_rows_on_both_sides() -> None:
    rows: NDArray[np.float64] = np.array([1000.0, 1000.0, 5.0])
    assert not decided_groups(TOP_2, cells([90.0, 80.0, 0.0]), rows).any()


def test_nothing_is_decided_by_what_cannot_be_told() -> None:
    plan = replace(PLAN, membership_is_opaque=True)
    assert not decided_groups(plan, cells([1.0, 2.0, 3.0]), MANY_ROWS).any()
