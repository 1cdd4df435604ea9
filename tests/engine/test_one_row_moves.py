"""What one row could move in a total over groups: what its own group moves, however many groups there are."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from relaqs_engine.plans.composite import AroundPlan

from tests.engine.world import World

CUSTOMERS = (
    "(SELECT o_orderstatus AS status, o_custkey AS customer, count(*) AS n, "
    "sum(CASE WHEN o_totalprice < 100000 THEN o_totalprice END) AS small FROM orders GROUP BY 1, 2)"
)
STATUSES = f"(SELECT status, sum(n) AS n FROM {CUSTOMERS} GROUP BY CUBE (status))"


def planned(tpch: World, sql: str) -> AroundPlan:
    plan = tpch.plan(sql)
    assert isinstance(plan, AroundPlan)
    return plan


def test_a_total_over_many_groups_is_certified(tpch: World) -> None:
    """An order may cost 466,001, and those summed cost 60,000. Squares over groups give too wide a bound."""
    plan = planned(tpch, f"SELECT sum(small) AS total FROM {CUSTOMERS}")
    by_squares = replace(plan, texts=replace(plan.texts, moves=""))
    new, old = (next(iter(tpch.estimates(each, batches=6))) for each in (plan, by_squares))
    assert new.certified[0, 0]
    assert not old.certified[0, 0]
    assert new.table.select(["total_low", "total_high"]) == old.table.select(["total_low", "total_high"])


@pytest.mark.parametrize(
    ("sql", "moved"),
    [
        (f"SELECT sum(small) FROM {CUSTOMERS}", 70.0),
        (f"SELECT sum(small - 3 * n) FROM {CUSTOMERS}", float("inf")),
        (f"SELECT sum(small - n) FROM {CUSTOMERS}", 71.0),
        (f"SELECT avg(n) FROM {CUSTOMERS}", float("inf")),
        (f"SELECT 2 + sum(small) FROM {CUSTOMERS}", float("inf")),
        (f"SELECT coalesce(sum(small), 0) / 4 FROM {CUSTOMERS}", 17.5),
        (f"SELECT sum(n) FROM ({CUSTOMERS[1:-1]} UNION ALL {CUSTOMERS[1:-1]})", 2.0),
        (f"SELECT sum(n) FROM {STATUSES}", 2.0),
    ],
)
def test_a_row_moves_the_groups_that_it_falls_into(tpch: World, sql: str, moved: float) -> None:
    moves = planned(tpch, sql).texts.moves
    con = duckdb.connect()
    groups = "SELECT 'F' AS c0, i AS c1, 1.0 AS c2, 50.0 AS c3, i AS relaqs_group, 1 AS relaqs_rows"
    for part in ("part_0", "part_1"):
        con.execute(
            f"CREATE TABLE {part} AS {groups}, 1.0 AS relaqs_moves_2, 7.0 * i AS relaqs_moves_3 "
            "FROM range(11) AS t(i)"
        )
    con.execute("CREATE TABLE shown AS SELECT row(0) AS relaqs_group, 0 AS place")
    assert con.execute(moves).fetchall() == [(0, moved)]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT sum(a.n) FROM {CUSTOMERS} AS a JOIN {CUSTOMERS} AS b ON a.status = b.status",
        f"SELECT sum(n) FROM {CUSTOMERS} AS a JOIN nation ON n_regionkey > 1",
        "SELECT sum(n) FROM (SELECT l_shipmode, count(*) AS n FROM lineitem GROUP BY 1)",
    ],
)
def test_joins_and_clusters_have_no_such_bound(tpch: World, sql: str) -> None:
    """One group may meet many rows, and one sampled unit may have rows in many groups."""
    plan = tpch.plan(sql)
    assert not isinstance(plan, AroundPlan) or not plan.texts.moves
