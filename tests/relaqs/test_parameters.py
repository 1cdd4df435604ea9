"""Parameters of a SELECT, and now(): values that are known when it is submitted, and never read as SQL."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts import shuffle

import relaqs
from relaqs.cli import program
from relaqs.session import Session
from tests.relaqs.sessions import every_snapshot

ROWS = 4000
EVIL = "x'; DROP TABLE sales; --"


@pytest.fixture(scope="module")
def sales() -> pa.Table:
    draw = np.random.default_rng(3)
    return pa.table(
        {
            "shop": pa.array([["Ålesund", "it's", EVIL][i] for i in draw.integers(3, size=ROWS)]),
            "km": draw.exponential(size=ROWS).round(2),
            "day": pa.array(np.datetime64("2026-01-01") + draw.integers(300, size=ROWS)),
            "price": pa.array([Decimal(int(i)) / 100 for i in draw.integers(900, size=ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def session(sales: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("parameters")
    shuffle(sales, folder / "sales", partitions=4)
    with relaqs.connect(folder, threads=1) as session:
        yield session


@pytest.fixture(scope="module")
def oracle(sales: pa.Table) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("sales", sales)
    return connection


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("condition", "params"),
    [
        ("km > ?", [0.5]),
        ("km > ? AND shop = ?", [0.5, "it's"]),
        ("shop = $shop", {"shop": EVIL}),
        ("km BETWEEN $1 AND $2 OR km = $1", [0.1, 2]),
        ("day >= $since", {"since": datetime.date(2026, 5, 1)}),
        ("day >= $since", {"since": "2026-05-01"}),
        ("day >= ?", [datetime.datetime(2026, 5, 1, 12, 30)]),
        ("day >= ?::DATE AND km > ?::DOUBLE", ["2026-05-01", "0.5"]),
        ("price < ?", [Decimal("4.50")]),
        ("km > -$far", {"far": -1}),
        ("km > -?", [np.float64(-1.5)]),
        ("list_contains($shops, shop)", {"shops": ["it's", EVIL, None]}),
        ("shop IN $shops", {"shops": ["Ålesund", "it's"]}),
        ("shop IN $shops OR km < 0.1", {"shops": []}),
        ("shop = ANY($shops) OR day = ANY($shops) OR price < 2", {"shops": []}),
        ("list_contains($shops, shop) IS NULL", {"shops": [None]}),
        ("len($1) = 1 AND ($2).n IS NULL", [[[]], {"n": None}]),
        ("($1).l IS NOT NULL AND ($1).s.n IS NULL", [{"s": {"n": None}, "l": []}]),
        ("price < ? AND typeof(?) = 'DECIMAL(5,0)'", [Decimal(4), Decimal(10_000)]),
        ("shop IS NOT DISTINCT FROM ?", [None]),
        ("? AND shop <> '?' AND shop <> $$ $shop ? $$ -- ?", [True]),
    ],
)
def test_the_last_answer_is_what_duckdb_gives_with_the_same_parameters(
    condition: str,
    params: Sequence[Any] | Mapping[str, Any],
    session: Session,
    oracle: duckdb.DuckDBPyConnection,
) -> None:
    sql = f"SELECT count(*) AS n, min(day) AS first FROM sales WHERE {condition}"
    plain = [each.item() if isinstance(each, np.generic) else each for each in params]
    given = params if isinstance(params, Mapping) else plain
    answer = session.online_sql(sql, params=params).result()
    assert rows(answer.estimate) == oracle.execute(sql, given).fetchall()
    assert session.plan(sql, params=params).is_estimated


@pytest.mark.parametrize(
    "value",
    [
        *(0, -7, 2**40, -(2**100), 0.1, -1e-300, float("inf"), float("nan"), True, None, "", EVIL, b"\x00'a"),
        *(datetime.time(1, 2, 3), datetime.timedelta(days=-1, seconds=5), UUID(int=7), Decimal("-0.50")),
        datetime.datetime(2026, 3, 29, 2, 30, tzinfo=datetime.UTC),
        *([1, None, 3], [["a,b"], ["[x]", "'"]], {"a": 1, "b": EVIL}),
    ],
    ids=str,
)
def test_a_value_of_any_type_arrives_as_it_is(value: Any, session: Session) -> None:
    sql = "SELECT ? AS value, count(*) AS n FROM sales"
    with duckdb.connect() as connection:
        expected = connection.sql("SELECT ? AS value", params=[value]).to_arrow_table().column(0)
    answer = session.online_sql(sql, params=[value]).result().estimate.column("value")
    # NaN is no equal of itself, and text says more than equality where types differ.
    assert str(answer.to_pylist()) == str(expected.to_pylist())


@pytest.mark.parametrize(
    ("sql", "params", "message"),
    [
        ("SELECT ? + ?", [1], r"the parameter \? and no value for it; .*line 1, column 12"),
        ("SELECT\n$zone", {}, r"\$zone .*params=\{'zone': …\}, .* --param zone=…; at line 2, column 1"),
        ("SELECT ?", None, r"params=\[…\]"),
        ("SELECT ?", [1, 2], r"a value for \$2; the query's parameters are: \?"),
        ("SELECT 1", {"zone": 1}, r"a value for \$zone; the query's parameters are: none"),
        ("SELECT ?", "abc", "params is 'abc'; give a list"),
        ("SELECT ?", 5, "params is 5; give a list"),
        ("SELECT ?", [object()], "DuckDB has no type for a object"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    sql: str, params: Any, message: str, session: Session
) -> None:
    with pytest.raises(SqlError, match=message):
        session.online_sql(sql, params=params)


def test_a_value_is_known_to_the_plan_so_that_its_answer_is_certified(session: Session) -> None:
    sql = "SELECT sum(least(km, ?)) AS km FROM sales"
    *estimates, _ = every_snapshot(lambda: session.online_sql(sql, params=[2.0], batches=4))
    assert [each.table["km_certified"][0].as_py() for each in estimates] == [True] * 3


MOMENT = "SELECT now() = now() AS same, count(*) AS n FROM sales WHERE day < current_date + 10000"


def test_now_is_one_moment_for_the_whole_query(session: Session) -> None:
    plan = session.plan(MOMENT)
    assert plan.is_estimated
    answer = session.online_sql(MOMENT).result().estimate
    assert rows(answer) == [(True, ROWS)]


def test_now_is_the_moment_at_which_the_query_was_submitted(session: Session) -> None:
    before = datetime.datetime.now(datetime.UTC)
    sql = "SELECT now(), count(*) AS n FROM sales"
    first, second = (session.online_sql(sql).result().estimate for _ in range(2))
    assert first.column_names == ["now()", "n"]
    moments = [each.column(0)[0].as_py() for each in (first, second)]
    assert before <= moments[0] < moments[1] <= datetime.datetime.now(datetime.UTC)


def test_the_views_of_a_session_have_the_same_moment(sales: pa.Table) -> None:
    views = {"recent": "SELECT *, now() AS moment FROM sales WHERE day < today()"}
    with relaqs.connect(tables={"sales": sales}, views=views, threads=1) as session:
        answer = session.online_sql("SELECT count(DISTINCT moment - now()) AS n FROM recent").result()
        assert rows(answer.estimate) == [(1,)]


def test_a_column_with_the_name_of_a_moment_is_a_column() -> None:
    table = pa.table({"current_date": [3, 1, 2]})
    with relaqs.connect(tables={"t": table}, threads=1) as session:
        sql = "SELECT current_date FROM t ORDER BY current_date"
        assert rows(session.online_sql(sql).result().estimate) == [(1,), (2,), (3,)]
        sql = "SELECT -t.current_date AS localtime FROM t ORDER BY localtime"
        assert rows(session.online_sql(sql).result().estimate) == [(-3,), (-2,), (-1,)]


def test_the_program_takes_parameters(sales: pa.Table, tmp_path: Path) -> None:
    shuffle(sales, tmp_path / "sales", partitions=4)
    sql = "SELECT count(*) AS n FROM sales WHERE shop = $shop AND km > ?"
    given = ["--param", f"shop={EVIL}", "-p", "1=0.5", "--data", str(tmp_path)]
    done = CliRunner().invoke(program, ["sql", sql, *given, "--format", "csv"])
    shops, km = sales.column("shop").to_pylist(), sales.column("km").to_pylist()
    expected = sum(shop == EVIL and far > 0.5 for shop, far in zip(shops, km, strict=True))
    assert list(csv.DictReader(io.StringIO(done.stdout)))[-1]["n"] == str(expected)
    explained = CliRunner().invoke(program, ["explain", sql, *given])
    assert "x''; DROP" in explained.output
    refused = CliRunner().invoke(program, ["sql", sql, "-p", "shop", "--data", str(tmp_path)])
    assert "'shop' has no name" in refused.output
