"""Hand-written queries, each a trap for a rewriter, and TPC-H: answered as plain DuckDB answers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relaqs_engine.plans.plan import Mode
from relaqs_tpch import QUERIES, query

from tests.engine.world import World

# All others run exactly: they read static tables alone, or ask whether there is no row in any partition.
PROGRESSIVE = {1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 18, 19, 20, 21, 22}
REFINED = {17}

TRAPS = Path(__file__).resolve().parents[1] / "fixtures" / "traps"


def traps() -> Iterator[Any]:
    """Yield each query of the files, named by the comment above it: `--? name`."""
    for file in sorted(TRAPS.glob("*.sql")):
        for block in file.read_text(encoding="utf-8").split("\n--? ")[1:]:
            title, rest = block.split("\n", 1)
            yield pytest.param(rest.split(";\n", 1)[0], id=title)


@pytest.mark.parametrize("sql", list(traps()))
def test_a_trap(tpch: World, sql: str) -> None:
    tpch.check(sql, batches=3)


@pytest.mark.parametrize("number", QUERIES)
def test_tpch_queries(tpch: World, number: int) -> None:
    plan = tpch.check(query(number), batches=3)
    expected = Mode.REFINED if number in REFINED else Mode.EXACT
    assert plan.mode is (Mode.MERGEABLE if number in PROGRESSIVE else expected)


CLUSTERED = [
    # NULL is in no set, nor outside one that is not empty: the key of 2,512 flights is NULL.
    "SELECT count(*) FROM flights AS f WHERE tailnum NOT IN "
    "(SELECT tailnum FROM flights AS x WHERE dep_delay > 300 AND tailnum IS NOT NULL)",
    "SELECT count(*) FROM flights AS f WHERE tailnum IN "
    "(SELECT tailnum FROM flights AS x WHERE dep_delay > 300)",
    "SELECT count(*), sum(a.distance) FROM flights AS a JOIN flights AS b ON a.tailnum = b.tailnum "
    "WHERE a.dep_delay > 200 AND b.dep_delay > 200",
    "SELECT tailnum, count(*), stddev(dep_delay) FROM flights GROUP BY 1",
    "SELECT avg(n), max(n), count(*) FROM (SELECT tailnum, count(*) AS n FROM flights GROUP BY 1)",
    "SELECT origin, count(DISTINCT tailnum), count(*) FROM flights GROUP BY 1",
    "SELECT origin, count(DISTINCT dest), count(*) FROM flights GROUP BY 1",
]


@pytest.mark.parametrize("sql", CLUSTERED)
def test_a_cluster_key_with_nulls(flights_by_plane: World, sql: str) -> None:
    flights_by_plane.check(sql, batches=3)
