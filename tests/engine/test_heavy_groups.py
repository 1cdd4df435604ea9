"""The first rows of a ranking of complete groups are named early, and never wrongly.

Made-up data: 30,000 items of 6,000 orders of 900 customers. Items and orders are laid out alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.layouts import add_static, shuffle

from tests.conftest import Oracle
from tests.engine.world import World

ROWS, ORDERS, CUSTOMERS = 30_000, 6_000, 900

FROM = "FROM orders JOIN items ON id = order_id"
PAID = f"SELECT order_id, sum(price * (1 - discount)) AS paid {FROM} WHERE day < 300 GROUP BY order_id"
CITY = (
    "SELECT order_id, day, sum(price) AS paid FROM customers, orders, items "
    "WHERE customer = name AND city = 'Oslo' AND id = order_id AND day > 30 GROUP BY order_id, day"
)
TOP = "ORDER BY paid DESC LIMIT 4"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    rng = np.random.default_rng(5)
    order = rng.integers(0, ORDERS, ROWS)
    order[:90] = np.repeat(range(5), [14, 16, 18, 20, 22])
    tables = {
        "items": pa.table(
            {
                "order_id": order,
                "price": np.round(rng.exponential(20.0, ROWS), 2),
                "discount": np.round(rng.random(ROWS) * 0.1, 2),
                "change": rng.normal(size=ROWS),
            }
        ),
        "orders": pa.table(
            {
                "id": np.arange(ORDERS),
                "day": rng.integers(0, 365, ORDERS),
                "customer": rng.integers(0, CUSTOMERS, ORDERS),
            }
        ),
        # Customer 7 is there twice, so each of its items counts twice.
        "customers": pa.table(
            {
                "name": [*range(CUSTOMERS), 7],
                "city": ["Oslo" if i % 3 == 1 else "Bergen" for i in [*range(CUSTOMERS), 7]],
            }
        ),
    }
    files, warehouse = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("warehouse")
    for name, table in tables.items():
        pq.write_table(table, files / f"{name}.parquet")
    shuffle(tables["items"], warehouse / "items", partitions=12, cluster_by="order_id")
    shuffle(tables["orders"], warehouse / "orders", partitions=12, cluster_by="id")
    add_static(tables["customers"], warehouse / "customers")
    with closing(Oracle(files)) as oracle:
        yield World.open(warehouse, oracle)


@dataclass(frozen=True, slots=True)
class Look:
    """What an estimate says: the rows it shows and its certain rows, after this share of the rows."""

    fraction: float
    shown: int
    certain: list[tuple[object, ...]]
    error: float


def looks(world: World, sql: str, seed: int) -> tuple[list[Look], list[tuple[object, ...]]]:
    """Return what each estimate says, and the answer."""
    *early, last = world.estimates(world.plan(sql), seed=seed, batches=4)
    return [look(each) for each in early], rows_of(last)


def look(estimate: Estimate) -> Look:
    assert estimate.certain_rows is not None
    rows = [row for row, sure in zip(rows_of(estimate), estimate.certain_rows, strict=True) if sure]
    return Look(estimate.fraction, estimate.table.num_rows, rows, estimate.relative_error())


def rows_of(estimate: Estimate) -> list[tuple[object, ...]]:
    names = [
        name for name in estimate.table.column_names if not name.endswith(("_low", "_high", "_certified"))
    ]
    return [tuple(row[name] for name in names) for row in estimate.table.to_pylist()]


@pytest.mark.parametrize(
    ("sql", "least"),
    [
        (f"{PAID} {TOP}", 4),
        (f"SELECT order_id, sum(price) AS paid FROM items GROUP BY order_id {TOP}", 4),
        (f"SELECT order_id, sum(price) AS paid FROM items WHERE price < 90 GROUP BY 1 {TOP}", 2),
        (f"SELECT order_id, count(*) AS paid FROM items GROUP BY order_id {TOP}", 4),
    ],
)
def test_the_first_rows_are_named_early_and_rightly(world: World, sql: str, least: int) -> None:
    for seed in range(3):
        early, answer = looks(world, sql, seed)
        assert all(set(each.certain) <= set(answer) for each in early)
        assert not early[0].certain  # the first estimate is not kept waiting
        assert all(len(each.certain) >= least for each in early[1:])


def test_a_static_table_that_multiplies_rows_raises_the_bound(world: World) -> None:
    """Items of customer 7 count twice. So an order not read may total twice the bound of its items."""
    for seed in range(4):
        early, answer = looks(world, f"{CITY} {TOP}", seed)
        assert all(set(each.certain) <= set(answer) for each in early)
        assert all(len(each.certain) < 4 for each in early)


def test_each_customer_once_leaves_the_bound(world: World) -> None:
    early, answer = looks(world, f"{CITY.replace('day > 30', 'day > 30 AND customer <> 7')} {TOP}", 0)
    twice = len(early[1].certain)
    assert all(set(each.certain) <= set(answer) for each in early)
    once, answer = looks(world, f"{CITY.replace('day > 30', 'day > 30 AND name <> 7')} {TOP}", 0)
    assert all(set(each.certain) <= set(answer) for each in once)
    assert len(once[1].certain) > twice


def test_an_answer_that_is_known_has_no_error(world: World) -> None:
    early, _ = looks(world, f"{PAID} {TOP}", 3)
    assert early[0].error == np.inf
    assert early[1].error == 0.0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT order_id, sum(price) AS s FROM items GROUP BY 1 ORDER BY s LIMIT 5",
        "SELECT order_id, avg(price) AS s FROM items GROUP BY 1 ORDER BY s DESC LIMIT 5",
        "SELECT order_id, sum(change) AS s FROM items GROUP BY 1 ORDER BY s DESC LIMIT 5",
        "SELECT order_id, sum(price * price) AS s FROM items GROUP BY 1 ORDER BY s DESC LIMIT 5",
        f"SELECT customer, sum(price) AS s {FROM} GROUP BY 1 ORDER BY s DESC LIMIT 5",
    ],
)
def test_what_the_index_does_not_bound_is_as_before(world: World, sql: str) -> None:
    early, _ = looks(world, sql, 0)
    assert not any(each.certain for each in early)


def test_the_end_is_the_answer(world: World) -> None:
    for sql in (f"{PAID} {TOP}", f"{CITY} {TOP}", PAID, CITY):
        world.check(sql, batches=4)
