"""Which types parameters have that a client of Postgres leaves open."""

from __future__ import annotations

import pytest
from relaqs_engine.postgres.kinds import parameter_types

TABLES = {"trips": {"day": "DATE", "zone": "INTEGER"}, "shifts": {"day": "VARCHAR", "driver": "VARCHAR"}}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT 1 FROM trips WHERE day = $1", {1: "DATE"}),
        ("SELECT 1 FROM public.Shifts WHERE Day = $1", {1: "VARCHAR"}),
        ("SELECT 1 FROM trips t, shifts s WHERE t.day = $1 AND s.day = $2", {1: "DATE", 2: "VARCHAR"}),
        ("SELECT 1 FROM trips, shifts WHERE day = $1 AND zone = $2", {2: "INTEGER"}),
        ("WITH few AS (SELECT day FROM trips) SELECT 1 FROM few WHERE day = $1", {1: "DATE"}),
        ("SELECT 1 FROM a_view WHERE day = $1 AND zone = $2", {2: "INTEGER"}),
    ],
)
def test_a_parameter_has_the_type_of_the_column_in_the_tables_that_are_read(
    sql: str, found: dict[int, str]
) -> None:
    assert parameter_types(sql, TABLES) == found
