"""Ten questions through the drivers that people have: exactly, and well enough."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pg8000.native
import psycopg
import pytest
import sqlalchemy

from benchmarks.server_process import Running
from tests.relaqs.serve.questions import QUESTIONS, close, printed_rows, shown_rows, true_rows
from tests.relaqs.serve.served_tables import ROWS

Ask = Callable[[Running, str], list[Any]]


def by_psycopg(server: Running, sql: str) -> list[Any]:
    with psycopg.connect(server.address()) as connection:
        return connection.execute(sql).fetchall()


def by_psycopg_in_binary(server: Running, sql: str) -> list[Any]:
    with psycopg.connect(server.address()) as connection:
        return connection.cursor(binary=True).execute(sql).fetchall()


def by_psycopg_prepared(server: Running, sql: str) -> list[Any]:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        return connection.execute(sql, prepare=True).fetchall()


def by_psycopg_simply(server: Running, sql: str) -> list[Any]:
    with psycopg.ClientCursor(psycopg.connect(server.address())) as cursor:
        return cursor.execute(sql).fetchall()


def by_asyncpg(server: Running, sql: str) -> list[Any]:
    async def ask() -> list[Any]:
        connection = await asyncpg.connect(host=server.host, port=server.port, user="ana", database="relaqs")
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(ask())


def by_pg8000(server: Running, sql: str) -> list[Any]:
    connection = pg8000.native.Connection("ana", host=server.host, port=server.port, database="relaqs")
    try:
        return list(connection.run(sql))
    finally:
        connection.close()


def by_sqlalchemy(server: Running, sql: str) -> list[Any]:
    engine = sqlalchemy.create_engine(server.url("psycopg"), poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sqlalchemy.text(sql))]


ASKING = (
    by_psycopg,
    by_psycopg_in_binary,
    by_psycopg_prepared,
    by_psycopg_simply,
    by_asyncpg,
    by_pg8000,
    by_sqlalchemy,
)


@pytest.mark.parametrize("ask", ASKING, ids=lambda ask: ask.__name__)
def test_answers_are_exact(server: Running, ask: Ask) -> None:
    for sql in QUESTIONS:
        assert close(ask(server, sql), true_rows(sql)), sql


def test_psql_prints_what_duckdb_answers(server: Running) -> None:
    if shutil.which("psql") is None:
        pytest.skip("there is no psql on this machine")
    command = ["psql", "-h", server.host, "-p", str(server.port), "-U", "ana", "-AtF", ",", "relaqs"]
    for sql in QUESTIONS:
        printed = subprocess.run([*command, "-c", sql], capture_output=True, text=True, check=True).stdout
        assert printed_rows(printed.splitlines(), ",") == shown_rows(sql)


def test_every_driver_gets_the_first_answer_that_is_good_enough(server: Running) -> None:
    sql = "SELECT sum(fare) AS total FROM trips WHERE shared"
    with psycopg.connect(server.address()) as connection:
        (exact,) = connection.execute(sql).fetchone() or ()
        notices: list[str] = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '20%'")
        (estimate,) = connection.cursor(binary=True).execute(sql).fetchone() or ()
    assert isinstance(estimate, Decimal)
    assert estimate != exact
    assert abs(estimate - exact) <= Decimal("0.5") * exact
    assert notices[0].startswith("approximate: ±")
    assert " of trips" in notices[0]


SQL = "SELECT count(*) FROM trips WHERE zone = {} AND fare < {} AND driver LIKE {} AND day > {}"
VALUES = (2, Decimal("5.5"), "%1%", date(2024, 2, 3))


def test_psycopg_sends_values_of_parameters(server: Running) -> None:
    with psycopg.connect(server.address()) as connection:
        found = connection.execute(SQL.format(*["%s"] * 4), VALUES).fetchall()
        lists = connection.execute(
            "SELECT count(*) FROM trips WHERE zone = ANY(%s) AND driver = ANY(%s)", ([1, 2], ["driver 1"])
        ).fetchall()
    assert found == _expected()
    assert lists == true_rows("SELECT count(*) FROM trips WHERE zone IN (1, 2) AND driver = 'driver 1'")


def test_asyncpg_asks_for_the_types_of_parameters_and_sends_them_in_binary(server: Running) -> None:
    async def ask() -> Any:
        connection = await asyncpg.connect(host=server.host, port=server.port, user="ana", database="relaqs")
        try:
            return await connection.fetchval(SQL.format("$1", "$2", "$3", "$4"), *VALUES)
        finally:
            await connection.close()

    assert [(asyncio.run(ask()),)] == _expected()


def test_asyncpg_looks_up_arrays_and_sends_them(server: Running) -> None:
    async def ask() -> Any:
        connection = await asyncpg.connect(host=server.host, port=server.port, user="ana", database="relaqs")
        try:
            return await connection.fetchval("SELECT count(*) FROM trips WHERE zone = ANY($1)", [1, 2])
        finally:
            await connection.close()

    assert [(asyncio.run(ask()),)] == true_rows("SELECT count(*) FROM trips WHERE zone IN (1, 2)")


@pytest.mark.parametrize(
    ("sql", "value", "answer"),
    [
        ("SELECT $1::numeric", Decimal("1.5"), Decimal("1.5")),
        ("SELECT coalesce(NULL::numeric, $1)", Decimal("1.25"), Decimal("1.25")),
        ("SELECT TIMESTAMP '2024-01-01' + $1", timedelta(hours=2), datetime(2024, 1, 1, 2)),
        ("SELECT round(2.345::numeric(6, 3), $1)", 2, Decimal("2.35")),
        ("SELECT $1::regclass::text", "trips", "trips"),
        ("SELECT pg_sleep($1)", 0.01, None),
        ("SELECT pg_sleep($1)", float("nan"), None),
    ],
)
def test_asyncpg_is_told_one_type_before_and_after_values(
    server: Running, sql: str, value: Any, answer: Any
) -> None:
    async def ask() -> Any:
        connection = await asyncpg.connect(host=server.host, port=server.port, user="ana", database="relaqs")
        try:
            return await connection.fetchval(sql, value)
        finally:
            await connection.close()

    assert asyncio.run(ask()) == answer


@pytest.mark.parametrize(
    ("value", "type_name", "code"),
    [(1, "int4", None), (1, "int2", None), ("0.01", "text", None), ("much", "text", "22P02")],
)
def test_how_long_to_sleep_has_the_type_that_is_declared(
    server: Running, value: Any, type_name: str, code: str | None
) -> None:
    kind = psycopg.postgres.types[type_name].oid
    form = psycopg.pq.Format.BINARY
    raw = value.encode() if isinstance(value, str) else value.to_bytes(int(type_name[-1]), "big")
    with psycopg.connect(server.address()) as connection:
        answer = connection.pgconn.exec_params(b"SELECT pg_sleep($1)", [raw], [kind], [form])
        state = answer.error_field(psycopg.pq.DiagnosticField.SQLSTATE)
        assert (state and state.decode()) == code


def test_a_sleep_without_an_end_can_be_stopped(server: Running) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute("SET statement_timeout = 200")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(%s)", [float("inf")])


@pytest.mark.parametrize("placeholder", ["%t", "%b"])
def test_texts_in_arrays_have_any_characters(server: Running, placeholder: str) -> None:
    texts = ["a\nb", "c\td", 'q"x', "back\\slash", "{}", ",", "", " ", "NULL", None, "ñ"]
    with psycopg.connect(server.address()) as connection:
        found = connection.execute(f"SELECT {placeholder}::TEXT[] AS x", (texts,)).fetchone()
    assert found == (texts,)


@pytest.mark.parametrize(
    ("sql", "given", "oid"),
    [
        ("SELECT :v::numeric", Decimal(10000), 0),
        ("SELECT :v::numeric", Decimal("-0.5"), 0),
        ("SELECT CASE WHEN :v::numeric IS NULL THEN 0 ELSE :v::numeric END", Decimal(123), 0),
        ("SELECT :v", '{"a": 1}', 114),
        ("SELECT :v", [1, 2], 1005),
        ("SELECT :v", [[1], [2]], 1005),
        ("SELECT :v::varchar[]", [], 0),
        ("SELECT i FROM generate_series(1, 5) AS i WHERE i = :v", 3, 0),
        ("SELECT generate_series(3, :v)", 3, 0),
    ],
)
def test_pg8000_is_answered_in_the_types_that_were_described_before_the_values(
    server: Running, sql: str, given: Any, oid: int
) -> None:
    connection = pg8000.native.Connection("ana", host=server.host, port=server.port)
    ((value,),) = connection.run(sql, v=given, types={"v": oid})
    assert value == ({"a": 1} if oid == 114 else given)
    assert not oid or connection.columns[0]["type_oid"] == oid
    if oid == 1005:
        with pytest.raises(pg8000.exceptions.DatabaseError, match="not those that were described"):
            connection.run(sql, v=[70_000], types={"v": oid})
    connection.close()


def test_asyncpg_passes_rows_of_its_portal_over(server: Running) -> None:
    async def passed() -> tuple[int, Any]:
        connection = await asyncpg.connect(host=server.host, port=server.port, user="ana")
        async with connection.transaction():
            cursor = await connection.cursor("SELECT id FROM trips ORDER BY id")
            count, row = await cursor.forward(5), await cursor.fetchrow()
        await connection.close()
        return count, row["id"]

    assert asyncio.run(passed()) == (5, 5)


def test_pg8000_sends_values_of_parameters(server: Running) -> None:
    connection = pg8000.native.Connection("ana", host=server.host, port=server.port)
    found = connection.run(SQL.format(":a", ":b", ":c", ":d"), **dict(zip("abcd", VALUES, strict=True)))
    connection.close()
    assert list(map(tuple, found)) == _expected()


def _expected() -> list[Any]:
    expected = true_rows(SQL.format(2, 5.5, "'%1%'", "'2024-02-03'"))
    assert 0 < expected[0][0] < ROWS
    return expected
