"""SHOW TABLES, DESCRIBE, SUMMARIZE and `relaqs tables`: what people type first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts import shuffle
from relaqs_engine.sql import statements

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


def test_a_view_may_show_the_tables(folder: Path) -> None:
    views = {"far": "SELECT n FROM trips", "names": "SELECT name FROM (show tables) WHERE name <> 'trips'"}
    with relaqs.connect(folder, threads=1, views=views) as session:
        assert rows_of(session.online_sql("FROM names ORDER BY 1").result().estimate) == [
            ("far",),
            ("names",),
        ]
        assert session.views == views


def test_many_describes_in_a_row_cost_no_more_than_two(session: Session) -> None:
    found = session.online_sql("DESCRIBE " * 200 + "trips").result().estimate
    assert rows_of(found) == rows_of(session.online_sql("DESCRIBE DESCRIBE trips").result().estimate)


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


def is_as_duckdbs(sql: str, session: Session) -> None:
    """Assert that the answer has the columns and rows of plain DuckDB's over TRIPS."""
    with duckdb.connect() as connection:
        connection.register("trips", TRIPS)
        expected = connection.sql(sql).to_arrow_table()
    answer = session.online_sql(sql).result().estimate
    assert answer.column_names == expected.column_names
    assert sorted(rows_of(answer), key=str) == sorted(rows_of(expected), key=str)


@pytest.mark.parametrize(
    "sql",
    [
        "PIVOT trips ON zone IN ('a', 'b') USING sum(fare), count(*) AS rows",
        "PIVOT trips ON zone IN ('b', NULL, '2.50') USING max(fare) AS most, count(*) AS rows GROUP BY n",
        "PIVOT trips ON n IN (2, 7.0) USING sum(fare) GROUP BY zone ORDER BY zone",
        "PIVOT trips ON zone IN ('A', 'a') GROUP BY n",
        "PIVOT trips ON zone",
        "PIVOT trips ON n % 2 IN (0, 1) GROUP BY zone",
        "PIVOT trips ON (n % 2) IN (0, 1), lower(zone) IN ('a') GROUP BY fare",
        "PIVOT trips ON CASE WHEN n > 9 THEN 'u' ELSE 'v' END USING max(n) GROUP BY zone",
        "PIVOT trips ON zone USING avg(n) GROUP BY fare",
        "PIVOT (SELECT t.zone, t.n FROM trips AS t) ON zone IN ('a') USING sum(n)",
        "PIVOT (SELECT t.zone, t.n FROM trips AS t) ON zone USING sum(n)",
        "PIVOT (SELECT replace(zone, 'a', '') AS z, n FROM trips) ON z USING sum(n) GROUP BY n",
        "PIVOT (SELECT replace(zone, 'a', '') AS z, n FROM trips) ON z IN ('') USING sum(n) AS s GROUP BY n",
        "PIVOT trips ON zone || n % 3, n % 2 = 0 USING sum(n) AS s, count(*) AS c GROUP BY fare",
        "WITH w AS (FROM trips) PIVOT w ON n % 4 USING sum(n) GROUP BY zone",
        "WITH p AS (PIVOT trips ON zone USING min(n) GROUP BY fare), v AS (FROM p) SELECT b, a, fare FROM v",
        "FROM (PIVOT trips ON zone GROUP BY fare) JOIN (PIVOT trips ON n % 2 GROUP BY fare) USING (fare)",
        "/* long */ UNPIVOT (SELECT max(n) AS n, count(*) AS m FROM trips) ON n, m INTO NAME a VALUE b;",
        "WITH w AS (SELECT t.zone, t.n FROM trips AS t) FROM (PIVOT w ON zone IN ('a') USING sum(n))",
        "VALUES ((SELECT max(n) FROM trips), 'x'), (1, 'y') ORDER BY 1 DESC LIMIT 1",
        "VALUES (1), (2) UNION ALL SELECT max(n) FROM trips",
        "PIVOT (SELECT zone, n FROM trips) ON zone IN ('a', 'b') USING sum(n) AS limit ORDER BY 1 LIMIT 1",
        "PIVOT_LONGER (SELECT max(n) AS n, min(n) AS m FROM trips) ON n, m ORDER BY value LIMIT 1; -- one",
        "WITH w AS (SELECT zone, n FROM trips WHERE n > 3) PIVOT w ON zone IN ('a') USING sum(n)",
        "WITH w(z, n) AS MATERIALIZED (SELECT zone, n FROM trips), v AS (FROM w) UNPIVOT v ON n",
        "WITH RECURSIVE w(a) USING KEY (a) AS (SELECT 1 UNION SELECT a FROM w WHERE false) UNPIVOT w ON a",
        "WITH w AS (SELECT max(n) AS most FROM trips) VALUES ((SELECT most FROM w))",
        "SELECT * FROM (WITH w AS (SELECT zone, n FROM trips) PIVOT w ON zone IN ('a') USING sum(n))",
        "WITH a AS (WITH w AS (SELECT zone, n FROM trips) PIVOT w ON zone IN ('a') USING sum(n)) FROM a",
        "SELECT name AS shown FROM (SHOW TABLES) AS t WHERE name = 'trips'",
        "WITH shown AS (SHOW TABLES) SELECT count(*) AS tables FROM shown WHERE name IN ('trips', 'zones')",
        "DESCRIBE VALUES (1, 'a')",
        "DESCRIBE SHOW TABLES",
        "SUMMARIZE VALUES (1), (2)",
        "DESCRIBE PIVOT trips ON zone IN ('a') USING sum(n)",
        "DESCRIBE TABLE trips",
        "DESCRIBE SUMMARIZE trips",
        "DESCRIBE DESC DESCRIBE DESCRIBE trips",
        "FROM (DESCRIBE trips) SELECT column_name, column_type",
        "WITH found AS (SUMMARIZE trips) SELECT column_name, max, null_percentage FROM found",
        "FROM (FROM trips SELECT zone, max(n) GROUP BY 1) JOIN (FROM trips SELECT 'a' AS zone) USING (zone)",
        "SELECT 1 AS one, 'x' AS x FROM trips GROUP BY ALL",
        "SELECT 1 AS one, count(*) AS rows FROM trips WHERE n < 0 GROUP BY ALL",
        "SELECT (SELECT max(n) FROM trips) AS most, count(*) AS rows FROM trips WHERE n < 0 GROUP BY ALL",
    ],
)
def test_statements_that_are_no_plain_select_give_what_duckdb_does(sql: str, session: Session) -> None:
    is_as_duckdbs(sql, session)


