"""Files to try estimates from row groups on: real rows in several orders, and made ones with heavy tails."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TABLE = "t"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in an order, and questions about them.

    Attributes:
        name: for the table of results.
        sql: gives the rows in their order; {lineitem} and {flights} stand for files.
        questions: each a SELECT over `t`.
        are_unequal: whether the row groups have different sizes.
    """

    name: str
    sql: str
    questions: tuple[str, ...]
    are_unequal: bool = False


_LINEITEM = (
    "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, avg(l_extendedprice) AS p, count(*) AS n "
    "FROM t GROUP BY ALL",
    "SELECT l_shipmode, count(*) AS n, sum(l_extendedprice * (1 - l_discount)) AS r FROM t "
    "WHERE l_quantity < 5 GROUP BY 1",
    "SELECT date_trunc('month', l_shipdate) AS month, count(*) AS n, sum(l_tax) AS s, avg(l_discount) AS d "
    "FROM t GROUP BY 1",
    "SELECT year(l_shipdate) AS year, sum(l_quantity) AS q, avg(l_quantity) AS a FROM t GROUP BY 1",
    "SELECT sum(l_extendedprice * l_discount) AS r, count(*) AS n FROM t "
    "WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_quantity < 24",
    "SELECT sum(l_quantity) AS q, count(*) AS n, avg(l_tax) AS x FROM t WHERE l_partkey < 400",
    "SELECT l_shipmode, sum(l_tax) AS x, count(*) AS n FROM t WHERE l_commitdate > DATE '1996-03-10' "
    "GROUP BY 1",
    "SELECT sum(l_tax) AS x, count(*) AS n FROM t WHERE l_receiptdate BETWEEN DATE '1993-03-10' AND "
    "DATE '1994-02-10'",
)
_WHOLE = "SELECT sum(x) AS s, avg(x) AS a, count(x) AS n FROM t"
_BY_K = "SELECT k, sum(x) AS s, avg(x) AS a, count(*) AS n FROM t GROUP BY 1"
_MADE = (
    _WHOLE,
    _BY_K,
    "SELECT sum(x) AS s, avg(x) AS a FROM t WHERE k < 3",
    "SELECT avg(x + y) AS a, sum(y) AS s FROM t",
)
_FLIGHTS = (
    "SELECT origin, count(*) AS n, avg(delay) AS late, sum(distance) AS d FROM t GROUP BY 1",
    "SELECT date_trunc('month', date) AS month, count(*) AS n, avg(delay) AS late FROM t GROUP BY 1",
    "SELECT count(*) AS n, avg(delay) AS late FROM t WHERE delay > 60 AND distance < 500",
    "SELECT sum(distance) AS d, avg(distance) AS a FROM t",
)
_KEYS = (
    "SELECT k, count(*) AS n, sum(x) AS s, avg(x) AS a FROM t GROUP BY 1",
    "SELECT sum(x) AS s, avg(x) AS a FROM t",
    "SELECT sum(x) AS s, count(*) AS n FROM t WHERE k = 1",
)


def _made(x: str, k: str = "hash(i, 2) % 6", rows: str = "range(400000) AS r(i)") -> str:
    """Return the SQL of 400,000 rows in their order: a value x of theirs, a key k and a random y."""
    return (
        f"SELECT ({k})::INTEGER AS k, ({x})::DECIMAL(18, 3) AS x, (hash(i, 3) % 10)::INTEGER AS y "
        f"FROM {rows} ORDER BY i"
    )


