"""Damaged bytes never reach an answer: what a query reads is checked first, and the file is named."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.errors import DataError, RelaqsError
from relaqs_engine.layouts import Layout, add_static, read_manifest, shuffle
from relaqs_engine.layouts.manifest import MANIFEST_NAME, TableRead

import relaqs
from relaqs import training
from relaqs.executors.files import CHECKED_FOR_SECONDS, IntactFiles, StoreFiles
from tests.rows import rows_of

ROWS = 60_000
FARE, ZONE = 1, 2
CHANGED = "does not hold the bytes that were written"

QUERIES = {
    "mergeable": "SELECT zone, sum(fare) AS total FROM trips GROUP BY zone ORDER BY zone",
    "with a static table": "SELECT name, sum(fare) AS f FROM trips JOIN zones USING (zone) "
    "GROUP BY name ORDER BY name",
    "refined": "SELECT count(*) AS n FROM trips WHERE fare > (SELECT avg(fare) FROM trips)",
    "rows": "SELECT id, fare FROM trips WHERE fare = 17 ORDER BY id LIMIT 5",
    "quantile": "SELECT median(fare) AS m FROM trips",
    "exact": "SELECT zone, list(fare ORDER BY id)[1] AS first FROM trips GROUP BY zone ORDER BY zone",
    "around": "SELECT max(f) AS m FROM (SELECT zone, sum(fare) AS f FROM trips GROUP BY zone)",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    duckdb.sql(
        f"SELECT i AS id, hash(i) % 1000 AS fare, i % 13 AS zone, 'x' || i AS text FROM range({ROWS}) AS t(i)"
    ).write_parquet(str(folder / "trips.parquet"))
    duckdb.sql("SELECT i AS zone, 'zone ' || i AS name FROM range(13) AS t(i)").write_parquet(
        str(folder / "zones.parquet")
    )
    shuffle(folder / "trips.parquet", into=folder / "warehouse" / "trips", partitions=6)
    add_static(folder / "zones.parquet", into=folder / "warehouse" / "zones")
    return folder / "warehouse"


@pytest.fixture
def warehouse(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "warehouse")
    shutil.copy(written.parent / "trips.parquet", tmp_path / "again.parquet")
    return tmp_path / "warehouse"


@pytest.fixture
def db(warehouse: Path) -> Iterator[relaqs.Session]:
    with relaqs.connect(warehouse, threads=2) as session:
        yield session


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def damage(layout: Layout, partition: int, column: int) -> Path:
    """Flip a bit in the middle of a column's bytes, and return the file."""
    checksums = layout.files[partition].checksums
    assert checksums is not None
    at, size = checksums.extents_of(column)[0]
    flip(layout.paths[partition], at + size // 2)
    return layout.paths[partition]


def answer(session: relaqs.Session, sql: str) -> list[tuple[object, ...]]:
    return rows_of(session.online_sql(sql).result(timeout=60).table)


def test_a_bit_that_a_disk_loses_is_found_within_a_day(warehouse: Path) -> None:
    now_seconds = 0.0
    layout = read_manifest(warehouse / "trips")
    files = IntactFiles(StoreFiles(), lambda: now_seconds)
    read = TableRead(str(layout.directory), tuple(each.file for each in layout.files), ("fare",))
    files.check([read])
    before = layout.paths[2].stat()
    damage(layout, 2, FARE)
    os.utime(layout.paths[2], ns=(before.st_atime_ns, before.st_mtime_ns))
    files.check([read])  # nothing shows, and what was found is still believed
    now_seconds = CHECKED_FOR_SECONDS
    with pytest.raises(DataError, match=CHANGED):
        files.check([read])


@pytest.mark.parametrize("kind", QUERIES)
def test_every_kind_of_query_refuses_a_damaged_file(warehouse: Path, db: relaqs.Session, kind: str) -> None:
    path = damage(db.tables["trips"], partition=3, column=FARE)
    with pytest.raises(DataError, match=f"{path} {CHANGED}.*`relaqs verify`"):
        answer(db, QUERIES[kind])


def test_a_damaged_static_table_is_refused(warehouse: Path, db: relaqs.Session) -> None:
    path = damage(db.tables["zones"], partition=0, column=1)
    with pytest.raises(DataError, match=f"{path} {CHANGED}"):
        answer(db, QUERIES["with a static table"])


def test_training_refuses_a_damaged_file(warehouse: Path, db: relaqs.Session) -> None:
    path = damage(db.tables["trips"], partition=3, column=FARE)
    job = training.LinearRegression("SELECT zone, fare FROM trips", target="fare")
    with db.train(job) as run, pytest.raises(DataError, match=f"{path} {CHANGED}"):
        run.result(timeout=60)


def test_a_query_that_does_not_read_the_damaged_column_is_answered(db: relaqs.Session) -> None:
    damage(db.tables["trips"], partition=3, column=FARE)
    [(total, *_)] = answer(db, "SELECT sum(zone) AS total FROM trips")
    assert total == sum(i % 13 for i in range(ROWS))


def test_damage_that_comes_later_is_noticed_by_the_next_query(db: relaqs.Session) -> None:
    intact = answer(db, QUERIES["mergeable"])
    path = damage(db.tables["trips"], partition=2, column=ZONE)
    with pytest.raises(DataError, match=str(path)):
        answer(db, QUERIES["mergeable"])
    damage(db.tables["trips"], partition=2, column=ZONE)  # flips it back
    assert answer(db, QUERIES["mergeable"]) == intact


def test_a_table_laid_out_anew_is_told_from_a_damaged_one(warehouse: Path, db: relaqs.Session) -> None:
    shuffle(warehouse.parent / "again.parquet", into=warehouse / "trips", partitions=6, force=True)
    with pytest.raises(DataError, match="laid out anew; ask again in a new session"):
        answer(db, QUERIES["mergeable"])


def test_a_file_that_lost_its_end_is_named(db: relaqs.Session) -> None:
    path = db.tables["trips"].paths[1]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=rf"{path} has [\d,]+ bytes, not [\d,]+"):
        answer(db, QUERIES["mergeable"])