@pytest.mark.parametrize("values", ["z IN ('b', NULL)", "z IN (NULL), zone IN ('a', 'b')"])
def test_a_pivot_has_the_rows_without_a_value(values: str, session: Session) -> None:
    """They are found by IS NULL. No row has z = 'NULL'."""
    rows = "(SELECT nullif(zone, 'a') AS z, zone, n, fare FROM trips)"
    sql = f"SELECT * FROM (PIVOT {rows} ON {values} USING sum(n) AS s, count(*) AS c GROUP BY fare)"
    is_as_duckdbs(sql, session)


def test_a_pivot_of_groups_has_estimates(folder: Path) -> None:
    """Each snapshot has the columns of the end. Before, it was answered at its end."""
    with relaqs.connect(folder, threads=1) as session:
        query = session.online_sql("PIVOT trips ON zone USING count(*) GROUP BY fare")
        snapshots = list(query)
    assert len(snapshots) > 1
    assert {tuple(each.estimate.column_names[1:]) for each in snapshots} == {("a", "b")}
    assert sorted(rows_of(snapshots[-1].estimate), key=str) == [(1.5, 50, 0), (4.0, 0, 50), (None, 0, 50)]


def test_a_pivot_of_too_many_values_names_them(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MOST_VALUES", 100)
    with pytest.raises(
        SqlError, match=r"n has 150 values, and this PIVOT would give as many columns; at most 100"
    ):
        session.online_sql("PIVOT trips ON n USING count(*)")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SHOW ALL TABLES", "'SHOW ALL TABLES' is not answered; there are SHOW TABLES, DESCRIBE"),
        ("SHOW trips", "is not answered"),
        ("DESCRIBE", "is not answered"),
        ("SUMMARIZE DESCRIBE " * 1000 + "trips", "is not answered"),
        (
            "SELECT * FROM (SHOW trips)",
            r"there are \(SHOW TABLES\) and \(DESCRIBE trips\)",
        ),
        ("FROM (WITH w AS (FROM trips) PIVOT w ON zone USING sum(n))", "name its values"),
        ("VALUES (1)) AS a, (VALUES (2)", 'syntax error at or near "\\)"'),
        ("DESCRIBE nowhere", "there is no table nowhere"),
        ("SUMMARIZE nowhere", "there is no table nowhere"),
        ("DESCRIBE SELECT * FROM read_csv('/etc/passwd')", "read_csv is not allowed"),
        ("SUMMARIZE 'other.parquet'", "is not answered"),
        ("SELECT * FROM (SUMMARIZE '/etc/passwd')", "SUMMARIZE takes a table or a SELECT"),
        ("SELECT * FROM (DESCRIBE nowhere)", "there is no table nowhere"),
        ("PIVOT trips ON zon USING sum(n)", r"at line 1, column 16; did you mean 'zone'"),
        ("SELECT alias(zone) FROM trips", "the function 'alias' is not known or not allowed"),
        ("DESCRIBE trips; SELECT 1", "2 statements were given"),
    ],
)
def test_what_is_not_shown_is_refused(sql: str, message: str, session: Session) -> None:
    with pytest.raises(SqlError, match=message):
        session.online_sql(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "PIVOT trips ON zone IN ('a') USING sum(nn)",
        "WITH w AS (FROM trips)\nPIVOT w ON zone IN ('a') USING sum(nn)",
        "WITH w AS (SELECT nn FROM trips) UNPIVOT w ON a",
        "SELECT * FROM (WITH w AS (FROM trips)\n PIVOT w ON zone IN ('a') USING sum(nn))",
        "SUMMARIZE SELECT nn FROM trips",
        "SUMMARIZE\n\n SELECT 'long' AS x,\n nn FROM trips",
        "DESCRIBE SELECT nn FROM trips",
        "desc\n\nSELECT n\nFROM trips WHERE nn > 3",
        "VALUES (1, nn)",
        "VALUES (1),\n ((SELECT max(nn) FROM trips)) ORDER BY 1",
        "VALUES (1), (1, 2)",
        "PIVOT trips ON zone IN ('a') USIN sum(n)",
        "SELECT count(*) FROM (SHOW TABLES) WHERE nn = 3",
    ],
)
def test_an_error_of_a_statement_is_placed_where_duckdb_places_it(sql: str, session: Session) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE trips (fare DOUBLE, zone VARCHAR, n BIGINT)")
        with pytest.raises(duckdb.Error) as theirs:
            connection.execute(sql)
    ((line, spaces),) = re.findall(r"LINE (\d+): .*\n( *)\^", str(theirs.value))
    with pytest.raises(SqlError) as ours:
        session.online_sql(sql)
    assert ours.value.position == (int(line), len(spaces) - len(f"LINE {line}: ") + 1)


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("\n -- fares\n  PIVOT trips ON zone IN ('a')\n USING sum(nn)", (4, 12)),
        ("SUMMARIZE nowhere", (1, 11)),
        ("/* a */\n DESCRIBE nowhere", (2, 11)),
        ("WITH w AS (FROM trips)\nPIVOT nowhere ON zone IN ('a') USING sum(n)", (2, 7)),
    ],
)
def test_an_error_is_placed_where_duckdb_names_no_place(
    sql: str, place: tuple[int, int], session: Session
) -> None:
    with pytest.raises(SqlError) as error:
        session.online_sql(sql)
    assert error.value.position == place


