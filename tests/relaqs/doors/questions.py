"""Ten questions that go through every door, and DuckDB's own answers to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

Rows = Sequence[Sequence[Any]]

QUESTIONS = {
    "a count": "SELECT count(*) AS n FROM flights",
    "averages by group": (
        "SELECT origin, avg(dep_delay) AS late, count(*) AS n FROM flights GROUP BY origin ORDER BY origin"
    ),
    "a filter": (
        "SELECT sum(distance) AS miles FROM flights WHERE month <= 3 AND carrier IN ('UA', 'AA') "
        "AND dest LIKE 'S%'"
    ),
    "a join": (
        "SELECT airlines.name AS airline, max(dep_delay) AS worst FROM flights "
        "JOIN airlines ON flights.carrier = airlines.carrier GROUP BY airlines.name ORDER BY airline"
    ),
    "a top five": (
        "SELECT dest, count(*) AS n FROM flights GROUP BY dest ORDER BY n DESC, dest LIMIT 5 OFFSET 1"
    ),
    "having": (
        "SELECT carrier, avg(arr_delay) AS late FROM flights GROUP BY carrier "
        "HAVING count(*) > 10000 ORDER BY carrier"
    ),
    "distinct values": "SELECT count(DISTINCT tailnum) AS planes FROM flights WHERE origin <> 'JFK'",
    "a case": (
        "SELECT month, sum(CASE WHEN dep_delay > 60 THEN 1 ELSE 0 END) AS bad FROM flights "
        "GROUP BY month ORDER BY month"
    ),
    "a subquery": ("SELECT count(*) AS n FROM flights WHERE distance > (SELECT avg(distance) FROM flights)"),
    "rows": (
        "SELECT carrier, flight, dep_delay, time_hour FROM flights WHERE dep_delay > 900 "
        "ORDER BY dep_delay DESC, flight"
    ),
}


def duckdbs_answer(files: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB answers over the folder of Parquet files."""
    with duckdb.connect() as connection:
        for path in files.glob("*.parquet"):
            connection.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        return connection.execute(sql).fetchall()


def assert_same(found: Rows, expected: Rows) -> None:
    """Hold rows to DuckDB's: identical, floats within 1e-9 of each other."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours) == len(theirs)
        assert all(_is_same(*pair) for pair in zip(ours, theirs, strict=True)), (ours, theirs)


def _is_same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return bool(ours == theirs)
