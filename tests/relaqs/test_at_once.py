"""Small tables answered at once: where that was allowed, and nothing asks for steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from relaqs_engine.errors import OverdueError, WholeIsSoonerError
from relaqs_engine.execution import state
from relaqs_engine.plans.plan import WholePlan

import relaqs
from relaqs.cli import program
from relaqs.queries import jobs, start
from tests.relaqs.sessions import every_snapshot

ROWS = 40_000
SQL = "SELECT zone, avg(fare) AS mean, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"
# One core reads 40,000 rows of 20 bytes and their values in 0.001 s.
SMALL = 0.3


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    rows = f"SELECT i % 5 AS zone, i * 7919 % 1000 AS fare FROM range({ROWS}) AS t(i)"
    relaqs.shuffle(duckdb.sql(rows), folder / "trips", partitions=20)
    return folder


@pytest.fixture
def session(warehouse: Path) -> Iterator[relaqs.Session]:
    with relaqs.connect(warehouse, threads=1, exact_below_seconds=SMALL) as opened:
        yield opened


def steps(session: relaqs.Session, sql: str = SQL, **options: Any) -> int:
    """Return how many mini-batches a query has."""
    with session.online_sql(sql, **options) as query:
        return next(query).batches


def test_by_default_a_small_layout_has_estimates(warehouse: Path) -> None:
    with relaqs.connect(warehouse, threads=1) as session:
        assert steps(session) > 5
        assert session.explain(SQL).startswith("mode: mergeable")


def test_a_sample_that_soon_reaches_the_target_is_taken_before_the_whole(
    session: relaqs.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = session.plan(SQL)
    assert session.at_once(plan, SMALL, target=0.05).mode == "exact"  # an estimate takes longer than all rows
    monkeypatch.setattr(start, "whole_core_seconds", lambda *_: 0.2)
    assert session.at_once(plan, SMALL).mode == "exact"
    assert session.at_once(plan, SMALL, target=0.05) is plan
    assert session.at_once(plan, SMALL, target=0.005).mode == "exact"


KINDS = {
    "merged": SQL,
    "rows": "SELECT zone, fare FROM trips WHERE fare > 990 ORDER BY ALL",
    "around": "SELECT zone, n, rank() OVER (ORDER BY n, zone) AS place FROM "
    "(SELECT zone, count(*) AS n FROM trips GROUP BY zone) ORDER BY ALL",
    "refined": "SELECT count(*) AS n FROM trips WHERE fare > (SELECT avg(fare) FROM trips)",
}


@pytest.fixture
def no_table_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rules for tables that are read soon hold for the smallest, too."""
    monkeypatch.setattr(state, "LEAST_SECONDS", 0.0)


@pytest.mark.usefixtures("no_table_is_too_small")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_there_soon_is_estimated_once_and_then_run_as_a_whole(warehouse: Path, kind: str) -> None:
    sql = KINDS[kind]
    with relaqs.connect(warehouse, threads=8) as session:
        assert session.plan(sql).mode != "exact"
        first, last = (query := session.online_sql(sql))
        assert (first.is_exact, last.is_exact, query.plan.mode) == (False, True, "exact")
        assert (first.batch, first.batches, last.batch, last.batches) == (1, 2, 2, 2)
        assert "more estimates would not be there much sooner" in last.warnings[0]
        whole = session.online_sql(sql, batches=3).result()
        assert last.estimate.select(whole.estimate.column_names) == whole.estimate


@pytest.mark.usefixtures("no_table_is_too_small")
@pytest.mark.parametrize(("kind", "ends_soon"), [("merged", True), ("around", True), ("refined", False)])
def test_of_those_that_take_longer_only_what_reads_its_table_once_does(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ends_soon: bool
) -> None:
    monkeypatch.setattr(start, "SOON_SECONDS", 0.0)
    with relaqs.connect(warehouse, threads=1) as session:
        assert (steps(session, KINDS[kind]) == 2) == ends_soon


