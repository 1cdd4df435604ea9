"""Sessions over real data: what a query is answered with, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import math
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import OnlinePlan

import relaqs
from relaqs.executors import ThreadExecutor
from relaqs.jobs.job import StepReport
from relaqs.opening import connect
from relaqs.policies import Fifo, PolicyError
from relaqs.queries import start
from relaqs.queries import start as planner_module
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.queries.start import query_job
from relaqs.session import Session
from tests.conftest import Oracle
from tests.relaqs.sessions import every_snapshot
from tests.rows import rows_of

REVENUE = """
    SELECT l_returnflag, sum(l_extendedprice * (1 - l_discount)) AS revenue, avg(l_quantity) AS quantity
    FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag
"""
NO_ESTIMATE = "SELECT l_orderkey, row_number() OVER (ORDER BY l_orderkey, l_linenumber) AS n FROM lineitem"


@pytest.fixture(scope="module")
def db(tpch_warehouse: Path) -> Iterator[Session]:
    with connect(tpch_warehouse, threads=2) as session:
        yield session


def revenue(db: Session, **options: Any) -> list[Snapshot]:
    """Return every snapshot of the revenue."""
    return every_snapshot(lambda: db.online_sql(REVENUE, **options))


def test_a_query_sharpens_and_ends_with_duckdbs_answer(db: Session, tpch_oracle: Oracle) -> None:
    first, *_, last = revenue(db)
    assert first.mode == "mergeable"
    assert 0 < first.fraction < 1
    assert first.error > 0
    assert last.is_exact
    assert (last.fraction, last.error) == (1.0, 0.0)
    assert last.estimate.column_names == ["l_returnflag", "revenue", "quantity"]
    expected = tpch_oracle.table(REVENUE)
    assert last.estimate["revenue"].to_pylist() == expected["revenue"].to_pylist()
    assert last.estimate["quantity"].to_pylist() == pytest.approx(expected["quantity"].to_pylist(), rel=1e-9)
    for column in last.columns:
        assert last.table[column.low] == last.table[column.high]


@pytest.mark.parametrize("sql", [None, 5, b"SELECT 1"])
def test_sql_is_a_text(db: Session, sql: Any) -> None:
    for ask in (db.online_sql, db.explain, db.plan):
        with pytest.raises(relaqs.ArgumentError, match=r"sql is .*; it must be a text, such as"):
            ask(sql)


def test_the_same_seed_gives_the_same_snapshots_and_another_seed_others(db: Session) -> None:
    one, same, other = (revenue(db, batches=4, seed=seed) for seed in (1, 1, 2))
    assert [snapshot.batch for snapshot in one] == [1, 2, 3, 4]
    assert all(ours.table.equals(theirs.table) for ours, theirs in zip(one, same, strict=True))
    assert not one[0].table.equals(other[0].table)


def test_batches_makes_as_many_equal_mini_batches(db: Session) -> None:
    snapshots = revenue(db, batches=5)
    assert {snapshot.batches for snapshot in snapshots} == {5}
    assert [round(snapshot.fraction, 1) for snapshot in snapshots] == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_an_anytime_interval_is_wider_and_says_so(db: Session) -> None:
    pointwise, *_ = revenue(db, batches=4)
    anytime, *_ = revenue(db, batches=4, interval="anytime")
    assert anytime.interval == "anytime"
    assert anytime.estimate.equals(pointwise.estimate)
    for column in anytime.columns:
        for name, wider in ((column.low, min), (column.high, max)):
            both = zip(anytime.table[name].to_pylist(), pointwise.table[name].to_pylist(), strict=True)
            assert all(ours == wider(ours, theirs) != theirs for ours, theirs in both)


def test_intervals_for_the_table_share_the_confidence_and_say_so(db: Session) -> None:
    """Of six certified numbers each gets a sixth of what 95 % leaves, and the error is the widest bar."""
    (together, *_), (by_hand, *_) = (
        revenue(db, batches=4, **options)
        for options in ({"confidence_for": "table"}, {"confidence": 1 - (1 - 0.95) / 6})
    )
    assert (together.confidence, together.confidence_for, by_hand.confidence_for) == (0.95, "table", "cell")
    assert together.table.equals(by_hand.table)
    assert together.error == pytest.approx(largest_error(together, {"revenue", "quantity"}))
    assert "(95 % table intervals)" in str(together)


def largest_error(snapshot: Snapshot, names: set[str]) -> float:
    """Return the largest relative half-width, from the table alone."""
    rows = snapshot.table.to_pylist()
    return max(
        max(row[column.high] - float(row[column.name]), float(row[column.name]) - row[column.low])
        / abs(float(row[column.name]))
        for column in snapshot.columns
        for row in rows
        if column.name in names and row[column.certified]
    )


@pytest.mark.parametrize(
    ("watch", "names"),
    [
        (None, {"revenue", "quantity"}),
        ("revenue", {"revenue"}),
        ("QUANTITY", {"quantity"}),
        (["quantity", "revenue"], {"revenue", "quantity"}),
    ],
)
def test_the_error_is_that_of_the_watched_columns(db: Session, watch: object, names: set[str]) -> None:
    with db.online_sql(REVENUE, watch=watch, batches=4) as query:  # type: ignore[arg-type]
        snapshot = next(query)
    largest = largest_error(snapshot, names)  # of six cells at most, so all of them are within 1.4 times that
    assert 0.95 * largest <= snapshot.error <= 1.4 * largest


@pytest.mark.parametrize("watch", ["revenu", "l_returnflag", ("quantity", "revenu")])
def test_watching_what_is_no_approximate_column(db: Session, watch: str) -> None:
    with pytest.raises(relaqs.SqlError, match="approximate columns are revenue, quantity") as caught:
        db.online_sql(REVENUE, watch=watch)
    assert caught.value.candidates == (() if watch == "l_returnflag" else ("revenue",))


def test_wrong_sql_is_refused_at_once(db: Session) -> None:
    with pytest.raises(relaqs.SqlError) as caught:
        db.online_sql("SELECT count(*) FROM lineitems")
    assert caught.value.candidates == ("lineitem",)
    with pytest.raises(relaqs.SqlError, match="only SELECT"):
        db.online_sql("DROP TABLE lineitem")
    with pytest.raises(relaqs.ArgumentError, match="confidence is 2"):
        db.online_sql(REVENUE, confidence=2)
    with pytest.raises(relaqs.ArgumentError, match="target is 0"):
        db.online_sql(REVENUE, target=0)


def test_a_query_without_an_estimate_runs_as_a_whole_and_says_why(db: Session, tpch_oracle: Oracle) -> None:
    [snapshot] = db.online_sql(NO_ESTIMATE)
    assert (snapshot.mode, snapshot.is_exact, snapshot.error) == ("exact", True, 0.0)
    assert snapshot.warnings[0].startswith("run as a whole: ")
    slow = dataclasses.replace(snapshot, elapsed_seconds=2.0)  # of a run of less than a second it is not said
    assert snapshot.warnings[0] in str(slow)
    assert sorted(map(tuple, (row.values() for row in snapshot.table.to_pylist()))) == sorted(
        tpch_oracle.rows(NO_ESTIMATE)
    )


def test_a_query_without_an_estimate_is_refused_where_that_is_asked_for(db: Session) -> None:
    with pytest.raises(relaqs.UnsupportedError, match='fallback="exact"'):
        db.online_sql(NO_ESTIMATE, fallback="error")


def test_a_column_of_the_users_own_keeps_its_name(db: Session, tpch_oracle: Oracle) -> None:
    sql = "SELECT sum(l_tax) AS x, min(l_returnflag) AS x_low FROM lineitem"
    snapshot = db.online_sql(sql).result()
    assert snapshot.estimate.column_names == ["x", "x_low"]
    assert rows_of(snapshot.estimate) == tpch_oracle.rows(sql)
    assert snapshot.columns[0].low != "x_low"
    assert snapshot.columns[0].low in snapshot.table.column_names


def test_explain_tells_the_plan(db: Session) -> None:
    assert "mode: mergeable" in db.explain(REVENUE)
    query = db.online_sql(REVENUE)
    assert query.explain() == db.explain(REVENUE)
    query.stop()


def test_a_query_is_planned_once_and_the_least_recently_used_plans_go(
    tpch_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def plan(sql: str, *arguments: Any, intervals: bool, **others: Any) -> OnlinePlan:
        planned.append((sql, intervals))
        return plan_query(sql, *arguments, intervals=intervals, **others)

    monkeypatch.setattr(planner_module, "plan_query", plan)
    monkeypatch.setattr(planner_module, "PLANS_KEPT", 2)
    first, second = "SELECT count(*) AS n FROM orders", "SELECT count(*) AS n FROM lineitem"
    with connect(tpch_warehouse) as session:
        for sql in (first, second, first, first):
            session.explain(sql)
        assert session.online_sql(first).result().is_exact
        assert planned == [(first, True), (second, True)]
        session.submit(first, QueryOptions(), intervals=False).result()
        session.explain(second)
    assert planned[2:] == [(first, False), (second, True)]


def test_queries_run_beside_each_other(db: Session) -> None:
    queries = [db.online_sql(REVENUE, seed=seed, priority=seed + 1) for seed in range(4)]
    answers = [query.result().estimate for query in queries]
    assert all(answer.equals(answers[0]) for answer in answers)


def test_async_iteration(db: Session) -> None:
    async def read() -> list[Snapshot]:
        return [snapshot async for snapshot in db.online_sql(REVENUE)]

    assert asyncio.run(read())[-1].is_exact


def test_a_target_is_met(db: Session) -> None:
    query = db.online_sql(REVENUE, target="20%")
    snapshot = list(query)[-1]
    assert snapshot.error <= 0.2
    assert query.state == "stopped"


def test_views_are_read_like_tables(tpch_warehouse: Path, tpch_oracle: Oracle) -> None:
    views = {
        "returned": "SELECT * FROM lineitem WHERE l_returnflag = 'R'",
        "Big_Returned": "SELECT l_orderkey, l_quantity FROM RETURNED WHERE l_quantity > 30",
    }
    with connect(tpch_warehouse, views=views, threads=2) as db:
        query = db.online_sql(
            "WITH b AS (FROM big_returned) SELECT count(*) AS n, sum(l_quantity) AS q FROM b"
        )
        expected = tpch_oracle.rows(
            "SELECT count(*), sum(l_quantity) FROM lineitem WHERE l_returnflag = 'R' AND l_quantity > 30"
        )
        assert query.sql.startswith("WITH b AS")
        answer = query.result()
        assert answer.mode == "mergeable"
        assert rows_of(answer.estimate) == expected
        with pytest.raises(relaqs.SqlError, match="defines 'returned'"):
            db.online_sql("WITH returned AS (SELECT 1 AS l_quantity) SELECT * FROM big_returned, returned")


@pytest.mark.parametrize(
    ("views", "complaint"),
    [
        ({"v": "SELECT * FROM nothing"}, "in the view 'v': there is no table nothing"),
        ({"v": "DROP TABLE lineitem"}, "in the view 'v': only SELECT"),
        ({"LINEITEM": "SELECT 1"}, "'LINEITEM' has the name of a table"),
        ({"a": "SELECT * FROM b", "b": "SELECT 1 AS x"}, "in the view 'a': there is no table b"),
    ],
)
def test_a_view_that_cannot_be_used(tpch_warehouse: Path, views: dict[str, str], complaint: str) -> None:
    with pytest.raises(relaqs.SqlError, match=complaint):
        connect(tpch_warehouse, views=views)


def test_plain_files_are_answered_as_they_lie(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = 20_000
    pq.write_table(
        pa.table({"zone": [i % 3 for i in range(rows)], "fare": range(rows)}), tmp_path / "trips.parquet"
    )
    answers = []
    for _ in range(2):
        cache = tmp_path / "cache"
        with connect(tables={"trips": tmp_path / "*.parquet"}, cache_directory=cache, threads=2) as db:
            assert list(db.tables) == ["trips"]
            answers.append(db.online_sql("SELECT avg(fare) AS fare FROM trips").result())
            assert answers[-1].warnings == ("run as a whole: trips is read whole, in place",)
    assert [answer.table["fare"][0].as_py() for answer in answers] == [(rows - 1) / 2] * 2
    assert capfd.readouterr().err == ""
    assert not cache.exists()


def test_plain_files_are_tables_by_their_own_names(tmp_path: Path) -> None:
    for name, value in (("Taxi trips.parquet", 1), ("zones.parquet", 2)):
        pq.write_table(pa.table({"n": [value] * 4}), tmp_path / name)
    with connect(tmp_path, cache_directory=tmp_path / "cache") as db:
        assert sorted(db.tables) == ["taxi_trips", "zones"]
    with connect(tmp_path / "zones.parquet", cache_directory=tmp_path / "cache") as db:
        assert db.online_sql("SELECT sum(n) AS n FROM zones").result().estimate["n"].to_pylist() == [8]
    (tmp_path / "zones.csv").write_text("n\n1\n")
    said = r"zones\.csv and .*zones\.parquet would both be table 'zones'"
    with connect(tmp_path, cache_directory=tmp_path / "cache") as db:
        assert list(db.tables) == ["taxi_trips"]
        with pytest.raises(relaqs.LayoutError, match=said):
            db.sql("SELECT sum(n) FROM zones")
    with pytest.raises(relaqs.LayoutError, match=said):
        connect([tmp_path / "zones.csv", tmp_path / "zones.parquet"], cache_directory=tmp_path / "cache")


def test_a_container_may_run_as_a_user_without_a_name(
    tpch_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("relaqs.jobs.executor.getuser", nameless)
    with connect(tpch_warehouse, threads=1) as db:
        query = db.online_sql("SELECT count(*) AS n FROM region")
        assert query.result().estimate["n"].to_pylist() == [5]


def test_one_line(tpch_warehouse: Path, tpch_oracle: Oracle) -> None:
    sql = "SELECT count(*) AS n FROM orders"
    answer = relaqs.online_sql(sql, data=tpch_warehouse, threads=1, seed=3).result()
    assert rows_of(answer.estimate) == tpch_oracle.rows(sql)


def test_closing_stops_queries_and_snapshots_live_on(tpch_warehouse: Path) -> None:
    with connect(tpch_warehouse, threads=1) as db:
        query = db.online_sql(REVENUE)
        snapshot = next(query)
    assert query.state in ("stopped", "exact")
    assert query.wait(0)
    assert len(snapshot) == 3
    with pytest.raises(relaqs.RelaqsError, match="session is closed"):
        db.online_sql(REVENUE)
    with pytest.raises(relaqs.RelaqsError, match="session is closed"):
        db.explain(REVENUE)
    db.close()
    assert repr(db).endswith(", supplier: closed>")


def test_a_query_that_starts_while_its_session_closes_is_stopped(
    tpch_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait for tasks that the closed executor has dropped."""
    with connect(tpch_warehouse, threads=1) as db:

        def closing(*arguments: Any, **named: Any) -> Any:
            db._running.close(0.0)  # what `close` does first, on another thread
            return query_job(*arguments, **named)

        monkeypatch.setattr(start, "query_job", closing)
        query = db.online_sql(REVENUE)
        assert query.wait(20)
        assert query.state == "stopped"


