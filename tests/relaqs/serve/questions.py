"""Ten questions that every driver asks, and their answers by DuckDB over the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb

from tests.relaqs.serve.served_tables import TRIPS, ZONES

QUESTIONS = (
    "SELECT count(*) AS n FROM trips",
    "SELECT zone, count(*) AS n, sum(fare) AS total FROM trips GROUP BY zone ORDER BY zone",
    "SELECT avg(fare) AS mean, avg(distance) AS far FROM trips WHERE zone = 3",
    "SELECT min(day) AS first, max(picked_up) AS last FROM trips",
    "SELECT name, sum(fare) AS total FROM trips JOIN zones USING (zone) GROUP BY name ORDER BY name",
    "SELECT driver, count(*) AS n FROM trips GROUP BY driver ORDER BY n DESC, driver LIMIT 3",
    "SELECT shared, avg(distance) AS far FROM public.trips GROUP BY shared ORDER BY shared",
    "SELECT date_trunc('month', day)::DATE AS month, count(*) AS n FROM trips GROUP BY 1 ORDER BY 1",
    "SELECT id, fare, driver FROM trips WHERE id < 4 ORDER BY id",
    "WITH z AS (SELECT sum(fare) AS s FROM trips GROUP BY zone) SELECT max(s) - min(s) AS spread FROM z",
)


@cache
def true_rows(sql: str) -> list[tuple[Any, ...]]:
    """Return DuckDB's answer."""
    return _database().cursor().execute(sql.replace("public.", "")).fetchall()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE trips AS {TRIPS}")
    con.execute(f"CREATE TABLE zones AS {ZONES}")
    return con


def close(found: Sequence[Sequence[Any]], true: Sequence[Sequence[Any]]) -> bool:
    """Whether two answers are equal, floats within 1e-9 of each other."""
    if len(found) != len(true):
        return False
    return all(
        _same(a, b)
        for ours, theirs in zip(found, true, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def _same(found: Any, true: Any) -> bool:
    if isinstance(true, float):
        return bool(abs(found - true) <= 1e-9 * abs(true))
    return bool(found == true)


def shown_rows(sql: str) -> list[list[str]]:
    """Return DuckDB's answer as a client prints it, numbers to six digits."""
    return [[_shown(value) for value in row] for row in true_rows(sql)]


def printed_rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return what a client printed, a row a line, numbers to six digits."""
    return [[_shown(_read(cell)) for cell in line.split(separator)] for line in lines]


def _read(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int | float | Decimal):
        return f"{float(value):.6g}"
    return str(value)
