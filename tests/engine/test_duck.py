"""A cursor of a closed database: a SELECT that is run again gives what is there now."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from relaqs_engine.duck import (
    RELATIONS_KEPT,
    AttachedFile,
    CivilTime,
    Cursor,
    Database,
    DatabaseConfig,
    Interrupted,
    ReadingDatabase,
    open_for_reading,
    open_for_writing,
)
from relaqs_engine.errors import DataError, MemoryLimitError, RelaqsError, SqlError

CONFIG = DatabaseConfig((), memory_limit_bytes=64 << 20)


@pytest.fixture
def cursor() -> Iterator[Cursor]:
    database = Database(CONFIG)
    cursor = database.cursor()
    cursor.run("CREATE TABLE t AS SELECT 1 AS x, 'a' AS kind")
    yield cursor
    database.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT x FROM t ORDER BY x", {"x": [1, 2]}),
        ("SELECT * FROM (PIVOT t ON kind USING sum(x)::INT)", {"a": [1], "b": [2]}),
    ],
)
def test_a_repeated_select_sees_new_rows(cursor: Cursor, sql: str, expected: dict[str, list[int]]) -> None:
    before = cursor.table(sql).to_pydict()
    cursor.run("INSERT INTO t VALUES (2, 'b')")
    assert before != expected
    assert cursor.table(sql).to_pydict() == expected


def test_a_repeated_select_sees_a_table_of_other_columns(cursor: Cursor) -> None:
    assert cursor.table("SELECT * FROM t").column_names == ["x", "kind"]
    cursor.run("CREATE OR REPLACE TABLE t AS SELECT 'z' AS y")
    assert cursor.table("SELECT * FROM t").to_pydict() == {"y": ["z"]}


def test_a_select_that_failed_can_be_run_again(cursor: Cursor) -> None:
    sql = "SELECT CASE WHEN x > 1 THEN error('too late') ELSE x END AS x FROM t"
    assert cursor.table(sql).num_rows == 1
    cursor.run("INSERT INTO t VALUES (2, 'b')")
    for _ in range(2):
        with pytest.raises(RelaqsError, match="too late"):
            cursor.table(sql)
    cursor.run("DELETE FROM t WHERE x > 1")
    assert cursor.table(sql).num_rows == 1


def test_many_selects_in_turn_stay_right(cursor: Cursor) -> None:
    for _ in range(2):
        for number in range(2 * RELATIONS_KEPT):
            assert cursor.table(f"SELECT x + {number} AS y FROM t").to_pydict() == {"y": [1 + number]}


def test_a_repeated_select_is_bound_once(cursor: Cursor) -> None:
    made = 0
    connection = cursor._connection

    class Counting:
        def sql(self, text: str) -> object:
            nonlocal made
            made += 1
            return connection.sql(text)

    cursor._connection = Counting()  # type: ignore[assignment]
    for _ in range(3):
        assert cursor.table("SELECT x FROM t").num_rows == 1
    cursor._connection = connection
    assert made == 1


def test_files_are_looked_into_by_one_database_that_can_be_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    count = f"SELECT count(*) FROM '{file}'"
    reading = ReadingDatabase()
    first, second = reading.cursor(), reading.cursor()
    first.run("CREATE TABLE shared AS SELECT 7 AS x")
    assert second.rows("SELECT x FROM shared") == [(7,)]
    for rows in (3, 5):
        second.run(f"COPY (FROM range({rows})) TO '{file}'")
        assert first.rows(count) == [(rows,)]
    reading.close()
    reading.close()
    assert reading.cursor().rows(count) == [(5,)]
    reading.close()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_database_may_aggregate_below_joins_where_it_is_told_to(allowed: bool) -> None:
    database = Database(replace(CONFIG, aggregates_below_joins=allowed))
    [(disabled,)] = database.cursor().rows("SELECT current_setting('disabled_optimizers')")
    database.close()
    assert ("partial_aggregate_pushdown" in disabled) is not allowed


def test_a_database_with_a_running_statement_may_be_closed() -> None:
    database = Database(CONFIG)
    cursor, is_running = database.cursor(), threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        while True:
            is_running.set()
            yield pa.record_batch({"x": [1]})

    cursor.register("endless", pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), rows()))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cursor.table, "SELECT sum(x) FROM endless")
        assert is_running.wait(10)
        database.close()
        cursor.interrupt()
        with pytest.raises(Interrupted):
            running.result(10)


def test_cursors_of_one_database_have_civil_times_of_their_own() -> None:
    """Each says what it does, whatever the database has, and so do the cursors made of it."""
    zones = ("Asia/Tokyo", "America/New_York", "UTC")
    for of_database in (None, *zones):
        with closing(
            Database(replace(CONFIG, civil_time=of_database and CivilTime(of_database)))
        ) as database:
            usual = database.cursor()
            assert usual.civil_time.zone == (of_database or open_for_reading().civil_time.zone)
            for zone in (*zones, usual.civil_time.zone):
                cursor = database.cursor(CivilTime(zone))
                for each in (cursor, cursor.another()):
                    assert each.rows("SELECT current_setting('TimeZone')") == [(zone,)]
                    assert each.civil_time.zone == zone
                cursor.keep_time(usual.civil_time)
                assert cursor.rows("SELECT current_setting('TimeZone')") == [(usual.civil_time.zone,)]
            with pytest.raises(DataError, match="locked"):
                usual.run("SET threads = 2")


@pytest.mark.parametrize("opened", ["closed", "closed, two threads", "reading", "kept reading", "writing"])
def test_no_database_has_threads_that_only_read_or_write_files(opened: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        match opened:
            case "reading":
                cursor = stack.enter_context(closing(open_for_reading(threads=2)))
            case "kept reading":
                cursor = stack.enter_context(closing(ReadingDatabase())).cursor()
            case "writing":
                cursor = stack.enter_context(closing(open_for_writing(tmp_path, threads=2)))
            case _:
                config = replace(CONFIG, threads=1 + ("two" in opened))
                cursor = stack.enter_context(closing(Database(config))).cursor()
        assert cursor.rows("SELECT current_setting('async_threads')") == [(0,)]


def test_many_databases_attach_a_file_that_another_has(tmp_path: Path) -> None:
    """DuckDB 2.0.0's ATTACH IF NOT EXISTS waited without end here, mostly before the hundredth."""
    path = tmp_path / "made.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    config = replace(CONFIG, lent=(AttachedFile("made", str(path)),))
    with closing(Database(config)):
        for _ in range(200):
            with closing(Database(config)) as database:
                cursor = database.cursor()
                cursor.borrow(config.lent)
                assert cursor.rows("SELECT a FROM made.t") == [(1,)]


