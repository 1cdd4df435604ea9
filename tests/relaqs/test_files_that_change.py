"""Files that change under an open session: no number is about other rows, and each error names the file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import deltalake
import duckdb
import pytest
from relaqs_engine.layouts.cache import VERSIONS_KEPT

import relaqs
from relaqs.queries import tables
from tests.relaqs.executors.clusters import eventually
from tests.relaqs.sessions import Connect, exact_rows

SQL = "SELECT count(*) AS n, sum(fare) AS fare FROM trips"
TRIPS = "SELECT i AS id, i / 4 AS fare FROM range({}) AS t(i)"


def write(path: Path, select: str) -> None:
    duckdb.sql(f"COPY ({select}) TO '{path}'")


CHANGES: dict[str, Callable[[Path], None]] = {
    "more rows": lambda path: write(path, TRIPS.format(3_000)),
    "fewer rows": lambda path: write(path, TRIPS.format(1_000)),
    "other columns": lambda path: write(path, "SELECT 'a' || range AS name FROM range(50)"),
    "a part of it": lambda path: os.truncate(path, path.stat().st_size // 2),
    "nothing in it": lambda path: os.truncate(path, 0),
    "no file": lambda path: path.unlink(),
}
ASKED: dict[str, Callable[[relaqs.Session], object]] = {
    "the question of before": lambda db: db.online_sql(SQL).result(),
    "another question": lambda db: db.online_sql("SELECT max(id) AS most FROM trips").result(),
    "a summary": lambda db: db.online_sql("SUMMARIZE trips").result(),
    "statistics": lambda db: db.measured_tables(),
    "a layout": lambda db: db.lay_out("trips"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_nothing_is_answered_about_a_file_that_changed(
    connect: Connect, tmp_path: Path, ending: str, change: str
) -> None:
    path = tmp_path / f"trips.{ending}"
    write(path, TRIPS.format(2_000))
    db = connect(path, background_layouts=False)
    assert exact_rows(db, SQL) == duckdb.sql(SQL.replace("trips", f"'{path}'")).fetchall()
    CHANGES[change](path)
    for what, ask in ASKED.items():
        with pytest.raises(relaqs.RelaqsError) as raised:
            ask(db)
        assert str(path) in str(raised.value), what
        assert 'db.refresh("trips")' in str(raised.value) or what == "a layout"


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_a_table_whose_file_cannot_be_read_anew_goes_on_once_it_is_mended(
    connect: Connect, tmp_path: Path, ending: str
) -> None:
    path, aside = tmp_path / f"trips.{ending}", tmp_path / "aside"
    write(path, TRIPS.format(2_000))
    db = connect(path, background_layouts=False)
    path.rename(aside)
    with pytest.raises(relaqs.LayoutError, match=f"there is no file .*trips.{ending}"):
        db.refresh("trips")
    write(path, "SELECT range AS id, 2.5 AS fare FROM range(10)")
    with pytest.raises(relaqs.DataError, match="changed since this session was opened"):
        db.online_sql(SQL).result()
    db.refresh("trips")
    assert exact_rows(db, SQL) == [(10, 25)]


def in_duckdb(path: Path, select: str) -> None:
    """Write a table of a DuckDB file, in a process of its own, as the one that reads it has it attached."""
    made = (
        f"import duckdb; duckdb.connect({str(path)!r}).execute('CREATE OR REPLACE TABLE trips AS {select}')"
    )
    subprocess.run([sys.executable, "-c", made], check=True)


def in_lake(path: Path, select: str) -> None:
    deltalake.write_deltalake(path, duckdb.sql(select).to_arrow_table(), mode="overwrite")


def laid_out(path: Path, select: str) -> None:
    relaqs.shuffle(duckdb.sql(select), path, partitions=4, force=True)


def more_of_a_layout(path: Path, select: str) -> None:
    if path.exists():
        relaqs.append(duckdb.sql("FROM (" + select + ") OFFSET 2000"), path)
    else:
        laid_out(path, select)


def one_more_file(path: Path, select: str) -> None:
    path.parent.mkdir(exist_ok=True)
    skipped = 2_000 if path.with_name("first.parquet").exists() else 0
    write(
        path.with_name("second.parquet" if skipped else "first.parquet"), f"FROM ({select}) OFFSET {skipped}"
    )


FOLLOWED: dict[str, tuple[str, Callable[[Path, str], None]]] = {
    "a file of Parquet": ("trips.parquet", write),
    "CSV": ("trips.csv", write),
    "a call": ("trips.csv", write),
    "JSON": ("trips.json", write),
    "files of a pattern": ("several/*.parquet", one_more_file),
    "a DuckDB file": ("trips.duckdb", in_duckdb),
    "a lake": ("trips", in_lake),
    "a layout": ("trips", laid_out),
    "a layout that grows": ("trips", more_of_a_layout),
}


@pytest.mark.parametrize("has_layout", [False, True])
@pytest.mark.parametrize("kind", FOLLOWED)
def test_tables_are_read_anew_once_their_files_have_changed(
    connect: Connect, tmp_path: Path, kind: str, has_layout: bool
) -> None:
    """Also those of which the cache has a layout. Nothing is read anew where nothing has changed."""
    name, make = FOLLOWED[kind]
    path = tmp_path / name
    make(path, TRIPS.format(2_000))
    source = f"read_csv('{path}')" if kind == "a call" else path
    db = connect(tables={"trips": source}, background_layouts=False)
    if has_layout:
        db.lay_out("trips")
    assert db.refresh_changed() == ()
    make(path, TRIPS.format(3_000))
    assert db.refresh_changed() == ("trips",)
    assert exact_rows(db, SQL) == duckdb.sql(SQL.replace("trips", f"({TRIPS.format(3_000)})")).fetchall()
    tables = db.tables
    assert db.refresh_changed() == ()
    assert db.tables is tables


def test_a_file_that_is_being_written_is_read_anew_when_it_is_whole(connect: Connect, tmp_path: Path) -> None:
    path, whole = tmp_path / "trips.parquet", tmp_path / "whole.parquet"
    write(path, TRIPS.format(2_000))
    write(whole, TRIPS.format(3_000))
    db = connect(path, background_layouts=False)
    for piece in (b"", whole.read_bytes()[:100]):
        path.write_bytes(piece)
        assert db.refresh_changed() == ()
    path.write_bytes(whole.read_bytes())
    assert db.refresh_changed() == ("trips",)
    assert exact_rows(db, "SELECT count(*) FROM trips") == [(3_000,)]


def test_data_in_memory_and_other_tables_stay_as_they_are(connect: Connect, tmp_path: Path) -> None:
    write(tmp_path / "trips.parquet", TRIPS.format(2_000))
    rates = duckdb.sql("SELECT 0.5 AS rate").to_arrow_table()
    db = connect(tables={"trips": tmp_path / "trips.parquet", "rates": rates})
    before = db.tables["rates"]
    write(tmp_path / "trips.parquet", TRIPS.format(3_000))
    assert db.refresh_changed() == ("trips",)
    assert db.tables["rates"] is before


def test_whoever_follows_is_not_told_to_refresh(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trips.parquet"
    write(path, TRIPS.format(2_000))
    db = connect(path)
    db.lay_out("trips")
    assert db.refresh_changed() == ()
    write(path, TRIPS.format(3_000))
    assert exact_rows(db, "SELECT count(*) FROM trips") == [(2_000,)]
    assert "changed" not in capsys.readouterr().err
    monkeypatch.setattr(tables, "_FOLLOWED_SECONDS", 0.0)  # nobody has looked for a while
    assert exact_rows(db, "SELECT count(*) FROM trips") == [(2_000,)]
    assert 'db.refresh("trips") takes the new' in capsys.readouterr().err


def test_a_session_that_follows_looks_by_itself(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "trips.parquet"
    write(path, TRIPS.format(2_000))
    db = connect(path, follow=0.02)
    write(path, TRIPS.format(3_000))

    def count() -> object:
        try:
            return exact_rows(db, "SELECT count(*) FROM trips")
        except relaqs.DataError:  # until it has looked, the file is another than the one that it opened
            return None

    eventually(lambda: count() == [(3_000,)])


def test_a_session_follows_in_seconds(connect: Connect, tmp_path: Path) -> None:
    write(tmp_path / "trips.parquet", TRIPS.format(5))
    with pytest.raises(relaqs.RelaqsError, match="follow is 0; it must be a number of seconds above 0"):
        connect(tmp_path, follow=0)


def test_what_cannot_be_read_anew_is_said_once(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A layout of the cache answers on about the rows of before, which would else be silent."""
    path = tmp_path / "trips.parquet"
    write(path, TRIPS.format(2_000))
    db = connect(path)
    db.lay_out("trips")
    path.write_text("no Parquet")
    capsys.readouterr()
    assert [db.refresh_changed() for _ in range(3)] == [(), (), ()]
    said = capsys.readouterr().err
    assert said.count("trips cannot be read anew, so answers stay about the rows of before") == 1
    assert str(path) in said
    assert exact_rows(db, "SELECT count(*) FROM trips") == [(2_000,)]
    write(path, TRIPS.format(3_000))
    assert db.refresh_changed() == ("trips",)


def test_versions_that_were_replaced_are_let_go(connect: Connect, tmp_path: Path) -> None:
    """Of a table that changes often, the last versions are held, and no others stay in the cache."""
    path, cache = tmp_path / "trips.csv", tmp_path / "cache"
    write(path, TRIPS.format(2_000))
    db = connect(tables={"trips": f"read_csv('{path}')"})
    for rows in range(2_001, 2_001 + 3 * VERSIONS_KEPT):
        write(path, TRIPS.format(rows))
        assert db.refresh_changed() == ("trips",)
    assert exact_rows(db, "SELECT count(*) FROM trips") == [(2_000 + 3 * VERSIONS_KEPT,)]
    assert len(list(cache.glob("trips-*/staged"))) <= VERSIONS_KEPT + 1


def test_a_session_that_is_closed_looks_no_more(connect: Connect, tmp_path: Path) -> None:
    write(tmp_path / "trips.parquet", TRIPS.format(5))
    before = set(threading.enumerate())
    connect(tmp_path / "trips.parquet", follow=60).close()
    eventually(
        lambda: not {each for each in threading.enumerate() if isinstance(each, threading.Timer)} - before
    )
