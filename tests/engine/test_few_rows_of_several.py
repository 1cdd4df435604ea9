"""Groups of few rows that several tables have together: their totals, and their places below a LIMIT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.composite import AroundPlan
from scipy.stats import binom

from tests.conftest import Oracle
from tests.engine.test_around import rows
from tests.engine.world import World

GROUPS, ORDERS = 300, 4
TABLES = {"shop": (9_000, 0), "web": (3_000, 1), "mail": (3_000, 0)}  # rows, and the seed of its order


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Groups with some 50 rows in three tables, or one or two in `rare`, which has a table of its own.

    `mail` is read together with `shop`, and the others are not.
    """
    folder = tmp_path_factory.mktemp("few")
    draw = np.random.default_rng(11)
    made = {
        name: pa.table({"k": np.sort(draw.integers(0, GROUPS, count)), "v": draw.uniform(0.0, 9.0, count)})
        for name, (count, _) in TABLES.items()
    }
    made["wild"] = pa.table({"k": np.arange(20_000) % 30, "v": draw.lognormal(0.0, 2.0, 20_000)})
    made["rare"] = pa.table({"k": np.arange(GROUPS), "v": draw.uniform(0.0, 9.0, GROUPS)})
    for name, table in made.items():
        pq.write_table(table, folder / f"{name}.parquet")
        _, seed = TABLES.get(name, (0, 2))
        shuffle(table, folder / "warehouse" / name, partitions=40, seed=seed)
    with closing(Oracle(folder)) as oracle:
        yield World.open(folder / "warehouse", oracle)


def of(*tables: str, beyond: str = "") -> str:
    both = " UNION ALL ".join(f"SELECT k, v FROM {table}" for table in tables)
    return f"SELECT k, count(*) AS n, sum(v) AS s FROM ({both}) GROUP BY k {beyond}"


def planned(world: World, sql: str) -> AroundPlan:
    plan = world.plan(sql)
    assert isinstance(plan, AroundPlan)
    return plan


@pytest.mark.parametrize("tables", [("shop", "web"), ("shop", "mail"), ("web", "rare")])
def test_totals_of_few_rows_hold_as_often_as_promised(sales: World, tables: tuple[str, ...]) -> None:
    """One look at an eighth of the rows in each order, where groups have one to ten rows.

    Groups have rows of their own, so that their intervals fail apart from each other.
    """
    sql = of(*tables)
    truth = {row[0]: row[1:] for row in sales.oracle.rows(sql)}
    held: list[bool] = []
    for seed in range(ORDERS):
        for estimate in sales.estimates(planned(sales, sql), batches=8, seed=seed):
            if estimate.fraction >= 0.12:
                break
        for row in rows(estimate):
            for name, true in zip(("n", "s"), truth[row["k"]], strict=True):
                if row[f"{name}_certified"]:
                    held.append(row[f"{name}_low"] <= true + 1e-9 and true - 1e-9 <= row[f"{name}_high"])
    assert len(held) >= ORDERS * GROUPS / 4
    assert sum(held) >= binom.ppf(0.001, len(held), 0.95)


def test_what_was_seen_of_a_group_is_in_its_interval(sales: World) -> None:
    """A third of the tables has single rows: their total is what was seen, whatever share that is."""
    both = "SELECT k, 0 AS side FROM shop UNION ALL SELECT k, 1 AS side FROM rare"
    sql = f"SELECT side, k, count(*) AS n FROM ({both}) GROUP BY side, k"
    for estimate in list(sales.estimates(planned(sales, sql), batches=8))[:3]:
        single = [row for row in rows(estimate) if row["side"]]
        assert single
        assert all(row["n_certified"] and row["n_low"] <= 1 <= row["n_high"] for row in single)


def test_a_difference_of_few_rows_is_not_certified(sales: World) -> None:
    sql = "SELECT k, sum(v) AS s FROM (SELECT k, v FROM shop UNION ALL SELECT k, -v FROM web) GROUP BY k"
    first = next(iter(sales.estimates(planned(sales, sql), batches=8)))
    assert not first.certified.any()


def test_what_an_outlier_index_knows_is_no_estimate(sales: World) -> None:
    """The upper end of what is estimated alone, moved by what is known, is above that of both together."""
    assert planned(sales, of("shop", "web")).rows.totals == (False, True, True)
    assert planned(sales, of("shop", "wild")).rows.totals == (False, False, False)


def test_independent_tables_leave_room_below_a_limit(sales: World) -> None:
    """What was missed of one table says nothing of the other, unless both are read in one order."""
    by_key = "ORDER BY k LIMIT 60"
    apart, together = (
        planned(sales, of("shop", "web", beyond=by_key)),
        planned(sales, of("shop", "mail", beyond=by_key)),
    )
    assert (apart.rows.sets, together.rows.sets) == (1, 2)
    places = []
    for plan in (apart, together):
        for estimate in sales.estimates(plan, batches=8):
            if estimate.fraction >= 0.12:
                break
        assert estimate.certain_rows is not None
        places.append(int(estimate.certain_rows.sum()))
    assert places[0] > places[1] >= 0
