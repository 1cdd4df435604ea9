"""COUNT(DISTINCT): which values were met in one sampling unit alone, and what a layout knows beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Database, DatabaseConfig
from relaqs_engine.execution.state import GroupState, batch_tasks, leading_stream, scheduled_batches
from relaqs_engine.layouts import Layout, column_statistics, read_manifest, shuffling, verify
from relaqs_engine.layouts.column_statistics import FEW_VALUES, GROUPED_ROWS
from relaqs_engine.layouts.manifest import KEPT_HASHES, DistinctCount
from relaqs_engine.layouts.manifest_file import write_manifest
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_engine.sql.binder import Binder

from relaqs import append, compact, shuffle
from tests.conftest import Oracle
from tests.engine.world import World

ROWS = 60_000
KEYS = {"one": ("k",), "two": ("k", "j")}


@pytest.fixture(scope="module", params=KEYS)
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A table whose units are the values of a key with NULLs. Some values of v are in one unit alone."""
    folder = tmp_path_factory.mktemp("units")
    key = "CASE WHEN i % 97 > 0 THEN i // 5 END AS k, i % 5 // 4 AS j"
    value = "CASE WHEN i % 10 < 4 THEN i // 5 ELSE i % 700 END AS v"
    rows = duckdb.sql(f"SELECT {key}, {value} FROM range({ROWS}) AS t(i)").to_arrow_table()
    shuffle(rows, folder / "t", partitions=12, cluster_by=KEYS[request.param])
    return Catalog.open(folder)


def test_it_is_known_of_each_value_whether_it_was_met_in_one_unit(catalog: Catalog) -> None:
    plan = plan_query("SELECT count(DISTINCT v) AS n FROM t", catalog, Binder(catalog))
    assert isinstance(plan, MergePlan)
    layout = leading_stream(plan, catalog)
    unit = ", ".join(f"coalesce({key}, -1)" for key in layout.cluster_key)
    cursor = Database(DatabaseConfig(catalog.readable_directories, 1 << 28)).cursor()
    states = Database(DatabaseConfig((), 1 << 28)).cursor()
    state = GroupState(plan, layout, states)
    files: list[str] = []
    for batch in scheduled_batches(plan, catalog, seed=0):
        partials = [cursor.table(each.sql) for each in batch_tasks(plan, catalog, batch)]
        state.fold(batch, partials)
        read = [layout.partitions[i] for i in batch.partitions]
        files += [str(layout.directory / file.file) for partition in read for file in partition.files]
        known = f"FROM read_parquet({files}) WHERE v IS NOT NULL"
        met = f"SELECT count(DISTINCT ({unit})) AS units {known} GROUP BY v"
        [(seen, once)] = cursor.rows(f"SELECT count(*), count(*) FILTER (units = 1) FROM ({met})")
        assert states.rows(f"SELECT distinct_seen, distinct_once FROM ({plan.texts.merge})") == [(seen, once)]
        assert 0 < once < seen


MANY_ROWS = 120_000


def shapes(first: int = 0, rows: int = MANY_ROWS) -> pa.Table:
    """Return rows of columns with few values and with many. Most have NULLs, floats have -0.0 and NaN."""
    sql = f"""
        SELECT i // 3 AS k, i::BIGINT * 7901 AS once, hash(i // 2)::VARCHAR AS pairs,
            CASE WHEN i % 9 > 0 THEN i % 7 END AS seven, CASE WHEN hash(i) % 3 > 0 THEN 'same' END AS one,
            NULL::INTEGER AS none, ([0.0, -0.0, 'nan'::DOUBLE, -'nan'::DOUBLE, 1e300])[i % 5 + 1] AS floats,
            DATE '2020-01-01' + (hash(i) % 3000)::INTEGER AS day,
            (hash(i, 1) % 40000)::DECIMAL(12, 2) AS price,
            ['a', 'b', ''][i % 3 + 1] AS letter, [i % 4] AS nested,
            (hash(i, 2) % 50000)::UINTEGER AS user
        FROM range({first}, {first + rows}) AS t(i)"""
    return duckdb.sql(sql).to_arrow_table()