ROWS = (
    Rows("lineitem as generated", "FROM {lineitem}", _LINEITEM),
    Rows("lineitem, unequal row groups", "FROM {lineitem}", _LINEITEM, are_unequal=True),
    Rows("lineitem by shipdate", "FROM {lineitem} ORDER BY l_shipdate, l_orderkey, l_linenumber", _LINEITEM),
    Rows("flights by time", "FROM {flights} WHERE hash(date, origin) % 5 = 0 ORDER BY date", _FLIGHTS),
    Rows(
        "Zipf keys in runs",
        "SELECT (1000 ** u)::INTEGER AS k, x * (1 + i / 400000) AS x FROM (SELECT i, "
        "(hash(i // 50) % 1000003) / 1000003 AS u, (hash(i, 7) % 1000) / 10 AS x "
        "FROM range(400000) AS r(i)) ORDER BY i",
        _KEYS,
    ),
    Rows(
        "Pareto 1.5",
        "SELECT (hash(i, 3) % 10)::INTEGER AS k, ((hash(i) % 1000003 + 1) / 1000004) ** (-1 / 1.5) AS x "
        "FROM range(400000) AS r(i) ORDER BY i",
        _KEYS,
    ),
    Rows("log-normal 2", "normal", _KEYS),
    Rows("made: random", _made("40 + hash(i, 1) % 21"), _MADE),
    Rows("made: one odd row group", _made("(40 + hash(i, 1) % 21) * if(i // 2000 = 150, 2.9, 1)"), _MADE),
    Rows("made: half an odd row group", _made("(40 + hash(i, 1) % 21) * if(i // 1000 = 150, 2.9, 1)"), _MADE),
    Rows("made: level of the last fifth", _made("hash(i, 1) % 21 + if(i > 320000, 60, 40)"), _MADE),
    Rows("made: level of the last twentieth", _made("hash(i, 1) % 21 + if(i > 380000, 60, 40)"), _MADE),
    Rows("made: rises", _made("i // 1000 + hash(i, 1) % 100"), _MADE),
    Rows("made: seasons", _made("100 + 50 * sin(i / 20000) + hash(i, 1) % 40"), _MADE),
    Rows(
        "made: NULLs in runs",
        _made("if(hash(i // 3000) % 10 < 6, NULL, 40 + hash(i // 3000, 1) % 21)"),
        _MADE,
    ),
    Rows("made: few NULLs in runs", _made("if(hash(i // 3000) % 20 = 0, NULL, 40 + hash(i, 1) % 21)"), _MADE),
    Rows(
        "made: few values in runs", _made("if(hash(i // 3000) % 20 > 0, NULL, 40 + hash(i, 1) % 21)"), _MADE
    ),
    Rows("made: words by frequency", _made("1 + 1000000 // (i + 10)"), _MADE),
    Rows(
        "made: users",
        _made("1 + hash(i // 400, 1) % 20 * (hash(i, 1) % 10)", "hash(i // 400, 2) % 12"),
        _MADE,
    ),
    Rows(
        "made: users of unlike size",
        _made(
            "1 + hash(u, 1) % 20 * (hash(i, 1) % 10)",
            "hash(u, 2) % 6",
            "(SELECT i, floor(2000 * (i / 400000) ** 2) AS u FROM range(400000) AS r(i))",
        ),
        _MADE,
    ),
)


def written(rows: Rows, row_groups: int, folder: Path, lineitem: Path | None, flights: Path | None) -> Path:
    """Return a Parquet file of the rows in so many row groups.

    Floats are written as decimals: nothing is certified of floats whose footers may leave NaN out.
    """
    path = folder / f"{abs(hash((rows.name, row_groups)))}.parquet"
    table = _without_floats(_table(rows, lineitem, flights))
    edges = _edges(table.num_rows, row_groups, rows.are_unequal)
    with pq.ParquetWriter(path, table.schema) as writer:
        for begin, end in pairwise(edges):
            writer.write_table(table.slice(begin, end - begin), row_group_size=max(1, end - begin))
    return path


def _table(rows: Rows, lineitem: Path | None, flights: Path | None) -> pa.Table:
    if rows.sql == "normal":
        random = np.random.default_rng(1)
        return pa.table(
            {
                "k": random.integers(0, 10, 400_000, dtype=np.int32),
                "x": random.lognormal(0.0, 2.0, 400_000),
            }
        )
    with duckdb.connect() as connection:
        sql = rows.sql.format(lineitem=f"'{lineitem}'", flights=f"'{flights}'")
        return connection.sql(sql).to_arrow_table()


def _without_floats(table: pa.Table) -> pa.Table:
    return pa.table(
        {
            field.name: column.cast(pa.decimal128(18, 9), safe=False)
            if pa.types.is_floating(field.type)
            else column
            for field, column in zip(table.schema, table.columns, strict=True)
        }
    )


def _edges(row_count: int, row_groups: int, are_unequal: bool) -> list[int]:
    """Return where row groups begin and end. Unequal ones are up to ten times as large as others."""
    sizes = np.random.default_rng(2).uniform(1, 10, row_groups) if are_unequal else np.ones(row_groups)
    edges = np.concatenate([[0.0], np.cumsum(sizes / sizes.sum())])
    return [round(edge * row_count) for edge in edges]
