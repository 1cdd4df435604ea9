"""Sessions over plain files: exact answers at once, of the rows that were there when it was opened."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.plans.plan import WholePlan

import relaqs
from relaqs.executors import duck_process
from relaqs.executors.files import UnseenFileError
from relaqs.queries.jobs import query_identity
from tests.relaqs.plain_trips import BY_ZONE, write_trips
from tests.relaqs.sessions import Connect, every_snapshot
from tests.rows import rows_of


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    return write_trips(tmp_path / "trips.parquet", rows=20_000)


def oracle(sql: str, **files: Path) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        for name, path in files.items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        BY_ZONE,
        "SELECT count(DISTINCT fare) AS n, median(fare) AS m FROM trips",
        "SELECT zone, fare, rank() OVER (ORDER BY id) AS r FROM trips WHERE fare > 98 ORDER BY r LIMIT 5",
        "WITH a AS (SELECT avg(fare) AS f FROM trips) SELECT count(*) AS n FROM trips, a WHERE fare > f",
        "SELECT max(n) AS n FROM (SELECT zone, count(*) AS n FROM trips GROUP BY zone)",
    ],
)
def test_any_query_is_answered_once_and_exactly(connect: Connect, trips: Path, sql: str) -> None:
    with connect(trips) as db:
        snapshots = list(db.online_sql(sql))
    assert [(each.is_exact, each.mode) for each in snapshots] == [(True, "exact")]
    assert rows_of(snapshots[0].estimate) == oracle(sql, trips=trips)
    assert snapshots[0].warnings == ("run as a whole: trips is read whole, in place",)


@pytest.mark.parametrize(
    "source",
    ["'{path}'", '"{path}"', "'{relative}' AS t", "read_parquet('{path}')", "(FROM '{path}')"],
)
def test_a_path_that_a_table_was_opened_from_is_that_table(
    connect: Connect, trips: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(trips.parent)
    from_path = source.format(path=trips, relative=f"../{trips.parent.name}/trips.parquet")
    with connect(trips) as db:
        assert db.sql(f"SELECT sum(fare) AS s FROM {from_path}").fetchall() == oracle(
            "SELECT sum(fare) AS s FROM trips", trips=trips
        )
        columns = db.sql(f"DESCRIBE SELECT * FROM {from_path}").fetchall()
        assert columns == db.sql("DESCRIBE trips").fetchall()


def test_a_path_is_a_table_beside_a_view_that_tells_the_time(connect: Connect, trips: Path) -> None:
    views = {"clock": "SELECT now() AS moment"}
    with connect(trips, views=views) as db:
        assert db.sql(f"SELECT count(*) AS n FROM '{trips}'").fetchall() == [(20_000,)]
        assert db.sql(f"SELECT count(*) AS n FROM '{trips}', clock").fetchall() == [(20_000,)]
        for sql in ("SELECT fare FROM '{}' WHERE nope > 1", "SELECT fare FROM '{}' WHERE )"):
            sql = sql.format(trips)
            with pytest.raises(relaqs.SqlError) as caught:
                db.sql(sql)
            assert caught.value.position == (1, sql.index("nope" if "nope" in sql else ")") + 1)


def test_a_path_is_a_table_only_after_from_and_where_it_was_opened(connect: Connect, trips: Path) -> None:
    other = write_trips(trips.with_name("other.parquet"), rows=10)
    with connect(trips) as db:
        assert db.sql(f"SELECT 'a' IS DISTINCT FROM '{trips}' AS t FROM trips LIMIT 1").fetchall() == [
            (True,)
        ]
        cte = f'WITH "{trips}" AS (SELECT 7 AS n) SELECT n FROM "{trips}"'
        assert db.sql(cte).fetchall() == [(7,)]
        with pytest.raises(relaqs.SqlError, match=r"open it by relaqs.connect\(tables=\{'other': "):
            db.sql(f"SELECT count(*) FROM '{other}'")
        with pytest.raises(relaqs.SqlError, match="nope") as caught:
            db.sql(f"SELECT fare, nope FROM '{trips}'")
        assert caught.value.position == (1, 14)


@pytest.mark.parametrize(
    ("sql", "measured"),
    [
        (BY_ZONE, [0, 1, 1]),
        (
            "SELECT floor(fare / 2) * 2 AS bin, count(*) FILTER (WHERE id > 1) AS n FROM trips GROUP BY 1",
            [0, 1],
        ),
        (
            "SELECT n, count(*) AS zones FROM (SELECT zone, count(*) AS n FROM trips GROUP BY 1) GROUP BY n",
            [0, 1],
        ),
        ("SELECT * FROM (SELECT zone, max(fare) AS m FROM trips GROUP BY zone)", [0, 1]),
        (
            "SELECT a.*, fare FROM (SELECT zone AS z, count(*) AS n FROM trips GROUP BY 1) AS a, trips",
            [0, 1, 0],
        ),
        (
            "WITH a(k, m) AS (SELECT zone, sum(fare) FROM trips GROUP BY ALL) "
            "SELECT k, m / 2 AS half, rank() OVER (ORDER BY m) AS r FROM a",
            [0, 1, 1],
        ),
        ("SELECT zone, fare, sum(fare) OVER (), (SELECT max(fare) FROM trips) FROM trips", [0, 0, 1, 1]),
        ("SELECT zone, sum(count(*)) OVER (ORDER BY zone) AS running FROM trips GROUP BY zone", [0, 1]),
        ("SELECT 'all' AS name, avg(fare) FROM trips UNION ALL SELECT 'none', 0", [0, 1]),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) FROM r", [0]),
        ("SELECT * FROM trips", [0, 0, 0]),
    ],
)
def test_a_plan_tells_what_measures_from_what_names(
    connect: Connect, trips: Path, sql: str, measured: list[int]
) -> None:
    with connect(trips) as db:
        assert [output.measures for output in db.plan(sql).outputs] == measured


def test_a_join_of_plain_files_names_them_all(connect: Connect, trips: Path) -> None:
    write_trips(trips.with_name("zones.parquet"), rows=7)
    sql = "SELECT count(*) AS n FROM trips JOIN zones ON trips.zone = zones.id"
    with connect(trips.parent) as db:
        answer = db.online_sql(sql).result()
        text = db.explain(sql)
    assert rows_of(answer.estimate) == [(20_000,)]
    assert "why: trips and zones are read whole, in place\n" in text


def test_what_a_layout_would_bring_is_said_of_large_files(connect: Connect, tmp_path: Path) -> None:
    path = write_trips(tmp_path / "trips.parquet", rows=16_000_000)
    with connect(path) as db:
        assert "whole, in place: lay trips out (`relaqs shuffle`) for estimates" in db.explain(BY_ZONE)
        (command,) = db.advise(BY_ZONE).commands
    assert command == f"relaqs shuffle {path} --into warehouse/trips --partitions 100 --seed 0"


def test_no_estimate_is_an_error_where_that_is_asked_for(connect: Connect, trips: Path) -> None:
    with connect(trips) as db, pytest.raises(relaqs.UnsupportedError, match="read whole, in place"):
        db.online_sql(BY_ZONE, fallback="error")


def test_a_sampled_table_is_estimated_beside_a_plain_one(
    connect: Connect, trips: Path, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    relaqs.shuffle(trips, warehouse / "trips", partitions=20)
    zones = write_trips(tmp_path / "zones.parquet", rows=7)
    sql = "SELECT zones.fare, sum(trips.fare) AS f FROM trips JOIN zones ON trips.zone = zones.id GROUP BY 1"
    with connect(warehouse, tables={"zones": zones}) as db:
        first, *_, last = every_snapshot(lambda: db.online_sql(f"{sql} ORDER BY 1", batches=20))
        assert (first.is_exact, first.mode) == (False, "mergeable")
        assert first.table["f_certified"].to_pylist() == [True] * len(first)
        assert rows_of(last.estimate) == oracle(f"{sql} ORDER BY 1", trips=trips, zones=zones)


def test_a_hive_folder_is_read_with_its_columns(connect: Connect, tmp_path: Path) -> None:
    for year in (2012, 2013):
        write_trips(tmp_path / "trips" / f"year={year}" / "part.parquet", rows=year)
    with connect(tables={"trips": tmp_path / "trips"}) as db:
        answer = db.online_sql("SELECT year, count(*) AS n FROM trips GROUP BY year ORDER BY year").result()
    assert rows_of(answer.estimate) == [(2012, 2012), (2013, 2013)]


@pytest.mark.parametrize("name", ["a[1].parquet", "a*.parquet", "it's.parquet", "a b?.parquet"])
def test_a_file_may_be_called_anything(connect: Connect, tmp_path: Path, name: str) -> None:
    path = write_trips(tmp_path / name, rows=20_000)
    write_trips(tmp_path / "a1.parquet", rows=5)  # which a pattern would match, too
    with connect(tables={"trips": path}) as db:
        assert rows_of(db.online_sql("SELECT count(*) AS n FROM trips").result().estimate) == [(20_000,)]


def test_a_file_that_changed_is_an_error_and_a_new_session_reads_it_anew(
    connect: Connect, trips: Path
) -> None:
    with connect(trips) as db:
        before = rows_of(db.online_sql(BY_ZONE).result().estimate)
        write_trips(trips, rows=30_000)
        with pytest.raises(
            relaqs.DataError, match=r"changed since .*: it had .*; open a new session .* db\.refresh"
        ):
            db.online_sql(BY_ZONE).result()
        with connect(trips) as other:
            after = rows_of(other.online_sql(BY_ZONE).result().estimate)
        db.refresh("trips")
        assert (
            before
            != after
            == rows_of(db.online_sql(BY_ZONE).result().estimate)
            == oracle(BY_ZONE, trips=trips)
        )


def test_a_file_that_was_written_again_alike_is_noticed(connect: Connect, trips: Path) -> None:
    """Only its time tells: whatever DuckDB has kept of the file would answer for the rows of before."""
    with connect(trips) as db:
        db.online_sql(BY_ZONE).result()
        state = trips.stat()
        os.utime(trips, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
        with pytest.raises(relaqs.DataError, match="changed since this session was opened"):
            db.online_sql(BY_ZONE).result()


def test_a_file_that_changes_while_it_is_read_is_an_error(
    connect: Connect, trips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = duck_process.Cursor.table

    def rewritten_meanwhile(cursor: duck_process.Cursor, sql: str) -> object:
        table = read(cursor, sql)
        write_trips(trips, rows=30_000)
        return table

    with connect(trips) as db:
        monkeypatch.setattr(duck_process.Cursor, "table", rewritten_meanwhile)
        with pytest.raises(relaqs.DataError, match="changed since this session was opened"):
            db.online_sql(BY_ZONE).result()


def test_a_hoisted_file_that_changed_is_an_error(connect: Connect, trips: Path, tmp_path: Path) -> None:
    relaqs.shuffle(trips, tmp_path / "warehouse" / "trips", partitions=4)
    zones = write_trips(tmp_path / "zones.parquet", rows=7)
    with connect(tmp_path / "warehouse", tables={"zones": zones}) as db:
        write_trips(zones, rows=6)
        with pytest.raises(relaqs.DataError, match=r"zones\.parquet changed since this session was opened"):
            db.online_sql("SELECT count(*) AS n FROM trips JOIN zones ON trips.zone = zones.id").result()


def test_a_file_that_is_gone_is_named_and_may_come_back(connect: Connect, trips: Path) -> None:
    aside = trips.with_name("aside")
    with connect(trips) as db:
        trips.rename(aside)
        with pytest.raises(UnseenFileError, match=r"trips\.parquet is not there; restore it, or open a new"):
            db.online_sql(BY_ZONE).result()
        aside.rename(trips)
        assert db.online_sql(BY_ZONE).result().is_exact


def test_a_checkpoint_of_another_state_of_a_plain_table_is_not_continued(
    connect: Connect, trips: Path, tmp_path: Path
) -> None:
    relaqs.shuffle(trips, tmp_path / "warehouse" / "trips", partitions=4)
    zones = write_trips(tmp_path / "zones.parquet", rows=7)
    sql = "SELECT count(*) AS n FROM trips JOIN zones ON trips.zone = zones.id"

    def identity() -> str:
        with connect(tmp_path / "warehouse", tables={"zones": zones}) as db:
            return query_identity(db.plan(sql), db._catalog, 0, None)

    before = identity()
    assert identity() == before
    os.utime(zones, ns=(0, zones.stat().st_mtime_ns + 1))
    assert identity() != before


WIDE = [
    ("SELECT count(*) AS n FROM wide", '"c0"'),
    ("SELECT sum(C7) AS total FROM wide WHERE c3 > 1", '"c3", "c7"'),
    ("SELECT w.c5 FROM wide AS w ORDER BY 1 LIMIT 1", '"c5"'),
    ("SELECT max(a.c1 + b.c2) AS m FROM wide AS a JOIN wide AS b USING (c9)", '"c1", "c2", "c9"'),
    ("WITH q AS (SELECT c4 AS x FROM wide) SELECT x, count(*) AS n FROM q GROUP BY ALL ORDER BY x", '"c4"'),
]


@pytest.mark.parametrize(("sql", "columns"), WIDE)
def test_only_the_columns_that_a_query_names_are_bound(
    sql: str, columns: str, tmp_path: Path, connect: Connect
) -> None:
    file = tmp_path / "wide.parquet"
    made = ", ".join(f"(range * {i}) % 7 AS c{i}" for i in range(60))
    duckdb.sql(f"SELECT {made} FROM range(50)").write_parquet(str(file))
    with connect(file) as db:
        plan = db.plan(sql)
        assert isinstance(plan, WholePlan)
        assert f"(SELECT {columns} FROM" in plan.exact_sql
        assert rows_of(db.online_sql(sql).result().estimate) == oracle(sql, wide=file)


def test_what_is_computed_over_a_file_is_shown_with_six_digits_and_what_is_stored_with_all(
    tmp_path: Path,
) -> None:
    duckdb.sql("SELECT i % 2 AS side, i / 7 AS share FROM range(100) AS t(i)").write_parquet(
        str(tmp_path / "numbers.parquet")
    )
    with relaqs.connect(tmp_path / "numbers.parquet") as db:
        means = db.online_sql("SELECT share * 1 AS s, avg(share) AS mean FROM numbers GROUP BY 1 LIMIT 1")
        rows = db.online_sql("SELECT share FROM numbers WHERE side = 1 ORDER BY share LIMIT 1")
        mean = db.online_sql("SELECT side, avg(share) AS mean FROM numbers GROUP BY 1 ORDER BY 1").result()
        assert means.result().measures == (1,)
        assert str(rows.result()).splitlines()[-1].strip() == "0.14285714285714285"
    assert mean.measures == (1,)
    assert [line.split()[-1] for line in str(mean).splitlines()[-2:]] == ["7", "7.14286"]
