"""Views become common table expressions in front of the query that reads them."""

from __future__ import annotations

import pytest
import sqlglot
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.parse import check_views, expand_views

VIEWS = {
    "late": "SELECT * FROM flights WHERE delay > 15",
    "Late by Day": "SELECT day, count(*) AS n FROM LATE GROUP BY day",
    "unused": "SELECT 1 AS x",
}


def expanded(sql: str) -> str:
    return sqlglot.parse_one(expand_views(sql, VIEWS), dialect="duckdb").sql("duckdb")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT count(*) FROM Late",
            'WITH "late" AS (SELECT * FROM flights WHERE delay > 15) SELECT COUNT(*) FROM Late',
        ),
        (
            'SELECT max(n) FROM "late by day"',
            'WITH "late" AS (SELECT * FROM flights WHERE delay > 15), '
            '"Late by Day" AS (SELECT day, COUNT(*) AS n FROM LATE GROUP BY day) '
            'SELECT MAX(n) FROM "late by day"',
        ),
        (
            "WITH d AS (SELECT day FROM late) SELECT * FROM d UNION ALL SELECT * FROM d",
            'WITH "late" AS (SELECT * FROM flights WHERE delay > 15), d AS (SELECT day FROM late) '
            "SELECT * FROM d UNION ALL SELECT * FROM d",
        ),
        (  # a table of the query's own WITH is read in the view's place only where it is in scope
            "SELECT * FROM (WITH flights AS (SELECT 1 AS delay) SELECT * FROM flights) AS f, late",
            'WITH "late" AS (SELECT * FROM flights WHERE delay > 15) '
            "SELECT * FROM (WITH flights AS (SELECT 1 AS delay) SELECT * FROM flights) AS f, late",
        ),
    ],
)
def test_views_stand_in_front_in_their_order(sql: str, expected: str) -> None:
    assert expanded(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM flights",
        "WITH late AS (SELECT 1 AS x) SELECT * FROM late",
        "SELECT * FROM other.late",
        "SELECT late FROM flights",
        "SELEC nothing",
        "DROP TABLE late",
        "SELECT 1; SELECT * FROM late",
    ],
)
def test_sql_that_reads_no_view_comes_back_as_it_is(sql: str) -> None:
    assert expand_views(sql, VIEWS) == sql


@pytest.mark.parametrize(
    "sql",
    [
        'WITH late AS (SELECT 1 AS n) SELECT * FROM late, "Late by Day"',
        "WITH RECURSIVE flights AS (SELECT 1 AS delay) SELECT * FROM late, flights",
    ],
)
def test_a_name_that_would_mean_two_things_is_refused(sql: str) -> None:
    with pytest.raises(SqlError, match="a view that it reads means too"):
        expand_views(sql, VIEWS)


def test_a_name_of_the_querys_own_with_does_not_reach_into_a_view() -> None:
    text = expanded("WITH flights AS (SELECT 1 AS delay) SELECT * FROM late, flights")
    assert text.index('"late" AS') < text.index("flights AS (")


def test_views_are_checked_once() -> None:
    check_views(VIEWS, ["flights"])
    with pytest.raises(SqlError, match="in the view 'late': there is no table flights") as caught:
        check_views(VIEWS, ["flight"])
    assert caught.value.candidates == ("flight",)
    with pytest.raises(SqlError, match="'LATE' has the name of"):
        check_views(VIEWS | {"LATE": "SELECT 1"}, ["flights"])