def test_what_is_there_before_an_estimate_would_pay_runs_as_a_whole(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "SMALL_SECONDS", 0.0)
    with relaqs.connect(warehouse, threads=1) as session:
        answer = next(session.online_sql(SQL))
        assert (answer.is_exact, answer.batches) == (True, 1)
        assert "queries of less than 0.1 s run at once" in answer.warnings[0]
        assert session.explain(SQL).startswith("mode: exact")
        assert steps(session, target=1e-9) > 5
        assert steps(session, target=1e-200) > 5  # of which the square is 0
        monkeypatch.setattr(start, "WORTH_SECONDS", 0.0008)  # it takes longer
        assert steps(session) > 1


@pytest.mark.usefixtures("no_table_is_too_small")
@pytest.mark.parametrize(
    "options", [{"target": 1e-9}, {"timeout": 1e3}, {"batches": 7}, {"fallback": "error"}]
)
def test_what_is_asked_for_its_estimates_has_all_of_them(warehouse: Path, options: dict[str, Any]) -> None:
    with relaqs.connect(warehouse, threads=1) as session:
        assert steps(session, **options) > 5
    with relaqs.connect(warehouse, threads=1, exact_below_seconds=0) as session:
        assert steps(session) > 5


@pytest.mark.usefixtures("no_table_is_too_small")
def test_where_nothing_is_certified_it_runs_as_a_whole(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of four rows has no certified mean. One of 8,000 rows has one."""
    monkeypatch.setattr(state, "SOON_SECONDS", 0.0)
    monkeypatch.setattr(state, "MOST_SECONDS", 0.0)
    with relaqs.connect(warehouse, threads=1) as session:
        sql = "SELECT fare, zone, avg(zone + fare) AS mean FROM trips GROUP BY ALL ORDER BY ALL DESC LIMIT 3"
        *so_far, last = (query := session.online_sql(sql))
        assert 0.1 <= so_far[-1].fraction <= 0.15
        assert (last.is_exact, query.plan.mode) == (True, "exact")
        assert last.warnings[0].startswith("run as a whole: no number was certified after 1")
        assert steps(session) > 5
        assert session.online_sql(SQL).result().mode == "mergeable"


@pytest.mark.usefixtures("no_table_is_too_small")
@pytest.mark.parametrize(
    ("asked", "given", "estimates"),
    [
        ("sum(fare) AS total, count(*) AS n FROM trips WHERE fare < -1e6", {}, 1),
        ("sum(fare) AS total FROM trips WHERE fare < -1e6", {"target": 0.2}, 1),
        ("sum(fare) AS total FROM trips WHERE fare < -1e6", {"target": 0.3}, 2),
        ("sum(fare) AS total FROM trips WHERE fare < -1e6 OR zone < 2", {}, None),
        ("sum(fare) AS total FROM trips HAVING count(*) < 0", {}, None),
        ("avg(fare) AS mean FROM trips WHERE fare < -1e6", {}, None),
    ],
)
def test_totals_of_which_no_row_counts_run_as_a_whole_after_few_estimates(
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    given: dict[str, float],
    estimates: int | None,
) -> None:
    """A twentieth of the rows has none that counts: 60 of all may. That is too few for 20 %, not for 30 %."""
    monkeypatch.setattr(state, "SOON_SECONDS", 0.0)
    monkeypatch.setattr(state, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(state, "HOPELESS_FROM", 1.0)
    with relaqs.connect(warehouse, threads=1) as session:
        *so_far, last = every_snapshot(lambda: session.online_sql(f"SELECT {asked}", **given))
        assert last.is_exact
        assert len(so_far) == estimates if estimates else len(so_far) > 2
        said = any("no row met its conditions among the first" in each for each in last.warnings)
        assert said == (estimates is not None)


@pytest.mark.usefixtures("no_table_is_too_small")
@pytest.mark.parametrize(("groups", "partitions"), [(1, 1), (5, 2), (40, 8)])
def test_the_first_mini_batch_has_the_rows_that_the_query_is_predicted_to_need(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, groups: int, partitions: int
) -> None:
    """Of 1, 5 and 100 predicted groups it is half of 3,073 / (3,073 + rows a group) of twenty partitions.

    That is 0.7, 2.8 and 8.8 of them: 40 groups of an expression are predicted to be 100.
    """
    monkeypatch.setattr(state, "SMALL_SECONDS", 0.0)
    monkeypatch.setattr(state, "FIRST_SECONDS", 1.0)
    monkeypatch.setattr(state, "BLOCK_SHARE", 1.0)
    monkeypatch.setattr(state, "BATCH_SHARE", 1.0)
    with relaqs.connect(warehouse, threads=1) as session:
        key = {1: "1", 5: "zone", 40: "fare % 40"}[groups]
        plan = session.plan(f"SELECT {key} AS k, avg(fare) AS mean FROM trips GROUP BY k")
        _, (first, *_) = state.own_schedule(plan, session._catalog, 0)  # who reads late sees a later snapshot
    assert len(first.partitions) == partitions


def test_a_layout_of_the_cache_makes_no_short_question_slower(tmp_path: Path) -> None:
    rows = f"SELECT i % 5 AS zone, i * 7919 % 1000 AS fare FROM range({ROWS}) AS t(i)"
    duckdb.sql(rows).write_parquet(str(tmp_path / "trips.parquet"))
    files, cache = tmp_path / "trips.parquet", tmp_path / "cache"
    for below, answers_at_once in ((None, True), (0, False)):
        with relaqs.connect(files, cache_directory=cache, exact_below_seconds=below) as session:
            session.lay_out("trips")
            assert (steps(session) == 1) == answers_at_once
            assert steps(session, batches=4) == 4


def test_a_small_table_is_answered_at_once_with_the_same_columns(
    session: relaqs.Session, warehouse: Path
) -> None:
    answer = next(session.online_sql(SQL))
    assert (answer.is_exact, answer.mode, answer.batches) == (True, "exact", 1)
    assert "queries of less than 0.3 s run at once" in answer.warnings[0]
    with relaqs.connect(warehouse, threads=1) as estimating:
        assert answer.table.equals(estimating.online_sql(SQL).result().table)
    assert session.explain(SQL).startswith("mode: exact")


@pytest.mark.parametrize(
    "asked",
    [
        {"target": "1%"},
        {"batches": 3},
        {"timeout": 60.0},
        {"watch": "mean"},
        {"chart_pixels": 400},
        {"interval": "anytime"},
        {"confidence_for": "table"},
        {"fallback": "error"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_who_asks_for_steps_has_them(session: relaqs.Session, asked: dict[str, Any]) -> None:
    assert steps(session, **asked) > 1


def test_each_asking_has_its_own_columns_and_error_bars(session: relaqs.Session) -> None:
    for intervals in (False, True, False):
        plan = session.plan(SQL, intervals=intervals)
        query = session.submit(SQL, relaqs.QueryOptions(), intervals=intervals)
        assert isinstance(query.plan, WholePlan)
        assert query.plan.if_overdue is plan
        assert query.plan.outputs == plan.outputs


def test_one_that_was_seen_may_take_twice_as_long_at_least(warehouse: Path) -> None:
    """What was estimated already is not begun anew so soon: half of it would be done twice."""
    with relaqs.connect(warehouse, threads=1, exact_below_seconds=0) as session:
        way = session.online_sql(SQL)._publisher._fallback
        assert way is not None
        longest = []
        for has_answered, seconds in product((False, True), (0.1, 9.0)):
            resort = way.after(WholeIsSoonerError("it is", seconds), has_answered=has_answered)
            assert resort is not None
            step = resort.job.next_step()
            assert step is not None
            (task,) = step.tasks
            longest.append(task.work.longest_seconds)
    assert longest == [0.5, 18.0, 1.0, 18.0]


def test_each_way_that_a_query_goes_has_a_job_of_its_own(warehouse: Path) -> None:
    with relaqs.connect(warehouse, threads=1, exact_below_seconds=0) as session:
        query = session.online_sql(SQL)
        assert query.result().is_exact
        way, ids = query._publisher._fallback, [query._publisher._job.id]
        for error in (sooner := WholeIsSoonerError("it is", 1.0), OverdueError(1.0), sooner):
            assert way is not None
            resort = way.after(error, has_answered=True)
            assert resort is not None
            ids.append(resort.job.id)
            way = resort.fallback
    assert len(set(ids)) == 4


def test_what_takes_longer_is_estimated(warehouse: Path) -> None:
    # 40,000 rows count as 20 bytes each, at a billion bytes a second: at least 0.0008 s.
    with relaqs.connect(warehouse, threads=1, exact_below_seconds=0.0008) as session:
        assert steps(session) > 5


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT zone FROM trips WHERE fare > (SELECT avg(fare) FROM trips) GROUP BY zone",
        "SELECT zone, sum(fare) / sum(sum(fare)) OVER () AS share FROM trips GROUP BY zone",
        "SELECT fare FROM trips WHERE fare > 998 LIMIT 3",
    ],
    ids=["refined", "around", "rows"],
)
def test_every_kind_of_query(session: relaqs.Session, sql: str) -> None:
    assert steps(session, sql) == 1


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), "soon"])
def test_a_time_that_is_none_is_refused(warehouse: Path, seconds: Any) -> None:
    with pytest.raises(relaqs.ArgumentError, match=r"exact_below_seconds is .*; it must be a number of sec"):
        relaqs.connect(warehouse, exact_below_seconds=seconds)


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(program, ["sql", SQL, *map(str, arguments)])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_program_estimates_where_estimates_are_printed(warehouse: Path) -> None:
    lines = run("--data", warehouse, "--format", "jsonl").splitlines()
    assert json.loads(lines[-1])["mode"] == "mergeable"
    assert json.loads(lines[0])["mode"] == "mergeable"
    assert run("--data", warehouse).startswith("Exact · ")  # of so short a run nothing more is said
    assert run("--data", warehouse, "--every").count("Estimate") > 1


SLOW = (
    "list_sum(list_transform(range(60), lambda i: (i * fare) % 7))"  # 2 µs a row, and read as if it took none
)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overdue")
    rows = "SELECT i % 5 AS zone, i * 7919 % 1000 AS fare FROM range(400_000) AS t(i)"
    relaqs.shuffle(duckdb.sql(rows), folder / "trips", partitions=100)
    return folder


OVERDUE = {
    "merged": f"SELECT zone, sum({SLOW}) AS total FROM trips GROUP BY zone ORDER BY zone",
    "around": f"SELECT zone, total, rank() OVER (ORDER BY total) AS place FROM (SELECT zone, sum({SLOW}) "
    "AS total FROM trips GROUP BY zone) ORDER BY zone",
    "rows": f"SELECT fare FROM trips WHERE {SLOW} % 100 = 3 ORDER BY ALL",
}


@pytest.mark.parametrize("kind", OVERDUE)
def test_a_query_that_takes_longer_than_predicted_gives_estimates_after_all(
    wide: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(jobs, "LEAST_OVERDUE_SECONDS", 0.05)
    sql = OVERDUE[kind]
    with relaqs.connect(wide, threads=1, exact_below_seconds=SMALL) as session:
        assert session.explain(sql).startswith("mode: exact")
        *so_far, last = (query := session.online_sql(sql))
        alone = session.sql(sql)
    assert len(so_far) > 2
    assert not any(each.is_exact for each in so_far)
    assert (last.is_exact, query.plan.mode != "exact") == (True, True)
    assert (alone.batches, alone.mode) == (1, "exact")  # nobody would have seen estimates
    with relaqs.connect(wide, threads=1, exact_below_seconds=0) as estimating:
        usual = {each.fraction: each.table for each in estimating.online_sql(sql)}
    common = [each for each in so_far if each.fraction in usual]  # who looks late misses some
    assert common
    assert all(each.table.equals(usual[each.fraction]) for each in common)
    plain = duckdb.sql(sql.replace("FROM trips", f"FROM '{wide}/trips/*/*.parquet'")).fetchall()
    assert [tuple(row.values()) for row in last.estimate.to_pylist()] == plain


@pytest.mark.usefixtures("no_table_is_too_small")
def test_so_does_one_that_went_over_to_the_whole_and_its_answers_never_go_back(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LEAST_OVERDUE_SECONDS", 0.05)
    sql = f"SELECT zone, count(*) AS n FROM trips WHERE {SLOW} % 2 = 0 GROUP BY zone ORDER BY zone"
    with relaqs.connect(wide, threads=1) as session:
        *so_far, last = (query := session.online_sql(sql))
        assert len(so_far) > 2
        fractions = [each.fraction for each in (*so_far, last)]
        assert fractions == sorted(set(fractions))
        batches = [each.batch for each in (*so_far, last)]
        assert batches == sorted(set(batches))
        assert (last.batch, last.is_exact, query.plan.mode) == (last.batches, True, "mergeable")
        assert last.estimate == session.online_sql(sql, batches=3).result().estimate
