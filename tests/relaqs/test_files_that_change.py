"""Files that change under an open session: no number is about other rows, and each error names the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import relaqs
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
