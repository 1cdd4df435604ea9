"""Layouts that a session makes behind its questions, or when it is told to."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

import relaqs
from relaqs.queries import background_layout, notices
from relaqs.training import LinearRegression

ROWS = 200_000
SUM = "SELECT zone, sum(fare) AS fare, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"


def write(path: Path, rows: int = ROWS) -> Path:
    duckdb.sql(
        f"SELECT i AS id, i % 7 AS zone, hash(i) % 100 AS fare FROM range({rows}) AS t(i)"
    ).write_parquet(str(path))
    return path


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    return write(tmp_path / "trips.parquet")


class Announced:
    """What was announced, and an event for the first of it."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.begun = threading.Event()

    def __call__(self, message: str) -> None:
        self.messages.append(message)
        self.begun.set()


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Announced:
    announced = Announced()
    monkeypatch.setattr(notices, "announce", announced)
    return announced


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_layout, "NOTABLE_SECONDS", 0.0)


Connect = Callable[..., relaqs.Session]


@pytest.fixture
def connect(tmp_path: Path, announced: Announced) -> Connect:
    def connect(data: Path, **options: object) -> relaqs.Session:
        return relaqs.connect(data, cache_directory=tmp_path / "cache", threads=2, **options)  # type: ignore[arg-type]

    return connect


def ask(db: relaqs.Session, times: int = 1) -> relaqs.Snapshot:
    for _ in range(times):
        answer = db.online_sql(SUM).result()
    return answer


def settled(db: relaqs.Session) -> None:
    """Wait until nothing is being laid out."""
    assert db._layouts is not None
    assert db._layouts.wait(120)


@pytest.mark.usefixtures("all_are_large")
def test_a_large_table_is_laid_out_when_it_is_asked_about_again(
    connect: Connect, trips: Path, announced: Announced
) -> None:
    with connect(trips) as db:
        exact = ask(db)
        settled(db)
        assert (db.tables["trips"].kind, announced.messages) == ("plain", [])
        plan = db.plan(SUM)
        ask(db)
        settled(db)
        assert db.tables["trips"].kind == "sampled"
        first, *_, last = db.online_sql(SUM, batches=10)
        assert (first.is_exact, first.mode) == (False, "mergeable")
        assert last.estimate.equals(exact.estimate)
        assert db.start(plan, relaqs.QueryOptions()).result().estimate.equals(exact.estimate)
    begun, first_part, done = announced.messages
    assert begun.startswith("laying out trips (1 file, ")
    assert begun.endswith(", while queries go on")
    assert first_part == "a first part of trips is laid out: it has estimates before the end now"
    assert done == "trips is laid out"


@pytest.mark.usefixtures("all_are_large")
def test_the_next_session_finds_the_layout(connect: Connect, trips: Path, announced: Announced) -> None:
    with connect(trips) as db:
        ask(db, times=2)
        settled(db)
    with connect(trips) as db:
        assert db.tables["trips"].is_sampled
        ask(db, times=3)
        settled(db)
    assert len(announced.messages) == 3


def test_a_table_that_is_read_in_no_time_stays_as_it_lies(
    connect: Connect, trips: Path, announced: Announced
) -> None:
    with connect(trips) as db:
        ask(db, times=4)
        settled(db)
        assert (db.tables["trips"].kind, announced.messages) == ("plain", [])


@pytest.mark.usefixtures("all_are_large")
def test_nothing_is_laid_out_where_that_is_not_wanted(
    connect: Connect, trips: Path, announced: Announced, tmp_path: Path
) -> None:
    with connect(trips, background_layouts=False) as db:
        ask(db, times=4)
        assert (db.tables["trips"].kind, announced.messages) == ("plain", [])
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("all_are_large")
def test_closing_ends_a_layout_and_leaves_nothing_of_it(
    connect: Connect, tmp_path: Path, announced: Announced
) -> None:
    trips = write(tmp_path / "trips.parquet", rows=4_000_000)
    with connect(trips) as db:
        ask(db, times=2)
        assert announced.begun.wait(60)
    assert len(announced.messages) == 1
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    with connect(trips) as db:  # which takes the lock
        assert db.lay_out("trips").is_sampled


@pytest.mark.usefixtures("all_are_large")
def test_a_forgotten_session_lays_out_no_more(connect: Connect, tmp_path: Path, announced: Announced) -> None:
    trips = write(tmp_path / "trips.parquet", rows=4_000_000)
    db = connect(trips)
    ask(db, times=2)
    assert announced.begun.wait(60)
    layouts = db._layouts
    assert layouts is not None
    del db
    gc.collect()
    assert layouts.wait(60)
    assert len(announced.messages) == 1


@pytest.mark.usefixtures("all_are_large")
def test_a_file_that_changed_is_not_laid_out(connect: Connect, trips: Path, announced: Announced) -> None:
    with connect(trips) as db:
        ask(db)
        os.utime(trips, ns=(0, trips.stat().st_mtime_ns + 1))
        with pytest.raises(relaqs.DataError, match="changed since this session was opened"):
            ask(db)
        settled(db)
        assert db.tables["trips"].kind == "plain"
    assert "trips was not laid out" in announced.messages[-1]


def test_a_table_is_laid_out_when_the_user_names_it(
    connect: Connect, trips: Path, announced: Announced
) -> None:
    with connect(trips) as db:
        layout = db.lay_out("Trips")
        assert layout.is_sampled
        assert db.tables["trips"] == layout == db.lay_out("trips")
        assert db.plan(SUM).mode.value == "mergeable"
        with pytest.raises(relaqs.SqlError, match="there is no table 'trip'"):
            db.lay_out("trip")
    assert len(announced.messages) == 1


def test_training_lays_its_plain_tables_out_first(connect: Connect, trips: Path) -> None:
    with connect(trips) as db:
        job = LinearRegression("SELECT zone, 3 * zone + 1 AS y FROM trips", target="y")
        model = db.train(job).result()
        assert db.tables["trips"].is_sampled
    assert np.allclose([model.coef_[0], model.intercept_], [3.0, 1.0], atol=0.05)


def test_a_program_may_end_in_the_middle_of_a_layout(tmp_path: Path) -> None:
    write(tmp_path / "trips.parquet", rows=4_000_000)
    program = f"""
import threading, relaqs
from relaqs.queries import background_layout, notices
background_layout.NOTABLE_SECONDS = 0.0
begun = threading.Event()
notices.announce = lambda message: begun.set()
db = relaqs.connect("trips.parquet", cache_directory="cache", threads=2)
for _ in range(2):
    db.online_sql({SUM!r}).result()
assert begun.wait(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
