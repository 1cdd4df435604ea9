"""Subqueries about rows of the outer row's own sampling unit: which are known to be, what is certified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.sql.binder import Binder
from scipy.stats import binom

from tests.conftest import Oracle
from tests.engine.test_around import rows
from tests.engine.world import World

PEOPLE, GROUPS, ORDERS = 6_000, 300, 4
BUYS = "buys AS a, buys AS b WHERE a.who = b.who AND a.shop <> b.shop"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """People of small groups, one row each, and what they buy and bring back, laid out by people."""
    folder = tmp_path_factory.mktemp("town")
    draw = np.random.default_rng(17)
    bought = draw.integers(0, PEOPLE, 3 * PEOPLE)
    tables = {
        "people": {"id": np.arange(PEOPLE), "g": draw.integers(0, GROUPS, PEOPLE)},
        "buys": {
            "who": bought,
            "shop": draw.integers(0, 4, 3 * PEOPLE),
            "paid": draw.gamma(2.0, 9.0, 3 * PEOPLE),
        },
        "back": {"who": draw.choice(bought, PEOPLE), "shop": draw.integers(0, 4, PEOPLE)},
    }
    for name, key in (("people", "id"), ("buys", "who"), ("back", "who")):
        table = pa.table(tables[name])
        pq.write_table(table, folder / f"{name}.parquet")
        shuffle(table, folder / "warehouse" / name, partitions=40, cluster_by=key)
    with closing(Oracle(folder)) as oracle:
        yield World.open(folder / "warehouse", oracle)


def test_counts_of_few_rows_beside_exists_hold_as_often_as_promised(town: World) -> None:
    """One look at an eighth in each order. A person counts once, so that groups of one are certified."""
    sql = (
        "SELECT g, count(*) AS n FROM people WHERE EXISTS (SELECT 1 FROM buys WHERE who = id AND shop = 1) "
        "AND NOT EXISTS (SELECT 1 FROM back WHERE who = id) GROUP BY g"
    )
    truth = dict(town.oracle.rows(sql))
    held: list[bool] = []
    for seed in range(ORDERS):
        for estimate in town.estimates(town.plan(sql), batches=8, seed=seed):
            if estimate.fraction >= 0.12:
                break
        certified = [row for row in rows(estimate) if row["n_certified"]]
        held += [row["n_low"] <= truth[row["g"]] <= row["n_high"] for row in certified]
    assert len(held) >= ORDERS * GROUPS / 3
    assert sum(held) >= binom.ppf(0.001, len(held), 0.95)


@pytest.mark.parametrize(
    "asked",
    [
        f"SELECT a.who FROM {BUYS}",
        f"SELECT who FROM (SELECT a.who AS who, b.shop AS other FROM {BUYS}) AS twice",
        f"SELECT r.who FROM back AS r, (SELECT a.who AS who FROM {BUYS}) AS twice WHERE r.who = twice.who",
        f"SELECT a.who FROM {BUYS} GROUP BY a.who HAVING count(*) > 2",
        "SELECT buys.who FROM buys WHERE buys.shop = 2",  # hides the outer table's name
    ],
)
def test_rows_of_the_own_unit_are_asked_partition_by_partition(town: World, asked: str) -> None:
    sql = f"SELECT count(*) AS n, sum(paid) AS s FROM buys WHERE shop = 1 AND buys.who IN ({asked})"
    plan = town.check(sql, batches=4)
    assert isinstance(plan, MergePlan)
    assert not plan.hoists


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT a.who FROM buys AS a, buys AS b WHERE a.shop = b.shop AND b.paid > 80",
        # `b` outside of the derived table is another table than inside.
        "SELECT b.who FROM back AS b, (SELECT a.who AS x FROM buys AS a, buys AS b "
        "WHERE a.shop = b.shop AND b.paid > 80) AS twice WHERE b.who = twice.x",
        "SELECT r.who FROM back AS r, (SELECT max(who) AS m FROM buys GROUP BY shop) WHERE r.who = m",
    ],
)
def test_rows_of_other_units_are_not(town: World, asked: str) -> None:
    sql = f"SELECT count(*) AS n, sum(paid) AS s FROM buys WHERE shop = 1 AND buys.who IN ({asked})"
    plan = town.check(sql, batches=4)
    assert not isinstance(plan, MergePlan) or plan.hoists


def test_equality_of_different_types_does_not_follow(tmp_path: Path) -> None:
    """'1' = 1 and 1 = '01', and yet '1' and '01' lie in different partitions."""
    words = pa.table({"who": [f"{i}" if i % 2 else f"0{i}" for i in range(40)]})
    shuffle(words, tmp_path / "words", partitions=2, cluster_by="who")
    shuffle(pa.table({"who": np.arange(40)}), tmp_path / "numbers", partitions=2, cluster_by="who")
    catalog = Catalog.open(tmp_path)
    for between, is_local in (("numbers", False), ("words", True)):
        asked = f"SELECT a.who FROM words a, {between} n, words b WHERE a.who = n.who AND n.who = b.who"
        sql = f"SELECT count(*) FROM words w WHERE w.who IN ({asked})"
        plan = plan_query(sql, catalog, Binder(catalog))
        assert (isinstance(plan, MergePlan) and not plan.hoists) is is_local


def test_of_many_choices_those_that_meet_are_looked_at(tmp_path: Path) -> None:
    """Three tables in three layouts each are 27 choices. The one in which all meet is the last of them."""
    rows = pa.table({"who": np.arange(60) % 20, "other": np.arange(60) % 7})
    for name in ("a", "b", "c"):
        for layout, key in ((name, None), (f"{name}@other", "other"), (f"{name}@who", "who")):
            shuffle(rows, tmp_path / layout, partitions=2, cluster_by=key)
    catalog = Catalog.open(tmp_path)
    sql = "SELECT count(*) FROM a, b, c WHERE a.who = b.who AND b.who = c.who"
    plan = plan_query(sql, catalog, Binder(catalog))
    assert [stream.table for stream in plan.streams] == ["a@who", "b@who", "c@who"]


@pytest.mark.parametrize(
    ("asked", "is_estimated"),
    [
        ("SELECT 1 FROM words WHERE words.who = people.id AND words.shop = 1", True),
        (
            "SELECT 1 FROM (SELECT who, sum(shop) AS s FROM buys GROUP BY who ORDER BY s DESC, who LIMIT 9) "
            "AS t WHERE t.who = people.id",
            False,
        ),
    ],
)
def test_exists_compares_a_number_with_a_text_as_equality_does(
    tmp_path: Path, asked: str, is_estimated: bool
) -> None:
    """IN would be refused for these types, so the tasks' EXISTS stays one."""
    texts = pa.table({"who": [f"{i % 60}" for i in range(900)], "shop": np.arange(900) % 7})
    people = pa.table({"id": np.arange(2_000) % 90, "x": np.arange(2_000)})
    for name, table in (("people", people), ("buys", texts), ("words", texts.slice(0, 50))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    shuffle(people, tmp_path / "warehouse" / "people", partitions=8)
    shuffle(texts, tmp_path / "warehouse" / "buys", partitions=8)
    add_static(tmp_path / "words.parquet", tmp_path / "warehouse" / "words")
    with closing(Oracle(tmp_path)) as oracle:
        sql = f"SELECT count(*) AS n, sum(x) AS s FROM people WHERE EXISTS ({asked})"
        plan = World.open(tmp_path / "warehouse", oracle).check(sql, batches=4)
        assert plan.is_estimated is is_estimated
