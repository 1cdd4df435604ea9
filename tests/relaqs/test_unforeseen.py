"""Errors that nobody foresaw: each ends one query at most, by an error of ours, and the session goes on."""

from __future__ import annotations

import pickle
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from distributed import LocalCluster
from relaqs_engine.duck import Database, translated_errors
from relaqs_engine.errors import LONGEST_SAID, named, shortened
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.state import GroupState
from relaqs_engine.planning import sampled_plan
from relaqs_engine.sql.binder import Binder

import relaqs
from relaqs.executors.duck_process import Runtime
from relaqs.jobs import runner
from relaqs.queries.online_query import Publisher
from relaqs.queries.tables import BackgroundLayouts
from tests.few_and_many import few_and_many
from tests.relaqs.injected import Injector, Place, drawn, in_time, injecting
from tests.relaqs.sessions import threads_of
from tests.rows import rows_of

QUESTIONS = (
    "SELECT g, sum(v) AS s, count(*) AS n, avg(v) AS mean FROM t GROUP BY g ORDER BY g",
    "SELECT i, v FROM t WHERE v > 99.8 ORDER BY i",
    "SELECT name, sum(v) AS s FROM t JOIN names USING (g) GROUP BY name ORDER BY name",
    "SELECT g, s, rank() OVER (ORDER BY s) AS r FROM (SELECT g, sum(v) AS s FROM t GROUP BY g) ORDER BY g",
    "SELECT count(*) AS n FROM t WHERE v > (SELECT avg(v) FROM t)",
    "SELECT i, row_number() OVER (ORDER BY i) AS place FROM t ORDER BY i LIMIT 5",
    "SELECT median(v) AS m, count(DISTINCT s) AS d FROM t",
)
AGGREGATION = QUESTIONS[0]
ROWS = 20_000
ON_DASK = ("relaqs/executors/dask", "relaqs/scheduling", "relaqs/policies", "relaqs/sharing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table as a file and laid out, and a small one."""
    folder = tmp_path_factory.mktemp("unforeseen")
    columns = "i, (i * 7919 % 1000) / 10.0 AS v, i % 7 AS g, 'k' || (i % 50) AS s"
    numbers = f"SELECT {columns} FROM range({ROWS}) AS t(i)"
    duckdb.sql(f"COPY ({numbers}) TO '{folder}/t.parquet' (ROW_GROUP_SIZE 2048)")
    duckdb.sql(f"COPY (SELECT i AS g, 'n' || i AS name FROM range(7) AS t(i)) TO '{folder}/names.parquet'")
    relaqs.shuffle(folder / "t.parquet", folder / "laid" / "t", partitions=8)
    relaqs.add_static(folder / "names.parquet", folder / "laid" / "names")
    return folder


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAQS_STRICT", raising=False)


@contextmanager
def opened(folder: Path, kind: str = "laid", **options: Any) -> Iterator[relaqs.Session]:
    plain = {name: folder / f"{name}.parquet" for name in ("t", "names")}
    source: dict[str, Any] = {"data": folder / "laid"} if kind == "laid" else {"tables": plain}
    options = {"cache_directory": folder / "cache", "background_layouts": False, **options}
    if "cluster" not in options:
        options["threads"] = 2
    with relaqs.connect(**source, **options) as db:
        yield db


def true_rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as plain:
        for name in ("t", "names"):
            plain.execute(f"CREATE VIEW {name} AS FROM '{folder}/{name}.parquet'")
        return plain.sql(sql).fetchall()


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*args: object, **named: object) -> Any:
        raise error

    return fail


def check_goes_on(db: relaqs.Session) -> None:
    count = in_time(lambda: rows_of(db.online_sql("SELECT count(*) AS n FROM t").result().estimate))
    assert count == [(ROWS,)]


