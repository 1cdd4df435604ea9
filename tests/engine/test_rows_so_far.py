"""Rows that are found one after another: which of them stay, and which may leave the answer again."""

from __future__ import annotations

import pytest
from relaqs_engine.plans.composite import AroundPlan, RefinedPlan
from relaqs_engine.plans.plan import OutputKind

from tests.engine.world import World

KEYS = "SELECT l_suppkey FROM lineitem"
MODES = "SELECT l_shipmode FROM lineitem WHERE l_quantity"
NEW_ORDER = "SELECT * FROM orders WHERE o_custkey = c_custkey AND o_orderdate > DATE '1998-07-01'"
TOP = "SELECT l_suppkey AS k, sum(l_tax) AS s FROM lineitem GROUP BY 1 ORDER BY s DESC, k LIMIT 9"


def around(world: World, sql: str) -> AroundPlan:
    plan = world.check(sql, batches=3)
    assert isinstance(plan, AroundPlan)
    return plan


@pytest.mark.parametrize(
    "sql",
    [
        f"{MODES} > 49 INTERSECT {MODES} < 2",
        f"{KEYS} WHERE l_tax > 0.07 UNION SELECT o_custkey FROM orders",
        f"{MODES} > 49 UNION ALL {MODES} < 2 UNION SELECT n_name FROM nation",
        f"SELECT c_custkey, EXISTS ({NEW_ORDER}) AS buys FROM customer WHERE c_custkey < 20",
    ],
)
def test_rows_that_are_found_in_sets_that_grow_stay(tpch: World, sql: str) -> None:
    assert around(tpch, sql).rows.are_certain


@pytest.mark.parametrize(
    "sql",
    [
        f"{MODES} > 49 EXCEPT {MODES} < 2",
        "SELECT count(*) AS n FROM (SELECT l_suppkey FROM lineitem INTERSECT SELECT o_custkey FROM orders)",
        "SELECT l_orderkey FROM lineitem WHERE l_extendedprice = (SELECT max(l_extendedprice) FROM lineitem)",
        "SELECT l_orderkey FROM lineitem WHERE l_tax > 0.07 AND l_quantity > (SELECT avg(l_quantity) + 20 "
        "FROM lineitem) ORDER BY l_orderkey, l_linenumber LIMIT 7",
        f"SELECT n_name FROM nation WHERE n_nationkey NOT IN ({KEYS} WHERE l_tax > 0.07)",
        f"SELECT c_custkey FROM customer WHERE EXISTS ({NEW_ORDER})",
        f"SELECT c_custkey FROM customer WHERE c_acctbal > 0 AND NOT EXISTS ({NEW_ORDER})",
        f"SELECT count(*) AS n, max(c_name) AS last FROM customer WHERE NOT EXISTS ({NEW_ORDER})",
    ],
)
def test_rows_that_may_leave_are_no_certain_ones(tpch: World, sql: str) -> None:
    assert not around(tpch, sql).rows.are_certain


def test_values_beside_rows_keep_their_intervals(tpch: World) -> None:
    sql = (
        "SELECT l_orderkey, (SELECT avg(l_tax) FROM lineitem WHERE l_tax > 0) AS a FROM lineitem "
        "WHERE l_quantity = (SELECT max(l_quantity) FROM lineitem) AND l_discount > 0.09"
    )
    plan = around(tpch, sql)
    assert [output.kind for output in plan.outputs] == [OutputKind.KEY, OutputKind.ESTIMATE]
    assert not plan.rows.are_certain


def test_what_exists_is_one_value(tpch: World) -> None:
    sql = (
        "SELECT EXISTS (SELECT * FROM lineitem WHERE l_quantity > 49) AS a, "
        "NOT EXISTS (SELECT * FROM lineitem, orders WHERE l_orderkey = o_orderkey AND l_tax > 9) AS b, "
        "(SELECT max(s_acctbal) FROM supplier) AS c, EXISTS (SELECT l_tax FROM lineitem) AS d"
    )
    assert around(tpch, sql).rows.have_identity


@pytest.mark.parametrize(
    ("source", "tie"),
    [
        ("lineitem AS l", "t.k = l.l_suppkey"),
        ("lineitem AS l", "t.k IS NOT DISTINCT FROM nullif(l.l_suppkey, 3)"),
        ("lineitem", "t.k = lineitem.l_suppkey"),  # the table inside has the same name
    ],
)
def test_rows_of_the_largest_groups_are_asked_by_exists(tpch: World, source: str, tie: str) -> None:
    asked = f"EXISTS (SELECT 1 FROM ({TOP}) AS t WHERE {tie})"
    sql = f"SELECT sum(l_quantity) AS s FROM {source} WHERE {asked}"
    assert isinstance(tpch.check(sql, batches=3), RefinedPlan)


def test_null_ties_no_row_but_where_it_is_meant_to(tpch: World) -> None:
    keys = "SELECT nullif(o_custkey, 4) AS k FROM orders WHERE o_orderstatus = 'P'"
    for equal in ("t.k = nullif(c_custkey, 1)", "t.k IS NOT DISTINCT FROM nullif(c_custkey, 1)"):
        sql = f"SELECT c_custkey FROM customer WHERE NOT EXISTS (SELECT 1 FROM ({keys}) AS t WHERE {equal})"
        around(tpch, sql)