def test_threads_attach_a_file_to_one_database_at_once(tmp_path: Path) -> None:
    files = [AttachedFile(f"made_{k}", str(tmp_path / f"made_{k}.duckdb")) for k in range(20)]
    for each in files:
        duckdb.connect(each.path).close()
    with closing(ReadingDatabase()) as database, ThreadPoolExecutor(4) as threads:
        cursors = [database.cursor() for _ in range(4)]
        list(threads.map(lambda cursor: cursor.borrow(files), cursors))
        attached = {name for (name,) in cursors[0].rows("SELECT database_name FROM duckdb_databases()")}
        assert attached >= {each.name for each in files}


def test_all_cursors_of_a_database_have_its_settings() -> None:
    names = ("async_threads", "parquet_metadata_cache", "python_enable_replacements")
    sql = f"SELECT value FROM duckdb_settings() WHERE name IN {names} ORDER BY name"
    with closing(Database(CONFIG)) as database:
        cursor = database.cursor()
        for each in (cursor, cursor.another()):
            assert each.rows(sql) == [("0",), ("true",), ("false",)]


@pytest.mark.parametrize("keyword", ["RECURSIVE", "recursive"])
@pytest.mark.parametrize("way", ["table", "rows", "run", "another"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_recursion_over_a_file_ends(tmp_path: Path, keyword: str, way: str, threads: int) -> None:
    duckdb.sql(f"COPY (FROM range(3) AS v(p)) TO '{tmp_path}/v.parquet'")
    sql = (
        f"WITH {keyword} t(x) AS (SELECT 1::BIGINT UNION ALL SELECT t.x + 1 FROM '{tmp_path}/v.parquet' AS v "
        "JOIN t ON t.x = v.p) SELECT count(*) AS n FROM t"
    )
    cursor = Database(replace(CONFIG, readable=(str(tmp_path),), threads=threads)).cursor()
    found: list[object] = []

    def ask() -> None:
        for _ in range(2):
            match way:
                case "table":
                    found.append(cursor.table(sql)["n"][0].as_py())
                case "run":
                    cursor.run(f"CREATE OR REPLACE TABLE made AS {sql}")
                    found.extend(n for (n,) in cursor.rows("FROM made"))
                case _:
                    asked = cursor if way == "rows" else cursor.another()
                    found.extend(n for (n,) in asked.rows(sql))
            prefetching_is_off = cursor.rows("SELECT current_setting('disable_parquet_prefetching')")
            assert prefetching_is_off == [(False,)]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(10)
    assert found == [3, 3]


def test_a_statement_with_values_gives_the_same_table(cursor: Cursor) -> None:
    sql = "SELECT x, kind, $1 * 2 AS y, 1.50::DECIMAL(38, 2) AS z, DATE '2024-02-29' AS day FROM t"
    expected = cursor.table(sql.replace("$1", "CAST(1.5 AS DOUBLE)"))
    assert cursor.table(sql, [1.5]) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cursor.table(sql, [1.5]) == expected
    with pytest.raises(SqlError):
        cursor.table("SELECT nothing + $1 FROM t", [1.5])


def test_a_result_with_values_has_the_limit_of_all_results() -> None:
    with closing(Database(replace(CONFIG, result_limit_bytes=1 << 20))) as database:
        limited = database.cursor()
        assert limited.table("SELECT range + $1 AS x FROM range(10)", [1.0]).num_rows == 10
        with pytest.raises(MemoryLimitError, match="the most allowed"):
            limited.table("SELECT range + $1 AS x FROM range(1_000_000)", [1.0])
