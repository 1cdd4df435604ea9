"""Layouts that a session makes behind its questions, or when it is told to."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import numpy as np
import pytest
from relaqs_engine.shared_files import lock

import relaqs
from relaqs.queries import tables
from relaqs.training import LinearRegression
from tests.relaqs.plain_trips import BY_ZONE, write_trips
from tests.relaqs.sessions import Connect, every_snapshot
from tests.rows import rows_of

ROWS = 200_000


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    return write_trips(tmp_path / "trips.parquet", rows=ROWS)


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
    monkeypatch.setattr(tables, "announce", announced)
    return announced


@pytest.fixture
def connect(connect: Connect, announced: Announced) -> Connect:
    """Return `connect` for sessions that announce to the test."""
    return connect


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "NOTABLE_SECONDS", 0.0)


def ask(db: relaqs.Session, times: int = 1) -> relaqs.Snapshot:
    for _ in range(times):
        answer = db.online_sql(BY_ZONE).result()
    return answer


def settled(db: relaqs.Session) -> None:
    """Wait until nothing is being laid out."""
    assert db._open_tables.wait(120)


@pytest.mark.usefixtures("all_are_large")
def test_a_large_table_is_laid_out_when_it_is_asked_about_again(
    connect: Connect, trips: Path, announced: Announced
) -> None:
    with connect(trips) as db:
        exact = ask(db)
        settled(db)
        assert (db.tables["trips"].kind, announced.messages) == ("plain", [])
        plan = db.plan(BY_ZONE)
        ask(db)
        settled(db)
        assert db.tables["trips"].kind == "sampled"
        first, *_, last = every_snapshot(lambda: db.online_sql(BY_ZONE, batches=10))
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
    trips = write_trips(tmp_path / "trips.parquet", rows=2_000_000)
    with connect(trips) as db:
        ask(db, times=2)
        assert announced.begun.wait(60)
    assert "% laid out when the session ended, and is left as it was" in announced.messages[-1]
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    with connect(trips) as db:  # which takes the lock
        assert db.lay_out("trips").is_sampled


@pytest.mark.usefixtures("all_are_large")
def test_a_forgotten_session_lays_out_no_more(connect: Connect, tmp_path: Path, announced: Announced) -> None:
    trips = write_trips(tmp_path / "trips.parquet", rows=2_000_000)
    db = connect(trips)
    ask(db, times=2)
    assert announced.begun.wait(60)
    tables = db._open_tables
    del db
    gc.collect()
    assert tables.wait(60)
    assert "trips is laid out" not in announced.messages[-1]


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
        assert db.plan(BY_ZONE).mode.value == "mergeable"
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
    write_trips(tmp_path / "trips.parquet", rows=2_000_000)
    program = f"""
import threading, relaqs
from relaqs.queries import tables
tables.NOTABLE_SECONDS = 0.0
begun = threading.Event()
tables.announce = lambda message: begun.set()
db = relaqs.connect("trips.parquet", cache_directory="cache", threads=2)
for _ in range(2):
    db.online_sql({BY_ZONE!r}).result()
