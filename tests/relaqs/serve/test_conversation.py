"""What a connection may say: settings, transactions, several statements, cancelling, leaving."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from relaqs_engine.layouts.manifest import SOON_SECONDS
from relaqs_engine.postgres import wording

import relaqs
from benchmarks.server_process import Running, serving
from relaqs.queries import start
from relaqs.serve import answering, statements
from relaqs.serve.entry import Door
from relaqs.serve.health import Health
from relaqs.serve.server import Conversations, Server

LONG = "SELECT count(*) FROM trips AS a, trips AS b WHERE a.fare * b.distance + a.id < b.id"
TOTAL = "SELECT sum(fare) AS total FROM trips WHERE shared"


@pytest.fixture
def connection(server: Running) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.address()) as connection:
        yield connection


def value(connection: psycopg.Connection[Any], sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    return None if row is None else row[0]


@contextmanager
def heard(connection: psycopg.Connection[Any]) -> Iterator[list[str]]:
    """Give the list of notices that come meanwhile."""
    said: list[str] = []
    connection.add_notice_handler(listener := lambda notice: said.append(notice.message_primary or ""))
    yield said
    connection.remove_notice_handler(listener)


def test_nothing_approximate_comes_without_a_setting(connection: psycopg.Connection[Any]) -> None:
    with heard(connection) as said:
        exact = value(connection, TOTAL)
        connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '20%'")
        assert value(connection, TOTAL) != exact
        assert len(said) == 1
        connection.execute("RESET relaqs.target")
        assert value(connection, TOTAL) == exact
        connection.execute("SET relaqs.intervals = on")
        assert value(connection, TOTAL) == exact
    assert len(said) == 1


def test_settings_go_back_with_the_transaction(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        shown = lambda: value(connection, "SHOW relaqs.target")  # noqa: E731
        connection.execute("BEGIN")
        connection.execute("SET relaqs.target = '5%'")
        connection.execute("ROLLBACK")
        assert shown() == "off"
        connection.execute("BEGIN; SET LOCAL relaqs.target = '5%'")
        assert shown() == "5%"
        connection.execute("COMMIT")
        assert shown() == "off"
        connection.execute("BEGIN; SET relaqs.target = '5%'; COMMIT")
        assert shown() == "5%"
        connection.execute("RESET ALL")
        assert shown() == "off"


def test_a_setting_may_come_with_the_connection(server: Running) -> None:
    with psycopg.connect(
        f"{server.address()} options='-crelaqs.target=7% -c statement_timeout=9s'"
    ) as connection:
        assert value(connection, "SHOW relaqs.target") == "7%"
        connection.execute("SET relaqs.target = off")
        connection.execute("RESET relaqs.target")
        assert value(connection, "SHOW relaqs.target") == "7%"
        assert value(connection, "SHOW statement_timeout") == "9000"
    with pytest.raises(psycopg.OperationalError, match=r"relaqs\.target is '-7%'"):
        psycopg.connect(f"{server.address()} options='-crelaqs.target=-7%'")


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("SET relaqs.targt = '5%'", "42704", "did you mean relaqs.target"),
        ("SET relaqs.target = 'five'", "22023", "such as 5% or 0.05, or off"),
        ("SET relaqs.within = '-1s'", "22023", "a time above 0"),
        ("SET relaqs.intervals = maybe", "22023", "on or off"),
        ("SET relaqs.confidence = '20%'", "22023", "between 50% and 100%"),
        ("SET relaqs.confidence_for = 'all'", "22023", "it must be cell or table"),
        ("SET client_encoding = 'LATIN1'", "22023", "this server has UTF8"),
        ("SET server_version = '99'", "55P02", "cannot be changed"),
        ("INSERT INTO trips VALUES (1)", "25006", "only reads"),
        ("DROP TABLE trips", "25006", "only reads"),
        ("CREATE LOCAL TEMPORARY TABLE few (x INTEGER)", "25006", "name a SELECT by WITH"),
        ("COPY trips FROM STDIN", "0A000", "none come in"),
        ("DECLARE c CURSOR FOR SELECT 1", "25P01", "a cursor needs a transaction"),
        ("SELECT nope FROM trips", "42703", "nope"),
        ("SELECT * FROM nope", "42P01", 'relation "nope" does not exist'),
        ("SELECT * FROM read_csv('/etc/passwd')", "42601", "read_csv is not allowed"),
        ("SELECT * FROM trips, pg_class", "0A000", "ask one at a time"),
        ("SELECT 'x'::INTEGER", "22P02", "Conversion Error"),
        ("SELECT TIME WITH TIME ZONE '01:00:00+02' AS t", "0A000", "CAST(t AS VARCHAR)"),
        ("EXPLAIN (FORMAT XML) SELECT 1", "0A000", "take TEXT or JSON"),
        ("SELECT 'open", "42601", "never closed"),
    ],
)
def test_each_refusal_has_its_words_and_its_code(server: Running, sql: str, code: str, words: str) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(sql)
        assert refused.value.sqlstate == code
        assert words in str(refused.value)
        assert value(connection, "SELECT 1") == 1


def test_a_failed_transaction_takes_nothing_but_its_end(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT nope FROM trips")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        connection.execute("SELECT 1")
    connection.commit()
    assert value(connection, "SELECT 1") == 1


def inner_transaction(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("SET relaqs.target = '9%'")
        connection.execute("DECLARE c CURSOR FOR SELECT 1")
        connection.execute("SELECT nope FROM trips")


def test_a_failed_transaction_goes_back_to_a_savepoint(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("SET relaqs.target = '5%'")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            inner_transaction(connection)
        assert value(connection, "SHOW relaqs.target") == "5%"
        connection.execute("DECLARE c CURSOR FOR SELECT 2")
        with connection.transaction():
            assert value(connection, "FETCH c") == 2
    assert value(connection, "SHOW relaqs.target") == "5%"


def test_savepoints_lie_inside_each_other(connection: psycopg.Connection[Any]) -> None:
    for sql in ("SAVEPOINT a", "SAVEPOINT b", 'SAVEPOINT "A"', "ROLLBACK WORK TO B", "RELEASE SAVEPOINT A"):
        connection.execute(sql)
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification, match="no savepoint 'b'"):
        connection.execute("ROLLBACK TO SAVEPOINT b")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        connection.execute("SAVEPOINT c")
    connection.rollback()
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification, match="no savepoint 'a'"):
        connection.execute("RELEASE a")


@pytest.mark.parametrize("sql", ["SAVEPOINT a", "RELEASE a", "ROLLBACK TO a"])
def test_a_savepoint_needs_a_transaction(server: Running, sql: str) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction, match="say BEGIN before"):
            connection.execute(sql)
        with pytest.raises(psycopg.errors.SyntaxError, match="write SAVEPOINT name"):
            connection.execute(f"{sql} b c")


def test_an_error_says_where_it_is_in_the_text(connection: psycopg.Connection[Any]) -> None:
    sql = "SELECT 1;\nSELECT fare,\n  nope FROM trips"
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(sql)
    place = int(refused.value.diag.statement_position or 0)
    assert sql[place - 1 :].startswith("nope")


def test_several_statements_are_answered_one_after_another(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        cursor = connection.execute("SELECT 1 AS a; SET relaqs.target = '9%'; SHOW relaqs.target; SELECT 'x'")
        found = [list(cursor.results())]
    assert len(found[0]) == 4


def test_explain_says_how_it_would_be_answered(connection: psycopg.Connection[Any]) -> None:
    sql = "EXPLAIN SELECT avg(fare) FROM trips"
    assert value(connection, sql) == "mode: exact"
    connection.execute("SET relaqs.target = '5%'")
    assert value(connection, sql) == "mode: exact", "a short question is exact at once"
    connection.execute("SET relaqs.exact_below = off")
    assert value(connection, sql) == "mode: mergeable"


def test_intervals_come_as_columns_with_names_that_are_free(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '20%'")
    connection.execute("SET relaqs.intervals = on")
    cursor = connection.cursor(binary=True)
    cursor.execute(
        "SELECT zone, avg(fare) AS m, max(day) AS d, 1 AS m_low FROM trips GROUP BY zone ORDER BY zone"
    )
    names = [column.name for column in cursor.description or ()]
    assert names == [
        *("zone", "m", "d", "m_low"),
        *("m_low_", "m_high", "m_certified", "d_low", "d_high", "d_certified"),
    ]
    for row in cursor.fetchall():
        cells = dict(zip(names, row, strict=True))
        assert cells["m_low_"] <= cells["m"] <= cells["m_high"]
        assert cells["d_low"] <= cells["d"]


def test_the_confidence_may_be_for_the_table(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '90%'")
    connection.execute("SET relaqs.intervals = on")
    sql = "SELECT zone, avg(fare) AS m FROM trips GROUP BY zone ORDER BY zone"
    alone = connection.execute(sql).fetchall()
    with heard(connection) as said:
        connection.execute("SET relaqs.confidence_for = TABLE")
        assert value(connection, "SHOW relaqs.confidence_for") == "table"
        together = connection.execute(sql).fetchall()
    assert len(together) == len(alone) > 1
    assert all(
        low < old < m < high for (_, m, low, high, _), (_, _, old, *_) in zip(together, alone, strict=True)
    )
    assert "at 95 % confidence for the table" in str(said)


def test_averages_of_days_and_summaries_have_intervals(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '50%'")
    connection.execute("SET relaqs.intervals = on")
    cursor = connection.cursor(binary=True)
    cursor.execute("SELECT avg(picked_up) AS mean, avg(day)::DATE AS picked FROM trips")
    names = [column.name for column in cursor.description or ()]
    cells = dict(zip(names, cursor.fetchall()[0], strict=True))
    assert cells["mean_low"] < cells["mean"] < cells["mean_high"]
    assert cells["picked_low"] <= cells["picked"] <= cells["picked_high"]
    cursor.execute("SUMMARIZE SELECT *, fare * 2 AS twice FROM trips")
    names = [column.name for column in cursor.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    fare = next(row for row in rows if row["column_name"] == "fare")
    assert float(fare["avg_low"]) < float(fare["avg"]) < float(fare["avg_high"])
    assert fare["min_low"] is None
    assert fare["min_high"] == fare["min"]


def test_within_gives_the_best_answer_after_that_time(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.exact_below = off; SET relaqs.within = '1ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(f"{TOTAL} -- a plan of its own")
    connection.rollback()
    connection.execute("SET relaqs.exact_below = off; SET relaqs.within = '60s'")
    with heard(connection) as said:
        connection.execute(TOTAL)
    assert said == ["exact: all rows that count were read"]


def test_a_portal_is_fetched_bit_by_bit(server: Running) -> None:
    import asyncpg

    async def fetch() -> list[int]:
        connection = await asyncpg.connect(host=server.host, port=server.port, user="ana", database="relaqs")
        async with connection.transaction():
            cursor = await connection.cursor("SELECT id FROM trips WHERE id < 2500 ORDER BY id")
            parts = [await cursor.fetch(count) for count in (1, 1023, 1, 1000, 1000)]
        await connection.close()
        assert [len(part) for part in parts] == [1, 1023, 1, 1000, 475]
        return [row["id"] for part in parts for row in part]

    assert asyncio.run(fetch()) == list(range(2500))


@pytest.mark.parametrize(
    ("sql", "bound", "words"),
    [
        (f"SELECT {'1+' * 500_000}1", None, "the SQL has 1,000,008 characters; up to 131,072 are accepted"),
        ("SELECT 1;" * 20_000, None, "the SQL has 180,000 characters"),
        ("SELECT %s", "x" * 2_000_000, "the values of the parameters have 2,000,000 bytes; up to 1,048,576"),
        ("SELECT %s::BIGINT[]", list(range(2**40, 2**40 + 100_000)), "values of the parameters have 1,4"),
    ],
)
def test_a_text_or_values_that_are_too_long_are_refused_unread(
    server: Running, sql: str, bound: object, words: str
) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        with pytest.raises(psycopg.Error, match=words):
            connection.execute(sql.encode(), None if bound is None else [bound])
        half = "x" * 50_000  # is read in its turn
        assert value(connection, f"SELECT length('{half}')") == len(half)
        assert connection.execute("SELECT length(%s)", [half]).fetchone() == (len(half),)


# What follows looks into the server, which therefore runs in this process.


@dataclass
class Inside:
    """A server on a thread of the test, with its session."""

    session: relaqs.Session
    port: int
    loop: asyncio.AbstractEventLoop
    server: Server

    def connect(self, user: str = "ana") -> psycopg.Connection[Any]:
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user={user}", autocommit=True)

    def jobs(self) -> int:
        return len(self.session.status().jobs)


@pytest.fixture
def inside(warehouse: Path) -> Iterator[Inside]:
    with inside_of(warehouse) as served:
        yield served


@contextmanager
def inside_of(warehouse: Path) -> Iterator[Inside]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    with relaqs.connect(warehouse, threads=2) as session:
        server = Server(Conversations(session, ["relaqs"]), Door(), Health())
        _, port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), loop).result(30)
        try:
            yield Inside(session, port, loop, server)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds, half a minute at most."""
    pause, deadline = threading.Event(), time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came to hold"
        pause.wait(0.01)