COLUMNS = tuple(shapes(0, 1).column_names)
HASHED = ("once", "pairs", "price", "user")
"""Those with so many values that only a share of them is counted. Of `k` it depends on the layout."""


def world_of(folder: Path, rows: pa.Table, **how: str) -> World:
    (folder / "raw").mkdir()
    pq.write_table(rows, folder / "raw" / "t.parquet")
    shuffle(folder / "raw" / "t.parquet", folder / "warehouse" / "t", partitions=20, **how)
    return World.open(folder / "warehouse", Oracle(folder / "raw"))


def counts_of(layout: Layout, rows: pa.Table) -> dict[str, tuple[float, float, float, int]]:
    """Return what a layout knows of each column, and the true number."""
    names = ", ".join(f"count(DISTINCT {name})" for name in layout_names(layout))
    (true,) = duckdb.sql(f"SELECT {names} FROM rows").fetchall()
    known = (column.distinct for column in layout.columns)
    return {
        name: (each.least, each.most, each.relative_error, n)
        for name, each, n in zip(layout_names(layout), known, true, strict=True)
        if each is not None
    }


def layout_names(layout: Layout) -> list[str]:
    return [column.name for column in layout.columns]


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("is_in_one_pass", [True, False])
def test_a_layout_has_the_number_of_values_of_each_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, is_in_one_pass: bool
) -> None:
    if not is_in_one_pass:
        monkeypatch.setattr(shuffling, "pieces_of", lambda source: None)
    rows = shapes()
    layout = shuffle(
        rows, tmp_path / "t", partitions=140, cluster_by=key
    )  # more files than one statement takes
    found = counts_of(layout, rows)
    assert found.keys() == set(COLUMNS) - {"nested"}
    for name, (least, most, error, true) in found.items():
        assert least == most
        assert (least == true) if error == 0.0 else (true > FEW_VALUES // 2), name
        assert abs(least - true) <= 3.5 * error * true, name
        assert error < 0.009
    assert all(found[name][2] > 0.0 for name in HASHED)
    assert found["floats"][3] == 3  # as DuckDB has it: zeros are one value, and so are NaN
    assert read_manifest(tmp_path / "t") == layout


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_what_is_known_beforehand_holds_at_every_look(tmp_path: Path, key: str | None) -> None:
    """A column of few values is known, and one of many within 2 % at once. The last answer is exact."""
    world = world_of(tmp_path, shapes(), **({"cluster_by": key} if key else {}))
    for name in COLUMNS:
        sql = f"SELECT count(DISTINCT {name}) AS n FROM t"
        true = world.oracle.rows(sql)[0][0]
        *looks, last = world.estimates(world.plan(sql))
        assert last.table.column("n").to_pylist() == [true]
        for look in looks if name != "nested" else ():
            [row] = look.table.to_pylist()
            assert row["n_low"] <= row["n"] <= row["n_high"], name
            assert row["n_low"] - 1e-6 <= true <= row["n_high"] + 1e-6, name
            assert row["n_certified"]
            assert look.relative_error() <= (0.02 if name in HASHED else 0.0 if name != "k" else 0.02), name


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_some_rows_have_no_more_values_than_all(tmp_path: Path, key: str | None) -> None:
    world = world_of(tmp_path, shapes(), **({"cluster_by": key} if key else {}))
    for sql in (
        "SELECT count(DISTINCT seven) AS n FROM t WHERE i_of(user) > 9",
        "SELECT count(DISTINCT seven) FILTER (letter = 'a') AS n FROM t",
        "SELECT count(DISTINCT CASE WHEN letter = 'a' THEN seven END) AS n FROM t",
        "SELECT letter, count(DISTINCT seven) AS n FROM t GROUP BY letter",
        "SELECT letter, count(DISTINCT seven) AS n FROM t GROUP BY ROLLUP (letter)",
    ):
        sql = sql.replace("i_of(user)", "user")
        *looks, last = world.estimates(world.plan(sql))
        world.check(sql)
        assert set(last.table.column("n").to_pylist()) <= {6, 7}
        for look in looks:
            assert max(look.table.column("n_high").to_pylist()) == 7.0, sql
            assert min(look.table.column("n_low").to_pylist()) <= 7.0, sql
    # Of a CASE with two branches nothing is known, nor of what is made of a column.
    for value in ("CASE WHEN letter = 'a' THEN seven ELSE user END", "seven + user", "upper(letter)"):
        plan = world.plan(f"SELECT count(DISTINCT {value}) AS n FROM t")
        assert isinstance(plan, MergePlan)
        assert plan.bars.distinct is None


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_units_are_counted_by_the_manifest(tmp_path: Path, key: tuple[str, ...]) -> None:
    """A row for each unit, NULL among them, and none of any other derived table."""
    rows = duckdb.sql(
        "SELECT CASE WHEN i % 50 > 0 THEN i // 4 END AS k, i % 3 // 2 AS j, i AS x FROM range(40000) AS t(i)"
    ).to_arrow_table()
    (tmp_path / "raw").mkdir()
    pq.write_table(rows, tmp_path / "raw" / "t.parquet")
    shuffle(rows, tmp_path / "warehouse" / "t", partitions=20, cluster_by=key)
    world = World.open(tmp_path / "warehouse", Oracle(tmp_path / "raw"))
    by_key = f"SELECT {', '.join(key)}, sum(x) AS s FROM t GROUP BY {', '.join(reversed(key))}"
    for inner in (by_key, f"SELECT sum(x) AS s FROM t AS u GROUP BY {', '.join(map('u.{}'.format, key))}"):
        sql = f"SELECT count(*) AS n, sum(s) AS s FROM ({inner})"
        true = world.oracle.rows(sql)[0][0]
        for look in world.estimates(world.plan(sql)):
            [row] = look.table.to_pylist()
            assert (row["n"], row["n_low"], row["n_high"], row["n_certified"]) == (true, true, true, True)
    for inner in (
        by_key.replace("GROUP", "WHERE x % 3 > 0 GROUP"),
        f"{by_key} HAVING count(*) > 2",
        f"{by_key} LIMIT 9",
        by_key.replace("SELECT", "SELECT DISTINCT"),
        by_key.replace("SELECT", "SELECT unnest([1, 2]) AS u,"),
        by_key.replace("GROUP BY", "GROUP BY ROLLUP(") + ")",
        f"{by_key}, x % 2",
    ):
        plan = world.plan(f"SELECT count(*) AS n FROM ({inner})")
        assert not isinstance(plan, MergePlan) or not plan.bars.known_totals, inner
        if "LIMIT" not in inner:
            world.check(f"SELECT count(*) AS n FROM ({inner})")
    world.check(f"SELECT count(*) AS n FROM ({by_key}) WHERE s > 99")


def test_counts_of_a_whole_table_are_known(tmp_path: Path) -> None:
    """COUNT(*), COUNT(x) and COUNT(DISTINCT key) of all rows, what is computed of them, and of no others."""
    rows = duckdb.sql(
        "SELECT CASE WHEN i % 50 > 0 THEN i // 4 END AS k, CASE WHEN i % 3 > 0 THEN i END AS x "
        "FROM range(40000) AS t(i)"
    ).to_arrow_table()
    world = world_of(tmp_path, rows, cluster_by="k")
    counts = "count(*) AS a, count(x) AS b, count(DISTINCT k) AS c, count(k) AS d, count(x) / count(*) AS e"
    by_key = "SELECT k, count(*) AS n FROM t GROUP BY k"
    for sql in (f"SELECT {counts} FROM t", f"SELECT avg(n) AS a, sum(n) AS b FROM ({by_key})"):
        known = world.oracle.rows(sql)[0]
        names = "abcde"[: len(known)]
        for look in world.estimates(world.plan(sql)):
            [row] = look.table.to_pylist()
            assert tuple(row[name] for name in names) == pytest.approx(known, rel=1e-15)
            assert tuple(row[f"{name}_low"] for name in names) == pytest.approx(known, rel=1e-15)
            assert look.relative_error() == 0.0
    for others in (
        "SELECT count(x) AS b FROM t WHERE k > 7",
        "SELECT count(DISTINCT k) AS c FROM t WHERE x > 7",
    ):
        plan = world.plan(others)
        assert isinstance(plan, MergePlan)
        assert not plan.bars.known_totals
        world.check(others)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_rows_that_are_appended_have_some_of_the_values_or_others(tmp_path: Path, key: str | None) -> None:
    """Few values stay counted. The number of many lies between two ends until the table is compacted."""
    into = tmp_path / "warehouse" / "t"
    parts = [shapes(), shapes(MANY_ROWS - 6_000, 12_000), shapes(5, 2)]
    layout = shuffle(parts[0], into, partitions=10, cluster_by=key)
    for part in parts[1:]:
        layout = append(part, into)
    rows = pa.concat_tables(parts)
    for name, (least, most, error, true) in counts_of(layout, rows).items():
        assert least * (1 - 3.5 * error) <= true <= most * (1 + 3.5 * error), name
        assert most <= 2.2 * least + 2, name
        assert (least == most == true) or true > KEPT_HASHES, name
    (tmp_path / "raw").mkdir()
    pq.write_table(rows, tmp_path / "raw" / "t.parquet")
    for stage in ("appended", "compacted"):
        world = World.open(tmp_path / "warehouse", Oracle(tmp_path / "raw"))
        for name in ("k", "pairs", "seven", "user", "day"):
            sql = f"SELECT count(DISTINCT {name}) AS n FROM t"
            true = world.oracle.rows(sql)[0][0]
            for look in world.estimates(world.plan(sql), batches=4):
                [row] = look.table.to_pylist()
                assert row["n_low"] - 1e-6 <= true <= row["n_high"] + 1e-6, (stage, name)
        compact(into)
    for name, (least, most, error, true) in counts_of(read_manifest(into), rows).items():
        assert least == most, name
        assert abs(least - true) <= 3.5 * error * true, name


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_several_numbers_of_values_of_a_table_are_known(tmp_path: Path, key: str | None) -> None:
    """One is estimated from what was seen. The others list their values, and begin with the manifest."""
    world = world_of(tmp_path, shapes(), **({"cluster_by": key} if key else {}))
    names = [name for name in COLUMNS if name != "nested"]
    counts = ", ".join(f"count(DISTINCT {name}) AS {name}" for name in names)
    (true,) = world.oracle.rows(f"SELECT {counts} FROM t")
    for look in world.estimates(world.plan(f"SELECT {counts} FROM t"), batches=4):
        [row] = look.table.to_pylist()
        for name, n in zip(names, true, strict=True):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"], name
            assert row[f"{name}_low"] - 1e-6 <= n <= row[f"{name}_high"] + 1e-6, name
            assert row[f"{name}_certified"], name
        assert look.relative_error() <= 0.03
    values = (
        "count(DISTINCT user) FILTER (seven > 2)",
        "count(DISTINCT user + 1)",
        "count(DISTINCT user) + 1",
    )
    for sql in (
        *(f"SELECT count(DISTINCT day) AS a, {value} AS n FROM t" for value in values),
        "SELECT count(DISTINCT day) AS a, count(DISTINCT user) AS n FROM t WHERE user % 2 = 0",
        "SELECT letter, count(DISTINCT day) AS a, count(DISTINCT user) AS n FROM t GROUP BY letter",
    ):
        plan = world.check(sql, batches=2)
        assert not isinstance(plan, MergePlan) or not plan.bars.known_outputs, sql


BY_GROUP = (
    "SELECT seven, count(DISTINCT user) AS n FROM t GROUP BY seven",
    "SELECT letter, count(DISTINCT pairs) AS n, avg(price) AS p FROM t GROUP BY ALL",
    "SELECT one, count(DISTINCT user) FILTER (user % 2 = 0) AS n FROM t GROUP BY one",
    "SELECT letter, count(DISTINCT user) AS n FROM t WHERE price > 7000 GROUP BY letter",
    "SELECT seven, count(DISTINCT user) AS n FROM t GROUP BY 1 ORDER BY n DESC, 1 LIMIT 3",
)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("rows_looked_at", [GROUPED_ROWS, 40_000])
def test_values_of_groups_are_known_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, rows_looked_at: int
) -> None:
    """In a small table they are counted, in a large one those of a share of the values."""
    monkeypatch.setattr(column_statistics, "GROUPED_ROWS", rows_looked_at)
    world = world_of(tmp_path, shapes(), **({"cluster_by": key} if key else {}))
    is_exact = rows_looked_at >= MANY_ROWS
    for sql in BY_GROUP:
        plan = world.check(sql, batches=3)
        assert isinstance(plan, MergePlan)
        known = plan.bars.distinct_by
        assert known is not None
        assert known.are_all == ("FILTER" not in sql and "WHERE" not in sql)
        true = dict(world.oracle.rows(f"SELECT g, n FROM ({sql}) AS answer(g, n{', p' * ('avg' in sql)})"))
        held = []
        for look in world.estimates(plan, batches=4):
            for row in look.table.to_pylist():
                n = true.get(row[look.columns[0]])
                held.append(n is None or row["n_low"] - 1e-6 <= n <= row["n_high"] + 1e-6)
                assert row["n_low"] <= row["n"] <= row["n_high"]
                if known.are_all and n is not None and not look.is_exact:
                    wide = 0.0 if is_exact else 0.05
                    assert row["n_high"] - row["n_low"] <= 2 * wide * n, sql
        # A group whose values are counted by a share is off at all looks, or at none: one of eight may be.
        assert np.mean(held) >= (1.0 if is_exact else 0.85), sql
    for others in ("seven + 1", "seven, letter", "ROLLUP (seven)", "day", "price"):
        plan = world.plan(f"SELECT count(DISTINCT user) AS n FROM t GROUP BY {others}")
        assert not isinstance(plan, MergePlan) or plan.bars.distinct_by is None
    of_join = "SELECT t.letter, count(DISTINCT t.user) AS n FROM t JOIN t AS u ON t.k = u.k GROUP BY 1"
    plan = world.plan(of_join)
    assert not isinstance(plan, MergePlan) or plan.bars.distinct_by is None


