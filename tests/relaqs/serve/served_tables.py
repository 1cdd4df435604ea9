"""The tables that the tests' servers serve."""

from __future__ import annotations

from pathlib import Path

import duckdb
from relaqs_engine.layouts import add_static

import relaqs

ROWS = 120_000
TRIPS = f"""
    SELECT i::INTEGER AS id, (i % 5)::INTEGER AS zone, ((i * 7919) % 1000 / 100)::DECIMAL(9, 2) AS fare,
        (i * 31 % 97)::DOUBLE AS distance, DATE '2024-01-01' + (i % 366)::INTEGER AS day,
        TIMESTAMP '2024-01-01' + INTERVAL (i) SECOND AS picked_up, i % 3 = 0 AS shared,
        CASE WHEN i % 11 = 0 THEN NULL ELSE 'driver ' || (i % 40) END AS driver
    FROM range({ROWS}) AS t(i)
"""
ZONES = "SELECT i::INTEGER AS zone, 'zone ' || i AS name FROM range(5) AS t(i)"


def lay_out(folder: Path) -> Path:
    """Write the tables trips, of 60 partitions, and zones, of 5 rows; return their folder."""
    relaqs.shuffle(duckdb.sql(TRIPS), folder / "trips", partitions=60)
    add_static(duckdb.sql(ZONES), folder / "zones")
    return folder
