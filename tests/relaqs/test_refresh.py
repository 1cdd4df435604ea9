"""Tables that are read anew: whatever they were made of, and under the name that they have."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import pytest

import relaqs


def count(db: relaqs.Session) -> int:
    return int(db.online_sql("SELECT count(*) AS n FROM trips").result().estimate["n"][0].as_py())


def write(path: Path, rows: int) -> None:
    relation = duckdb.sql(f"SELECT range AS id FROM range({rows})")
    if path.suffix == ".parquet":
        relation.write_parquet(str(path))
    elif path.suffix == ".csv":
        relation.write_csv(str(path))
    else:
        new = path.with_name("new.duckdb")  # an open session holds the old one
        with duckdb.connect(str(new)) as connection:
            connection.execute(f"CREATE TABLE trips AS SELECT range AS id FROM range({rows})")
        new.replace(path)


@pytest.mark.parametrize("name", ["trips.parquet", "trips.csv", "trips.duckdb"])
def test_a_file_is_read_anew(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, 5)
    with relaqs.connect(tmp_path / name, cache_directory=tmp_path / "cache", threads=1) as db:
        assert count(db) == 5
        write(tmp_path / name, 7)
        db.refresh("Trips")
        assert count(db) == 7


def test_a_list_of_files_and_a_table_of_a_duckdb_file_are_entries_of_the_cache(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in (*paths, tmp_path / "trips.duckdb"):
        write(path, 20_000)
    sources = {"both": [str(path) for path in paths], "trips": tmp_path / "trips.duckdb"}
    cache = relaqs.Cache(tmp_path / "cache")
    with relaqs.connect(tables=sources, cache_directory=cache.directory, threads=1) as db:
        for table in sources:
            db.lay_out(table)
    assert [(entry.state, entry.row_count) for entry in cache.entries()] == [
        ("current", 20_000),
        ("current", 40_000),
    ]
    (entry,) = cache.find(tmp_path / "trips.duckdb")
    assert entry.source == f"{tmp_path}/trips.duckdb:main.trips"
    write(tmp_path / "trips.duckdb", 30_000)
    assert [entry.state for entry in cache.entries()] == ["changed", "current"]


def test_a_table_of_a_warehouse_and_data_in_memory_are_read_anew(tmp_path: Path) -> None:
    rows = duckdb.sql("SELECT range AS id FROM range(20000)")
    relaqs.shuffle(rows, tmp_path / "warehouse" / "trips", partitions=3)
    frame = pd.DataFrame({"id": [1, 2]})
    with relaqs.connect(tmp_path / "warehouse", tables={"few": frame}, threads=1) as db:
        relaqs.shuffle(rows.limit(15_000), tmp_path / "warehouse" / "trips", partitions=3, force=True)
        assert db.refresh("trips").row_count == 15_000
        assert count(db) == 15_000
        frame.loc[2] = [3]
        assert db.refresh("few").row_count == 3
        with pytest.raises(relaqs.SqlError, match="there is no table 'trip'"):
            db.refresh("trip")
