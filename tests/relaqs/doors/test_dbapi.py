"""Python's database API: PEP 249's rules, exact rows, and answers that are good enough where asked."""

from __future__ import annotations

import datetime
import inspect
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pytest

import relaqs
from relaqs import dbapi
from tests.relaqs.doors.questions import QUESTIONS, assert_same, duckdbs_answer
from tests.rows import rows_of

LATE = "SELECT origin, avg(distance) AS far FROM flights GROUP BY origin ORDER BY origin"


@pytest.fixture
def connection(warehouse: Path, tmp_path: Path) -> Iterator[dbapi.Connection]:
    with dbapi.connect(warehouse, threads=2, cache_directory=tmp_path / "cache") as connection:
        yield connection


@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_duckdbs(connection: dbapi.Connection, files: Path, name: str) -> None:
    cursor = connection.execute(QUESTIONS[name])
    assert cursor.snapshot is not None
    assert cursor.snapshot.is_exact
    assert_same(cursor.fetchall(), duckdbs_answer(files, QUESTIONS[name]))


def test_the_module_says_what_pep_249_asks_for() -> None:
    assert (dbapi.apilevel, dbapi.paramstyle, dbapi.threadsafety) == ("2.0", "qmark", 2)
    assert issubclass(dbapi.Warning, Exception)
    for name in ("InterfaceError", "DatabaseError"):
        assert issubclass(getattr(dbapi, name), dbapi.Error)
    for name in (
        *("DataError", "OperationalError", "IntegrityError", "InternalError"),
        *("ProgrammingError", "NotSupportedError"),
    ):
        assert issubclass(getattr(dbapi, name), dbapi.DatabaseError)
        assert getattr(dbapi.Connection, name) is getattr(dbapi, name)
    assert issubclass(dbapi.Error, relaqs.RelaqsError)
    assert dbapi.Binary(b"x") == b"x"
    assert dbapi.DateFromTicks(0) in (datetime.date(1970, 1, 1), datetime.date(1969, 12, 31))


