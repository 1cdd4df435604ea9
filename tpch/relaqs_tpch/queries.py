"""The 22 queries of TPC-H, with the substitution parameters the specification validates answers with."""

from __future__ import annotations

from importlib.resources import files

QUERIES: tuple[int, ...] = tuple(range(1, 23))


def query(number: int) -> str:
    """Return the SQL text of one query, in the dialect of DuckDB.

    Q15's view is a common table expression, and Q11 keeps scale 1's fraction at every scale.
    Raises ValueError if there is no query of that number.
    Source: TPC Benchmark H Standard Specification 3.0.1, clause 2.4.
    """
    if number not in QUERIES:
        raise ValueError(f"there is no TPC-H query {number!r}; the queries are {QUERIES[0]} to {QUERIES[-1]}")
    return files("relaqs_tpch").joinpath("sql", f"{number:02}.sql").read_text(encoding="utf-8")