def test_values_of_groups_are_forgotten_by_an_append_and_found_by_compacting(tmp_path: Path) -> None:
    layout = shuffle(shapes(), tmp_path / "t", partitions=4)
    assert {grouped.by for grouped in layout.column("user").by_group} == {"seven", "letter", "one"}
    assert not any(column.by_group for column in append(shapes(3, 50), tmp_path / "t").columns)
    whole = shuffle(pa.concat_tables([shapes(), shapes(3, 50)]), tmp_path / "whole", partitions=4)
    compacted = compact(tmp_path / "t")
    for column, other in zip(compacted.columns, whole.columns, strict=True):
        assert column.by_group == other.by_group
    assert read_manifest(tmp_path / "t") == compacted


def test_values_of_groups_of_another_duckdb_are_not_looked_up(tmp_path: Path) -> None:
    world = world_of(tmp_path, shapes())
    write_manifest(replace(world.catalog.table("t"), hash_probe="another"))
    world = World.open(tmp_path / "warehouse", world.oracle)
    look = next(world.estimates(world.plan(BY_GROUP[0])))
    assert look.relative_error() > 0.2


def test_hashes_of_another_duckdb_are_not_met_with_its_own(tmp_path: Path) -> None:
    layout = shuffle(shapes(), tmp_path / "t", partitions=4)
    write_manifest(replace(layout, hash_probe="another"))
    for grown in (append(shapes(0, 70), tmp_path / "t"), compact(tmp_path / "t")):
        known = grown.column("seven").distinct
        assert known is not None
        assert known.hashes == ()
        assert known.least == 7
        assert known.most == (14 if len(grown.files) > 4 else 7)


