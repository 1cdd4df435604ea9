"""Sessions over plain files with many row groups: estimates first, and what ends them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from relaqs_engine.errors import DataError
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.plans.composite import SampledThenExact

from relaqs.queries import start
from tests.engine.row_group_files import write_trips
from tests.relaqs.executors.clusters import eventually
from tests.relaqs.sessions import Connect, threads_of

BY_ZONE = "SELECT zone, sum(fare) AS fare, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"


@pytest.fixture
def connect(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Return `connect` for sessions that sample small files as well."""
    monkeypatch.setattr(start, "RowGroupRules", lambda cores: RowGroupRules(cores, 1e-5, 16, 0.2))
    return partial(connect, background_layouts=False)


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    return write_trips(tmp_path / "trips.parquet", rows=50_000, row_groups=100)


def test_the_last_snapshot_is_exact_and_no_layout(connect: Connect, trips: Path, tmp_path: Path) -> None:
    db = connect(trips)
    plan = db.plan(BY_ZONE)
    assert isinstance(plan, SampledThenExact)
    assert plan.groups
    snapshots = list(db.online_sql(BY_ZONE))
    assert snapshots[-1].is_exact
    assert sum(snapshots[-1].estimate.column("n").to_pylist()) == 50_000
    assert {(each.batches, each.mode) for each in snapshots} == {(3, "mergeable")}
    assert not (tmp_path / "cache").exists()


def test_it_is_an_estimate_for_those_who_want_nothing_else(connect: Connect, trips: Path) -> None:
    assert connect(trips).online_sql(BY_ZONE, fallback="error").result().is_exact


def test_a_query_stops_at_its_target(connect: Connect, trips: Path) -> None:
    last = connect(trips).online_sql(BY_ZONE, target=0.5).result()
    assert not last.is_exact
    assert last.error <= 0.5


def test_stopping_leaves_nothing_at_work(connect: Connect, trips: Path) -> None:
    before = threads_of("relaqs-job")
    query = connect(trips).online_sql(BY_ZONE)
    next(iter(query))
    query.stop()
    assert query.wait(30)
    eventually(lambda: not threads_of("relaqs-job") - before)


def test_a_file_that_changes_meanwhile_fails_the_query(connect: Connect, trips: Path) -> None:
    db = connect(trips)
    db.online_sql(BY_ZONE).result()
    write_trips(trips, rows=50_000, row_groups=80)
    os.utime(trips, ns=(1, 1))
    for sql in (BY_ZONE, "SELECT sum(fare) AS f FROM trips"):
        with pytest.raises(DataError, match=r"trips.parquet changed since this session was opened"):
            list(db.online_sql(sql))


def test_a_row_group_with_damaged_bytes_fails_the_query(connect: Connect, trips: Path) -> None:
    state = trips.stat()
    with trips.open("r+b") as file:
        file.write(b"\xff" * (state.st_size // 2))
    os.utime(trips, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(DataError):
        list(connect(trips).online_sql(BY_ZONE))


def test_a_file_that_is_gone_is_named(connect: Connect, trips: Path) -> None:
    db = connect(trips)
    trips.unlink()
    with pytest.raises(DataError, match=r"trips\.parquet is not there"):
        db.online_sql(BY_ZONE).result()


def test_the_library_of_the_file_system_is_loaded_when_it_is_needed() -> None:
    import subprocess
    import sys

    code = "import relaqs, sys; print('relaqs.executors.row_group_files' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"
