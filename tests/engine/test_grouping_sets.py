"""Subtotals beside their parts: consistent in every estimate, and as sure as they are large."""

from __future__ import annotations

from collections import defaultdict

import pytest
from relaqs_engine.execution.estimate import Estimate

from tests.engine.world import World

SQL = (
    "SELECT l_returnflag AS f, l_shipmode AS m, count(*) AS n, sum(l_quantity) AS q, "
    "grouping(l_returnflag, l_shipmode) AS level FROM lineitem WHERE l_tax > 0.01 GROUP BY CUBE (1, 2)"
)
WHOLE, BY_MODE, BY_FLAG, BOTH = 3, 2, 1, 0


@pytest.fixture(scope="module")
def estimates(tpch: World) -> list[Estimate]:
    return list(tpch.estimates(tpch.plan(SQL), batches=5))


def test_parts_add_up_to_their_subtotals_in_every_estimate(estimates: list[Estimate]) -> None:
    for estimate in estimates:
        totals: dict[int, float] = defaultdict(float)
        for row in estimate.table.to_pylist():
            totals[row["level"]] += float(row["q"])
        assert totals[WHOLE] > 0
        for level in (BY_MODE, BY_FLAG, BOTH):
            assert totals[level] == pytest.approx(totals[WHOLE], rel=1e-4)  # each is rounded to cents


def test_subtotals_are_surer_than_their_parts(estimates: list[Estimate]) -> None:
    widths = defaultdict(list)
    for row in estimates[0].table.to_pylist():
        widths[row["level"]].append((row["n_high"] - row["n_low"]) / row["n"])
    assert max(widths[WHOLE]) < min(widths[BY_FLAG])
    assert sum(widths[BY_FLAG]) / 3 < sum(widths[BOTH]) / len(widths[BOTH])


def test_groups_not_yet_seen_are_not_counted(estimates: list[Estimate]) -> None:
    """Groups of several levels are no sample of one population."""
    assert estimates[0].unseen_groups is None
    assert estimates[-1].unseen_groups == 0


def test_what_grouping_says_is_a_key(tpch: World) -> None:
    kinds = {output.name: output.kind.value for output in tpch.plan(SQL).outputs}
    assert kinds == {"f": "key", "m": "key", "n": "estimate", "q": "estimate", "level": "key"}