def test_rows_come_one_by_one_in_pieces_and_all_at_once(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert (cursor.rowcount, cursor.description) == (-1, None)
    cursor.execute("SELECT month FROM flights GROUP BY month ORDER BY month")
    assert cursor.rowcount == 12
    assert cursor.fetchone() == (1,)
    assert cursor.fetchmany() == [(2,)]
    assert cursor.fetchmany(3) == [(3,), (4,), (5,)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [(6,), (7,)]
    assert next(cursor) == (8,)
    assert [month for (month,) in cursor] == [9, 10, 11, 12]
    assert (cursor.fetchone(), cursor.fetchmany(), cursor.fetchall()) == (None, [], [])


def test_rows_that_are_left_come_as_arrow_data(connection: dbapi.Connection) -> None:
    cursor = connection.execute("SELECT carrier, name FROM airlines ORDER BY carrier")
    first = cursor.fetchone()
    rest = cursor.fetch_arrow_table()
    assert first is not None
    assert rest.num_rows == cursor.rowcount - 1
    assert rest.column_names == ["carrier", "name"]
    assert (cursor.fetchone(), cursor.fetch_arrow_table().num_rows) == (None, 0)
    asked = "SELECT carrier, name FROM airlines ORDER BY carrier"
    assert polars.read_database(asked, connection).rows() == connection.execute(asked).fetchall()
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor().fetch_arrow_table()


@pytest.mark.parametrize("size", [-1, 1.5, "2"])
def test_a_piece_of_rows_has_a_size(connection: dbapi.Connection, size: int) -> None:
    cursor = connection.execute("SELECT 1 AS one")
    with pytest.raises(dbapi.ProgrammingError, match=r"size is .*; it must be a whole number from 0 on"):
        cursor.fetchmany(size)
    assert cursor.fetchmany(0) == []
    assert cursor.fetchmany(2) == [(1,)]


def test_many_rows_keep_their_order(connection: dbapi.Connection) -> None:
    sql = "SELECT flight, distance FROM flights WHERE month = 2 ORDER BY distance, flight, dest, day"
    cursor = connection.execute(sql)
    assert cursor.rowcount > 20_000
    assert cursor.snapshot is not None
    assert cursor.fetchall() == rows_of(cursor.snapshot.estimate)


def test_columns_are_described(connection: dbapi.Connection) -> None:
    cursor = connection.execute(
        "SELECT origin, count(*) AS n, avg(distance) AS far, 1.25::DECIMAL(10, 2) AS price, "
        "min(time_hour) AS hour, [1] AS several, origin = 'JFK' AS jfk FROM flights GROUP BY origin"
    )
    assert cursor.description is not None
    assert [column[:2] for column in cursor.description] == [
        ("origin", "VARCHAR"),
        ("n", "BIGINT"),
        ("far", "DOUBLE"),
        ("price", "DECIMAL(10,2)"),
        ("hour", "TIMESTAMP"),
        ("several", "INTEGER[]"),
        ("jfk", "BOOLEAN"),
    ]
    assert cursor.description[3] == ("price", "DECIMAL(10,2)", None, None, 10, 2, None)
    groups = (dbapi.STRING, dbapi.NUMBER, dbapi.DATETIME, dbapi.BINARY, dbapi.ROWID)
    codes = [column[1] for column in cursor.description]
    assert [[code == group for group in groups].index(True) for code in codes if "[" not in code] == [
        *(0, 1, 1, 1, 2, 1)
    ]
    assert not any(codes[5] == group for group in groups)


@pytest.mark.parametrize(
    "value",
    [
        *(5, 2.5, "it's", True, None, b"\x00\xff", Decimal("1.20"), [1, 2]),
        *(datetime.date(2013, 1, 2), datetime.datetime(2013, 1, 2, 3, 4, 5, 6), datetime.time(4, 5)),
    ],
)
def test_values_come_back_as_they_went_in(connection: dbapi.Connection, value: Any) -> None:
    assert connection.execute("SELECT ?, count(*) FROM airlines", [value]).fetchone() == (value, 16)


def test_values_may_have_names(connection: dbapi.Connection) -> None:
    cursor = connection.execute(
        "SELECT carrier FROM airlines WHERE name LIKE $like ORDER BY 1 LIMIT $most",
        {"like": "%Air%", "most": 2},
    )
    assert cursor.fetchall() == [("9E",), ("AA",)]


def test_a_target_gives_the_first_answer_that_is_good_enough(warehouse: Path) -> None:
    with dbapi.connect(warehouse, target="10%", threads=1) as connection:
        cursor = connection.execute(LATE)
        assert cursor.snapshot is not None
        assert not cursor.snapshot.is_exact
        assert cursor.snapshot.error <= 0.1
        assert cursor.fetchall() == [tuple(row.values()) for row in cursor.snapshot.estimate.to_pylist()]
        cursor.target = None
        cursor.execute(LATE)
        assert cursor.snapshot is not None
        assert cursor.snapshot.is_exact


def test_intervals_come_as_columns_where_they_are_asked_for(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.target, cursor.intervals = 0.1, True
    rows = cursor.execute(LATE).fetchall()
    assert cursor.description is not None
    assert [name for name, *_ in cursor.description] == [
        *("origin", "far", "far_low", "far_high", "far_certified")
    ]
    for _, far, low, high, certified in rows:
        assert low < far < high
        assert certified is True


def test_a_time_gives_the_best_answer_by_then(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.within = "0.001ms"
    with pytest.raises(dbapi.OperationalError, match="allow more time"):
        cursor.execute(LATE)
    cursor.within = "1m"
    assert len(cursor.execute(LATE).fetchall()) == 3
    assert cursor.within == 60


@pytest.mark.parametrize(
    ("sql", "parameters", "error", "words"),
    [
        ("SELECT nope FROM flights", None, dbapi.ProgrammingError, "nope"),
        ("SELECT 1 FROM nowhere", None, dbapi.ProgrammingError, "nowhere"),
        ("DELETE FROM flights", None, dbapi.ProgrammingError, "only SELECT"),
        ("SELECT ?", None, dbapi.ProgrammingError, "no value"),
        ("SELECT ?", [1, 2], dbapi.ProgrammingError, "params has a value"),
        ("SELECT getenv('HOME')", None, dbapi.Error, "getenv"),
    ],
)
def test_errors_are_pep_249s_and_ours(
    connection: dbapi.Connection, sql: str, parameters: Any, error: type[Exception], words: str
) -> None:
    cursor = connection.cursor()
    with pytest.raises(error, match=words) as raised:
        cursor.execute(sql, parameters)
    assert isinstance(raised.value, relaqs.RelaqsError)
    assert isinstance(raised.value.__cause__, relaqs.RelaqsError)
    assert cursor.execute("SELECT count(*) FROM airlines").fetchone() == (16,)


def test_what_cannot_be_done_says_so(connection: dbapi.Connection, tmp_path: Path) -> None:
    cursor = connection.cursor()
    with pytest.raises(dbapi.NotSupportedError, match="nothing can be written"):
        cursor.executemany("SELECT ?", [[1]])
    with pytest.raises(dbapi.InterfaceError, match="call execute first"):
        cursor.fetchall()
    with pytest.raises(dbapi.ProgrammingError, match="target is 'much'"):
        cursor.target = "much"
    with pytest.raises(dbapi.ProgrammingError, match="within is 'soon'"):
        dbapi.connect(connection.session, within="soon")
    with pytest.raises(dbapi.OperationalError, match="nowhere"):
        dbapi.connect(tmp_path / "nowhere")


def test_what_is_closed_stays_closed(warehouse: Path) -> None:
    connection = dbapi.connect(warehouse, threads=1)
    with connection.cursor() as cursor:
        cursor.execute(LATE)
    with pytest.raises(dbapi.InterfaceError, match="the cursor is closed"):
        cursor.fetchall()
    left = connection.execute(LATE)
    connection.commit()
    connection.rollback()
    connection.close()
    connection.close()
    for use in (connection.cursor, connection.commit, left.fetchall):
        with pytest.raises(dbapi.InterfaceError, match="the connection is closed"):
            use()
    with pytest.raises(relaqs.RelaqsError, match="closed"):
        connection.session.online_sql(LATE)


def test_a_session_of_ones_own_stays_open(warehouse: Path) -> None:
    with relaqs.connect(warehouse, threads=1) as session:
        dbapi.connect(session).close()
        assert session.online_sql("SELECT count(*) AS n FROM airlines").result().is_exact


def test_threads_share_a_connection(connection: dbapi.Connection) -> None:
    found: dict[int, Any] = {}

    def ask(month: int) -> None:
        sql = "SELECT ?, count(*) FROM flights WHERE month = ?"
        found[month] = connection.execute(sql, [month, month]).fetchone()

    threads = [threading.Thread(target=ask, args=[month]) for month in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = connection.execute("SELECT month, count(*) FROM flights WHERE month < 9 GROUP BY 1").fetchall()
    assert sorted(found.values()) == sorted(counts)


def test_pandas_and_polars_read_it(connection: dbapi.Connection) -> None:
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        assert pandas.read_sql(LATE, connection)["origin"].tolist() == ["EWR", "JFK", "LGA"]
    assert polars.read_database(LATE, connection)["origin"].to_list() == ["EWR", "JFK", "LGA"]


def test_every_call_of_pep_249_is_there() -> None:
    for name in ("close", "commit", "cursor", "rollback"):
        assert inspect.isfunction(getattr(dbapi.Connection, name))
    for name in (
        *("close", "execute", "executemany", "fetchone", "fetchmany", "fetchall"),
        *("setinputsizes", "setoutputsize"),
    ):
        assert inspect.isfunction(getattr(dbapi.Cursor, name))


def test_a_data_frame_is_a_table() -> None:
    rows = duckdb.sql("SELECT i % 3 AS k, i AS x FROM range(100) AS t(i)").df()
    with dbapi.connect(tables={"numbers": rows}) as connection:
        sql = "SELECT k, sum(x) FROM numbers GROUP BY k ORDER BY k"
        assert connection.execute(sql).fetchall() == duckdb.sql(sql.replace("numbers", "rows")).fetchall()
