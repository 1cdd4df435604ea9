"""Planning side by side: no query waits for another's, a timeout covers it, and closing a session ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.duck import Cursor
from relaqs_engine.errors import RelaqsError, SqlError
from relaqs_engine.layouts import shuffle
from relaqs_engine.sql.binder import Binder

import relaqs
from relaqs.queries.online_query import QueryTimeoutError
from relaqs.session import Session

WIDE = "SELECT " + ", ".join(f"sum(x + {k}) AS s{k}" for k in range(200)) + " FROM t"
SMALL = "SELECT count(*) AS n FROM t"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    shuffle(pa.table({"x": np.arange(1000.0)}), tmp_path / "t", partitions=4)
    with relaqs.connect(tmp_path, threads=1) as session:
        yield session


class Held:
    """Holds the first planning at its first call of DuckDB's binder until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_go = threading.Event(), threading.Event()
        describe = Binder.describe

        def held(binder: Binder, sql: str) -> list[tuple[str, str]]:
            if not self.has_begun.is_set():
                self.has_begun.set()
                assert self.may_go.wait(60)
            return describe(binder, sql)

        monkeypatch.setattr(Binder, "describe", held)


def test_another_value_of_a_parameter_binds_only_the_texts_that_have_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What DuckDB says of a text over empty tables holds for each plan of the session."""
    bound: list[str] = []
    describe = Cursor.describe

    def noted(cursor: Cursor, sql: str) -> list[tuple[str, str]]:
        bound.append(sql)
        return describe(cursor, sql)

    monkeypatch.setattr(Cursor, "describe", noted)
    sql = "SELECT avg(x) AS mean, count(*) AS n FROM t WHERE x > $least"
    assert session.plan(sql, params={"least": 71}).is_estimated
    first = list(bound)
    bound.clear()
    assert session.plan(sql, params={"least": 93}).is_estimated
    assert any("71" not in text for text in first)
    assert bound
    assert all("93" in text for text in bound)


def test_one_users_planning_does_not_wait_for_anothers(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(session.plan, WIDE)
        assert held.has_begun.wait(60)
        assert session.plan(SMALL).outputs[0].name == "n"
        assert not first.done()
        held.may_go.set()
        assert len(first.result(60).outputs) == 200


def test_plans_made_at_the_same_time_are_those_made_one_by_one(session: Session, tmp_path: Path) -> None:
    queries = [f"SELECT count(*) AS n, avg(x + {k}) AS m FROM t WHERE x > {k}" for k in range(24)]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(session.plan, queries))
    with relaqs.connect(tmp_path, threads=1) as other:
        assert together == [other.plan(query) for query in queries]


def test_closing_a_session_ends_its_plannings(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(session.plan, WIDE)
        assert held.has_begun.wait(60)
        session.close()
        held.may_go.set()
        with pytest.raises(RelaqsError, match="this session is closed"):
            first.result(60)


def test_a_timeout_covers_planning(session: Session) -> None:
    with pytest.raises(QueryTimeoutError, match="was not planned within 1e-06 s"):
        session.online_sql(WIDE, timeout=1e-6)
    with pytest.raises(QueryTimeoutError, match="was not planned within 1e-06 s"):
        session.plan(WIDE, timeout=1e-6)


def test_views_count_in_what_a_query_stands_for(session: Session, tmp_path: Path) -> None:
    views = {"v0": "SELECT * FROM t"}
    views |= {f"v{k}": f"SELECT a.x FROM v{k - 1} AS a, v{k - 1} AS b" for k in range(1, 12)}
    with (
        relaqs.connect(tmp_path, views=views, threads=1) as other,
        pytest.raises(SqlError, match="tables with its WITH, views"),
    ):
        other.plan("SELECT count(*) AS n FROM v11")