def alike(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Return whether rows are equal, sums but for the order in which they were added up."""
    return len(found) == len(expected) and all(
        one == other if not isinstance(other, float) else float(one) == pytest.approx(other, rel=1e-6)
        for row, true in zip(found, expected, strict=True)
        for one, other in zip(row, true, strict=True)
    )


def calls_of_each(injector: Injector, folder: Path, **connection: Any) -> list[Counter[Place]]:
    """Return which functions each of the questions calls when it is asked again, and much is known."""
    called = []
    for sql in (*QUESTIONS, *QUESTIONS):
        with opened(folder, **connection) as db:
            injector.called = Counter()
            assert in_time(lambda db=db, sql=sql: db.online_sql(sql).result(), 30.0).is_exact
            called.append(injector.called)
    return called[len(QUESTIONS) :]


def check_injections(
    injector: Injector, called: list[Counter[Place]], folder: Path, count: int, **connection: Any
) -> None:
    """Raise so many errors, one a query."""
    ends: Counter[str] = Counter()
    for question, place, calls_before, error in drawn(called, count, seed=count):
        sql, where = QUESTIONS[question], f"{error!r} at {place}"
        with opened(folder, **connection) as db:
            injector.arm(place, calls_before, error)
            try:
                answer = in_time(lambda db=db, sql=sql: db.online_sql(sql).result())
                assert alike(rows_of(answer.estimate), true_rows(folder, sql)), where
            except relaqs.RelaqsError as told:
                ends["too long"] += len(str(told)) > LONGEST_SAID
            except Exception as raw:
                raise AssertionError(f"{where} came out as it is") from raw
            injector.disarm()
            ends["raised"] += injector.has_raised
            check_goes_on(db)
    assert not ends["too long"]
    assert ends["raised"] > count / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised while one is closed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # or while a job ends
@few_and_many("count", 12, 150)
@pytest.mark.parametrize("kind", ["laid", "plain"])
def test_whatever_is_raised_wherever_ends_one_query_at_most(folder: Path, kind: str, count: int) -> None:
    before = threads_of("relaqs-")  # of sessions that other tests left open
    with injecting() as injector:
        check_injections(injector, calls_of_each(injector, folder, kind=kind), folder, count, kind=kind)
    assert in_time(lambda: no_thread_is_left(before))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@few_and_many("count", 10, 100)
def test_whatever_is_raised_on_a_cluster_ends_one_query_at_most(folder: Path, count: int) -> None:
    with (
        injecting() as injector,
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
    ):
        place = {"cluster": cluster.scheduler_address}
        called = calls_of_each(injector, folder, **place)
        for each in called:  # the cluster's own parts are tried by killing them
            for function in [function for function in each if function[0].startswith(ON_DASK)]:
                del each[function]
        check_injections(injector, called, folder, count, **place)


def no_thread_is_left(before: set[threading.Thread]) -> bool:
    while threads_of("relaqs-") - before:
        time.sleep(0.02)
    return True


def test_a_query_without_a_thread_of_its_own_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder) as db:
        with monkeypatch.context() as system:
            system.setattr(runner, "run_in_background", raises(RuntimeError("can't start new thread")))
            with pytest.raises(relaqs.RelaqsError, match="can't start new thread"):
                db.online_sql(AGGREGATION)
        assert not runner.is_any_running()
        assert db.status().jobs == ()
        check_goes_on(db)


def test_where_planning_fails_the_query_runs_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled_plan, "_completed", raises(KeyError("k2")))
    with opened(folder) as db:
        answer = db.online_sql(AGGREGATION).result()
        assert alike(rows_of(answer.estimate), true_rows(folder, AGGREGATION))
        [warning] = answer.warnings
        assert "could not be planned, by a fault that should be reported: KeyError: 'k2' (in" in warning
        with pytest.raises(relaqs.UnsupportedError, match="KeyError: 'k2'"):
            db.online_sql(AGGREGATION, fallback="error")
        monkeypatch.setenv("RELAQS_STRICT", "1")
    with opened(folder) as db:
        with pytest.raises(relaqs.InternalError, match="planning failed by a fault in ReLAQS") as failed:
            db.online_sql(AGGREGATION + "  -- " + "long " * 1000)
        assert isinstance(failed.value.__cause__, KeyError)
        assert failed.value.sql.startswith("SELECT g, sum(v) AS s")
        assert len(failed.value.sql) <= 300


@pytest.mark.parametrize(
    ("part", "name"),
    [(GroupState, "fold"), (Estimator, "estimate"), (Estimator, "exact"), (Publisher, "_course")],
)
def test_where_estimating_fails_the_query_goes_on_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, part: type, name: str
) -> None:
    with opened(folder) as db:
        right = getattr(part, name)
        calls = iter(range(100))

        def fail_once(*args: Any) -> Any:
            if next(calls) == (0 if name == "exact" else 1):
                raise IndexError("out of bounds")
            return right(*args)

        monkeypatch.setattr(part, name, fail_once)
        answer = db.online_sql(AGGREGATION, batches=4).result()
        assert alike(rows_of(answer.estimate), true_rows(folder, AGGREGATION))
        assert any("IndexError: out of bounds" in each for each in answer.warnings)
        check_goes_on(db)


@pytest.mark.parametrize("fallback", ["exact", "error"])
def test_where_both_ways_fail_the_error_says_what_where_and_of_which_query(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fallback: Any
) -> None:
    monkeypatch.setattr(Publisher, "_course", raises(AssertionError("no course")))
    with opened(folder) as db:
        query = db.online_sql(AGGREGATION, fallback=fallback)
        with pytest.raises(relaqs.InternalError) as failed:
            query.result()
        assert query.state == "failed"
        assert "AssertionError: no course" in str(failed.value)
        assert "SELECT g, sum(v) AS s" in str(failed.value)
        monkeypatch.undo()
        check_goes_on(db)


def test_a_fault_of_duckdb_costs_its_database_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB refuses all that is asked of a database in which it met a fault."""
    broken = duckdb.FatalException(
        "FATAL Error: database has been invalidated because of a previous fatal error"
    )
    with opened(folder) as db:
        check_goes_on(db)
        for module, name in ((Runtime, "_query"), (Binder, "describe"), (Database, "cursor")):
            right, calls = getattr(module, name), iter(range(1000))

            def fail(*args: Any, right: Any = right, calls: Any = calls) -> Any:
                with translated_errors(""):
                    if next(calls) == 0:
                        raise broken
                return right(*args)

            with monkeypatch.context() as patched:
                patched.setattr(module, name, fail)
                with suppress(relaqs.BrokenDatabaseError):
                    in_time(lambda: db.online_sql(AGGREGATION + f" -- {name}").result())  # noqa: B023
            check_goes_on(db)


def test_a_layout_behind_the_questions_that_fails_ends_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("relaqs.queries.tables.lay_out", raises(KeyError("column")))
    monkeypatch.setattr(BackgroundLayouts, "_is_large", lambda self, table: True)
    monkeypatch.setattr("relaqs.queries.tables.announce", said.append)
    with opened(folder, "plain", background_layouts=True) as db:
        for _ in range(3):
            check_goes_on(db)
        assert in_time(lambda: db._open_tables.wait(10))
    assert any("t was not laid out" in each and "KeyError: 'column'" in each for each in said)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (MemoryError(), relaqs.MemoryLimitError, "no memory left"),
        (OSError(28, "No space left on device"), relaqs.DataError, "no room on the disk"),
        (PermissionError(13, "denied", "/t"), relaqs.DataError, "refused an operation on a file: .*denied"),
        (pa.ArrowInvalid("wrong"), relaqs.DataError, "Arrow does not take these data: ArrowInvalid: wrong"),
        (StopIteration(), relaqs.InternalError, "planning failed by a fault in ReLAQS: StopIteration"),
    ],
)
def test_errors_of_the_machine_have_names(error: Exception, kind: type, said: str) -> None:
    told = named(error, "planning", "SELECT 1")
    assert type(told) is kind
    assert re.search(said, str(told))
    assert told.__cause__ is error
    again = pickle.loads(pickle.dumps(told))
    assert (type(again), str(again)) == (kind, str(told))


def test_no_error_is_longer_than_a_page(folder: Path) -> None:
    sql = "SELECT CAST(string_agg(s, '') AS INTEGER) AS n FROM t"
    with opened(folder) as db:
        for ask in (lambda: db.online_sql(sql).result(), lambda: db.plan("SELECT " + "x" * 9000 + " FROM t")):
            with pytest.raises(relaqs.RelaqsError) as failed:
                ask()
            error: BaseException | None = failed.value
            while error is not None:
                assert len(str(error)) <= LONGEST_SAID + 100
                assert all(len(str(each)) <= LONGEST_SAID + 100 for each in error.args)
                error = error.__cause__


def test_a_shortened_text_keeps_its_end() -> None:
    for most in (60, 500, LONGEST_SAID):
        for length in (0, most - 1, most, most + 1, 10 * most, 300_000):
            text = "b" * length + "end"
            short = shortened(text, most)
            assert len(short) <= most
            assert short.endswith("end")
