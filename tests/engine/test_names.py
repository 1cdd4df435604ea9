"""A column that a query reads is among the names it is found to have, or it may read any."""

from __future__ import annotations

import pytest
import sqlglot
from relaqs_engine.sql.columns import names_in, whole_row
from relaqs_engine.sql.parse import DIALECT


def names(sql: str) -> frozenset[str] | None:
    return names_in(sqlglot.parse_one(sql, dialect=DIALECT))


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT sum(Fare) FROM trips WHERE zone = 3", {"fare", "zone"}),
        ("SELECT count(*), count(DISTINCT t.zone) FROM trips t", {"zone"}),
        ("SELECT a.x FROM u AS a JOIN v USING (key)", {"x", "key"}),
        ("WITH w(x) AS (SELECT fare FROM trips) SELECT sum(x) FROM w", {"fare"}),
        (
            'SELECT max("A b") FROM trips GROUP BY zone HAVING min(s.part) > 1 ORDER BY day',
            {"a b", "s", "day"},
        ),
        ("SELECT sum(current_date), max(localtime) FROM t", {"current_date", "localtime"}),
        ("SELECT x FROM (SELECT fare AS x FROM trips) AS q", {"fare"}),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.y)", {"x", "y"}),
    ],
)
def test_columns_that_are_read_are_named(sql: str, columns: set[str]) -> None:
    found = names(sql)
    assert found is not None
    assert columns <= found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM trips",
        "FROM trips",
        "SELECT t.* FROM trips AS t",
        "SELECT * EXCLUDE (fare) FROM trips",
        "SELECT sum(COLUMNS('f.*')) FROM trips",
        "SELECT trips FROM trips",
        "SELECT count(t) FROM trips AS t",
        "SELECT q FROM (SELECT 1 AS one, fare FROM trips) AS q",
        "SELECT #1 FROM trips",
        "SELECT a FROM trips AS t(a, b)",
        "SELECT sum(a) FROM (trips) AS t(a)",
        "SELECT q.a FROM (trips JOIN zones USING (zone)) AS q(a, b, c)",
        "SELECT fare FROM trips NATURAL JOIN zones",
        "PIVOT trips ON zone USING sum(fare)",
        "WITH w AS (SELECT * FROM trips) SELECT sum(fare) FROM w",
    ],
)
def test_what_names_no_columns_may_read_any(sql: str) -> None:
    assert names(sql) is None


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT to_json(trips) FROM trips", "trips"),
        ("SELECT count(DISTINCT t) FROM trips AS t", "t"),
        ("SELECT t.fare FROM trips AS t", None),
        ("SELECT zone FROM zone", None),  # a column of that name is meant
        ("SELECT day, count(*) AS trips FROM trips GROUP BY day ORDER BY trips DESC", None),
        ("SELECT day, count(*) AS trips FROM trips GROUP BY 1 HAVING trips > 3", None),
        ("SELECT count(*) AS trips, max(to_json(trips)) FROM trips", "trips"),
        ("SELECT zones, sum(x) FROM (SELECT z.name AS zones, x FROM trips, zones AS z) GROUP BY zones", None),
        ("WITH trips AS (SELECT 1 AS trips) SELECT trips FROM trips", None),
        ("SELECT trips FROM (SELECT 1 AS trips) AS trips", None),
        ("SELECT 1 FROM trips WHERE EXISTS (SELECT 1 FROM zones WHERE to_json(trips) = z)", "trips"),
        ("SELECT id, 1 AS trips FROM trips WHERE trips IS NOT NULL", "trips"),
    ],
)
def test_rows_that_are_values_are_found(sql: str, row: str | None) -> None:
    assert whole_row(sqlglot.parse_one(sql, dialect=DIALECT), {"zone", "fare"}) == row