def test_a_session_nobody_refers_to_lets_its_threads_go(tpch_warehouse: Path) -> None:
    db = connect(tpch_warehouse, threads=1)
    [thread] = db._executor._threads  # type: ignore[attr-defined]
    query = db.online_sql(REVENUE)
    assert query.wait(10)
    gone = weakref.ref(db)
    del db, query
    gc.collect()
    assert gone() is None
    thread.join(10)
    assert not thread.is_alive()


def test_a_query_keeps_its_session_open(tpch_warehouse: Path) -> None:
    query = connect(tpch_warehouse, threads=1).online_sql(REVENUE)
    gc.collect()
    assert query.result().is_exact


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({}, relaqs.ArgumentError, "no tables"),
        ({"data": "."}, relaqs.LayoutError, "relaqs shuffle"),
        ({"data": "nowhere"}, relaqs.LayoutError, "nowhere"),
        ({"tables": {"t": "nothing-*.parquet"}}, relaqs.LayoutError, "nothing-"),
    ],
)
def test_data_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], error: type, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAQS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(error, match=complaint):
        connect(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"memory_limit": "a lot"}, "memory_limit is 'a lot'"),
        ({"memory_limit": "1MB"}, "at least 256 MiB"),
    ],
)
def test_arguments_of_connect(tpch_warehouse: Path, arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(relaqs.ArgumentError, match=complaint):
        connect(tpch_warehouse, **arguments)  # type: ignore[arg-type]


def test_importing_loads_nothing_heavy_and_embedded_use_never_loads_dask(tpch_warehouse: Path) -> None:
    program = f"""
import sys, relaqs
assert not {{"duckdb", "pyarrow", "numpy", "distributed", "rich", "sqlglot"}} & set(sys.modules)
assert relaqs.__version__ and "connect" in dir(relaqs)
with relaqs.connect({str(tpch_warehouse)!r}) as db:
    assert db.online_sql("SELECT count(*) AS n FROM lineitem").result().is_exact
assert not {{"distributed", "dask", "scipy.stats"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_name_that_is_promised_is_there() -> None:
    assert all(getattr(relaqs, name) is not None for name in relaqs.__all__)
    with pytest.raises(AttributeError, match="no attribute 'stop'"):
        relaqs.stop  # noqa: B018


def test_the_scheduler_follows_error_and_progress_of_the_watched_columns(
    db: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[StepReport] = []
    monkeypatch.setattr(ThreadExecutor, "report", lambda self, job_id, report: reports.append(report))
    db.online_sql(REVENUE, watch="quantity", batches=8).result()
    assert [report.progress for report in reports[:2]] == [1.0, 1.0]
    assert all(0 < report.progress <= 1 for report in reports[2:-1])
    assert math.isnan(reports[-1].progress)  # the end is no estimate
    assert all(report.quality < math.inf for report in reports)
    assert [report.work_done for report in reports] == sorted(report.work_done for report in reports)
    assert len(reports) == 8


@pytest.mark.parametrize(
    ("mode", "sql"),
    [
        (
            "refined",
            "SELECT sum(l_tax) AS s FROM lineitem WHERE l_quantity > (SELECT avg(l_quantity) FROM lineitem)",
        ),
        (
            "mergeable",
            "SELECT l_returnflag, sum(l_tax) / sum(sum(l_tax)) OVER () AS share FROM lineitem "
            "GROUP BY l_returnflag",
        ),
    ],
)
def test_the_scheduler_follows_the_progress_of_queries_with_stages_and_parts(
    db: Session, monkeypatch: pytest.MonkeyPatch, mode: str, sql: str
) -> None:
    reports: list[StepReport] = []
    monkeypatch.setattr(ThreadExecutor, "report", lambda self, job_id, report: reports.append(report))
    assert db.online_sql(sql, batches=8).result().mode == mode
    moves = [report.progress for report in reports if not math.isnan(report.progress)]
    assert len(moves) >= 6
    assert moves[0] == 1.0
    assert all(0 < move <= 1 for move in moves)
    assert math.isnan(reports[-1].progress)


@pytest.mark.parametrize("policy", ["relaqs", "max_sum", "fair", Fifo(minimum_share=0.2)])
def test_any_policy_shares_the_cores_and_changes_no_answer(
    tpch_warehouse: Path, tpch_oracle: Oracle, policy: str | Fifo
) -> None:
    with connect(tpch_warehouse, threads=2, policy=policy) as session:
        queries = [session.online_sql(REVENUE, priority=1.0 + i) for i in range(3)]
        status = session.status()
        assert status.capacity_cores == 2
        assert {job.name for job in status.jobs} <= {" ".join(REVENUE.split())}
        answers = [query.result().estimate["revenue"].to_pylist() for query in queries]
    expected = tpch_oracle.table(REVENUE)["revenue"].to_pylist()
    assert answers == [expected] * 3


def test_an_unknown_policy_is_refused(tpch_warehouse: Path) -> None:
    with pytest.raises(PolicyError, match="there is no policy 'fare'; did you mean 'fair'"):
        connect(tpch_warehouse, policy="fare")
    with pytest.raises(PolicyError, match="policy is 7"):
        connect(tpch_warehouse, policy=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM lineitem",
        "SELECT a.*, b.* FROM lineitem a, lineitem b ORDER BY 1, 2, 3, 4",
        "SELECT l_orderkey, l_linenumber, sum(l_tax), avg(l_tax) FROM lineitem GROUP BY ALL",
    ],
)
def test_an_answer_beyond_its_limit_is_an_error_and_not_a_full_memory(tpch_warehouse: Path, sql: str) -> None:
    with (
        connect(tpch_warehouse, threads=2, result_limit="2MB") as session,
        pytest.raises(relaqs.DataError, match="the most allowed here"),
    ):
        session.online_sql(sql).result()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT l_tux FROM lineitem",
        "SELECT\n  l_tax,\n  l_tux FROM lineitem",
        "SELECT l_tax FROM lineitem WHERE " + "l_tax = 4 AND " * 20 + "l_tux = 5" + " AND l_tax = 7 " * 20,
        "SELECT l_tax FROM lineitem\nWHERE " + "l_tax < 4 AND " * 20 + "l_tux = 5" + " AND l_tax = 7 " * 20,
    ],
    ids=["first line", "later line", "far in a long line", "far in a long later line"],
)
def test_an_unknown_column_is_pointed_at(db: Session, sql: str) -> None:
    with pytest.raises(relaqs.SqlError) as caught:
        db.plan(sql)
    assert caught.value.position is not None
    line, column = caught.value.position
    assert sql.split("\n")[line - 1][column - 1 :].startswith("l_tux")
