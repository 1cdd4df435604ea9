"""Aggregates over a UNION ALL of sampled tables: each branch is aggregated on its own."""

from __future__ import annotations

import pytest
from relaqs_engine.plans.composite import AroundPlan
from relaqs_engine.plans.plan import Mode

from tests.engine.world import World

BOTH = (
    "(SELECT 'l' AS k, l_quantity AS v, l_shipmode AS mode FROM lineitem "
    "UNION ALL SELECT 'o', o_totalprice, o_orderpriority FROM orders) AS u"
)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT k, sum(v), count(*), avg(v), min(v), max(v) FROM {BOTH} GROUP BY k",
        f"SELECT k, sum(v) FILTER (WHERE v > 20) FROM {BOTH} GROUP BY ROLLUP (k) HAVING avg(v) > 1",
        f"SELECT k, sum(v), rank() OVER (ORDER BY sum(v)) FROM {BOTH} GROUP BY k ORDER BY 2 DESC LIMIT 1",
        f"SELECT n_name, sum(v) FROM nation JOIN {BOTH} ON length(mode) = n_nationkey GROUP BY 1",
        f"SELECT avg(v) FROM {BOTH} WHERE v > 3",
    ],
)
def test_each_branch_is_a_part(tpch: World, sql: str) -> None:
    plan = tpch.check(sql, batches=3)
    assert isinstance(plan, AroundPlan)
    assert {part.leading for part in plan.parts} == {"lineitem", "orders"}


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT count(DISTINCT v) FROM {BOTH}",
        f"SELECT median(v) FROM {BOTH}",
        f"SELECT n_name, sum(v) FROM nation LEFT JOIN {BOTH} ON length(mode) = n_nationkey GROUP BY 1",
    ],
)
def test_what_does_not_add_up_runs_as_a_whole(tpch: World, sql: str) -> None:
    assert tpch.check(sql, batches=3).mode is Mode.EXACT


def test_branches_of_a_union_are_cast_as_duckdb_casts_them(tpch: World) -> None:
    """Text of both: '3' is then less than '4-NOT SPECIFIED', and 10 less than 9."""
    sql = (
        "SELECT min(v) AS low, max(v) AS high FROM (SELECT l_linenumber + 8 AS v FROM lineitem "
        "UNION ALL SELECT o_orderpriority[1:1] FROM orders)"
    )
    assert tpch.check(sql, batches=3).mode is Mode.MERGEABLE
