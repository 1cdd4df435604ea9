"""Queries over answers: what they certify holds, and what could still change is never certified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.interval import IntervalEstimator

from tests.engine.world import World

SHARES = (
    "SELECT l_shipmode AS m, sum(l_quantity) AS q, sum(count(*)) OVER (ORDER BY l_shipmode) AS running, "
    "round(100.0 * sum(l_quantity) / sum(sum(l_quantity)) OVER (), 3) AS share, "
    "rank() OVER (ORDER BY sum(l_quantity)) AS place, avg(count(*)) OVER () AS mean FROM lineitem GROUP BY 1"
)


def rows(estimate: Estimate) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = estimate.table.to_pylist()
    return found


def test_shares_are_shares_in_every_estimate(tpch: World) -> None:
    for estimate in tpch.estimates(tpch.plan(SHARES), batches=4):
        assert sum(row["share"] for row in rows(estimate)) == pytest.approx(100, abs=0.01)
        places = sorted(row["place"] for row in rows(estimate))
        assert places == list(range(1, len(places) + 1))


def test_a_share_is_surer_than_its_part(tpch: World) -> None:
    """The whole varies with its parts, so that a share varies less."""
    sql = (
        "SELECT l_returnflag, count(*) AS n, count(*) / sum(count(*)) OVER () AS s FROM lineitem "
        "WHERE l_tax > 0.02 GROUP BY 1"
    )
    first, *_ = tpch.estimates(tpch.plan(sql), batches=6)
    row = max(rows(first), key=lambda row: row["n"])
    assert (row["s_high"] - row["s_low"]) / row["s"] < (row["n_high"] - row["n_low"]) / row["n"]


def test_ranks_and_means_of_groups_are_not_certified_before_the_end(tpch: World) -> None:
    *so_far, last = tpch.estimates(tpch.plan(SHARES), batches=4)
    for row in (row for estimate in so_far for row in rows(estimate)):
        assert row["q_certified"]
        assert row["share_certified"]
        assert not row["place_certified"]
        assert row["place_low"] is row["place_high"] is None
        assert not row["mean_certified"]
    assert all(row["place_certified"] and row["mean_certified"] for row in rows(last))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT l_shipmode, count(*) FROM lineitem GROUP BY 1 QUALIFY rank() OVER (ORDER BY count(*)) < 3",
        "SELECT * FROM (SELECT l_shipmode, count(*) AS n FROM lineitem GROUP BY 1) WHERE n > 8600",
        "SELECT sum(n) AS n FROM (SELECT l_shipmode, count(*) AS n FROM lineitem GROUP BY 1) WHERE n > 8600",
        "SELECT l_shipmode, count(*), sum(count(*)) OVER () FROM lineitem GROUP BY 1 ORDER BY 2 LIMIT 3",
    ],
)
def test_nothing_is_certified_while_rows_may_leave(tpch: World, sql: str) -> None:
    for estimate in list(tpch.estimates(tpch.plan(sql), batches=4))[:-1]:
        assert not estimate.certified.any()
        assert not estimate.rows_are_settled


def test_tiny_groups_are_not_scaled_into_extremes(tpch: World) -> None:
    """Each part has about 30 lines. A twentieth of the table, scaled, would make the greatest 80 or more."""
    sql = "SELECT max(n) AS most FROM (SELECT l_partkey, count(*) AS n FROM lineitem GROUP BY 1)"
    *so_far, last = tpch.estimates(tpch.plan(sql))
    assert rows(so_far[0])[0]["most"] <= rows(last)[0]["most"]
    assert any("not scaled" in warning for warning in so_far[0].warnings)


def test_totals_that_are_shown_as_seen_cost_no_intervals(
    tpch: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT max(n) AS most FROM (SELECT l_partkey, count(*) AS n FROM lineitem GROUP BY 1)"
    computed: list[object] = []
    monkeypatch.setattr(IntervalEstimator, "__call__", lambda *given: computed.append(given))
    first = next(iter(tpch.estimates(tpch.plan(sql))))
    assert any("not scaled" in warning for warning in first.warnings)
    assert not computed


def test_an_interval_is_taken_over_by_row(tpch: World) -> None:
    """UNION ALL keeps the intervals of both sides, each with its own rows."""
    sql = (
        "SELECT l_shipmode AS m, count(*) AS n FROM lineitem WHERE l_tax > 0.02 GROUP BY 1 UNION ALL "
        "SELECT 'orders', count(*) FROM orders WHERE o_custkey > 100"
    )
    first, *_, last = tpch.estimates(tpch.plan(sql), batches=5)
    final = {row["m"]: row["n"] for row in rows(last)}
    for row in rows(first):
        assert row["n_certified"]
        assert row["n_low"] < row["n"] < row["n_high"]
        assert row["n"] == pytest.approx(final[row["m"]], rel=0.2)


def certified(world: World, sql: str, names: tuple[str, ...], key: str, seeds: int) -> Iterator[bool]:
    """Yield of each certified cell whether its interval holds the truth."""
    plan = world.plan(sql)
    truth = {row[key]: row for row in world.oracle.table(sql).to_pylist()}
    for seed in range(seeds):
        for estimate in list(world.estimates(plan, seed=seed, batches=4))[:-1]:
            for row in rows(estimate):
                for name in (name for name in names if row[f"{name}_certified"]):
                    yield row[f"{name}_low"] <= float(truth[row[key]][name]) <= row[f"{name}_high"]


def test_certified_shares_and_running_totals_hold(tpch: World) -> None:
    """25 scans × 3 looks × 7 modes × 2 columns. Cells of a scan move together, like about 4 independent ones:
    100 in all, so that 2.6 standard errors of 95 % are 5.7 points; a few blocks cost a point more.
    """
    held = list(certified(tpch, SHARES, ("share", "running"), "m", 25))
    assert len(held) > 900
    assert 0.88 <= sum(held) / len(held) <= 1.0
