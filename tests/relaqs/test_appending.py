"""Sessions over tables that grow: what was begun ends over the rows it began with, and the next sees all."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.errors import DataError, LayoutError

import relaqs
from relaqs.queries.jobs import query_identity
from tests.relaqs.sessions import every_snapshot
from tests.rows import rows_of
from tests.turnstile import Turnstile

Run = Callable[..., "object"]
SUM = "SELECT zone, sum(fare) AS fare, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"


def trips_of(rows: range, seed: int = 1) -> pa.Table:
    random = np.random.default_rng([seed, rows.start])
    return pa.table(
        {
            "id": np.array(rows),
            "zone": random.integers(0, 4, len(rows)),
            "fare": random.gamma(2.0, 5.0, len(rows)).round(2),
        }
    )


FIRST, MORE = trips_of(range(20_000)), trips_of(range(20_000, 21_000))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    relaqs.shuffle(FIRST, tmp_path / "warehouse" / "trips", partitions=20)
    return tmp_path / "warehouse"


def oracle(sql: str, *tables: pa.Table) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.register("trips", pa.concat_tables(tables))
        return connection.execute(sql).fetchall()


def close_to(rows: list[tuple[object, ...]]) -> object:
    return [tuple(pytest.approx(value, rel=1e-9) for value in row) for row in rows]


def test_a_session_answers_over_all_rows_after_its_own_append(warehouse: Path) -> None:
    with relaqs.connect(warehouse, threads=2) as db:
        layout = db.append(MORE, "trips", batch="may")
        assert (layout.row_count, layout.batches) == (21_000, ("may",))
        assert db.tables["trips"].row_count == 21_000
        assert rows_of(db.online_sql(SUM).result().estimate) == close_to(oracle(SUM, FIRST, MORE))
        assert db.append(MORE, "trips", batch="may").row_count == 21_000


def paused(db: relaqs.Session, turnstile: Turnstile) -> relaqs.OnlineQuery:
    """Return a query that has read some of its partitions and reads no more."""
    turnstile.let(2)
    query = db.online_sql(SUM, batches=20)
    assert not next(iter(query)).is_exact
    query.pause()
    turnstile.let()
    return query


def test_a_query_ends_over_the_rows_that_it_began_with(warehouse: Path, turnstile: Turnstile) -> None:
    with relaqs.connect(warehouse, threads=1) as db:
        query = paused(db, turnstile)
        relaqs.append(MORE, warehouse / "trips")
        assert rows_of(db.online_sql(SUM).result().estimate) == close_to(
            oracle(SUM, FIRST)
        )  # of the same session
        assert db.refresh("trips").row_count == 21_000
        query.resume()
        assert rows_of(query.result().estimate) == close_to(oracle(SUM, FIRST))
        assert rows_of(db.online_sql(SUM).result().estimate) == close_to(oracle(SUM, FIRST, MORE))


def test_an_outlier_index_of_several_files_is_read_whole(tmp_path: Path) -> None:
    def sales(count: int, seed: int) -> pa.Table:
        return pa.table({"x": np.random.default_rng(seed).pareto(1.3, count).round(3)})

    parts = [sales(20_000, 1), sales(2_000, 2), sales(2_000, 3)]
    relaqs.shuffle(parts[0], tmp_path / "trips", partitions=10)
    for part in parts[1:]:
        layout = relaqs.append(part, tmp_path / "trips")
    assert layout.outliers is not None
    assert len(layout.outliers.files) == 3
    sql = "SELECT sum(x) AS x, count(*) AS n FROM trips"
    with relaqs.connect(tmp_path, threads=1) as db:
        snapshots = every_snapshot(lambda: db.online_sql(sql))
        assert rows_of(snapshots[-1].estimate) == close_to(oracle(sql, *parts))
        ((truth, _),) = oracle(sql, *parts)
        assert rows_of(snapshots[0].estimate)[0][0] == pytest.approx(truth, rel=0.1)


def test_a_checkpoint_of_before_an_append_is_of_other_data(warehouse: Path) -> None:
    with relaqs.connect(warehouse, threads=1) as db:
        plan = db.plan(SUM)
        before = query_identity(plan, db._catalog, 0, None)
        db.append(MORE, "trips")
        assert query_identity(db.plan(SUM), db._catalog, 0, None) != before


def test_damage_in_an_appended_file_is_named(warehouse: Path) -> None:
    layout = relaqs.append(MORE, warehouse / "trips")
    path = layout.paths_of(3)[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with relaqs.connect(warehouse, threads=1) as db, pytest.raises(DataError, match=str(path)):
        db.online_sql("SELECT sum(id) AS i, sum(zone) AS z, sum(fare) AS f FROM trips").result()
    report = relaqs.verify(warehouse)
    assert [check.name for check in report.checks if not check.ok] == ["checksums"]


def test_a_static_table_that_grew_is_joined_anew(warehouse: Path) -> None:
    relaqs.add_static(pa.table({"zone": [0, 1], "city": ["Oslo", "Bergen"]}), warehouse / "zones")
    sql = "SELECT city, count(*) AS n FROM trips JOIN zones USING (zone) GROUP BY city ORDER BY city"
    with relaqs.connect(warehouse, threads=1) as db:
        assert len(rows_of(db.online_sql(sql).result().estimate)) == 2
        db.append(pa.table({"zone": [2], "city": ["Arendal"]}), "zones")
        assert [city for city, _ in rows_of(db.online_sql(sql).result().estimate)] == [
            "Arendal",
            "Bergen",
            "Oslo",
        ]


def test_files_of_the_users_own_are_not_appended_to(tmp_path: Path) -> None:
    duckdb.sql("SELECT range AS x FROM range(20000)").write_parquet(str(tmp_path / "trips.parquet"))
    with relaqs.connect(tmp_path / "trips.parquet", cache_directory=tmp_path / "cache", threads=1) as db:
        with pytest.raises(LayoutError, match=r"is made of .*: add a file there"):
            db.append(pa.table({"x": [1]}), "trips")
        layout = db.lay_out("trips")
        with pytest.raises(LayoutError, match=r"is made of .*: add a file there"):
            db.append(pa.table({"x": [1]}), "trips")
        with pytest.raises(LayoutError, match=r"is made of .*: add a file there"):
            relaqs.append(pa.table({"x": [1]}), layout.directory)


def test_tables_of_one_key_are_joined_over_old_and_new_rows(tmp_path: Path) -> None:
    def orders(keys: range) -> pa.Table:
        return pa.table({"id": np.array(keys), "day": np.array(keys) % 30})

    def lines(keys: range) -> pa.Table:
        return pa.table({"order_id": np.repeat(np.array(keys), 3), "x": np.tile([1.0, 2.0, 4.0], len(keys))})

    old, new = range(6_000), range(5_900, 6_500)  # a hundred orders get more lines
    relaqs.shuffle(orders(old), tmp_path / "orders", partitions=8, cluster_by="id")
    relaqs.shuffle(lines(old), tmp_path / "lines", partitions=8, cluster_by="order_id")
    relaqs.append(orders(new[100:]), tmp_path / "orders")
    relaqs.append(lines(new), tmp_path / "lines")
    sql = (
        "SELECT day, sum(x) AS x, count(*) AS n FROM orders JOIN lines ON orders.id = lines.order_id "
        "GROUP BY day ORDER BY day"
    )
    with relaqs.connect(tmp_path, threads=1) as db:
        snapshots = every_snapshot(lambda: db.online_sql(sql))
    expected = [
        (day, 7.0 * count, 3 * count)
        for day in range(30)
        if (count := sum(key % 30 == day for key in itertools.chain(old, new)))
    ]
    assert len(snapshots) > 1
    assert rows_of(snapshots[-1].estimate) == expected


def test_a_query_goes_on_while_its_files_are_compacted(warehouse: Path, turnstile: Turnstile) -> None:
    relaqs.append(MORE, warehouse / "trips")
    with relaqs.connect(warehouse, threads=1) as db:
        query = paused(db, turnstile)
        old = db.tables["trips"].paths
        compacted = relaqs.compact(warehouse / "trips")
        assert len(compacted.files) == 20
        query.resume()
        assert rows_of(query.result().estimate) == close_to(oracle(SUM, FIRST, MORE))
        assert rows_of(db.online_sql("SELECT sum(id) AS i FROM trips").result().estimate) == [
            (21_000 * 20_999 // 2,)
        ]
        assert len(db.refresh("trips").files) == 20
        assert rows_of(db.online_sql(SUM).result().estimate) == close_to(oracle(SUM, FIRST, MORE))
        assert all(path.exists() for path in old)
    del query  # it may be asked for its plan as long as it is there
    gc.collect()
    relaqs.append(MORE, warehouse / "trips")
    assert not any(path.exists() for path in old)


def test_a_session_gets_a_table_more_and_forgets_it(
    warehouse: Path, turnstile: Turnstile, tmp_path: Path
) -> None:
    zones = pa.table({"zone": [0, 1], "rank": [7, 8]})
    joined = "SELECT rank, sum(fare) AS fare FROM trips JOIN zones USING (zone) GROUP BY rank ORDER BY rank"
    with relaqs.connect(warehouse, threads=2) as db:
        running = paused(db, turnstile)
        assert db.add_table(zones, "zones").row_count == 2
        with pytest.raises(LayoutError, match="there is a table zones already"):
            db.add_table(zones, "Zones")
        with duckdb.connect() as connection:
            connection.register("trips", FIRST)
            connection.register("zones", zones)
            true = connection.execute(joined).fetchall()
        assert rows_of(db.online_sql(joined).result().estimate) == close_to(true)
        with pytest.raises(LayoutError, match=r"none\.parquet"):
            db.add_table(tmp_path / "none.parquet", "none")
        db.remove_table("zones")
        with pytest.raises(relaqs.SqlError, match="no table zones"):
            db.sql(joined)
        running.resume()
        assert rows_of(running.result().estimate) == close_to(oracle(SUM, FIRST))
        assert list(db.tables) == ["trips"]


def test_a_name_that_is_taken_is_refused_whatever_its_case(warehouse: Path) -> None:
    few = pa.table({"zone": [100]})
    with relaqs.connect(warehouse, views={"first_zones": "SELECT zone FROM trips"}, threads=1) as db:
        with pytest.raises(LayoutError, match="there is a view first_zones already"):
            db.add_table(few, "First_Zones")
        for name in ("trips@few", "other@few"):
            with pytest.raises(LayoutError, match="names one of its layouts"):
                db.add_table(few, name)
        with pytest.raises(LayoutError, match="there is a table trips already"):
            db.add_table(few, "TRIPS")
        assert list(db.tables) == ["trips"]


def test_of_tables_of_one_name_that_are_added_at_once_one_is_there(warehouse: Path) -> None:
    refused: list[str] = []

    def add(value: int) -> None:
        try:
            db.add_table(pa.table({"x": [value]}), "same")
        except LayoutError as error:
            refused.append(str(error))

    with relaqs.connect(warehouse, threads=1) as db:
        adding = [threading.Thread(target=add, args=(value,)) for value in range(6)]
        for each in adding:
            each.start()
        for each in adding:
            each.join()
        assert len(refused) == 5
        assert all("there is a table same already" in each for each in refused)
        assert db.sql("SELECT count(*) AS n FROM same").fetchall() == [(1,)]


def test_a_table_gives_way_once_the_other_is_open(warehouse: Path, tmp_path: Path) -> None:
    with relaqs.connect(warehouse, threads=1) as db:
        db.add_table(pa.table({"x": [1]}), "few")
        with pytest.raises(LayoutError, match=r"none\.parquet"):
            db.add_table(tmp_path / "none.parquet", "few", replace=True)
        assert db.sql("SELECT max(x) AS x FROM few").fetchall() == [(1,)]
        db.add_table(pa.table({"x": [2], "y": [3]}), "Few", replace=True)
        assert db.sql("SELECT max(x) AS x, max(y) AS y FROM few").fetchall() == [(2, 3)]
        assert list(db.tables) == ["trips", "Few"]


def test_data_in_memory_are_freed_once_no_query_reads_them(warehouse: Path, turnstile: Turnstile) -> None:
    def add(name: str) -> None:
        numbers = pa.table({"x": pa.array(range(1_000_000), pa.int64())})
        db.add_table(numbers, name, replace=True)

    def held_mb() -> float:
        gc.collect()
        return (pa.total_allocated_bytes() - before) / 1e6

    with relaqs.connect(warehouse, threads=2) as db:
        before = pa.total_allocated_bytes()
        add("numbers")
        running = paused(db, turnstile)  # in a database that reads the numbers too
        db.remove_table("numbers")
        running.resume()
        assert rows_of(running.result().estimate) == close_to(oracle(SUM, FIRST))
        del running
        for name in ("added", "removed", "again", "again"):
            add(name)
            assert db.sql(f"SELECT max(x) AS x FROM {name}").fetchall() == [(999_999,)]
            if name in ("added", "removed"):
                db.remove_table(name)
        assert held_mb() < 9  # the one that is there has 8
        db.remove_table("again")
        with pytest.raises(relaqs.SqlError, match="no table again"):
            db.sql("SELECT max(x) AS x FROM again")
        assert held_mb() < 1
