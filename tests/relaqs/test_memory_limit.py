"""Queries whose state does not fit into a real memory limit: run as a whole, or failed with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.execution import state

import relaqs
from relaqs.queries import start
from relaqs.session import Session

ROWS = 300_000  # of 320 bytes each, in memory
LIMIT = "256MiB"  # of which states have 64


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long-texts")
    rows = duckdb.sql(f"SELECT i % 7 AS a, repeat(md5(i::VARCHAR), 10) AS b FROM range({ROWS}) AS t(i)")
    rows.to_parquet(str(folder / "t.parquet"))
    relaqs.shuffle(str(folder / "t.parquet"), str(folder / "warehouse" / "t"), partitions=10)
    return folder


@pytest.fixture
def db(long_texts: Path) -> Iterator[Session]:
    with relaqs.connect(long_texts / "warehouse", threads=2, memory_limit=LIMIT) as session:
        yield session


SQL = "SELECT a, quantile_disc(b, 0.5) AS m, count(*) AS n FROM t GROUP BY a"


def test_a_state_beyond_the_limit_ends_in_a_run_of_the_whole(
    db: Session, long_texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LISTED_SECONDS", 0.0)  # else it would end with a sample of the values
    snapshots = list(query := db.online_sql(SQL))
    last = snapshots[-1]
    plain = duckdb.sql(SQL.replace("FROM t", f"FROM '{long_texts}/t.parquet'")).fetchall()
    assert sorted(map(tuple, (row.values() for row in last.estimate.to_pylist()))) == sorted(plain)
    assert (query.state, last.is_exact, last.mode, query.plan.mode) == ("exact", True, "exact", "exact")
    assert "does not fit into the memory limit" in last.warnings[0]
    assert last.batch == last.batches
    assert [s.batch for s in snapshots] == sorted({s.batch for s in snapshots})
    assert {s.mode for s in snapshots[:-1]} <= {"mergeable"}
    assert all(s.table.schema.names == last.table.schema.names for s in snapshots)
    assert "does not fit" in query.explain()


BY_TEXT = "SELECT b, count(*) AS n FROM t GROUP BY b ORDER BY b LIMIT 3"


def test_groups_beyond_half_of_what_states_have_are_not_kept(db: Session, long_texts: Path) -> None:
    *so_far, last = (query := db.online_sql(BY_TEXT))
    assert so_far
    assert so_far[-1].fraction < 0.5  # 32 MiB are a third of all groups
    assert (last.is_exact, query.plan.mode) == (True, "exact")
    assert "does not fit into the memory limit" in last.warnings[0]
    plain = duckdb.sql(BY_TEXT.replace("FROM t", f"FROM '{long_texts}/t.parquet'")).fetchall()
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == plain


def test_a_state_that_was_kept_with_more_memory_is_gone_on_from(
    db: Session, long_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    query = db.start(db.plan(BY_TEXT), relaqs.QueryOptions(), checkpoint=kept)
    next(iter(query))
    query.stop()
    query.wait()
    assert kept.exists()
    monkeypatch.setattr(start, "_OF_STATES", 1e-6)
    last = db.start(db.plan(BY_TEXT), relaqs.QueryOptions(), checkpoint=kept).result()
    plain = duckdb.sql(BY_TEXT.replace("FROM t", f"FROM '{long_texts}/t.parquet'")).fetchall()
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == plain
    assert "does not fit into the memory limit" in last.warnings[0]


def test_they_are_kept_where_the_query_must_not_run_as_a_whole(db: Session) -> None:
    last = (query := db.online_sql(BY_TEXT, fallback="error")).result()
    assert (last.is_exact, query.plan.mode) == (True, "mergeable")


def test_rows_that_are_the_answer_may_take_more(long_texts: Path) -> None:
    with relaqs.connect(long_texts / "warehouse", threads=2, memory_limit=LIMIT) as db:
        query = db.online_sql("SELECT b FROM t")
        assert len(query.result()) == ROWS
        assert query.plan.mode == "mergeable"


def test_it_fails_where_it_must_not_run_as_a_whole(db: Session) -> None:
    query = db.online_sql(SQL, fallback="error")
    with pytest.raises(relaqs.MemoryLimitError, match="raise memory_limit"):
        query.result()
    assert query.state == "failed"


def test_it_fails_where_duckdb_cannot_run_the_whole_either(db: Session) -> None:
    query = db.online_sql("SELECT list(b || b || b) AS m FROM t")
    with pytest.raises(relaqs.MemoryLimitError, match="; raise memory_limit") as told:
        query.result()
    found = re.search(r"([\d.]+) MiB used", str(told.value))
    assert found is not None
    assert 64 <= float(found[1]) <= 256
    assert db.online_sql("SELECT count(*) AS n FROM t").result().estimate.to_pylist() == [{"n": ROWS}]
