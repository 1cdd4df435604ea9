"""Subqueries beside groups, aggregates and names of the queries around them: what plain DuckDB answers."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path

import duckdb
import pytest
import sqlglot
from relaqs_engine.errors import UnsupportedError
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.rewrite.split import with_one_row_tables
from sqlglot import exp

from tests.conftest import Oracle
from tests.engine.world import World

TABLES = {
    "t": "SELECT i AS id, CASE WHEN i % 4 > 0 THEN i % 3 END AS g, i % 5 AS v FROM range(120) AS r(i)",
    "u": "SELECT i AS id, i % 7 AS v, CASE WHEN i % 8 > 0 THEN i % 9 END AS k FROM range(70) AS r(i)",
    "dim": "SELECT * FROM (VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (NULL, 'none')) AS r(g, name)",
}
LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "rows": {"t": (), "u": ()},
    "keys": {"t": ("id",), "u": ("id",)},
    "groups": {"t": ("g",), "u": ("id",)},
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """The same tables, laid out by rows, by a key that is theirs alone, and by one with few values."""
    folder = tmp_path_factory.mktemp("subqueries")
    raw = folder / "raw"
    raw.mkdir()
    for name, sql in TABLES.items():
        duckdb.sql(sql).write_parquet(str(raw / f"{name}.parquet"))
    return {name: _laid_out(raw, folder / name, keys) for name, keys in LAYOUTS.items()}


def _laid_out(raw: Path, warehouse: Path, keys: dict[str, tuple[str, ...]]) -> World:
    for name, key in keys.items():
        shuffle(raw / f"{name}.parquet", warehouse / name, partitions=4, cluster_by=key or None)
    add_static(raw / "dim.parquet", warehouse / "dim")
    return World.open(warehouse, Oracle(raw))


GROUPINGS = (
    ("g", "ROLLUP (g)", "CUBE (g, v)"),
    ("GROUPING SETS ((g), (g, v), ())", "ALL", "ROLLUP (g) HAVING t.g IS NULL OR sum(t.v) > 60"),
    (
        "g HAVING count(*) > (SELECT count(*) FROM dim WHERE dim.g >= t.g)",
        "ROLLUP (g) HAVING t.g IN (SELECT dim.g FROM dim WHERE dim.g < max(t.v)) OR sum(t.v) > 100",
        "g ORDER BY (SELECT dim.name FROM dim WHERE dim.g = t.g), g",
    ),
)
AFTER_GROUPS = {
    "of a key": "(SELECT name FROM dim WHERE dim.g = t.g)",
    "of a key, which EXISTS asks": "EXISTS (SELECT 1 FROM u WHERE u.k = t.g)",
    "of a key, which IN asks": "t.g IN (SELECT k FROM u WHERE u.v > 2)",
    "of a key, among all": "t.g >= ALL (SELECT dim.g FROM dim WHERE dim.g IS NOT NULL)",
    "of a key and the same table": "(SELECT max(r.v) FROM t AS r WHERE r.g = t.g)",
    "of an aggregate": "(SELECT max(u.v) FROM u WHERE u.v < max(t.v))",
    "of both queries' aggregates": "(SELECT sum(u.v) + sum(t.v) FROM u)",
    "of a filtered aggregate": "(SELECT count(*) FROM u WHERE u.v < sum(t.v) FILTER (WHERE t.v < 2))",
    "of both, two deep": "(SELECT max((SELECT min(dim.g) FROM dim WHERE dim.g < max(t.v))) + t.g FROM u)",
    "of an aggregate alone": "2 IN (SELECT max(t.v))",
    "of an aggregate in HAVING": "EXISTS (SELECT max(u.v) FROM u HAVING max(u.v) > min(t.v))",
    "of nothing": "(SELECT max(v) FROM u)",
    "of nothing, two deep": "sum(v) / (SELECT (SELECT count(*) FROM t))",
    "inside an aggregate": "sum((SELECT max(u.v) FROM u WHERE u.id = t.id))",
    "inside FILTER": "count(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.g))",
    "of a window": "(SELECT sum(u.v) OVER () FROM u ORDER BY u.id LIMIT 1) + t.g",
}
LAYOUT, ALIAS, GROUPING = cycle(LAYOUTS), cycle((" AS n", "")), tuple(map(cycle, GROUPINGS))
ASKED_AFTER_GROUPS = [
    (f"SELECT g, count(*){next(ALIAS)}, {asked} FROM t GROUP BY {next(kind)}", next(LAYOUT))
    for asked, kind in product(AFTER_GROUPS.values(), GROUPING)
]


@pytest.mark.parametrize(("sql", "layout"), ASKED_AFTER_GROUPS)
def test_a_subquery_depends_on_groups_as_they_are_in_the_end(
    worlds: dict[str, World], sql: str, layout: str
) -> None:
    worlds[layout].check(sql, batches=2, ordered=" g ORDER BY" in sql)


WITHOUT_GROUPS = (
    "SELECT 2 IN (SELECT max(t.v)) AS e FROM t",
    "SELECT EXISTS (SELECT 1 FROM dim WHERE dim.g = max(t.g)) FROM t",
    "SELECT DISTINCT 4 = ANY (SELECT max(t.v) FROM dim) FROM t",
    "SELECT (SELECT (SELECT sum(t.v)) FROM u LIMIT 1), count(*) FROM t",
    "SELECT (SELECT sum(t.v) OVER () + count(*) FROM u) AS s FROM t WHERE id < 5",
    "SELECT 1 IN (SELECT (SELECT max(v)) UNION ALL (SELECT min(id) FROM u)) FROM t",
    "SELECT 3 AS three FROM t HAVING (SELECT max(t.v)) > 3",
    "SELECT (SELECT count(*) FROM u WHERE u.v < max(t.v) AND u.k IN (SELECT dim.g FROM dim)) FROM t",
    "SELECT (SELECT max(u.v) FROM u WHERE u.id = t.id AND EXISTS (SELECT 1 FROM dim AS t WHERE t.g = u.k)) "
    "AS m FROM t",
)


@pytest.mark.parametrize(("sql", "layout"), list(zip(WITHOUT_GROUPS, LAYOUT, strict=False)))
def test_an_aggregate_of_the_query_outside_makes_one_row_of_it(
    worlds: dict[str, World], sql: str, layout: str
) -> None:
    worlds[layout].check(sql, batches=2)


SETS = ("ROLLUP (g)", "CUBE (g, v)", "GROUPING SETS ((g), (v), ())", "GROUPING SETS ((g, v), (v, g % 2))")
DISTINCT = ("g", "g + 1", "v", "coalesce(g, 0)", "CASE WHEN v > 2 THEN g END")
COUNTED = [(of_sets, value, next(LAYOUT)) for of_sets, value in product(SETS, DISTINCT)]


@pytest.mark.parametrize(("of_sets", "value", "layout"), COUNTED)
def test_distinct_values_of_a_key_are_those_before_it_is_set_null(
    worlds: dict[str, World], of_sets: str, value: str, layout: str
) -> None:
    values = f"count(DISTINCT {value}) AS d, count(*) AS n, sum(v) AS s, max(g) AS m"
    worlds[layout].check(f"SELECT g, {values} FROM t GROUP BY {of_sets}", batches=2)


@pytest.mark.parametrize(
    ("others", "tables"),
    [("", 2), ("WHERE t.v > 2", 2), ("WHERE t.g = dim.g AND t.v > 2", 1), ("WHERE t.g < dim.g", 2)],
)
def test_what_relates_tables_does_not_become_a_filter_of_all_pairs(others: str, tables: int) -> None:
    """One scan would join each row with each. There is one where both aggregates relate the rows alike."""
    some = "(SELECT count(*) FROM t, dim WHERE t.g = dim.g AND t.v > 1)"
    query = sqlglot.parse_one(f"SELECT {some} / (SELECT count(*) FROM t, dim {others}) AS share")
    assert isinstance(query, exp.Select)
    query = with_one_row_tables(query)
    assert len(list(query.find_all(exp.Subquery))) == tables
    for scan in query.find_all(exp.Subquery):
        assert "t.g" not in "".join(each.sql() for each in scan.find_all(exp.Filter))


def test_a_share_of_related_rows_among_all_pairs(worlds: dict[str, World]) -> None:
    some = "(SELECT count(*) FROM t, dim WHERE t.g = dim.g AND t.v > 1)"
    worlds["rows"].check(f"SELECT {some} / (SELECT count(*) FROM t, dim) AS share", batches=2)


def test_a_name_in_grouping_is_a_column_where_its_table_is_named(worlds: dict[str, World]) -> None:
    keys = "t.id, u.id AS k, grouping(u.id) AS of_u, grouping(t.id, u.id) AS both_"
    worlds["keys"].check(f"SELECT {keys} FROM t JOIN u ON t.id = u.id GROUP BY ROLLUP (t.id, u.id)")


AVERAGE = "(SELECT avg(v) FROM t)"
KEYS_OF_ALL_ROWS = (
    f"SELECT CASE WHEN u.v > {AVERAGE} THEN 'high' ELSE 'low' END AS k, count(*) FROM u GROUP BY 1",
    f"SELECT DISTINCT u.v > {AVERAGE} FROM u",
    f"SELECT u.v - {AVERAGE} AS d, count(*), sum(u.k) FROM u GROUP BY 1",
    f"SELECT t.v > {AVERAGE} AS k, count(DISTINCT g) FROM t GROUP BY k",
    f"SELECT u.v > {AVERAGE} AND u.k > (SELECT count(*) FROM t) / 20 AS k, count(*) FROM u GROUP BY 1",
    "SELECT u.v = (SELECT max(v) FROM t) AS m, count(*) FROM u GROUP BY m",
    f"SELECT g, sum(CASE WHEN v > {AVERAGE} THEN 1 END) AS s FROM t GROUP BY g",
    f"SELECT g, count(*) FILTER (WHERE v > {AVERAGE}) AS n FROM t GROUP BY ROLLUP (g)",
    "SELECT min(t.id) IN (SELECT avg(id) FROM u GROUP BY k HAVING k > 100) AS none FROM t",
    "SELECT DISTINCT (SELECT sum(v) FROM t WHERE v = dim.g) AS s, dim.g FROM dim",
)


@pytest.mark.parametrize(("sql", "layout"), list(zip(KEYS_OF_ALL_ROWS, LAYOUT, strict=False)))
def test_what_all_rows_give_may_stand_in_keys_and_aggregates(
    worlds: dict[str, World], sql: str, layout: str
) -> None:
    worlds[layout].check(sql, batches=2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_rows_of_a_table_are_not_those_of_another_beside_it(
    worlds: dict[str, World], layout: str
) -> None:
    worlds[layout].check(f"SELECT count(*) AS n, {AVERAGE} AS a FROM u", batches=3)


WITHOUT_ALIAS = (
    "SELECT g, (SELECT max(v) FROM t) FROM t GROUP BY g",
    "SELECT count(*), (SELECT 3) FROM t",
    "SELECT t.g, (SELECT name FROM dim WHERE dim.g = t.g) FROM t GROUP BY t.g",
    "SELECT DISTINCT (SELECT max(v) FROM u), g FROM t",
    "SELECT count(*) FROM t WHERE v IN (SELECT (SELECT max(v) FROM t))",
    "SELECT g, count(*) FROM t GROUP BY g HAVING g IN (SELECT (SELECT max(g) FROM t))",
    "SELECT g, sum(g), (SELECT sum(u.k) + sum(t.v) FROM u) FROM t GROUP BY g",
    "SELECT id, (SELECT min(v) FROM u) FROM t WHERE v = 1 UNION SELECT 1, (SELECT 2)",
    "SELECT count(*) FROM t WHERE (SELECT max(v) > 3 FROM u)",
)


@pytest.mark.parametrize(("sql", "layout"), list(zip(WITHOUT_ALIAS, LAYOUT, strict=False)))
def test_a_subquery_needs_no_alias(worlds: dict[str, World], sql: str, layout: str) -> None:
    worlds[layout].check(sql, batches=2)


HIDDEN = (
    "SELECT count(*) FROM (SELECT t.v AS k FROM t) AS q WHERE q.k > (SELECT avg(t.v) FROM t WHERE t.g = q.k)",
    "SELECT v FROM (SELECT g AS k, v FROM t) AS q WHERE v > (SELECT count(*) FROM dim AS t WHERE t.g = q.k)",
    "SELECT g, count(*) FROM t WHERE v >= (SELECT avg(v) FROM t AS r WHERE r.g = t.g) GROUP BY ROLLUP (g)",
    "SELECT id, max(v) FROM t WHERE v >= (SELECT avg(v) FROM t AS r WHERE r.id = t.id) GROUP BY ROLLUP (id)",
    "SELECT count(*) FROM t AS a WHERE EXISTS (SELECT 1 FROM dim AS a WHERE a.g = a.v)",
    "SELECT count(*) FROM u AS b WHERE v >= (SELECT (SELECT b.g FROM dim AS b WHERE b.g = id))",
    "SELECT count(*) FROM t WHERE v > (SELECT avg(v) FROM u WHERE k = t.g AND "
    "EXISTS (SELECT 1 FROM dim AS t WHERE t.g = u.k))",
)


@pytest.mark.parametrize(("sql", "layout"), list(zip(HIDDEN, LAYOUT, strict=False)))
def test_a_name_means_the_table_that_it_meant_where_it_was_written(
    worlds: dict[str, World], sql: str, layout: str
) -> None:
    worlds[layout].check(sql, batches=2)


NAMES = (
    "SELECT sum(_col_0) FROM (SELECT count(*), g AS _col_0 FROM t GROUP BY g)",
    "SELECT count(*), g AS _col_0 FROM t GROUP BY g ORDER BY _col_0",
    "SELECT g AS v, sum(id) AS v FROM t GROUP BY g ORDER BY v",
    "SELECT v FROM (SELECT g AS v, sum(id) AS v FROM t GROUP BY g)",
    "SELECT * FROM (SELECT g AS v, sum(id) AS v FROM t GROUP BY g)",
    "SELECT count(*) FROM (SELECT DISTINCT * FROM (SELECT g AS v, id AS v FROM t))",
    "SELECT sum(q.v) FROM (SELECT * FROM t JOIN u ON t.id = u.id) AS q",
    "SELECT t.id, u.v AS id FROM t JOIN u ON t.id = u.id ORDER BY 2, 1",
    "SELECT *, -id AS id FROM t ORDER BY 4, 1",
    "SELECT t.*, u.* FROM t JOIN u ON t.id = u.id ORDER BY 5 DESC, 1",
    "SELECT DISTINCT ON (2) g AS v, v AS v FROM t ORDER BY 2, id",
    "SELECT id::VARCHAR FROM t ORDER BY id",
    "SELECT DISTINCT ON (coalesce(v, 3)) coalesce(g, 0), -v AS v FROM t ORDER BY coalesce(v, 3), id",
    "SELECT q FROM (SELECT g AS a, count(*) FROM t GROUP BY g) AS q",
    "SELECT max(v) FROM (SELECT g AS a, id FROM t) AS v",
)


@pytest.mark.parametrize("sql", NAMES)
def test_outputs_of_one_name_or_none_are_told_apart(worlds: dict[str, World], sql: str) -> None:
    worlds["rows"].check(sql, batches=2, ordered="ORDER BY" in sql)


SIDES = (
    "SELECT g, g NOT IN (SELECT count(*) FROM u AS b WHERE b.k = t.g UNION SELECT 1) FROM t GROUP BY g",
    "SELECT name FROM dim WHERE g IN (SELECT avg(t.v) FROM t WHERE t.g = dim.g UNION SELECT 1)",
    "SELECT id FROM t WHERE g NOT IN (SELECT (SELECT count(*) FROM u) FROM u WHERE u.id > t.id + 1000)",
    "SELECT name FROM dim WHERE g NOT IN (SELECT (SELECT avg(v) FROM u) FROM t WHERE id > dim.g + 1000)",
    "SELECT id FROM t WHERE g NOT IN ((SELECT (SELECT max(v) FROM t WHERE id < 0)) EXCEPT "
    "(SELECT k FROM u WHERE v < t.v))",
)


@pytest.mark.parametrize(("sql", "layout"), list(product(SIDES, LAYOUTS)))
def test_a_side_of_a_set_operation_keeps_its_row(worlds: dict[str, World], sql: str, layout: str) -> None:
    worlds[layout].check(sql, batches=2)


def test_a_name_that_is_the_text_of_a_table_is_refused(worlds: dict[str, World]) -> None:
    """Tables have another text where they are read, so an output without a name has another name there."""
    with pytest.raises(UnsupportedError, match="give the output a name by AS"):
        worlds["rows"].plan("SELECT q FROM (SELECT (SELECT max(v) FROM u), 1 AS one) AS q")


def test_columns_inside_a_subquery_are_those_of_its_tables(worlds: dict[str, World]) -> None:
    worlds["rows"].check("SELECT count(*) AS n, (SELECT max(COLUMNS('k')) FROM u) AS m FROM t")


def test_all_may_ask_a_set_operation_in_brackets(worlds: dict[str, World]) -> None:
    worlds["rows"].check("SELECT g FROM dim WHERE g >= ALL ((SELECT k FROM u WHERE k < 1) UNION SELECT 1)")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g, (SELECT name FROM dim WHERE dim.g = t.g), count(*) AS n FROM t GROUP BY ROLLUP (g)",
        "SELECT g, (SELECT max(v) FROM u), count(*) AS n FROM t GROUP BY g",
        "SELECT g, (SELECT max(dim.g) FROM dim WHERE dim.g < sum(t.v)), count(*) AS n FROM t GROUP BY g",
    ],
)
def test_counts_beside_a_subquery_are_estimated(worlds: dict[str, World], sql: str) -> None:
    first = next(worlds["rows"].estimates(worlds["rows"].plan(sql), batches=3))
    assert not first.is_exact
    assert {"n"} <= {column.name for column in first.approximate}


def test_a_median_may_have_read_partitions_without_rows(worlds: dict[str, World]) -> None:
    median = "SELECT median(t.id) AS m, count(*) FROM t"
    sql = f"SELECT count(*) FROM u WHERE u.k IN (SELECT max(m) FROM ({median}))"
    assert 0 in [each.row_count for each in worlds["groups"].catalog.table("t").partitions]
    worlds["groups"].check(sql, batches=4)
