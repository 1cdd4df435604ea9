"""A query around answers is computed as often as the number of their groups allows, which the run finds."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Database, DatabaseConfig
from relaqs_engine.errors import TooManyGroupsError
from relaqs_engine.execution import state
from relaqs_engine.execution.state import GroupCount, count_groups
from relaqs_engine.layouts.manifest import DistinctCount
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.sql.binder import Binder

from tests.engine.example import CATALOG
from tests.engine.world import World

SHARES = "SELECT l_shipmode, sum(l_tax) / sum(sum(l_tax)) OVER () AS share FROM lineitem GROUP BY 1"
MOST = "SELECT max(n) AS most FROM (SELECT l_partkey, count(*) AS n FROM lineitem GROUP BY 1)"


def test_few_groups_are_estimated_after_each_mini_batch(tpch: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ALL_SECONDS", 0.0)
    assert len(list(tpch.estimates(tpch.plan(SHARES), batches=5))) == 5


def test_more_groups_are_estimated_as_often_as_it_pays(tpch: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ALL_SECONDS", 0.0)
    monkeypatch.setattr(state, "FEW_ROWS", 100)
    first, last = tpch.estimates(tpch.plan(MOST), batches=5)
    assert first.fraction == pytest.approx(0.2, abs=0.02)
    assert last.is_exact
    tpch.check(MOST)


def test_with_far_too_many_groups_it_ends_after_the_first_mini_batch(
    tpch: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_ROWS", 1_000)
    with pytest.raises(TooManyGroupsError, match=r"about [\d,]+ groups.*fallback=\"exact\""):
        next(tpch.estimates(tpch.plan(MOST)))


def test_the_error_survives_a_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(TooManyGroupsError(1_200_000, "values")))
    assert str(error) == str(TooManyGroupsError(1_200_000, "values"))
    assert error.reason.startswith("it is computed from about 1,200,000 values")


def test_groups_are_counted_across_blocks(tpch: World) -> None:
    plan = tpch.plan("SELECT l_shipmode, l_linenumber, count(*) AS n FROM lineitem GROUP BY 1, 2")
    assert isinstance(plan, MergePlan)
    cursor = Database(DatabaseConfig((), 1 << 28)).cursor()
    groups = "VALUES ('AIR', 1, 0, 1), ('AIR', 1, 1, 1), ('AIR', 2, 0, 1), ('RAIL', 1, 0, 1)"
    cursor.run(f"CREATE TEMP TABLE state AS FROM ({groups}) AS t(k0, k1, r, m)")
    assert count_groups(plan, cursor, fraction=1.0) == GroupCount(seen=3, in_all=3)
    # Two groups met once, one met twice, half read: 2² / (2·1·4/3 + 2·0.5/0.5) = 0.86 more.
    assert count_groups(plan, cursor, fraction=0.5) == GroupCount(seen=3, in_all=4)


@pytest.mark.parametrize(
    ("values", "sql", "mode"),
    [
        (6_000_000, "SELECT driver, sum(fare) FROM trips GROUP BY driver", "exact"),
        (6_000_000, "SELECT zone, driver, count(*) FROM trips WHERE km > 1 GROUP BY ALL", "exact"),
        (6_000_000, "SELECT DISTINCT driver FROM trips", "exact"),
        (6_000_000, "SELECT driver, sum(fare) FROM trips WHERE zone = 7 GROUP BY driver", "mergeable"),
        (6_000_000, "SELECT zone, sum(fare) FROM trips GROUP BY zone", "mergeable"),
        (5_000_000, "SELECT driver, sum(fare) FROM trips GROUP BY driver", "mergeable"),
    ],
)
def test_groups_of_hardly_a_row_each_are_not_sampled(values: int, sql: str, mode: str) -> None:
    """There are 12.8 million rows. A sample has one row of most groups that it has met."""
    trips = CATALOG.table("trips")
    known = DistinctCount(values, values * 1.01, 0.007)
    columns = (replace(each, distinct=known) if each.name == "driver" else each for each in trips.columns)
    catalog = Catalog((replace(trips, columns=tuple(columns)),))
    plan = plan_query(sql, catalog, Binder(catalog))
    assert plan.mode.value == mode
    said = [reason for reason in plan.reasons if "it has about 6.0 million groups, of 2.1 rows" in reason]
    assert len(said) == (mode == "exact")