@pytest.mark.parametrize(
    ("sql", "params", "place"),
    [
        ("SELECT sum(n) FROM trips WHERE zone = ? AND nn = 3", ["a long name of a zone"], (1, 45)),
        ("SELECT sum(n)\nFROM trips WHERE zone = $zone AND nn = 3", {"zone": "a\nb"}, (2, 35)),
        ("SELECT sum(n) FROM trips WHERE n > ? AND n = ?", [1, object()], (1, 46)),
        ("SELECT sum(n) FROM trips\nWHERE n > $least", {"least": 2**200}, (2, 11)),
        ("SELECT sum(n) FROM trips WHERE zone = ? AND n > ?", ["a long name"], (1, 49)),
        ("PIVOT trips ON zone IN ($zone) USING sum(nn)", {"zone": "a long name"}, (1, 42)),
        ("SELECT upper(?), upper(?)", ["a long text", 4], (1, 18)),
        ("SELECT 'x', upper(now())", None, (1, 13)),
    ],
)
def test_an_error_beside_a_parameter_is_placed_in_what_was_written(
    sql: str, params: Any, place: tuple[int, int], session: Session
) -> None:
    with pytest.raises(SqlError) as error:
        session.online_sql(sql, params=params)
    assert error.value.position == place


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT coalesce(*COLUMNS(['n', 'fare'])) AS x FROM trips",
        "SELECT zone, sum(greatest(*COLUMNS(['n', 'fare']), 3)) AS x, count(*) AS k FROM trips GROUP BY zone",
        "SELECT avg(least(*COLUMNS(t.* EXCLUDE (zone)))) AS x FROM trips AS t",
        "SELECT n IN (*COLUMNS(['fare'])) AS x, count(*) AS rows FROM trips GROUP BY 1",
        "SELECT concat(*COLUMNS(*), '!') AS x, [*COLUMNS(['n', 'fare'])] AS both FROM trips",
        "SELECT struct_pack(*COLUMNS(['n', 'fare'])) AS x FROM trips",
        "SELECT sum(n) AS x FROM trips WHERE coalesce(*COLUMNS(['fare', 'n'])) > 2",
        "SELECT coalesce(*COLUMNS(['n', 'fare'])) AS a, COLUMNS(*) FROM trips",
        "SELECT zone, sum(greatest(UNPACK(COLUMNS(['n', 'fare'])), 3)) AS x FROM trips GROUP BY zone",
        "SELECT sum(n) AS x FROM trips WHERE coalesce(unpack(columns(['fare', 'n']))) > 2",
    ],
)
def test_columns_as_arguments_of_a_function_are_those_of_duckdb(sql: str, session: Session) -> None:
    with duckdb.connect() as connection:
        connection.register("trips", TRIPS)
        expected = connection.sql(sql).to_arrow_table()
    answer = session.online_sql(sql).result().estimate
    assert answer.schema.types == expected.schema.types
    assert answer.column_names == expected.column_names
    assert sorted(map(repr, rows_of(answer))) == sorted(map(repr, rows_of(expected)))


def test_columns_as_arguments_of_a_function_are_estimated(folder: Path) -> None:
    sql = "SELECT sum(coalesce(*COLUMNS(['n', 'fare']))) AS x FROM trips"
    with relaqs.connect(folder, threads=1) as session:
        assert session.plan(sql).is_estimated


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
