"""Explained plans say what is sampled, how sure answers are, and the SQL in a form that people read."""

from __future__ import annotations

import pytest
from relaqs_engine.plans.explain import explain, readable_sql
from relaqs_tpch import QUERIES, query

from tests.engine.world import World


@pytest.mark.parametrize("number", QUERIES)
def test_every_query_is_explained_without_digests_or_long_lists(tpch: World, number: int) -> None:
    plan = tpch.plan(query(number))
    text = explain(plan)
    assert text.startswith(f"mode: {plan.mode.value}\nwhy: ")
    for name in (*(hoist.name for hoist in plan.hoists), *(stream.token for stream in plan.streams)):
        assert name not in text
    assert all(stream.table in text for stream in plan.streams)
    assert all(f"  {output.name}: " in text for output in plan.outputs) or not plan.streams
    assert ".parquet', '/" not in text  # a list of files is cut short


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT l_tax, sum(l_quantity) AS q FROM lineitem GROUP BY 1", "q: estimate with an interval"),
        ("SELECT l_tax, sum(l_quantity) AS q FROM lineitem GROUP BY 1", "error bars: from replicates"),
        (
            "SELECT l_orderkey, sum(l_tax) AS t FROM lineitem GROUP BY 1",
            "t: complete once its group is shown",
        ),
        ("SELECT l_orderkey, sum(l_tax) AS t FROM lineitem GROUP BY 1", "a group shown is complete"),
        ("SELECT l_tax FROM lineitem WHERE l_tax > 0.07", "error bars: none needed, a row found is final"),
        ("SELECT max(l_tax) AS most FROM lineitem", "most: bound (at least)"),
    ],
)
def test_what_is_known_of_columns_is_said(tpch: World, sql: str, said: str) -> None:
    assert said in explain(tpch.plan(sql))


@pytest.mark.parametrize("number", [4, 21, 22])
def test_exists_reads_no_columns_but_those_of_its_conditions(tpch: World, number: int) -> None:
    assert "comment" not in explain(tpch.plan(query(number))).split("SQL, per task:")[-1]


def test_sql_is_laid_out_for_reading() -> None:
    assert readable_sql('SELECT SUM("t"."a" * (1 - "t"."b")) AS "x" FROM "t" /* note */') == (
        "SELECT\n  SUM(t.a * (1 - t.b)) AS x\nFROM t"
    )


def test_aggregates_of_distinct_pairs_are_shown(tpch: World) -> None:
    sql = "SELECT l_tax, corr(DISTINCT l_quantity, l_discount) AS c FROM lineitem GROUP BY 1"
    assert "CORR(DISTINCT" in explain(tpch.plan(sql))


def test_names_that_need_quotes_keep_them() -> None:
    assert '"Price"' in readable_sql('SELECT "Price" FROM "t"')
    assert '"select"' in readable_sql('SELECT "select" FROM "t"')


def test_many_files_are_counted() -> None:
    files = ", ".join(f"'part-{i}.parquet'" for i in range(5))
    assert "['part-0.parquet', '… 4 more']" in readable_sql(f"SELECT a FROM read_parquet([{files}])")
    assert "[1, 2, 3, 4]" in readable_sql("SELECT [1, 2, 3, 4] AS a")
