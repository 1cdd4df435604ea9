"""IN that asks for the rows around it is no condition, and what looks like it stays one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.layouts import add_static, shuffle

from tests.conftest import Oracle
from tests.engine.world import World

INNER = "FROM sales, shops WHERE shop = id AND year = 2000"
RANKED = (
    f"SELECT state, rank() OVER (PARTITION BY state ORDER BY sum(paid) DESC) AS place {INNER} GROUP BY state"
)
OWN = f"SELECT state, count(*) AS n, sum(paid) AS s {INNER} AND state IN ({{}}) GROUP BY state ORDER BY state"
NO_CONDITIONS = (
    f"SELECT state FROM ({RANKED}) WHERE place <= 5",
    f"SELECT state {INNER} GROUP BY state",
    "SELECT b.state FROM sales AS a JOIN shops AS b ON b.id = a.shop WHERE a.year = 2000",
)
# Each is true of some states alone. Shops 0 and 1 are in the states a and b.
CONDITIONS = (
    f"SELECT state FROM ({RANKED}) WHERE place > 1",
    f"SELECT state {INNER} AND id < 2",
    f"SELECT state {INNER} GROUP BY state HAVING sum(paid) > 450000",
    f"SELECT state {INNER} ORDER BY state LIMIT 1",
    f"SELECT min(state) {INNER}",
    "SELECT a.state FROM sales, shops AS a, shops AS b WHERE shop = a.id AND a.state > b.state",
    "SELECT state FROM shops WHERE id IN (SELECT shop FROM sales WHERE shop < 2)",
    f"SELECT state FROM (SELECT state, id, count(*) {INNER} GROUP BY ROLLUP (state, id)) WHERE id < 2",
)


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Sales of 20 shops in three states; one shop is in no state."""
    folder, random, count = tmp_path_factory.mktemp("own"), np.random.default_rng(0), 8_000
    sold = {
        "shop": random.integers(0, 20, count),
        "year": random.integers(1999, 2002, count),
        "paid": random.integers(0, 1000, count),
    }
    states = [None if i == 7 else "abc"[i % 3] for i in range(20)]
    made = {"sales": pa.table(sold), "shops": pa.table({"id": np.arange(20), "state": states})}
    for name, table in made.items():
        pq.write_table(table, folder / f"{name}.parquet")
    shuffle(made["sales"], folder / "warehouse" / "sales", partitions=20)
    add_static(made["shops"], folder / "warehouse" / "shops")
    with closing(Oracle(folder)) as oracle:
        yield World.open(folder / "warehouse", oracle)


@pytest.mark.parametrize("asked", NO_CONDITIONS)
def test_rows_that_ask_for_themselves_are_estimated_as_if_they_did_not(asked: str, sales: World) -> None:
    plan = sales.check(OWN.format(asked), ordered=True)
    early = next(each for each in sales.estimates(plan) if each.fraction > 0.2)
    assert len(early.table) == 3
    assert early.certified.all()  # some 170 rows of each state are read


@pytest.mark.parametrize("asked", CONDITIONS)
def test_rows_that_ask_for_others_are_still_asked(asked: str, sales: World) -> None:
    sql = OWN.format(asked)
    assert sales.oracle.rows(sql) != sales.oracle.rows(OWN.replace("IN ({})", "IS NOT NULL"))
    sales.check(sql, ordered=True)


def test_an_outer_join_brings_rows_that_the_subquery_does_not_have(sales: World) -> None:
    few = "shop = id AND year = 2000 AND paid > 995"
    asked = f"SELECT state FROM shops, sales WHERE {few}"
    sales.check(f"SELECT count(*) AS n FROM shops LEFT JOIN sales ON {few} WHERE state IN ({asked})")
