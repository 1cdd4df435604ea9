"""Statements that are written out as a SELECT, what is said of rows without a value, and addresses."""

from __future__ import annotations

import pytest
import sqlglot
from relaqs_engine.duck_words import about_rows
from relaqs_engine.sql.columns import row_without_names
from relaqs_engine.sql.read import WrittenSql
from relaqs_engine.sql.statements import as_select
from relaqs_engine.stores.address import Address


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SHOW TABLES", "SELECT * FROM (VALUES ('trips'), ('zones')) AS shown(name)"),
        ("summarize trips", "SELECT * FROM (SUMMARIZE SELECT * FROM trips)"),
        (
            "DESCRIBE trips",
            'SELECT column_name, column_type, \'YES\' AS "null", CAST(NULL AS VARCHAR) AS "key", '
            'CAST(NULL AS VARCHAR) AS "default", CAST(NULL AS VARCHAR) AS extra '
            "FROM (VALUES ('fare', 'DOUBLE')) AS shown(column_name, column_type)",
        ),
        (
            "WITH t AS (FROM trips) PIVOT t ON zone IN (1, 2) USING sum(fare) ORDER BY 1",
            "WITH t AS (FROM trips) SELECT * FROM (PIVOT t ON zone IN (1, 2) USING sum(fare)) ORDER BY 1",
        ),
    ],
)
def test_what_shows_describes_or_turns_is_a_select(sql: str, written: str) -> None:
    found = as_select(WrittenSql(sql), ["trips", "zones"], lambda sql: [("fare", "DOUBLE")])
    assert found.sql == written


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "Conversion Error: Could not convert string 'a' to INT32",
            "Conversion Error: Could not convert string 'a' to INT32; TRY_CAST gives NULL for such a value",
        ),
        (
            "Invalid Input Error: Use TRY(...) to return NULL, or SET strict=false to return it.",
            "Invalid Input Error: Use TRY(...) to return NULL.",
        ),
        (
            'Invalid Input Error: More than one row. Use "SET x=false" to get a random row.',
            "Invalid Input Error: More than one row.",
        ),
    ],
)
def test_no_setting_is_advised_that_cannot_be_changed(message: str, said: str) -> None:
    assert about_rows(message) == said


def test_an_address_has_a_name_and_what_is_above_it() -> None:
    trips = Address.of("s3://bucket/warehouse/trips/")
    assert trips is not None
    assert (str(trips), trips.name) == ("s3://bucket/warehouse/trips", "trips")
    assert str(trips.parent) == "s3://bucket/warehouse"
    assert Address.of("data/trips") is None


@pytest.mark.parametrize(("taken", "found"), [("q", "q"), ("*", None)])
def test_a_row_of_a_derived_table_is_found_where_its_output_has_no_name(
    taken: str, found: str | None
) -> None:
    sql = f"SELECT {taken} FROM (SELECT (SELECT max(fare) FROM trips)) AS q"
    assert row_without_names(sqlglot.parse_one(sql, dialect="duckdb")) == found