def in_the_background(work: Callable[[], object]) -> list[object]:
    """Return a list that the work's result, or its error, will be put into."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    threading.Thread(target=run).start()
    return outcome


def test_cancelling_stops_the_query_and_not_the_connection(inside: Inside) -> None:
    with inside.connect() as connection, inside.connect() as other:
        outcome = in_the_background(lambda: connection.execute(LONG))
        until(lambda: inside.jobs() == 1)
        other.cancel_safe()  # has nothing to cancel, and touches no other
        assert inside.jobs() == 1
        connection.cancel_safe()
        until(lambda: bool(outcome))
        assert isinstance(outcome[0], psycopg.errors.QueryCanceled)
        until(lambda: inside.jobs() == 0)
        assert value(connection, "SELECT 1") == 1


def test_a_user_stops_a_query_of_theirs_by_its_process_id(inside: Inside) -> None:
    stop = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid='{}'"
    with inside.connect() as connection, inside.connect() as own, inside.connect("ben") as stranger:
        number = value(connection, "SELECT pg_backend_pid()")
        outcome = in_the_background(lambda: connection.execute(LONG))
        until(lambda: inside.jobs() == 1)
        assert value(stranger, stop.format(number)) is False
        assert inside.jobs() == 1
        assert value(own, stop.format(number)) is True
        until(lambda: bool(outcome))
        assert isinstance(outcome[0], psycopg.errors.AdminShutdown)


def test_a_user_ends_a_connection_of_theirs(server: Running) -> None:
    with (
        psycopg.connect(server.address()) as other,
        psycopg.connect(server.address(), autocommit=True) as own,
    ):
        number = value(other, "SELECT pg_backend_pid()")
        terminated = own.execute("SELECT pg_terminate_backend(%s)", [number]).fetchone()
        assert terminated == (True,)
        until(lambda: _is_closed(other))
        assert own.execute("SELECT pg_cancel_backend(%s)", [number]).fetchone() == (False,)
        assert own.execute("SELECT pg_terminate_backend(%s)", [None]).fetchone() == (False,)
        assert own.execute("SELECT pg_terminate_backend(%s)", [math.inf]).fetchone() == (False,)
        assert own.execute("SELECT pg_cancel_backend(0)").fetchone() == (False,)
        for function in ("pg_terminate_backend", "pg_sleep"):
            with pytest.raises(psycopg.errors.SyntaxError, match="has a parameter and no value"):
                own.execute(f"SELECT {function}($1)")


def _is_closed(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.errors.AdminShutdown:
        return True
    except psycopg.OperationalError:
        return connection.closed
    return False


def test_a_transaction_that_is_not_there_is_told_of(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection, heard(connection) as said:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        connection.execute("BEGIN")
        connection.execute("COMMIT")
    there, none = "there is already a transaction in progress", "there is no transaction in progress"
    assert said == [none, there]


def test_a_connection_sees_itself_among_those_at_work(server: Running) -> None:
    sql = "SELECT application_name, state, usename FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    with psycopg.connect(server.address(), application_name="a report") as connection:
        assert connection.execute(sql).fetchall() == [("a report", "active", "ana")]
        types = "SELECT typname FROM pg_type WHERE oid = ANY(%s) ORDER BY oid"
        assert connection.execute(types, [[16, 23]]).fetchall() == [("bool",), ("int4",)]
        lines = connection.execute("EXPLAIN SELECT typname FROM pg_type").fetchall()
    assert lines == [("What is asked about the server itself is looked up.",)]


def test_a_name_is_of_one_prepared_statement(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.pgconn.prepare(b"asked", b"SELECT 1")
        refused = connection.pgconn.prepare(b"asked", b"SELECT 2")
        assert refused.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42P05"


def test_rows_of_a_portal_are_passed_over(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DECLARE c CURSOR FOR SELECT id FROM trips ORDER BY id")
        cursor.execute("MOVE FORWARD 5 FROM c")
        assert cursor.statusmessage == "MOVE 5"
        cursor.execute("FETCH 1 FROM c")
        assert cursor.fetchall() == [(5,)]


def test_a_scrape_under_load_agrees_with_the_status(inside: Inside) -> None:
    from relaqs.metrics import metrics_of

    registry = metrics_of(inside.session, cache=relaqs.Cache("none"))
    users = ["ana", "ben", "cleo"]
    connections = [inside.connect(user) for user in users]
    outcomes = [in_the_background(partial(each.execute, LONG)) for each in connections]
    until(lambda: inside.jobs() == len(users))
    until(lambda: sum(job.share_cores for job in inside.session.status().jobs) > 0)  # they are planned
    before = inside.session.status()
    families = list(registry.collect())
    after = inside.session.status()
    samples = {
        (sample.name, sample.labels.get("job")): sample for family in families for sample in family.samples
    }
    assert sorted(job.user for job in before.jobs) == users
    for job, later in zip(before.jobs, after.jobs, strict=True):
        spent = samples["relaqs_job_core_seconds", job.id]
        assert spent.labels["user"] == job.user
        assert job.attained_core_seconds <= spent.value <= later.attained_core_seconds
    shares = [samples["relaqs_job_share_cores", job.id].value for job in before.jobs]
    assert 0 < sum(shares) <= before.capacity_cores + 1e-9
    assert samples["relaqs_capacity_cores", None].value == before.capacity_cores
    for connection in connections:
        connection.cancel_safe()
    until(lambda: all(outcomes))
    until(lambda: inside.jobs() == 0)
    until(lambda: ended_queries(registry) == {("stopped", user): 1.0 for user in users})


def ended_queries(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["outcome"], sample.labels["user"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "relaqs_queries_total"
    }


def test_a_question_about_the_server_has_its_time_from_its_turn_on(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "METADATA_SECONDS", 0.3)
    tables = ", ".join(f"pg_attribute AS a{number}" for number in range(10))
    sql = f"SELECT sum({' + '.join(f'a{number}.attnum' for number in range(10))}) FROM {tables}"
    with ExitStack() as held:
        connections = [held.enter_context(inside.connect()) for _ in range(12)]  # most of them wait
        outcomes = [in_the_background(partial(each.execute, sql)) for each in connections]
        until(lambda: all(outcomes))
        assert value(connections[0], "SELECT 1") == 1
    assert all("took more than 0.3 s" in str(outcome[0]) for outcome in outcomes), outcomes


@pytest.mark.slow
def test_no_long_text_is_read_on_the_loop(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, set[str]] = {}

    def noted(name: str) -> None:
        function = getattr(answering, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            read.setdefault(name, set()).add(threading.current_thread().name)
            return function(*given, **named)

        monkeypatch.setattr(answering, name, wrapped)

    for name in ("requests", "parameter_count", "may_ask_metadata", "steered", "_table"):
        noted(name)
    ends = ", ".join(f"relaqs.low(sum(fare + {number})) AS l{number}" for number in range(200))
    sql = f"/*+ relaqs target=50% exact_below=off */ SELECT {ends}, relaqs.rows_read(), '?' AS q FROM trips"
    with inside.connect() as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        assert row[-2] > 0
        row = connection.execute(f"{sql.replace('%', '%%')} WHERE zone <> %s", (-1,)).fetchone()
        assert row is not None
    assert all(thread.startswith("relaqs-planning") for threads in read.values() for thread in threads), read
    assert len(read) == 5


def test_the_calls_of_relaqs_are_found_in_one_reading_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    tokens_of = wording.tokens_of
    monkeypatch.setattr(wording, "tokens_of", lambda sql: read.append(sql) or tokens_of(sql))
    sql = "SELECT zone, relaqs.low(sum(fare)) AS least FROM trips GROUP BY zone ORDER BY zone"
    assert statements.steered(sql, is_exact=False).asked == {1: "low"}
    assert read == [sql]


def test_a_text_that_was_answered_is_planned_anew_only_over_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = pa.table({"x": range(1000)})
    relaqs.shuffle(numbers, tmp_path / "numbers", partitions=4)
    ranks = "SELECT count(*) FROM (SELECT rank() OVER (ORDER BY x) FROM numbers)"  # runs whole
    with inside_of(tmp_path) as served, served.connect() as connection, served.connect("ben") as other:
        planned: list[str] = []
        plan = served.session.plan
        monkeypatch.setattr(
            served.session, "plan", lambda sql, **named: planned.append(sql) or plan(sql, **named)
        )
        assert value(connection, ranks) == 1000
        assert planned
        planned.clear()
        assert [value(each, ranks) for each in (connection, other, connection)] == [1000] * 3
        assert not planned
        served.session.append(numbers, "numbers")
        assert value(other, ranks) == 2000
        connection.execute("SET timezone = 'Asia/Tokyo'")  # moments are read by it
        planned.clear()
        assert value(connection, ranks) == 2000
        assert planned
        clock = f"SELECT max(now()) FROM ({ranks})"
        assert value(connection, clock) < value(connection, clock)


def test_a_target_that_a_sample_soon_reaches_is_answered_by_an_estimate(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.session.exact_below_seconds = SOON_SECONDS  # as `relaqs serve` opens it
    monkeypatch.setattr(start, "whole_core_seconds", lambda *_: 0.2)
    with inside.connect() as connection, heard(connection) as said:
        whole = value(connection, TOTAL)
        assert said == []
        connection.execute("SET relaqs.target = '0.5%'")
        assert value(connection, f"EXPLAIN {TOTAL}") == "mode: exact"
        assert value(connection, TOTAL) == whole
        assert said.pop() == "exact: all rows that count were read"
        connection.execute("SET relaqs.target = '5%'")
        assert value(connection, f"EXPLAIN {TOTAL}") == "mode: mergeable"
        assert float(value(connection, TOTAL)) == pytest.approx(float(whole), rel=0.1)
        assert said[0].startswith("approximate: ±")


def test_a_query_that_is_submitted_after_its_timeout_is_stopped(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over, is_submitted, submit = threading.Event(), threading.Event(), inside.session.submit

    def submitted_late(*given: Any, **named: Any) -> Any:
        assert is_over.wait(30)
        query = submit(*given, **named)
        assert inside.jobs() == 1
        is_submitted.set()
        return query

    monkeypatch.setattr(inside.session, "submit", submitted_late)
    with inside.connect() as connection:
        connection.execute("SET statement_timeout = 200")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement_timeout"):
            connection.execute(LONG)
        is_over.set()
        assert is_submitted.wait(30)
        until(lambda: inside.jobs() == 0)


def test_a_client_that_goes_away_stops_its_query(inside: Inside) -> None:
    connection = inside.connect()
    outcome = in_the_background(lambda: connection.execute(LONG))
    until(lambda: inside.jobs() == 1)
    with socket.socket(fileno=connection.fileno()) as line:
        line.shutdown(socket.SHUT_RDWR)
        until(lambda: inside.jobs() == 0)
        until(lambda: bool(outcome))
        line.detach()
    connection.close()


def test_a_timeout_of_the_client_stops_its_query(inside: Inside) -> None:
    with inside.connect() as connection:
        connection.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match=r"statement_timeout, which is 0\.2 s"):
            connection.execute(LONG)
        until(lambda: inside.jobs() == 0)


def test_a_server_that_stops_tells_its_clients(inside: Inside) -> None:
    idle, busy = inside.connect(), inside.connect()
    outcome = in_the_background(lambda: busy.execute(LONG))
    until(lambda: inside.jobs() == 1)
    asyncio.run_coroutine_threadsafe(inside.server.stop(), inside.loop).result(10)
    until(lambda: bool(outcome))
    assert isinstance(outcome[0], psycopg.errors.AdminShutdown)
    with pytest.raises(psycopg.errors.AdminShutdown, match="the server is stopping"):
        idle.execute("SELECT 1")
    until(lambda: inside.jobs() == 0)


def test_a_statement_is_prepared_by_name_and_run(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute(
            "PREPARE Before (int, text) AS SELECT count(*) FROM trips WHERE zone < $1 AND driver < $2"
        )
        asked = "SELECT count(*) FROM trips WHERE zone < 3 AND driver < 'it''s'"
        assert value(connection, "EXECUTE before(3, 'it''s')") == value(connection, asked)
        assert value(connection, "EXECUTE before(NULL, 'a')") == 0
        for sql, code in (
            ("EXECUTE before(3)", "42601"),
            ("EXECUTE before('x', 'a')", "22P02"),
            ("EXECUTE before(1 + 1, 'a')", "22023"),
            ("EXECUTE other", "26000"),
            ("PREPARE before AS SELECT 1", "42P05"),
            ("PREPARE other AS SELECT faer FROM trips", "42703"),
            ("PREPARE other AS DELETE FROM trips", "25006"),
        ):
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(sql.encode())
            assert refused.value.sqlstate == code, sql
        assert connection.execute("DEALLOCATE before").statusmessage == "DEALLOCATE"
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            connection.execute("EXECUTE before(3, 'a')")


def test_a_local_setting_holds_for_its_transaction_alone(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        warnings: list[str] = []
        connection.add_notice_handler(lambda notice: warnings.append(notice.sqlstate or ""))
        connection.execute("SET LOCAL statement_timeout = 1000")
        assert warnings == ["25P01"]
        assert value(connection, "SHOW statement_timeout") == "0"
        cursor = connection.execute("SET LOCAL statement_timeout = 2000; SHOW statement_timeout")
        assert cursor.nextset()
        assert cursor.fetchone() == ("2000",)
        assert value(connection, "SHOW statement_timeout") == "0"
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SET statement_timeout = 3000; SELECT 1 / 0")
        assert value(connection, "SHOW statement_timeout") == "0"
        connection.execute("SET app.name = 'report'")
        assert value(connection, "SHOW app.name") == "report"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SET ROLE postgres")


def test_a_plan_is_told_as_json_and_with_its_time(connection: psycopg.Connection[Any]) -> None:
    (plan,) = value(connection, "EXPLAIN (FORMAT JSON) SELECT count(*) FROM trips")
    assert plan["Plan"]["Node Type"].startswith("mode: ")
    assert "Execution Time" not in plan
    (timed,) = value(connection, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT zone FROM trips WHERE id < 7")
    assert timed["Plan"]["Actual Rows"] == 7
    assert timed["Execution Time"] > 0
    lines = [line for (line,) in connection.execute("EXPLAIN ANALYZE SELECT count(*) FROM trips")]
    assert lines[-1].startswith("Execution Time: ")


COLUMN_TYPES = (
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'parts' ORDER BY 1"
)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_statements_mean_what_the_columns_are_once_files_have_changed(
    tmp_path: Path, is_prepared: bool
) -> None:
    """7 / size is of integers before, and of doubles after; also in a statement that was prepared before."""
    path, half = tmp_path / "parts.parquet", "SELECT 7 / size FROM parts WHERE size > %s"
    duckdb.sql("SELECT 2::INTEGER AS size").write_parquet(str(path))
    with inside_of(path) as served, served.connect() as connection:

        def asked() -> tuple[Any, ...]:
            (found,) = connection.execute(half, [1], prepare=is_prepared).fetchall()
            return found

        assert asked() == (3,)
        assert connection.execute(COLUMN_TYPES).fetchall() == [("size", "integer")]
        duckdb.sql("SELECT 2::DOUBLE AS size, 'a' AS name").write_parquet(str(path))
        assert served.session.refresh_changed() == ("parts",)
        assert asked() == (3.5,)
        assert connection.execute(COLUMN_TYPES).fetchall() == [
            ("name", "text"),
            ("size", "double precision"),
        ]


@pytest.mark.slow
def test_a_server_answers_about_what_was_appended(tmp_path: Path) -> None:
    relaqs.shuffle(duckdb.sql("SELECT range AS id FROM range(1000)"), tmp_path / "trips", partitions=4)
    with serving(tmp_path) as running, psycopg.connect(running.address(), autocommit=True) as connection:
        assert value(connection, "SELECT count(*) FROM trips") == 1_000
        relaqs.append(duckdb.sql("SELECT range AS id FROM range(5)"), tmp_path / "trips")
        until(lambda: bool(value(connection, "SELECT count(*) FROM trips") == 1_005))


def test_who_listens_to_a_channel_is_told_what_is_said_there(server: Running) -> None:
    with (
        psycopg.connect(server.address(), autocommit=True) as one,
        psycopg.connect(server.address(), autocommit=True) as other,
    ):
        one.execute('LISTEN "a b"')
        one.execute("LISTEN second")
        other.execute("NOTIFY \"a b\", 'it''s'")
        (said,) = one.notifies(timeout=10, stop_after=1)
        assert (said.channel, said.payload, said.pid) == ("a b", "it's", other.info.backend_pid)
        with other.transaction():
            other.execute("NOTIFY second, 'in time'")
            other.execute("NOTIFY second, 'in time'")
            assert not list(one.notifies(timeout=0.2))
        assert [each.payload for each in one.notifies(timeout=10, stop_after=1)] == ["in time"]
        other.execute("BEGIN")
        other.execute("NOTIFY second")
        other.execute("ROLLBACK")
        one.execute("UNLISTEN second")
        other.execute("NOTIFY second")
        other.execute("NOTIFY nobody, 'x'")
        assert not list(one.notifies(timeout=0.2))
        one.execute("NOTIFY \"a b\", 'to itself'")
        assert [each.payload for each in one.notifies(timeout=10, stop_after=1)] == ["to itself"]
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="63 bytes"):
            one.execute(f"NOTIFY x, '{'y' * 8000}'")


def test_a_database_that_is_not_here_is_told(server: Running) -> None:
    with pytest.raises(psycopg.OperationalError, match='database "sales" does not exist'):
        psycopg.connect(server.address(), dbname="sales")
    psycopg.connect(server.address(), dbname="postgres").close()


def test_a_transaction_is_isolated_as_it_was_asked_to_be(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        levels = []
        for sql in (
            *(
                "SHOW transaction_isolation",
                "BEGIN ISOLATION LEVEL SERIALIZABLE",
                "SHOW transaction_isolation",
            ),
            *("ROLLBACK", "SET default_transaction_isolation = 'repeatable read'", "BEGIN"),
            *("SHOW transaction_isolation", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
            *("SHOW transaction_isolation", "COMMIT", "SHOW transaction_isolation"),
        ):
            answer = connection.execute(sql)
            levels += [row[0] for row in answer] if answer.description else []
        assert levels == [
            "read committed",
            "serializable",
            "repeatable read",
            "read committed",
            "repeatable read",
        ]
        number = connection.execute("SELECT txid_current()").fetchone()
        with connection.transaction():
            own = {connection.execute("SELECT txid_current()").fetchone() for _ in range(3)}
        assert len(own) == 1
        assert number not in own


def test_prepared_statements_are_shown(server: Running) -> None:
    asked = "SELECT name, statement, parameter_types, from_sql FROM pg_prepared_statements ORDER BY name"
    with psycopg.connect(server.address(), autocommit=True) as connection:
        assert connection.execute(asked, prepare=False).fetchall() == []
        connection.execute("PREPARE a AS SELECT $1::int")
        connection.execute("SELECT %s::date", ["infinity"], prepare=True)
        kept = connection.execute(asked, prepare=False).fetchall()
        assert kept[1] == ("a", "PREPARE a AS SELECT $1::int", ["integer"], True)
        assert kept[0][1:] == ("SELECT $1::date", ["date"], False)


def test_a_parameter_may_be_infinite(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        for type_ in ("date", "timestamp", "timestamptz"):
            asked = f"SELECT (%s::{type_})::text, %s::{type_} > '9999-01-01'::{type_}"
            for format_ in ("s", "t"):
                sql = asked.replace("%s", f"%{format_}")
                assert connection.execute(sql, ["infinity", "-infinity"]).fetchone() == ("infinity", False)
