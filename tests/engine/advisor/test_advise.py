"""Advice names the layouts that would help, and says so where none would; it reads no data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from relaqs_engine.advisor.advise import Advice, FurtherLayout, advise
from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.assignment import HASH_SCHEME
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.plan import Mode
from relaqs_engine.sql.binder import Binder
from relaqs_tpch import query

from tests.engine.rewrite.in_memory import CATALOG
from tests.engine.world import World

# There are no such files: whatever reads them fails.
NOWHERE = Catalog(tuple(replace(layout, hash_scheme=HASH_SCHEME) for layout in CATALOG.layouts))

PARTS_WITHOUT_LINES = "SELECT count(*) FROM part LEFT JOIN lineitem ON l_partkey = p_partkey"
OTHERS_ALIKE = "SELECT count(*) FROM customer a WHERE EXISTS (SELECT 1 FROM customer b WHERE a.{0} = b.{0})"


@pytest.fixture(scope="module")
def scale_1(tpch: World) -> Catalog:
    """TPC-H as the planner would see it if every table but the two smallest had a hundred times the rows."""
    return Catalog(tuple(map(_hundredfold, tpch.catalog.layouts)))


def _hundredfold(layout: Layout) -> Layout:
    if layout.row_count <= 25:
        return layout
    columns = tuple(replace(column, distinct_count=column.distinct_count * 100) for column in layout.columns)
    return replace(layout, columns=columns, row_count=layout.row_count * 100)


def advice_on(sql: str, catalog: Catalog = NOWHERE) -> Advice:
    return advise(sql, catalog, Binder(catalog))


def wanted(advice: Advice) -> dict[str, tuple[str, ...]]:
    return {layout.table: layout.cluster_key for layout in advice.layouts}


def changed(table: str, **changes: object) -> Catalog:
    return Catalog(
        tuple(replace(each, **changes) if each.table == table else each for each in NOWHERE.layouts)  # type: ignore[arg-type]
    )


def with_layout(catalog: Catalog, table: str, name: str, **changes: object) -> Catalog:
    layout: Layout = catalog.table(table)
    sampled = replace(catalog.table("lineitem"), columns=layout.columns, row_count=layout.row_count)
    return Catalog((*catalog.layouts, replace(sampled, table=name, directory=Path("/w", name), **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "keys", "modes"),
    [
        (2, {"part": ("p_partkey",), "partsupp": ("ps_partkey",)}, "exact → mergeable"),
        (11, {"partsupp": ("ps_partkey",)}, "exact → refined"),
        (13, {"customer": ("c_custkey",), "orders": ("o_custkey",)}, "exact → mergeable"),
        (16, {"partsupp": ()}, "exact → mergeable"),
        (17, {"part": ("p_partkey",), "lineitem": ("l_partkey",)}, "refined → mergeable"),
        (22, {"customer": ("c_custkey",), "orders": ("o_custkey",)}, "mergeable → refined"),
    ],
)
def test_queries_that_other_layouts_make_progressive(
    number: int, keys: dict[str, tuple[str, ...]], modes: str, scale_1: Catalog, tpch: World
) -> None:
    advice = advise(query(number), scale_1, tpch.binder)
    assert wanted(advice) == keys
    assert f"{advice.now.mode.value} → {advice.then.mode.value}" == modes
    assert set(advice.then.streams) == {f"{table}@{key[0] if key else 'rows'}" for table, key in keys.items()}
    assert advice.then.streamed_rows == sum(scale_1.table(table).row_count for table in keys)
    text = str(advice)
    assert text.startswith("A further layout would" if len(keys) == 1 else "Two further layouts would")
    assert f"mode     {modes} (now {tpch.plan(query(number)).reasons[0]})" in text
    assert text.endswith("\n".join(advice.commands))


@pytest.mark.parametrize("number", [6, 15, 20, 21])
def test_queries_that_need_none(number: int, scale_1: Catalog, tpch: World) -> None:
    advice = advise(query(number), scale_1, tpch.binder)
    assert (advice.layouts, advice.obstacle) == ((), "")
    assert advice.then == advice.now
    assert str(advice).startswith("No further layout is needed: it is answered progressively, and streams l")


@pytest.mark.parametrize(
    ("sql", "obstacles"),
    [
        ("SELECT l_tax, rank() OVER (ORDER BY l_tax) FROM lineitem", ["a window function needs all rows"]),
    ],
)
def test_queries_that_none_would_help(sql: str, obstacles: list[str], scale_1: Catalog, tpch: World) -> None:
    advice = advise(sql, scale_1, tpch.binder)
    assert advice.layouts == ()
    assert advice.now.mode is Mode.EXACT
    assert all(obstacle in advice.obstacle for obstacle in obstacles)
    assert str(advice) == f"No layout would help, it runs exactly: {advice.obstacle}."


def test_the_command_is_complete() -> None:
    advice = advice_on("SELECT avg(c_nationkey) FROM customer")
    assert advice.layouts == (
        FurtherLayout("customer", (), 2, 0, Path("/w/customer"), Path("/w/customer@rows")),
    )
    assert advice.commands == ("relaqs shuffle /w/customer --into /w/customer@rows --partitions 2 --seed 0",)


def test_a_command_is_quoted_for_the_shell() -> None:
    layout = FurtherLayout("t", ("a b",), 3, 1, Path("/my data/t"), Path("/my data/t@a b"))
    assert layout.command == (
        "relaqs shuffle '/my data/t' --into '/my data/t@a b' --cluster-by 'a b' --partitions 3 --seed 1"
    )


def test_one_layout_is_enough_where_the_other_is_there() -> None:
    catalog = with_layout(NOWHERE, "part", "part@key", cluster_key=("p_partkey",))
    sql = "SELECT count(*) FROM part JOIN lineitem ON l_partkey = p_partkey WHERE l_quantity < "
    sql += "(SELECT avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)"
    assert wanted(advice_on(sql)) == {"part": ("p_partkey",), "lineitem": ("l_partkey",)}
    assert wanted(advice_on(sql, catalog)) == {"lineitem": ("l_partkey",)}


def test_a_new_layout_meets_one_of_another_seed() -> None:
    catalog = with_layout(NOWHERE, "part", "part@p_partkey", cluster_key=("p_partkey",), seed=1)
    (layout,) = advice_on(PARTS_WITHOUT_LINES, catalog).layouts
    assert (layout.into.name, layout.seed) == ("lineitem@l_partkey", 1)


def test_a_layout_of_an_older_hash_is_made_again_under_a_free_name() -> None:
    catalog = with_layout(NOWHERE, "part", "part@p_partkey", cluster_key=("p_partkey",), hash_scheme="older")
    layouts = advice_on(PARTS_WITHOUT_LINES, catalog).layouts
    assert {layout.into.name for layout in layouts} == {"part@p_partkey-2", "lineitem@l_partkey"}


def test_small_groups_are_better_complete() -> None:
    sql = "SELECT {0}, sum(l_quantity) FROM lineitem GROUP BY {0}"
    advice = advice_on(sql.format("l_partkey"))
    assert wanted(advice) == {"lineitem": ("l_partkey",)}
    assert "groups   in all partitions → each in one" in str(advice)
    assert advice.now.mode is advice.then.mode is Mode.MERGEABLE
    assert advice_on(sql.format("l_suppkey")).layouts == ()  # 600 rows a group can be estimated
    assert advice_on(sql.format("l_orderkey")).layouts == ()  # they are complete already


def test_a_key_of_few_values_is_no_cluster_key() -> None:
    assert wanted(advice_on(OTHERS_ALIKE.format("c_custkey"))) == {"customer": ("c_custkey",)}
    assert wanted(advice_on(OTHERS_ALIKE.format("c_nationkey"))) == {"customer": ()}


def test_a_key_that_is_mostly_null_is_no_cluster_key() -> None:
    customer = NOWHERE.table("customer")
    columns = tuple(replace(column, null_count=100_000) for column in customer.columns)
    nulls = changed("customer", columns=columns)
    assert wanted(advice_on(OTHERS_ALIKE.format("c_custkey"), nulls)) == {"customer": ()}


def test_few_rows_need_no_layout() -> None:
    advice = advice_on("SELECT count(*) FROM nation, region WHERE n_regionkey = r_regionkey")
    assert advice.layouts == ()
    assert str(advice) == "No layout is needed: its tables have 30 rows together, which are read at once."


def test_tables_that_are_all_static_get_the_default_partitions() -> None:
    static = Catalog(tuple(each for each in NOWHERE.layouts if not each.is_sampled))
    (layout,) = advice_on("SELECT avg(c_nationkey) FROM customer", static).layouts
    assert (layout.partitions, layout.seed) == (100, 0)


def test_wrong_sql_is_an_error() -> None:
    with pytest.raises(SqlError, match="lineitms"):
        advice_on("SELECT count(*) FROM lineitms")


BY_PART = "SELECT l_partkey, sum(l_quantity) AS q FROM lineitem GROUP BY l_partkey"


def test_a_layout_that_completes_small_groups_is_no_help_to_a_ranking(scale_1: Catalog, tpch: World) -> None:
    """In a sample of orders the largest parts are seen soon. By part, most would be seen at the end."""
    assert wanted(advise(BY_PART, scale_1, tpch.binder)) == {"lineitem": ("l_partkey",)}
    ranked = advise(f"{BY_PART} ORDER BY q DESC LIMIT 10", scale_1, tpch.binder)
    assert ranked.layouts == ()
    assert not ranked.now.groups_are_local


def test_a_ranking_of_small_groups_need_not_wait_for_a_join() -> None:
    catalog = changed("orders", cluster_key=(), max_unit_rows=1)
    joined = "FROM orders JOIN lineitem ON o_orderkey = l_orderkey GROUP BY 1 ORDER BY q DESC LIMIT 10"
    advice = advice_on(f"SELECT o_orderkey, sum(l_quantity) AS q {joined}", catalog)
    assert wanted(advice) == {"orders": ("o_orderkey",)}