assert begun.wait(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("all_are_large")
def test_how_far_a_layout_is_can_be_asked(connect: Connect, tmp_path: Path, announced: Announced) -> None:
    trips = write_trips(tmp_path / "trips.parquet", rows=2_000_000)
    with connect(trips) as db:
        assert db.layout_progress is None
        ask(db, times=2)
        assert announced.begun.wait(60)
        shares = []
        while (progress := db.layout_progress) is not None:
            shares.append(progress.share)
            assert (progress.table, progress.waiting) == ("trips", ())
            assert db._open_tables.wait(0.01) in (True, False)
        assert shares == sorted(shares)
        assert 0 < shares[-1] <= 1
        assert db.tables["trips"].is_sampled


@pytest.mark.usefixtures("all_are_large")
def test_who_asks_meanwhile_is_told_how_far_a_layout_is(
    connect: Connect, tmp_path: Path, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaqs.queries.tables.SAY_SECONDS", 0.0)
    trips = write_trips(tmp_path / "trips.parquet", rows=2_000_000)
    with connect(trips) as db:
        ask(db, times=2)
        assert announced.begun.wait(60)
        ask(db)
    assert any(
        message.startswith("laying out trips behind the questions: ") for message in announced.messages
    )


def test_the_end_of_a_layout_is_told_once_it_can_be() -> None:
    progress = relaqs.LayoutProgress("trips", 0.0, "reading", elapsed_seconds=2.0)
    assert progress.remaining_seconds is None
    assert str(progress) == "laying out trips behind the questions: 0%"
    progress = relaqs.LayoutProgress("trips", 0.2, "sorting rows", elapsed_seconds=3.0)
    assert progress.remaining_seconds == pytest.approx(12.0)
    assert str(progress) == "laying out trips behind the questions: 20%, about 12 s more"


@pytest.mark.usefixtures("all_are_large")
def test_one_process_lays_out_at_a_time_and_the_next_takes_its_layout(
    tmp_path: Path, trips: Path, announced: Announced
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    held = lock(cache)
    with relaqs.connect(trips, cache_directory=cache, threads=2) as db:
        ask(db, 2)
        assert not db._open_tables.wait(1.0)
        assert announced.messages == []
        with relaqs.connect(trips, cache_directory=cache, threads=2) as other:
            layout = other.lay_out("trips")
        assert ask(db).is_exact
        held.release()
        settled(db)
        assert db.tables["trips"] == layout
    assert [message.partition(" ")[0] for message in announced.messages] == ["laying", "trips"]
    held = lock(cache)
    with relaqs.connect(write_trips(tmp_path / "more.parquet", rows=ROWS), cache_directory=cache) as db:
        for _ in range(2):
            db.online_sql("SELECT zone, sum(fare) FROM more GROUP BY zone").result()
        assert not db._open_tables.wait(0.2)  # its end does not wait for the turn
    held.release()
    assert len(announced.messages) == 2


def test_two_names_of_one_file_share_a_layout(tmp_path: Path, trips: Path, announced: Announced) -> None:
    sources = {"a": trips, "b": str(trips.parent / "tr*.parquet")}
    with relaqs.connect(tables=sources, cache_directory=tmp_path / "cache", threads=2) as db:
        assert db.lay_out("a").directory == db.lay_out("b").directory
        joined = "SELECT count(*) AS n, sum(b.fare) AS fare FROM a JOIN b USING (id) WHERE a.zone = 3"
        answer = db.online_sql(joined).result()
    expected = duckdb.sql(f"SELECT count(*), sum(fare) FROM '{trips}' WHERE zone = 3").fetchall()
    assert rows_of(answer.estimate) == expected
    assert len(announced.messages) == 1
    assert len(relaqs.Cache(tmp_path / "cache").entries()) == 1


def test_a_layout_whose_files_changed_says_so_once_and_is_refreshed(
    connect: Connect, trips: Path, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaqs_engine.layouts.cache._LOOK_SECONDS", 0.0)
    with connect(trips) as db:
        old = db.lay_out("trips")
        before = ask(db)
        write_trips(trips, rows=ROWS // 2)
        assert ask(db, times=2).estimate.equals(before.estimate)  # all answers are about the same rows
        assert [message.split(":")[0] for message in announced.messages[1:]] == [
            f"{trips} changed since this session was opened"
        ]
        assert 'db.refresh("trips") takes the new' in announced.messages[1]
        assert db.refresh("trips").row_count == ROWS // 2
        assert db.online_sql("SELECT count(*) AS n FROM trips").result().estimate["n"][0].as_py() == ROWS // 2
        with connect(trips) as other:
            assert other.tables["trips"].kind == "plain"
        (entry,) = relaqs.Cache(trips.parent / "cache").entries()
        assert (entry.path, entry.state, entry.is_in_use) == (old.directory, "changed", True)
    assert len(announced.messages) == 2


def test_a_copy_whose_file_changed_says_so(
    connect: Connect, tmp_path: Path, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaqs_engine.layouts.cache._LOOK_SECONDS", 0.0)
    path, row = tmp_path / "trips.json", '{"zone": 1, "fare": 2, "more": {"whole": 3}}\n'  # is copied
    path.write_text(row)
    with connect(path) as db:
        ask(db)
        path.write_text(row + row.replace("1", "3"))
        assert len(ask(db)) == 1
        assert f"{path} changed since" in announced.messages[-1]
        db.refresh("trips")
        assert len(ask(db)) == 2


def test_a_closed_session_lets_the_cache_go(connect: Connect, trips: Path) -> None:
    cache = relaqs.Cache(trips.parent / "cache")
    with connect(trips) as db:
        db.lay_out("trips")
        assert cache.remove(cache.entries()) == ()
        assert ask(db).is_exact
    assert len(cache.remove(cache.entries())) == 1
