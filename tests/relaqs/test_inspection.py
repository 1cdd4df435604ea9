"""SHOW TABLES, DESCRIBE, SUMMARIZE and `relaqs tables`: what people type first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts import shuffle

import relaqs
from relaqs.cli import program
from relaqs.session import Session
from tests.rows import rows_of

TRIPS = pa.table({"fare": [1.5, None, 4.0] * 50, "zone": ["a", "b", "b"] * 50, "n": range(150)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspection")
    shuffle(TRIPS, folder / "trips", partitions=4)
    return folder


@pytest.fixture(scope="module", params=["layout", "file"])
def session(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    path = folder
    if request.param == "file":
        path = tmp_path_factory.mktemp("plain") / "trips.parquet"
        pq.write_table(TRIPS, path)
    with relaqs.connect(path, threads=1, views={"far": "SELECT fare * 2 AS twice FROM trips"}) as session:
        yield session


def test_tables_and_views_are_shown(session: Session) -> None:
    assert rows_of(session.online_sql("SHOW TABLES;").result().estimate) == [("far",), ("trips",)]


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE trips",
        "/* a view */ -- DESCRIBE zones\n desc far",
        "describe SELECT zone, count(*) AS n FROM trips GROUP BY 1",
    ],
)
def test_columns_are_described_as_duckdb_does(sql: str, session: Session) -> None:
    with duckdb.connect() as connection:
        connection.register("trips", TRIPS)
        connection.execute("CREATE TEMP VIEW far AS SELECT fare * 2 AS twice FROM trips")
        expected = connection.sql(sql).to_arrow_table()
    answer = session.online_sql(sql).result().estimate
    assert answer.schema.equals(expected.schema)
    assert rows_of(answer) == rows_of(expected)


@pytest.mark.parametrize("of", ["trips", "SELECT zone, n + 1 AS next FROM trips WHERE fare > 1"])
def test_a_summary_is_that_of_duckdb(of: str, session: Session) -> None:
    with duckdb.connect() as connection:
        connection.register("trips", TRIPS)
        expected = connection.sql(f"SUMMARIZE {of}").to_arrow_table()
    answer = session.online_sql(f"SUMMARIZE {of}").result().estimate
    assert answer.column_names == expected.column_names
    exact = ["column_name", "column_type", "min", "max", "approx_unique", "avg", "count", "null_percentage"]
    assert rows_of(answer.select(exact)) == rows_of(expected.select(exact))


@pytest.mark.parametrize(
    "sql",
    [
        "PIVOT trips ON zone IN ('a', 'b') USING sum(fare), count(*) AS rows",
        "/* long */ UNPIVOT (SELECT max(n) AS n, count(*) AS m FROM trips) ON n, m INTO NAME a VALUE b;",
        "WITH w AS (SELECT t.zone, t.n FROM trips AS t) FROM (PIVOT w ON zone IN ('a') USING sum(n))",
        "VALUES ((SELECT max(n) FROM trips), 'x'), (1, 'y') ORDER BY 1 DESC LIMIT 1",
        "FROM (DESCRIBE trips) SELECT column_name, column_type",
        "WITH found AS (SUMMARIZE trips) SELECT column_name, max, null_percentage FROM found",
        "SELECT 1 AS one, 'x' AS x FROM trips GROUP BY ALL",
        "SELECT 1 AS one, count(*) AS rows FROM trips WHERE n < 0 GROUP BY ALL",
        "SELECT (SELECT max(n) FROM trips) AS most, count(*) AS rows FROM trips WHERE n < 0 GROUP BY ALL",
    ],
)
def test_statements_that_are_no_plain_select_give_what_duckdb_does(sql: str, session: Session) -> None:
    with duckdb.connect() as connection:
        connection.register("trips", TRIPS)
        expected = connection.sql(sql).to_arrow_table()
    answer = session.online_sql(sql).result().estimate
    assert answer.column_names == expected.column_names
    assert sorted(rows_of(answer)) == sorted(rows_of(expected))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SHOW ALL TABLES", "'SHOW ALL TABLES' is not answered; there are SHOW TABLES, DESCRIBE"),
        ("SHOW trips", "is not answered"),
        ("DESCRIBE nowhere", "there is no table nowhere"),
        ("SUMMARIZE nowhere", "there is no table nowhere"),
        ("DESCRIBE SELECT * FROM read_csv('/etc/passwd')", "read_csv is not allowed"),
        ("SUMMARIZE 'other.parquet'", "is not answered"),
        ("SELECT * FROM (SUMMARIZE '/etc/passwd')", "SUMMARIZE takes a table or a SELECT"),
        ("SELECT * FROM (DESCRIBE nowhere)", "there is no table nowhere"),
        ("PIVOT trips ON zone USING sum(n)", "name its values"),
        ("PIVOT (SELECT t.zone, t.n FROM trips AS t) ON zone IN ('a') USING sum(n)", "into a WITH"),
        ("SELECT alias(zone) FROM trips", "the function 'alias' is not known or not allowed"),
        ("DESCRIBE trips; SELECT 1", "2 statements were given"),
    ],
)
def test_what_is_not_shown_is_refused(sql: str, message: str, session: Session) -> None:
    with pytest.raises(SqlError, match=message):
        session.online_sql(sql)


def test_the_program_lists_tables_and_columns(folder: Path) -> None:
    shown = CliRunner().invoke(program, ["tables", "--data", str(folder)]).output
    assert [line.split() for line in shown.splitlines() if "trips" in line][:2] == [
        ["trips", "150", "sampled"],
        ["trips", "fare", "DOUBLE"],
    ]
    (line,) = (
        CliRunner()
        .invoke(program, ["tables", "--data", str(folder), "--format", "jsonl"])
        .output.splitlines()
    )
    assert json.loads(line)["columns"] == {"fare": "DOUBLE", "zone": "VARCHAR", "n": "BIGINT"}
