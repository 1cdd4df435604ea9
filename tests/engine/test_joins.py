"""Joins of tables that are sampled together, and units whose rows are in two files: beside plain DuckDB."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.layouts import add_static, append, compact
from relaqs_engine.layouts.outliers import FEWEST_ROWS
from relaqs_engine.plans.aggregate import MergePlan

from relaqs import shuffle
from tests.conftest import Oracle
from tests.engine.soundness import Tally
from tests.engine.world import World

# Keys are missing on either side, occur several times, and are NULL. `o` has most rows, and fewest keys.
TABLES = {
    "c": "SELECT {key} AS k, i % 3 AS seg, i % 7 AS w FROM range(120) t(i), LATERAL (SELECT i % 100 AS n)",
    "o": "SELECT {key} AS k, i % 4 AS g, i % 20 AS v FROM range(300) t(i), LATERAL (SELECT 70 + i % 40 AS n)",
    "p": "SELECT {key} AS k, i % 5 AS q FROM range(60) t(i), LATERAL (SELECT 2 * i AS n)",
}
KEYS = {
    "number": "CASE WHEN n % 11 > 0 THEN n END",
    "text": "CASE WHEN n % 11 > 0 THEN 'k' || n END",
    "both": "CASE WHEN n % 11 > 0 THEN n // 2 END AS j, CASE WHEN n % 13 > 0 THEN 'k' || n % 2 END",
}
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
OVER_BOTH = (
    "SELECT count(*) AS n, sum(w) AS w, count(v) AS v FROM {tables}",
    "SELECT seg, g, count(*) AS n, avg(v) AS v FROM {tables} GROUP BY seg, g",
    "SELECT count(DISTINCT o.k) AS n, sum(v) AS v, max(w) AS w FROM {tables} WHERE w IS NULL OR v IS NULL",
    "SELECT v % 3 AS third, sum(w) AS w FROM {tables} GROUP BY ROLLUP (v % 3) HAVING count(*) > 5",
    "SELECT c.k, count(*) AS n FROM {tables} GROUP BY c.k",
    "WITH q AS (SELECT seg, sum(v) AS v FROM {tables} GROUP BY seg) SELECT sum(v), count(*) FROM q",
    "SELECT count(*) AS n FROM {tables} LEFT JOIN d ON d.g = o.g WHERE m IS NULL OR m > 1",
    "SELECT m, count(*), sum(q) AS q FROM {tables} FULL JOIN p ON {and_p} LEFT JOIN d USING (g) GROUP BY m",
    "SELECT seg, median(v) AS v, list_sort(list(DISTINCT w)) AS w FROM {tables} GROUP BY seg",
)
OVER_ONE = (
    "SELECT count(*) AS n, sum(w) AS w FROM {tables}",
    "SELECT seg, count(DISTINCT k) AS n FROM {tables} GROUP BY seg",
)


def _made(folder: Path, key: str, stored: str) -> World:
    """Return the tables, laid out by key; `o` as `stored` says."""
    raw, warehouse = folder / "raw", folder / "warehouse"
    raw.mkdir()
    columns = ("j", "k") if key == "both" else ("k",)
    for name, sql in TABLES.items():
        rows = duckdb.sql(sql.format(key=KEYS[key])).to_arrow_table()
        duckdb.sql(f"COPY rows TO '{raw / name}.parquet' (FORMAT parquet)")
        is_grown = name == "o" and stored in ("appended", "compacted")
        first = rows.slice(0, 200) if is_grown else rows
        shuffle(first, warehouse / name, partitions=5, cluster_by=columns)
        if is_grown:
            append(rows.slice(200), warehouse / name)
        if name == "o" and stored == "compacted":
            compact(warehouse / name)
        if name == "o" and stored == "twice":
            (warehouse / name).rename(warehouse / "o@key")
            shuffle(rows, warehouse / name, partitions=4)
    duckdb.sql("SELECT i AS g, i % 3 AS m FROM range(1, 6) AS t(i)").write_parquet(str(raw / "d.parquet"))
    add_static(raw / "d.parquet", warehouse / "d")
    return World.open(warehouse, Oracle(raw))


WORLDS = (
    ("number", "once"),
    ("text", "appended"),
    ("both", "twice"),
    ("number", "compacted"),
)


@pytest.fixture(scope="module", params=WORLDS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return _made(tmp_path_factory.mktemp("joins"), *request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_joins_by_key_end_as_duckdb_says_and_are_sound_before(world: World, kind: str) -> None:
    columns = [column.name for column in world.catalog.table("c").columns if column.name in ("j", "k")]
    ons = [" AND ".join(f"{a}.{key} = {b}.{key}" for key in columns) for a, b in ("co", "op")]
    sides = cycle((f"c {kind} o ON {ons[0]}", f"o {kind} c ON {ons[0]} AND (w < 6 OR v > 2)"))
    one_side = kind in ("SEMI JOIN", "ANTI JOIN")
    for text in OVER_ONE if one_side else OVER_BOTH:
        tables = f"c {kind} o ON {ons[0]}" if one_side else next(sides)
        world.check(text.format(tables=tables, and_p=ons[1]))
    world.check(f"SELECT count(*) AS n, min(w) AS w FROM c {kind} o USING ({', '.join(columns)})")
    world.check(f"SELECT count(*) AS n FROM o AS a {kind} o AS b ON a.k = b.k AND a.v < b.v")
    world.check(f"SELECT seg, w FROM c NATURAL {kind} o")


def test_what_a_join_has_only_of_the_kept_side_is_within_its_intervals(tmp_path: Path) -> None:
    """Most keys of `c` are not in `o`, which has ten times as many rows."""
    raw = tmp_path / "raw"
    raw.mkdir()
    duckdb.sql("SELECT i AS k, i % 7 AS w FROM range(4000) t(i)").write_parquet(str(raw / "c.parquet"))
    duckdb.sql("SELECT i % 500 * 3 AS k, i % 9 AS v FROM range(40000) t(i)").write_parquet(
        str(raw / "o.parquet")
    )
    tally, oracle = Tally(), Oracle(raw)
    alone = "SELECT count(*) AS n, sum(w) AS w FROM c LEFT JOIN o ON c.k = o.k WHERE o.k IS NULL"
    both = "SELECT w, count(*) AS n, sum(v) AS v, avg(v) AS m FROM o FULL JOIN c ON c.k = o.k GROUP BY w"
    for seed in range(4):
        for table in "co":
            shuffle(
                raw / f"{table}.parquet",
                tmp_path / str(seed) / table,
                partitions=24,
                cluster_by="k",
                seed=seed,
            )
        world = World.open(tmp_path / str(seed), oracle)
        for sql, order in product((alone, both), range(3)):
            world.check(sql, seed=order, tally=tally)
    assert tally.certified > 800
    assert tally.held / tally.certified > 0.92


def test_a_partition_that_the_largest_table_has_no_rows_in_is_read_as_the_others_are(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    duckdb.sql("SELECT i AS k, i % 7 AS w FROM range(40) t(i)").write_parquet(str(raw / "c.parquet"))
    duckdb.sql("SELECT 3 AS k, i AS v FROM range(400) t(i)").write_parquet(str(raw / "o.parquet"))
    for table in "co":
        shuffle(raw / f"{table}.parquet", tmp_path / "two" / table, partitions=12, cluster_by="k")
    world = World.open(tmp_path / "two", Oracle(raw))
    for kind in ("", "LEFT", "RIGHT", "FULL"):
        for seed in range(3):
            world.check(f"SELECT count(*) AS n, sum(w) AS w FROM c {kind} JOIN o ON c.k = o.k", seed=seed)
        world.check(f"SELECT w, v FROM c {kind} JOIN o ON c.k = o.k")
    sides = "(SELECT count(*) FROM c WHERE k <> 3) AS c, (SELECT sum(v) FROM o) AS o"
    world.check(f"SELECT {sides}, (SELECT count(*) FROM c FULL JOIN o ON c.k = o.k) AS n")
    world.check("SELECT count(*) AS n, sum(w) AS w FROM c WHERE w > (SELECT avg(v) - 199 FROM o)")


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table by key with an outlier index: keys have rows there and in their partition."""
    folder = tmp_path_factory.mktemp("skewed")
    amount = "CASE WHEN i % 150 = 0 THEN 90000.0 + i ELSE i % 40 END AS amount"
    (folder / "raw").mkdir()
    file = folder / "raw" / "t.parquet"
    columns = f"hash(i) % 900 AS k, CAST(sqrt(i % 16) AS INTEGER) AS g, {amount}, i % 6 AS v"
    duckdb.sql(f"SELECT {columns} FROM range({2 * FEWEST_ROWS}) t(i)").write_parquet(str(file))
    shuffle(file, folder / "warehouse" / "t", partitions=8, cluster_by="k")
    duckdb.sql("SELECT i AS g, i % 2 AS m FROM range(5) t(i)").write_parquet(
        str(folder / "raw" / "d.parquet")
    )
    add_static(folder / "raw" / "d.parquet", folder / "warehouse" / "d")
    return World.open(folder / "warehouse", Oracle(folder / "raw"))


