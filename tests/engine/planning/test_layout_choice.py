"""Of several layouts of a table the planner takes the one that lets an estimate come soonest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.planning.layout_choice import rows_to_wait_for
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.online_plan import OnlinePlan
from relaqs_engine.plans.whole import WholePlan
from relaqs_engine.sql.binder import Binder

from tests.engine.rewrite.in_memory import CATALOG

LAYOUTS = {
    "orders@customer": "o_custkey",
    "lineitem@part": "l_partkey",
    "customer@key": "c_custkey",
    "part@key": "p_partkey",
}


def further(name: str, key: str) -> object:
    first, sampled = CATALOG.table(name.partition("@")[0]), CATALOG.table("lineitem")
    return replace(
        sampled,
        table=name,
        directory=Path("/w", name),
        columns=first.columns,
        row_count=first.row_count,
        cluster_key=(key,),
    )


TWICE = Catalog((*CATALOG.layouts, *(further(name, key) for name, key in LAYOUTS.items())))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def binder() -> Binder:
    return Binder(TWICE)


def plan(sql: str, binder: Binder, catalog: Catalog = TWICE) -> OnlinePlan:
    return plan_query(sql, catalog, binder)


@pytest.mark.parametrize(
    ("streamed", "rows", "waiting"),
    [
        (100, 100, 0),
        (75, 100, 0),
        (74, 100, 26),
        (99_000_000, 100_000_000, 0),
        (98_999_999, 100_000_000, 1_000_001),
    ],
)
def test_few_rows_are_not_waited_for(streamed: int, rows: int, waiting: int) -> None:
    assert rows_to_wait_for(streamed, rows) == waiting


@pytest.mark.parametrize(
    ("sql", "streams"),
    [
        ("SELECT count(*) FROM lineitem", ["lineitem"]),
        ("SELECT count(*) FROM orders, lineitem WHERE o_orderkey = l_orderkey", ["lineitem", "orders"]),
        ("SELECT count(*) FROM customer, orders WHERE c_custkey = o_custkey", ["orders"]),
        (
            "SELECT count(*) FROM customer LEFT JOIN orders ON c_custkey = o_custkey",
            ["customer@key", "orders@customer"],
        ),
        (
            "SELECT count(*) FROM lineitem l WHERE EXISTS "
            "(SELECT 1 FROM lineitem m WHERE m.l_partkey = l.l_partkey AND m.l_suppkey <> l.l_suppkey)",
            ["lineitem@part"],
        ),
        ("SELECT o_custkey, count(*) FROM orders GROUP BY o_custkey", ["orders@customer"]),
        ("SELECT o_orderkey, count(*) FROM orders GROUP BY o_orderkey", ["orders"]),
        ("SELECT o_orderpriority, count(*) FROM orders GROUP BY o_orderpriority", ["orders"]),
    ],
)
def test_the_layout_that_makes_the_query_local(sql: str, streams: list[str], binder: Binder) -> None:
    assert [stream.table for stream in plan(sql, binder).streams] == streams


def test_a_query_that_no_choice_helps_says_why_the_one_that_samples_most_does_not(binder: Binder) -> None:
    sql = "SELECT count(*) FROM customer WHERE c_custkey > ALL (SELECT o_custkey FROM orders)"
    assert plan(sql, binder, CATALOG).reasons[0].startswith("no table of its FROM is sampled")
    assert plan(sql, binder).reasons == (
        "a subquery reads rows of the sampled table orders in all partitions",
    )
    whole = plan(sql, binder)
    assert isinstance(whole, WholePlan)
    assert "/w/orders/" in whole.exact_sql
    assert "/w/orders@customer/" not in whole.exact_sql
