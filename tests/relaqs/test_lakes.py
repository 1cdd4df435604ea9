"""Delta and Iceberg tables: one version, with its deleted rows gone and its later columns there."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.types import DoubleType
from pyroaring import BitMap64

import relaqs
from tests.relaqs.iceberg_tables import FolderCatalog
from tests.relaqs.sessions import Connect, exact_rows

ROWS = pa.table({"id": range(100), "zone": [f"{i % 3:02}" for i in range(100)]})
COUNT = "SELECT count(*) AS n, sum(id) AS s FROM trips"


def answer(db: relaqs.Session, sql: str = COUNT) -> list[tuple[object, ...]]:
    return exact_rows(db, sql)


def files_of(db: relaqs.Session) -> list[Path]:
    return list(db.tables["trips"].paths)


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    deltalake.write_deltalake(tmp_path / "trips", ROWS)
    return tmp_path / "trips"


def test_a_delta_table_is_read_where_it_lies(connect: Connect, delta: Path, tmp_path: Path) -> None:
    db = connect(delta)
    assert answer(db) == [(100, 4950)]
    assert db.tables["trips"].source == f"{delta}, Delta version 0"
    assert files_of(db) == list(delta.glob("*.parquet"))


def test_a_session_answers_over_one_version_and_a_layout_keeps_it(connect: Connect, delta: Path) -> None:
    db = connect(delta)
    deltalake.write_deltalake(delta, ROWS, mode="append")
    assert answer(db) == [(100, 4950)]
    later = connect(tables={"trips": delta})
    assert answer(later) == [(200, 9900)]
    assert later.lay_out("trips").source == f"{delta}, Delta version 1"
    assert connect(tables={"trips": delta}).tables["trips"].kind == "static"
    old = connect(tables={"trips": deltalake.DeltaTable(delta, version=0)})
    assert answer(old) == [(100, 4950)]


def test_columns_of_folders_and_later_columns_are_those_of_the_log(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "a b" / "trips"
    path.parent.mkdir()
    deltalake.write_deltalake(path, ROWS, partition_by=["zone"])
    more = ROWS.append_column("fare", pa.array([0.5] * 100))
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")
    db = connect(path)
    assert [(column.name, column.type) for column in db.tables["trips"].columns] == [
        ("id", "BIGINT"),
        ("zone", "VARCHAR"),  # and no number, which the names of the folders look like
        ("fare", "DOUBLE"),
    ]
    sql = "SELECT zone, count(*) AS n, count(fare) AS f FROM trips GROUP BY zone ORDER BY zone"
    assert answer(db, sql) == [("00", 68, 34), ("01", 66, 33), ("02", 66, 33)]
    db.lay_out("trips")
    assert answer(db, sql) == [("00", 68, 34), ("01", 66, 33), ("02", 66, 33)]


@pytest.mark.parametrize("folders", [[], ["zone"], ["zone", "id"]])
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf"), None])
def test_ends_in_the_log_skip_no_rows(
    connect: Connect, tmp_path: Path, folders: list[str], odd: float | None
) -> None:
    """A log has the least and the greatest value of each file, without NaN, and none if it is infinite."""
    rows = pa.table({"id": range(20), "zone": ["a", None] * 10, "x": [odd, *map(float, range(19))]})
    deltalake.write_deltalake(tmp_path / "trips", rows, partition_by=folders or None)
    db = connect(tmp_path / "trips")
    truth = duckdb.connect()
    truth.execute("CREATE TABLE trips AS FROM rows")
    for condition in ("x < 100", "x <= 18", "x > 100", "x >= 0", "x <> 5", "x = 5", "x < 3", "zone IS NULL"):
        sql = f"SELECT count(*) AS n FROM trips WHERE {condition}"
        assert answer(db, sql) == truth.execute(sql).fetchall(), condition


def test_rows_that_a_deletion_vector_names_are_gone(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "trips"
    deltalake.write_deltalake(path, ROWS, configuration={"delta.enableDeletionVectors": "true"})
    delete_rows(path, [0, 1, 99])
    db = connect(path)
    assert answer(db) == [(97, 4950 - 1 - 99)]
    assert answer(connect(path)) == [(97, 4950 - 1 - 99)]


def delete_rows(table: Path, rows: list[int]) -> None:
    """Delete rows of a Delta table's only file as other writers do: by a vector beside it."""
    vector = struct.pack("<i", 1681511377) + BitMap64(rows).serialize()
    file = table / "deleted.bin"
    file.write_bytes(
        b"\x01" + struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    )
    log = table / "_delta_log"
    (add,) = (
        entry["add"]
        for line in (log / f"{0:020}.json").read_text().splitlines()
        if "add" in (entry := json.loads(line))
    )
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    named = {"storageType": "p", "pathOrInlineDv": f"file://{file}", "offset": 1}
    add["deletionVector"] = named | {"sizeInBytes": len(vector), "cardinality": len(rows)}
    (log / f"{1:020}.json").write_text(
        "\n".join(json.dumps(each) for each in ({"remove": remove}, {"add": add}))
    )


