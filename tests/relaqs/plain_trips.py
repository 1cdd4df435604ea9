"""Plain Parquet files of trips, and a question about them."""

from __future__ import annotations

from pathlib import Path

import duckdb

BY_ZONE = "SELECT zone, sum(fare) AS fare, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"


def write_trips(path: Path, rows: int) -> Path:
    """Write trips with the columns id, zone and fare, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    duckdb.sql(
        f"SELECT i AS id, i % 7 AS zone, hash(i) % 100 AS fare FROM range({rows}) AS t(i)"
    ).write_parquet(str(path))
    return path