def test_verify_finds_a_number_of_values_that_is_wrong(tmp_path: Path) -> None:
    layout = shuffle(shapes(), tmp_path / "t", partitions=4)
    assert verify(tmp_path / "t").ok
    for name in ("seven", "user"):
        wrong = tuple(
            replace(
                each,
                distinct=DistinctCount(8.0, 8.0, 0.0) if each.name == name else each.distinct,
                by_group=(),
            )
            for each in layout.columns
        )
        write_manifest(replace(layout, columns=wrong))
        (fault,) = (check for check in verify(tmp_path / "t").checks if not check.ok)
        assert (fault.name, name in fault.detail, "not 8" in fault.detail) == ("distinct values", True, True)


def test_a_layout_of_before_knows_no_number_and_is_read_as_ever(tmp_path: Path) -> None:
    world = world_of(tmp_path, shapes())
    layout = world.catalog.table("t")
    write_manifest(
        replace(layout, columns=tuple(replace(each, distinct=None, by_group=()) for each in layout.columns))
    )
    world = World.open(tmp_path / "warehouse", world.oracle)
    plan = world.check("SELECT count(DISTINCT user) AS n FROM t")
    assert isinstance(plan, MergePlan)
    assert plan.bars.distinct is None
    append(shapes(7, 500), tmp_path / "warehouse" / "t")
    assert all(column.distinct is None for column in read_manifest(tmp_path / "warehouse" / "t").columns)


