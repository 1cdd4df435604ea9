"""Aggregates about which other answers decide: they are summed first, and decided about at each estimate."""

from __future__ import annotations

import pytest
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.plans.composite import AroundPlan
from relaqs_engine.plans.plan import OutputKind

from tests.engine.world import World

BEST = (
    "SELECT m FROM (SELECT l_shipmode AS m, rank() OVER (ORDER BY sum(l_tax)) AS r "
    "FROM lineitem GROUP BY 1) WHERE r < 4"
)
URGENT = "SELECT 1 FROM orders WHERE o_custkey = c_custkey AND o_orderpriority = '1-URGENT'"
PER_PRIORITY = "SELECT count(*) AS n FROM orders GROUP BY o_orderpriority"
PER_SUPPLIER = "SELECT l_suppkey AS k, min(1) AS f FROM lineitem GROUP BY 1 HAVING sum(l_quantity)"
SMALL, LARGE = f"({PER_SUPPLIER} < 1500) AS small", f"({PER_SUPPLIER} > 1600) AS large"
SHAPES = {
    "groups in an answer": (
        f"SELECT l_returnflag, sum(l_tax) FROM lineitem WHERE l_shipmode IN ({BEST}) GROUP BY 1"
    ),
    "a rank above HAVING": (
        "SELECT l_suppkey, rank() OVER (ORDER BY avg(l_tax)) AS r FROM lineitem GROUP BY 1 HAVING "
        "avg(l_tax) > (SELECT avg(l_tax) FROM lineitem WHERE l_returnflag = 'A' GROUP BY l_returnflag)"
    ),
    "a join with distinct rows of a union": (
        "SELECT count(*) AS n, avg(s) AS mean FROM (SELECT c_custkey, sum(o_totalprice) AS s "
        "FROM (SELECT DISTINCT c_custkey, c_nationkey FROM (SELECT l_suppkey AS k FROM lineitem "
        "UNION ALL SELECT o_custkey FROM orders) AS u, customer "
        "WHERE k = c_custkey AND c_mktsegment = 'BUILDING') AS mine, orders, nation "
        "WHERE c_custkey = o_custkey AND c_nationkey = n_nationkey AND n_regionkey < 3 GROUP BY 1) AS each_"
    ),
    "an intersection": (
        "SELECT l_shipmode, count(*) FROM lineitem WHERE l_suppkey IN (SELECT s_suppkey FROM supplier, "
        "(SELECT l_suppkey AS k FROM lineitem WHERE l_tax > 0.07 INTERSECT SELECT o_custkey FROM orders) "
        "AS both_ WHERE s_suppkey = k) GROUP BY 1 "
        f"HAVING count(*) > (SELECT avg(n) FROM ({PER_PRIORITY})) / 9"
    ),
    "rows of a static table": (
        f"SELECT c_mktsegment, count(*) FROM customer WHERE EXISTS ({URGENT}) GROUP BY 1"
    ),
    "distinct rows of two tables": (
        "SELECT k, sum(v) FROM (SELECT l_returnflag AS k, l_linenumber AS v FROM lineitem "
        "UNION SELECT o_orderstatus, o_shippriority FROM orders) GROUP BY k"
    ),
    "flags of groups": (
        "SELECT NOT (small.f IS NULL) AS a, NOT (large.f IS NULL) AS b, count(DISTINCT l_suppkey) AS n, "
        f"sum(l_tax) AS s FROM lineitem LEFT JOIN {SMALL} ON l_suppkey = small.k "
        f"LEFT JOIN {LARGE} ON l_suppkey = large.k GROUP BY 1, 2"
    ),
    "rows without a match": (
        f"SELECT l_returnflag, o_orderstatus, sum(l_tax) FROM lineitem LEFT JOIN {SMALL} "
        "ON l_suppkey = small.k AND l_quantity > 20 JOIN orders ON l_orderkey = o_orderkey "
        "WHERE small.k IS NULL OR o_totalprice > 90000 GROUP BY 1, 2"
    ),
    "rows with several matches": (
        "SELECT count(*), count(DISTINCT l_linenumber) FROM lineitem LEFT JOIN (SELECT l_linenumber AS k, "
        "count(*) FROM lineitem GROUP BY 1 HAVING count(*) > 100) AS common ON l_linenumber < common.k"
    ),
    "a branch that is read whole": (
        "SELECT k, sum(v) FROM (SELECT l_returnflag AS k, l_tax AS v FROM lineitem UNION ALL "
        "SELECT o_orderstatus, c_acctbal FROM customer LEFT JOIN orders ON o_custkey = c_custkey) GROUP BY k"
    ),
}


@pytest.mark.parametrize("sql", SHAPES.values(), ids=SHAPES)
def test_there_are_estimates_before_the_end(tpch: World, sql: str) -> None:
    plan = tpch.check(sql, batches=3)
    assert isinstance(plan, AroundPlan)
    assert len(early(tpch, sql)) == 3


def test_what_an_unread_row_may_decide_is_not_certified(tpch: World) -> None:
    """The counts of a static table's rows are exact, and which of its rows count is not known."""
    sql = SHAPES["rows of a static table"]
    assert [output.kind for output in tpch.plan(sql).outputs] == [OutputKind.KEY, OutputKind.OPAQUE]
    assert not any(estimate.certified.any() for estimate in early(tpch, sql))


def test_a_branch_that_is_read_whole_leaves_the_others_their_intervals(tpch: World) -> None:
    assert early(tpch, SHAPES["a branch that is read whole"])[0].certified.any()


def test_rows_that_may_find_a_match_are_not_certified(tpch: World) -> None:
    for shape in ("flags of groups", "rows without a match", "rows with several matches"):
        assert not any(estimate.certified.any() for estimate in early(tpch, SHAPES[shape]))


def early(world: World, sql: str) -> list[Estimate]:
    """Return the estimates before the last."""
    return list(world.estimates(world.plan(sql), batches=4))[:-1]
