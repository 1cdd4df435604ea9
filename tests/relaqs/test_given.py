"""What `connect` is given, of every kind: it answers as DuckDB does for the same thing."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import relaqs

ROWS = pa.table(
    {
        "id": range(1_000),
        "zone": [f"zone {i % 7}" if i % 11 else None for i in range(1_000)],
        "fare": [i * 0.25 for i in range(1_000)],
        "two words": [i % 3 == 0 for i in range(1_000)],
    }
)
SQL = """
    SELECT zone, count(*) AS n, sum(fare) AS fare, bool_or("two words") AS b FROM trips
    GROUP BY zone ORDER BY zone
"""
Connect = Callable[..., relaqs.Session]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    opened: list[relaqs.Session] = []

    def connect(data: Any = None, **options: Any) -> relaqs.Session:
        opened.append(relaqs.connect(data, cache_directory=tmp_path / "cache", threads=2, **options))
        return opened[-1]

    yield connect
    for session in opened:
        session.close()


def answer(db: relaqs.Session, sql: str = SQL) -> list[tuple[object, ...]]:
    found = db.online_sql(sql).result()
    assert found.is_exact
    return [tuple(row.values()) for row in found.estimate.to_pylist()]


def oracle(source: object, sql: str = SQL) -> list[tuple[object, ...]]:
    """Return what DuckDB answers over the thing itself, or over the files that SQL names."""
    with duckdb.connect() as connection:
        if isinstance(source, str):
            connection.execute(f"CREATE VIEW trips AS SELECT * FROM {source}")
        else:
            connection.register("trips", source)
        return connection.execute(sql).fetchall()


IN_MEMORY: dict[str, Callable[[], object]] = {
    "pandas": lambda: ROWS.to_pandas(),
    "polars": lambda: pl.from_arrow(ROWS),
    "a lazy frame": lambda: pl.from_arrow(ROWS).lazy().filter(pl.col("id") >= 0),
    "Arrow table": lambda: ROWS,
    "Arrow batch": lambda: ROWS.to_batches()[0],
    "Arrow reader": lambda: ROWS.to_reader(max_chunksize=64),
    "Arrow dataset": lambda: pyarrow.dataset.dataset(ROWS),
    "relation": lambda: duckdb.from_arrow(ROWS),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_data_in_memory_are_a_table(connect: Connect, kind: str, tmp_path: Path) -> None:
    make = IN_MEMORY[kind]
    db = connect(tables={"trips": make()})
    assert answer(db) == answer(db) == oracle(ROWS)
    db.close()
    assert list((tmp_path / "cache").glob("sessions/*")) == []


def test_a_frame_without_a_name_is_called_data(connect: Connect) -> None:
    assert answer(connect(ROWS.to_pandas()), "SELECT count(*) AS n FROM data") == [(1_000,)]


def test_a_frame_is_as_it_was_when_it_was_given(connect: Connect) -> None:
    frame = ROWS.to_pandas()
    db = connect(tables={"trips": frame})
    frame.loc[:, "fare"] = 0.0
    frame["zone"] = "elsewhere"
    assert answer(db) == oracle(ROWS)


def test_data_in_memory_join_a_layout(connect: Connect, tmp_path: Path) -> None:
    relaqs.shuffle(ROWS, tmp_path / "warehouse" / "trips", partitions=20)
    zones = pd.DataFrame({"zone": [f"zone {i}" for i in range(7)], "city": list("aabbccd")})
    sql = "SELECT city, sum(fare) AS fare FROM trips JOIN zones USING (zone) GROUP BY city ORDER BY city"
    db = connect(tmp_path / "warehouse", tables={"zones": zones})
    first, *_, last = list(db.online_sql(sql, batches=20))
    with duckdb.connect() as connection:
        connection.register("trips", ROWS)
        connection.register("zones", zones)
        expected = connection.execute(sql).fetchall()
    assert not first.is_exact
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == expected


def test_data_in_memory_can_be_laid_out_for_estimates(connect: Connect, tmp_path: Path) -> None:
    frame = pa.concat_tables([ROWS] * 20).to_pandas()
    db = connect(tables={"trips": frame})
    assert db.lay_out("trips").is_sampled
    first, *_, last = list(db.online_sql(SQL))
    assert not first.is_exact
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == oracle(frame)
    db.close()
    assert list((tmp_path / "cache").iterdir()) == [tmp_path / "cache" / "sessions"]


def test_what_a_killed_session_left_is_removed_by_the_next(connect: Connect, tmp_path: Path) -> None:
    program = (
        "import os, signal, duckdb, relaqs\n"
        f"db = relaqs.connect(duckdb.sql('SELECT 1 AS x'), cache_directory={str(tmp_path / 'cache')!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    living = connect(duckdb.sql("SELECT 2 AS x"))
    (left,) = (tmp_path / "cache" / "sessions").iterdir()
    connect(duckdb.sql("SELECT 3 AS x")).close()
    assert left.is_dir()
    assert answer(living, "SELECT x FROM data") == [(2,)]


def write_files(folder: Path) -> dict[str, tuple[Any, str]]:
    """Return what to give, and how DuckDB reads it."""
    folder.mkdir()
    frame = ROWS.to_pandas()
    pq.write_table(ROWS, folder / "trips.parquet")
    frame.to_csv(folder / "trips.csv", index=False)
    frame.to_csv(folder / "trips.tsv.gz", index=False, sep="\t")
    frame.to_json(folder / "trips.ndjson", orient="records", lines=True)
    with gzip.open(folder / "trips.json.gz", "wt") as file:
        file.write(frame.to_json(orient="records"))
    for half, rows in enumerate((ROWS.slice(0, 400), ROWS.slice(400))):
        (folder / "hive" / f"half={half}").mkdir(parents=True)
        pq.write_table(rows, folder / "hive" / f"half={half}" / "part.parquet")
        rows.to_pandas().to_json(folder / f"part-{half}.jsonl", orient="records", lines=True)
    os.link(folder / "trips.parquet", folder / "no ending")
    hive = f"read_parquet('{folder}/hive/*/*.parquet')"
    return {
        "Parquet": (folder / "trips.parquet", f"'{folder}/trips.parquet'"),
        "no ending": (folder / "no ending", f"'{folder}/trips.parquet'"),
        "CSV": (folder / "trips.csv", f"'{folder}/trips.csv'"),
        "packed TSV": (folder / "trips.tsv.gz", f"read_csv('{folder}/trips.tsv.gz')"),
        "JSON lines": (folder / "trips.ndjson", f"'{folder}/trips.ndjson'"),
        "packed JSON": (folder / "trips.json.gz", f"read_json('{folder}/trips.json.gz')"),
        "JSON glob": (str(folder / "part-*.jsonl"), f"read_json('{folder}/part-*.jsonl')"),
        "hive folder": (folder / "hive", hive),
        "hive glob": (f"{folder}/hive/*/*.parquet", hive),
        "list": ([folder / "hive" / f"half={half}" / "part.parquet" for half in (0, 1)], hive),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, str]]:
    return write_files(tmp_path_factory.mktemp("given") / "files")


@pytest.mark.parametrize(
    "kind",
    [
        "Parquet",
        "no ending",
        "CSV",
        "packed TSV",
        "JSON lines",
        "packed JSON",
        "JSON glob",
        "hive folder",
        "hive glob",
        "list",
    ],
)
def test_files_are_a_table(connect: Connect, files: dict[str, tuple[Any, str]], kind: str) -> None:
    source, sql = files[kind]
    db = connect(tables={"trips": source})
    assert answer(db) == oracle(sql)
    columns = [(column.name, column.type) for column in db.tables["trips"].columns]
    assert columns == [row[:2] for row in oracle(sql, "DESCRIBE SELECT * FROM trips")]


def test_a_folder_that_is_given_has_tables_by_their_names(connect: Connect, tmp_path: Path) -> None:
    write_files(tmp_path / "data")
    for name in ("trips.csv", "trips.tsv.gz", "trips.ndjson", "trips.json.gz", "no ending"):
        (tmp_path / "data" / name).unlink()
    (tmp_path / "data" / "README.txt").write_text("what is here")
    (tmp_path / "data" / "zones.csv.gz").write_bytes(gzip.compress(b"zone,city\n1,a\n"))
    (tmp_path / "data" / "_temporary").mkdir()
    pq.write_table(ROWS, tmp_path / "data" / "_temporary" / "half_written.parquet")
    assert sorted(connect(tmp_path / "data").tables) == ["hive", "part_0", "part_1", "trips", "zones"]


@pytest.mark.parametrize(
    "given", ["hive", "hive/", "hive/*/*.parquet", "hive/half=?/part.parquet", "hive/**"]
)
def test_a_hive_folder_or_a_pattern_is_one_table(
    connect: Connect, tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "data")
    monkeypatch.chdir(tmp_path / "data")
    name = "part" if "part" in given else "hive"
    assert answer(connect(given), f"SELECT half, count(*) AS n FROM {name} GROUP BY half ORDER BY half") == [
        (0, 400),
        (1, 600),
    ]


def test_a_list_is_several_tables(connect: Connect, tmp_path: Path) -> None:
    write_files(tmp_path / "data")
    db = connect([tmp_path / "data" / "trips.csv", str(tmp_path / "data" / "hive")])
    assert sorted(db.tables) == ["hive", "trips"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as connection:
        connection.register("given", ROWS)
        connection.execute("CREATE TABLE trips AS SELECT * FROM given")
        connection.execute("CREATE VIEW late AS SELECT * FROM trips WHERE id > 900")
        connection.execute(
            "CREATE SCHEMA old; CREATE TABLE old.trips AS SELECT 1 AS x; "
            "CREATE TABLE old.zones AS SELECT 2 AS x"
        )
        connection.execute(
            "CREATE TYPE mood AS ENUM ('sad', 'happy'); "
            "CREATE TABLE moods AS SELECT unnest(['happy', 'sad'])::mood AS m"
        )
        (tmp_path / "passwords.csv").write_text("name,password\na,b\n")
        connection.execute(f"CREATE VIEW passwords AS SELECT * FROM '{tmp_path}/passwords.csv'")
    return path


def test_a_duckdb_file_has_its_tables_views_and_schemas(connect: Connect, shop: Path) -> None:
    db = connect(shop)
    assert sorted(db.tables) == ["late", "moods", "old_trips", "trips", "zones"]
    assert answer(db) == oracle(ROWS)
    assert answer(db, "SELECT count(*) AS n FROM late") == [(99,)]
    assert answer(db, "SELECT o.x + z.x AS y FROM old_trips AS o, zones AS z") == [(3,)]
    assert answer(db, "SELECT m FROM moods ORDER BY m") == [("sad",), ("happy",)]
    assert answer(connect(tables={"late": shop}), "SELECT count(*) AS n FROM late") == [(99,)]


def test_a_table_of_a_duckdb_file_is_laid_out_into_the_cache(connect: Connect, tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        connection.execute("CREATE TABLE trips AS SELECT range AS id, range % 7 AS zone FROM range(20000)")
    sql = "SELECT zone, sum(id) AS s FROM trips GROUP BY zone ORDER BY zone"
    db = connect(tmp_path / "shop.duckdb")
    before = answer(db, sql)
    assert db.lay_out("trips").is_sampled
    assert connect(tmp_path / "shop.duckdb").tables["trips"].is_sampled
    assert [tuple(row.values()) for row in db.online_sql(sql).result().estimate.to_pylist()] == before


def test_a_duckdb_file_that_is_written_to_is_noticed(connect: Connect, shop: Path) -> None:
    db = connect(shop)
    answer(db)
    state = shop.stat()
    os.utime(shop, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    with pytest.raises(relaqs.DataError, match=r"shop\.duckdb changed since this session was opened"):
        answer(db)


def test_a_duckdb_file_that_another_connection_writes_to_says_what_to_do(
    connect: Connect, shop: Path
) -> None:
    with duckdb.connect(shop) as connection:
        connection.execute("INSERT INTO old.zones VALUES (4)")
        with pytest.raises(relaqs.DataError, match="close the connection that writes to it"):
            connect(shop)
        db = connect(tables={"trips": connection.table("trips")})
        assert answer(db) == oracle(ROWS)
