"""Made-up visits of web pages: the shape of ClickBench's table `hits`, drawn by DuckDB's hash function.

Rows come in the order of time. Visitors, counters and phrases are drawn by power laws. Most rows have no
phrase and no advertiser.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

_DRAWS = """
CREATE MACRO share(i, salt) AS hash(i, salt) / 18446744073709551616.0;
CREATE MACRO rank(i, salt, most) AS CAST(floor(pow(most, share(i, salt))) AS BIGINT);
"""
_ROWS = """
SELECT
    TIMESTAMP '2013-07-01' + to_microseconds(CAST(i * (31 * 86400e6 / {rows}) AS BIGINT)) AS time,
    CAST(time AS DATE) AS day,
    CAST(hash(rank(i, 1, {rows} // 5)) // 2 AS BIGINT) AS visitor,
    CAST(rank(i, 2, 6000) AS INTEGER) AS counter,
    CAST(rank(i, 3, 5000) AS INTEGER) AS region,
    CAST(CASE WHEN share(i, 4) < 0.95 THEN 0 ELSE rank(i, 5, 60) END AS SMALLINT) AS advertiser,
    CAST(rank(i, 6, 90) AS SMALLINT) AS engine,
    CAST([1024, 1280, 1366, 1440, 1600, 1920, 0][1 + CAST(hash(i, 7) % 7 AS BIGINT)] AS SMALLINT) AS width,
    share(i, 8) < 0.12 AS is_refresh,
    CASE WHEN share(i, 9) < 0.87 THEN '' ELSE 'phrase ' || rank(i, 10, 400000) END AS phrase,
    'http://site' || counter || '.example/page/' || rank(i, 11, 1000000) AS url
FROM range({rows}) AS t(i)
"""


def make_hits(file: Path, rows: int) -> None:
    """Write a file of so many rows, the same for the same number. A file that is there already is kept."""
    if file.exists():
        return
    unfinished = file.with_suffix(".unfinished")
    with duckdb.connect() as connection:
        connection.execute(_DRAWS)
        connection.sql(_ROWS.format(rows=rows)).write_parquet(str(unfinished))
    unfinished.rename(file)
