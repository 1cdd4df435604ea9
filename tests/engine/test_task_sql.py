"""What a task is given: what it reads is known from the tree, and every place in its SQL is filled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from relaqs_engine.execution.state import partial_task, result_bytes_per_partition
from relaqs_engine.plans.aggregate import StreamScan

from tests.engine.world import World


def test_text_that_looks_like_a_column_is_none(tpch: World) -> None:
    sql = "SELECT count(*) FILTER (l_comment = 'no \"l_tax\"') AS n FROM lineitem"
    assert tpch.folded(sql).partial.scans == (StreamScan("lineitem", ("l_comment",)),)


def test_an_output_with_the_name_of_a_column_is_none(tpch: World) -> None:
    sql = "SELECT sum(l_quantity) AS l_tax FROM lineitem GROUP BY l_returnflag ORDER BY l_tax"
    (scan,) = tpch.folded(sql).partial.scans
    assert set(scan.columns) == {"l_quantity", "l_returnflag"}


@pytest.mark.parametrize(
    ("sql", "is_filtered"),
    [
        ("SELECT count(*) FILTER (l_comment = 'WHERE WHERE WHERE') AS n FROM lineitem", False),
        ("SELECT count(*) FILTER (WHERE l_tax > 0.01) AS n FROM lineitem", False),
        ("SELECT count(*) AS n FROM lineitem WHERE l_tax > 0.01", True),
        ('SELECT l_tax AS " WHERE " FROM lineitem', False),
        (
            "SELECT count(*) AS n FROM orders WHERE EXISTS "
            "(SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey)",
            True,
        ),
    ],
)
def test_a_filter_is_a_condition_of_the_query(tpch: World, sql: str, is_filtered: bool) -> None:
    plan = tpch.folded(sql)
    assert plan.partial.is_filtered is is_filtered
    assert (result_bytes_per_partition(plan, tpch.catalog) == 0.0) is is_filtered


def test_a_table_that_is_joined_with_itself_is_read_twice(tpch: World) -> None:
    sql = (
        "SELECT count(*) AS n FROM lineitem AS a JOIN lineitem AS b ON a.l_orderkey = b.l_orderkey "
        "WHERE a.l_tax > b.l_tax"
    )
    (scan,) = tpch.folded(sql).partial.scans
    assert (scan.table, set(scan.columns), scan.times) == ("lineitem", {"l_orderkey", "l_tax"}, 2)


def test_a_place_that_the_sql_lacks_is_named(tpch: World) -> None:
    plan = tpch.folded("SELECT sum(l_tax) AS t FROM lineitem")
    elsewhere = replace(plan, streams=(replace(plan.streams[0], token="nowhere"),))
    with pytest.raises(AssertionError, match="nowhere does not occur"):
        _ = partial_task(elsewhere, tpch.catalog, (0,), by_block=False).sql