def test_a_file_that_was_cleaned_away_is_named(connect: Connect, delta: Path) -> None:
    db = connect(delta)
    next(delta.glob("*.parquet")).unlink()
    with pytest.raises(relaqs.DataError, match=r"\.parquet is not there; restore it, or open a new session"):
        answer(db)


def test_a_folder_has_its_lake_tables_by_their_names(connect: Connect, delta: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    delta.rename(tmp_path / "lake" / "trips")
    FolderCatalog(tmp_path / "lake" / "zones").new_table(ROWS)
    assert sorted(connect(tmp_path / "lake").tables) == ["trips", "zones"]


def test_an_iceberg_table_is_read_where_it_lies(connect: Connect, tmp_path: Path) -> None:
    table = FolderCatalog(tmp_path / "trips").new_table(ROWS)
    first = table.current_snapshot()
    db = connect(tmp_path / "trips")
    table.append(ROWS)
    assert answer(db) == [(100, 4950)]
    assert db.tables["trips"].source == f"{tmp_path / 'trips'}, Iceberg snapshot {first.snapshot_id}"
    assert files_of(db)[0].is_relative_to(tmp_path / "trips")
    assert answer(connect(tmp_path / "trips")) == answer(connect(tables={"trips": table})) == [(200, 9900)]


def test_deleted_rows_and_renamed_columns_of_an_iceberg_table(connect: Connect, tmp_path: Path) -> None:
    table = FolderCatalog(tmp_path / "trips").new_table(ROWS)
    table.delete("id < 10")
    with table.update_schema() as change:
        change.rename_column("zone", "area")
    with table.update_schema() as change:
        change.add_column("zone", DoubleType())
    sql = "SELECT count(*) AS n, min(id) AS i, min(area) AS a, count(zone) AS z FROM trips"
    assert answer(connect(tmp_path / "trips"), sql) == [(90, 10, "00", 0)]


def test_folders_of_an_iceberg_table_say_nothing_about_its_columns(connect: Connect, tmp_path: Path) -> None:
    FolderCatalog(tmp_path / "trips").new_table(ROWS, partitioned_by="zone")
    db = connect(tmp_path / "trips")
    sql = "SELECT zone, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"
    assert answer(db, sql) == [("00", 34), ("01", 33), ("02", 33)]


def test_without_its_library_a_lake_says_what_to_install(
    connect: Connect, delta: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(
        relaqs.LayoutError, match=r"a Delta table, which needs .* pip install 'relaqs\[lakes\]'"
    ):
        connect(delta)


@pytest.mark.parametrize("partitions", [[], ["zone"]])
def test_a_version_whose_files_are_gone_says_so(
    connect: Connect, tmp_path: Path, partitions: list[str]
) -> None:
    path = tmp_path / "lake" / "trips"
    path.parent.mkdir()
    deltalake.write_deltalake(path, ROWS, partition_by=partitions)
    deltalake.write_deltalake(path, ROWS, partition_by=partitions, mode="overwrite")
    table = deltalake.DeltaTable(path)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert answer(connect(path)) == [(100, 4950)]
    gone = r"Delta version 0, cannot be read: its file .*\.parquet is gone; open a later version"
    old = deltalake.DeltaTable(path, version=0)
    for read in (connect, lambda source: relaqs.shuffle(source, tmp_path / "wh" / "trips")):
        with pytest.raises(relaqs.DataError, match=gone):
            read(old)
    pa.parquet.write_table(ROWS, path.with_name("others.parquet"))
    next(path.rglob("part-*.parquet")).unlink()
    db = connect(path.parent)
    assert exact_rows(db, "SELECT count(*) AS n FROM others") == [(100,)]
    with pytest.raises(relaqs.DataError, match=r"is gone; open a later version"):
        answer(db)