@pytest.mark.slow
def test_a_confidence_is_kept_by_what_was_counted(tmp_path: Path) -> None:
    """Of many columns with 40,000 values each, the first interval holds the truth in 95 % at least."""
    names = [f"c{i}" for i in range(40)]
    numbers = np.random.default_rng(7).integers(0, 1 << 60, size=(40, 40_000))
    rows = pa.table({name: np.tile(column, 3) for name, column in zip(names, numbers, strict=True)})
    world = world_of(tmp_path, rows)
    true = [len(np.unique(column)) for column in numbers]
    for confidence, least in ((0.95, 36), (0.6, 22)):
        request, held = IntervalRequest(confidence), 0
        for name, n in zip(names, true, strict=True):
            look = next(
                world.estimates(world.plan(f"SELECT count(DISTINCT {name}) AS n FROM t"), request=request)
            )
            [row] = look.table.to_pylist()
            held += row["n_low"] <= n <= row["n_high"]
        assert held >= least  # of 40; 95 and 60 % are 38 and 24


PAID = pa.table(
    {
        "k": np.arange(30_000) // 4,
        "shop": np.arange(30_000) % 3,
        "item": np.arange(30_000) * 7901 % 400,
        "paid": np.random.default_rng(3).gamma(2.0, 30.0, 30_000).round(2).clip(0.0, 500.0),
    }
)