def test_a_layout_of_before_column_checksums_is_checked_as_a_whole(warehouse: Path) -> None:
    layout = read_manifest(warehouse / "trips")
    forget_checksums(warehouse / "trips" / MANIFEST_NAME)
    with relaqs.connect(warehouse, threads=2) as session:
        answer(session, QUERIES["mergeable"])
        damage(layout, partition=4, column=FARE)
        with pytest.raises(DataError, match=f"{layout.paths[4]} {CHANGED}"):
            answer(session, "SELECT sum(zone) AS total FROM trips")


def forget_checksums(manifest: Path) -> None:
    entries = json.loads(manifest.read_text()) | {"manifest_version": 2}
    del entries["xxh3"]
    for partition in entries["partitions"]:
        (only,) = partition.pop("files")
        del only["checksums"]
        partition |= only
    manifest.write_text(json.dumps(entries))


def test_a_query_that_failed_is_forgotten_with_its_state(db: relaqs.Session) -> None:
    def failed() -> weakref.ref[relaqs.OnlineQuery]:
        query = db.online_sql("SELECT sum(CAST(text AS INTEGER)) AS s FROM trips")
        with pytest.raises(DataError):
            query.result(timeout=60)
        return weakref.ref(query)

    queries = [failed() for _ in range(3)]
    answer(db, "SELECT sum(zone) AS total FROM trips")  # a thread holds on to its last error
    gc.collect()
    assert queries[0]() is None


@pytest.mark.slow
def test_no_flipped_bit_gives_a_wrong_answer(written: Path, warehouse: Path) -> None:
    sql, draws = QUERIES["with a static table"], random.Random(3)
    with relaqs.connect(warehouse, threads=2) as session:
        right = answer(session, sql)
    files = sorted(path for path in warehouse.rglob("*") if path.is_file())
    for _ in range(60):
        path = draws.choice(files)
        at, bit = draws.randrange(path.stat().st_size), draws.randrange(8)
        flip(path, at, bit)
        found = answer_or_error(warehouse, sql)
        assert found == right or str(path) in str(found)
        flip(path, at, bit)


def answer_or_error(warehouse: Path, sql: str) -> list[tuple[object, ...]] | RelaqsError:
    try:
        with relaqs.connect(warehouse, threads=2) as session:
            return answer(session, sql)
    except RelaqsError as error:
        return error
