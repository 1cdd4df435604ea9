"""Of several layouts of a table the planner takes the one that lets an estimate come soonest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.planning.aggregate_plan import (
    TimeToEstimate,
    rows_to_wait_for,
    share_to_read,
    time_to_estimate,
)
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.explain import explain
from relaqs_engine.plans.plan import OnlinePlan, WholePlan
from relaqs_engine.rewrite import READING, SAMPLING
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.parse import parse_query

from tests.engine.example import explained
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


def of_units(layout: Layout, name: str, key: tuple[str, ...], unit_rows: float) -> Layout:
    """Return a table in a hundred partitions, by rows or by units of so many rows."""
    return replace(
        layout,
        table=name,
        directory=Path("/w", name),
        partitions=layout.partitions * 50,
        cluster_key=key,
        unit_count=round(layout.row_count / unit_rows),
        typical_unit_rows=unit_rows,
        max_unit_rows=round(2 * unit_rows),
    )


LINEITEM = CATALOG.table("lineitem")
OTHERS = tuple(layout for layout in CATALOG.layouts if layout.table != "lineitem")
# The table's first layout has units of 600 rows: of what a supplier decides, there are 10,000 observations.
BY_SUPPLIER = Catalog(
    (
        *OTHERS,
        of_units(LINEITEM, "lineitem", ("l_suppkey",), 600.0),
        of_units(LINEITEM, "lineitem@rows", (), 1.0),
    )
)
BY_NATION = (
    "SELECT s_nationkey, sum(l_quantity) AS n FROM lineitem, supplier WHERE l_suppkey = s_suppkey GROUP BY 1"
)


def predicted(sql: str, catalog: Catalog) -> TimeToEstimate:
    binder = Binder(catalog)
    draft = Draft(sql, catalog, binder, parse_query(sql, catalog.tables).tree, tuple(binder.describe(sql)))
    for rule in (*READING, *SAMPLING):
        draft = rule(draft)
    return time_to_estimate(draft)


@pytest.mark.parametrize(
    ("sql", "streams"),
    [
        ("SELECT l_returnflag, sum(l_quantity) AS n FROM lineitem GROUP BY 1", ["lineitem@rows"]),
        (BY_NATION, ["lineitem@rows"]),
        ("SELECT count(*) AS n FROM lineitem WHERE l_suppkey < 500", ["lineitem@rows"]),
        ("SELECT l_suppkey, sum(l_quantity) AS n FROM lineitem GROUP BY 1", ["lineitem"]),
    ],
    ids=["one more may move totals", "the unit decides the group", "and if it counts", "small groups"],
)
def test_large_units_are_read_where_they_cost_nothing(sql: str, streams: list[str]) -> None:
    assert [stream.table for stream in plan(sql, Binder(BY_SUPPLIER), BY_SUPPLIER).streams] == streams


def test_large_groups_are_estimated_from_rows_before_each_is_complete() -> None:
    """Groups of 60,000 rows are within ±5 % at a twentieth of the rows, and complete at the end."""
    sql = "SELECT l_suppkey, sum(l_quantity) AS n FROM lineitem GROUP BY 1"
    larger = replace(
        BY_SUPPLIER,
        layouts=tuple(
            replace(each, row_count=100 * each.row_count) if each.table.startswith("lineitem") else each
            for each in BY_SUPPLIER.layouts
        ),
    )
    assert [stream.table for stream in plan(sql, Binder(larger), larger).streams] == ["lineitem@rows"]


def test_the_prediction_is_what_a_hand_computes() -> None:
    """25 nations of 240,000 rows: each needs 1.96² / 0.05² · 2 = 3,073 rows, or as many units of 600."""
    by_rows = predicted(BY_NATION, replace(BY_SUPPLIER, chosen=(("lineitem", "lineitem@rows"),)))
    by_units = predicted(BY_NATION, BY_SUPPLIER)
    assert by_rows.share == pytest.approx(3_073.28 / (3_073.28 + 240_000))
    assert by_units.share == pytest.approx(600 * 3_073.28 / (600 * 3_073.28 + 240_000))
    assert (by_rows.batches, by_units.batches) == (2, 13)  # after 1, 1, 2, 3, 5, 7, 10, 10 … partitions
    assert by_rows.kept_rows == 10_000
    # Two columns of a mebibyte, and 20 bytes for each row, at a gigabyte a second.
    assert by_rows.streamed_seconds == pytest.approx((2 * 2**20 + 20 * 6_000_000) / 1e9)
    assert by_rows.whole_seconds == pytest.approx((2 * 2**20 + 20 * 10_000) / 1e9)


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("s_nationkey = 3", 1 / 25),
        ("l_shipdate < DATE '1993-01-01'", 365 / 2525),
        ("l_quantity * 2 > 51", 49 / 98),
        ("l_quantity BETWEEN 10.8 AND 15.7", 0.1),
        ("l_shipmode LIKE '%A%'", 1.0),
    ],
)
def test_conditions_leave_fewer_rows_to_a_group(condition: str, share: float) -> None:
    sql = f"{BY_NATION.partition(' GROUP')[0]} AND {condition} GROUP BY 1"
    found = predicted(sql, replace(BY_SUPPLIER, chosen=(("lineitem", "lineitem@rows"),)))
    groups = 1 if "= 3" in condition else 25
    assert found.share == pytest.approx(share_to_read(6_000_000 * share / groups, 1.0))


@pytest.mark.parametrize(
    ("key", "groups"),
    [
        ("month(l_shipdate)", 12),
        ("extract(dow FROM l_shipdate)", 8),  # 0 or 7 is a Sunday
        ("year(l_shipdate)", 9),  # seven, and one more on either side
        ("date_trunc('quarter', l_shipdate)", 29),
        ("date_trunc('day', l_shipdate)", 100),  # as any expression of many values
        ("l_shipdate + 1", 100),
    ],
)
def test_parts_of_a_date_are_few_groups(key: str, groups: int) -> None:
    """So a month needs few rows for its average, and the first mini-batch is small."""
    found = predicted(f"SELECT {key}, avg(l_quantity) FROM lineitem GROUP BY 1", CATALOG)
    assert found.groups == groups


def test_explain_says_what_each_choice_was_predicted_to_take() -> None:
    text = explain(plan(BY_NATION, Binder(BY_SUPPLIER), BY_SUPPLIER))
    why = "it samples lineitem@rows: ±5 % is predicted after 0.05 core-seconds, against 0.25 with lineitem"
    assert f"why: {why}\n" in text


def test_explain_says_that_a_choice_was_as_good(binder: Binder) -> None:
    sql = "SELECT sum(l_quantity) AS n FROM lineitem, part WHERE l_partkey = p_partkey"
    text = explain(plan(sql, binder))
    assert "it samples lineitem: ±5 % is predicted after 0.11 core-seconds, against 0.10 with" in text
    assert "0.10 with lineitem@part and part@key" in text
    assert "less than a fifth counts as equal" in text


def test_explain_of_one_choice_says_nothing_of_others() -> None:
    assert "predicted" not in explained("SELECT count(*) FROM orders", "why")


@pytest.mark.parametrize(
    "condition",
    [
        "l_quantity > (SELECT max(range) FROM range(3))",
        "l_quantity > 1e308 * 1e308",
        "l_quantity / 0 > 1",
        "l_shipdate BETWEEN DATE '9999-12-31' AND DATE '0001-01-01'",
        "l_quantity BETWEEN l_tax AND l_discount",
        "l_suppkey IN (SELECT s_suppkey FROM supplier WHERE s_nationkey = l_linenumber)",
    ],
)
def test_whatever_a_condition_says_there_is_a_plan(condition: str) -> None:
    sql = f"SELECT l_returnflag, count(*) AS n FROM lineitem WHERE {condition} GROUP BY 1"
    assert plan(sql, Binder(BY_SUPPLIER), BY_SUPPLIER).outputs


def test_a_table_without_rows_has_a_plan() -> None:
    empty = tuple(replace(each, row_count=0, unit_count=0) for each in BY_SUPPLIER.layouts)
    none = Catalog(empty)
    assert plan(BY_NATION, Binder(none), none).streams
