"""Which rows of an estimate are certain: what HAVING and LIMIT decide, and who may still come before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.execution.certain_rows import Candidates, Membership, Places
from relaqs_engine.execution.estimate import CellIntervals
from relaqs_engine.layouts import shuffle
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.aggregate import (
    Basis,
    BasisColumn,
    Decider,
    GroupFacts,
    MembershipRules,
    MergePlan,
    MergeTexts,
    PartialQuery,
    StateColumns,
)
from relaqs_engine.plans.plan import ErrorBars, IntervalRequest, OutputColumn, OutputKind, Stream
from scipy.special import ndtri

COUNT = BasisColumn("b0", Basis.COUNT, "COUNT(*)", "BIGINT", "1", lowest=0.0, highest=1.0)
TOTAL = OutputColumn("n", OutputKind.ESTIMATE, "DOUBLE", "b0 * scale", total="b0")
MEAN = OutputColumn("a", OutputKind.ESTIMATE, "DOUBLE", "b1 / b0")
PLAN = MergePlan(
    sql="",
    outputs=(TOTAL,),
    reasons=(),
    streams=(Stream("t", "t"),),
    partial=PartialQuery(""),
    columns=StateColumns(basis=(COUNT,)),
    texts=MergeTexts(""),
    bars=ErrorBars(joined=("t",)),
)
ABOVE_100 = Decider(TOTAL, ranks=False, threshold=100.0, passes="", side="above")
BY_TOTAL, BY_MEAN = Decider(TOTAL, ranks=True), Decider(MEAN, ranks=True)
HAVING = MembershipRules((ABOVE_100,), has_having=True)
TOP_2 = MembershipRules((BY_MEAN,), shown_rows=2, has_limit=True)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    folder: Path = tmp_path_factory.mktemp("layout")
    shuffle(pa.table({"x": list(range(100))}), folder / "t", partitions=10)
    return Catalog.open(folder).table("t")


def at(deciders: list[list[float]], error: float | list[float]) -> Callable[[float], CellIntervals]:
    """Return the intervals of one shown output, of no interest, and these deciders, all normal."""
    values = np.array([[0.0] * len(deciders[0]), *deciders]).T
    errors = np.broadcast_to(np.array(error, dtype=float).reshape(-1, 1), values.shape)

    def found(confidence: float) -> CellIntervals:
        half = ndtri((1 + confidence) / 2) * errors
        return CellIntervals(values, values - half, values + half, np.zeros(values.shape, int), errors)

    return found


def places(
    rules: MembershipRules,
    layout: Layout,
    deciders: list[list[float]],
    *,
    error: float | list[float] = 1.0,
    rows: list[float] | None = None,
    passes: list[bool] | None = None,
    fraction: float = 0.1,
    are_local: bool = False,
) -> Places:
    count = len(deciders[0])
    seen = np.array(rows or [1000.0] * count)
    passing = np.array(passes or [True] * count)
    plan = replace(PLAN, membership=rules, groups=GroupFacts(are_local=are_local))
    decide = Membership(plan, layout, IntervalRequest())
    return decide(Candidates(passing, seen, seen.min()), at(deciders, error), fraction)


def test_every_row_is_certain_where_nothing_decides(layout: Layout) -> None:
    assert places(MembershipRules(), layout, [[1.0, 2.0, 3.0]]).certain.all()


def test_a_threshold_decides_beyond_what_chance_explains(layout: Layout) -> None:
    found = places(HAVING, layout, [[108.0, 101.0, 104.0]])
    assert found.certain.tolist() == [True, False, True]
    assert found.open == 1
    assert found.slack[0] > found.slack[2] > 0


def test_a_threshold_does_not_decide_for_groups_of_few_rows(layout: Layout) -> None:
    assert places(HAVING, layout, [[300.0, 300.0]], rows=[29.0, 30.0]).certain.tolist() == [False, True]


def test_the_more_groups_are_open_the_more_each_needs(layout: Layout) -> None:
    """Of one group 2.5 standard errors are enough, of each of a hundred they are not."""
    assert places(HAVING, layout, [[102.5]]).certain.all()
    assert not places(HAVING, layout, [[102.5] * 100]).certain.any()


def test_what_is_no_number_decides_nothing(layout: Layout) -> None:
    assert places(HAVING, layout, [[float("nan"), 120.0]]).certain.tolist() == [False, True]


def test_a_rank_is_told_by_all_groups_that_may_come_before(layout: Layout) -> None:
    assert places(TOP_2, layout, [[30.0, 20.0, 10.0, 9.0]]).certain.tolist() == [True, True]
    # The third is near the second, and either may be the second: the first stays.
    assert places(TOP_2, layout, [[30.0, 20.0, 19.0, 9.0]]).certain.tolist() == [True, False]
    # Not the first one left out, the second may come in: it is far less sure.
    errors = [1.0, 1.0, 1.0, 20.0]
    assert places(TOP_2, layout, [[30.0, 20.0, 10.0, 9.0]], error=errors).certain.tolist() == [True, False]


def test_the_smallest_come_first_where_the_order_ascends(layout: Layout) -> None:
    rules = replace(TOP_2, deciders=(replace(BY_MEAN, descends=False),))
    assert places(rules, layout, [[1.0, 10.0, 20.0]]).certain.all()
    assert not places(rules, layout, [[1.0, 2.0, 2.5]]).certain.any()


def test_one_group_too_small_to_be_judged_leaves_one_place_less(layout: Layout) -> None:
    rows = [1000.0, 1000.0, 1000.0, 20.0]
    assert places(TOP_2, layout, [[30.0, 20.0, 10.0, 5.0]], rows=rows).certain.tolist() == [True, False]


def test_groups_not_seen_may_have_any_mean(layout: Layout) -> None:
    """There are groups of two rows, so there are others of which none was read yet."""
    rows = [1000.0, 1000.0, 1000.0, 2.0]
    assert not places(TOP_2, layout, [[30.0, 20.0, 10.0, 5.0]], rows=rows).certain.any()
    having = replace(TOP_2, deciders=(replace(ABOVE_100, threshold=500.0), BY_MEAN))
    numbers = [[10_000.0, 10_000.0, 10_000.0, 20.0], [30.0, 20.0, 10.0, 5.0]]
    assert places(having, layout, numbers, rows=rows, passes=[True, True, True, False]).certain.all()


def test_groups_not_seen_have_few_rows(layout: Layout) -> None:
    """Of nothing seen in a tenth of the rows there are at most 138, but once in a million."""
    rules = replace(TOP_2, deciders=(BY_TOTAL,))
    rows = [1000.0, 1000.0, 1000.0, 2.0]
    assert places(rules, layout, [[300.0, 137.0, 100.0, 20.0]], rows=rows).certain.tolist() == [True, False]
    assert not places(rules, layout, [[130.0, 120.0, 20.0, 20.0]], rows=rows).certain.any()


def test_a_group_that_having_leaves_out_may_come_back_and_go_ahead(layout: Layout) -> None:
    rules = replace(TOP_2, deciders=(ABOVE_100, BY_MEAN))
    numbers = [[900.0, 900.0, 900.0, 99.0], [30.0, 20.0, 10.0, 25.0]]
    passes = [True, True, True, False]
    assert places(rules, layout, numbers, passes=passes).certain.tolist() == [True, False]
    numbers[0][3] = 60.0
    assert places(rules, layout, numbers, passes=passes).certain.tolist() == [True, True]


def test_a_ranking_of_complete_groups_waits_for_those_not_read(layout: Layout) -> None:
    assert not places(TOP_2, layout, [[30.0, 20.0, 10.0]], are_local=True).certain.any()


def test_nothing_is_certain_by_what_cannot_be_told(layout: Layout) -> None:
    assert not places(MembershipRules(is_opaque=True), layout, [[1.0, 2.0]]).certain.any()


def test_the_first_keys_are_certain_when_no_group_is_small(layout: Layout) -> None:
    rules = MembershipRules(ranks_by_key=True, has_limit=True)
    assert places(rules, layout, [[1.0, 2.0]], rows=[14.0, 500.0]).certain.all()
    assert not places(rules, layout, [[1.0, 2.0]], rows=[3.0, 500.0]).certain.any()