OF_UNITS = (
    "count(DISTINCT k)",
    "count(DISTINCT k) FILTER (WHERE v > 2)",
    "count(DISTINCT (k, g))",
    "avg(amount) / count(DISTINCT k)",
    "sum(DISTINCT k)",
    "median(k)",
    "mode(g)",
)
OF_SKEWED = (
    "SELECT {unit} AS n, sum(amount) AS s FROM t",
    "SELECT {unit} AS n, avg(amount) AS s, max(v) AS v FROM t WHERE amount > 3 GROUP BY g",
    "SELECT m, {unit} AS n, stddev(amount) AS s FROM t JOIN d USING (g) GROUP BY m",
    "WITH q AS (SELECT g, {unit} AS n, sum(amount * v) AS s FROM t GROUP BY g) SELECT sum(n), max(s) FROM q",
)


@pytest.mark.parametrize("unit", OF_UNITS)
def test_what_is_counted_by_unit_is_not_counted_again_in_the_outlier_index(skewed: World, unit: str) -> None:
    for text in OF_SKEWED:
        skewed.check(text.format(unit=unit.replace("(g)", "(t.g)")))


def test_units_are_whole_in_what_else_asks_for_all_their_rows(skewed: World) -> None:
    totals = "SELECT k, sum(amount) AS s, count(*) AS n FROM t GROUP BY k"
    for sql in (
        f"SELECT count(*) AS units, sum(s) AS s, avg(s) AS mean FROM ({totals})",
        f"SELECT count(*) AS units, sum(s) AS s FROM ({totals} HAVING sum(amount) > 90500 AND n > 20)",
        f"SELECT sum(amount) AS s FROM t WHERE k IN (SELECT k FROM ({totals}) WHERE n > 25)",
        "SELECT sum(amount) AS s FROM t WHERE EXISTS (SELECT 1 FROM t AS z WHERE z.k = t.k AND z.v = 5)",
        "SELECT sum(a.amount) AS s FROM t AS a JOIN t AS b ON a.k = b.k AND b.amount > 9e4",
        "SELECT sum(s) FROM (SELECT sum(amount) OVER (PARTITION BY k) AS s FROM t WHERE v = 1)",
        f"{totals} ORDER BY s DESC LIMIT 5",
        "SELECT k, sum(amount) AS s, count(DISTINCT g) AS g FROM t GROUP BY k ORDER BY s DESC, k LIMIT 5",
        "SELECT k, g, sum(amount) AS s FROM t GROUP BY ROLLUP (k, g) HAVING sum(amount) > 99500",
        "SELECT count(*) AS n, sum(s) AS s FROM (SELECT DISTINCT k, amount AS s FROM t WHERE v < 2)",
    ):
        skewed.check(sql)


def test_the_outlier_index_is_read_where_every_column_merges_row_by_row(skewed: World) -> None:
    def reads(sql: str) -> bool:
        plan = skewed.plan(sql)
        return isinstance(plan, MergePlan) and plan.reads_outliers

    known = "SELECT sum(amount), count(*), max(k), any_value(1) FROM t"
    skewed.check(known, batches=16)  # all rows are known
    assert reads(known)
    assert not reads("SELECT sum(amount), count(DISTINCT k) FROM t")