@pytest.mark.parametrize("key", [{}, {"cluster_by": "k"}])
@pytest.mark.parametrize(
    ("value", "is_divided"),
    [
        ("sum(paid) / count(DISTINCT item)", True),
        ("round(100.0 * count(DISTINCT k) / count(*), 1)", False),
        ("count(DISTINCT item) * avg(paid)", False),
    ],
)
def test_what_is_multiplied_or_divided_by_a_number_of_values_has_an_interval(
    tmp_path: Path, key: dict[str, str], value: str, is_divided: bool
) -> None:
    """Together both hold in 95 % at least. Of 24 such cells five miss in less than one of 150 samples."""
    world = world_of(tmp_path, PAID, **key)
    plan = world.plan(f"SELECT shop, {value} AS n FROM t WHERE paid > 10 GROUP BY shop")
    *early, last = world.estimates(plan, batches=9)
    truth = {row["shop"]: row["n"] for row in last.table.to_pylist()}
    made = plan.outputs[1].of_distinct
    assert made is None or made.is_divided == is_divided
    rows = [row for estimate in early for row in estimate.table.to_pylist() if row["n_certified"]]
    assert len(rows) >= 12
    assert all(row["n_low"] <= row["n"] <= row["n_high"] for row in rows)
    assert sum(not row["n_low"] <= truth[row["shop"]] <= row["n_high"] for row in rows) <= 4
