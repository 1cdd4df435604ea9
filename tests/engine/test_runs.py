"""How a run goes: which estimates there are, when, and what each promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.execution import estimator
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.state import (
    VALUE_BYTES,
    result_bytes_per_partition,
    scan_order,
    scheduled_batches,
    used_bytes_per_partition,
)
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.plans.plan import IntervalRequest

from tests.conftest import TPCH_PARTITIONS, Oracle
from tests.engine.world import World

BY_FLAG = (
    "SELECT l_returnflag, sum(l_extendedprice) AS s, avg(l_tax) AS a, count(*) AS n FROM lineitem GROUP BY 1"
)


def widths(estimate: Estimate) -> float:
    return float(np.nansum(estimate.half_widths))


def test_the_same_seed_gives_the_same_estimates(tpch: World) -> None:
    plan = tpch.plan(BY_FLAG)
    first, second = (list(tpch.estimates(plan, seed=5)) for _ in range(2))
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.table.sort_by("l_returnflag").equals(other.table.sort_by("l_returnflag"))


def test_another_seed_takes_other_partitions_and_ends_alike(tpch: World) -> None:
    one, other = (list(tpch.estimates(tpch.plan(BY_FLAG), seed=seed)) for seed in (1, 2))
    assert one[0].table != other[0].table
    assert one[-1].table.select(["n"]).to_pydict().keys() == other[-1].table.select(["n"]).to_pydict().keys()


@pytest.mark.parametrize("batches", [1, 3, TPCH_PARTITIONS, 1000])
def test_so_many_mini_batches_as_asked_for(tpch: World, batches: int) -> None:
    estimates = list(tpch.estimates(tpch.plan(BY_FLAG), batches=batches))
    assert len(estimates) == min(batches, TPCH_PARTITIONS)
    steps = np.diff([0.0, *(estimate.fraction for estimate in estimates)])
    # Partitions are equal to a tenth; so are mini-batches of them, to one partition.
    assert steps.max() - steps.min() < 1.3 / TPCH_PARTITIONS


def test_the_first_estimate_comes_after_one_partition(tpch: World) -> None:
    first = next(iter(tpch.estimates(tpch.plan(BY_FLAG))))
    assert first.fraction == pytest.approx(1 / TPCH_PARTITIONS, rel=0.2)


def test_intervals_narrow_to_nothing(tpch: World) -> None:
    totals = [widths(estimate) for estimate in tpch.estimates(tpch.plan(BY_FLAG), batches=5)]
    assert totals[0] > totals[2] > totals[3] > totals[4] == 0.0


def test_more_confidence_and_any_time_are_wider(tpch: World) -> None:
    plan = tpch.plan(BY_FLAG)
    requests = [IntervalRequest(0.8), IntervalRequest(0.95), IntervalRequest(0.95, anytime=True)]
    usual = [widths(next(tpch.estimates(plan, batches=2, request=request))) for request in requests]
    assert usual[0] < usual[1] < usual[2]


def test_without_intervals_values_are_the_same(tpch: World) -> None:
    """Error bars are left out, not the estimate: the plan is the cheaper, the value the same."""
    with_, without = (
        list(tpch.estimates(tpch.plan(BY_FLAG, intervals=on), batches=4)) for on in (True, False)
    )
    for one, other in zip(with_, without, strict=True):
        columns = ["l_returnflag", "s", "a", "n"]
        assert one.table.select(columns).sort_by("l_returnflag") == other.table.select(columns).sort_by(
            "l_returnflag"
        )
    assert all(np.isnan(estimate.half_widths).all() for estimate in without[:-1])
    assert not any(estimate.certified.any() for estimate in without[:-1])


def test_the_rows_of_a_whole_table_are_known_from_the_start(tpch: World) -> None:
    first = next(iter(tpch.estimates(tpch.plan("SELECT count(*) AS n FROM lineitem"))))
    assert first.table.to_pylist() == [{"n": 60_175, "n_low": 60_175, "n_high": 60_175, "n_certified": True}]
    assert first.relative_error() == 0.0


def test_a_condition_makes_the_rows_unknown(tpch: World) -> None:
    first = next(iter(tpch.estimates(tpch.plan("SELECT count(*) AS n FROM lineitem WHERE l_tax > 0.01"))))
    assert first.half_widths[0, 0] > 0


def test_local_groups_are_final_when_seen(tpch: World) -> None:
    sql = "SELECT l_orderkey, sum(l_quantity) AS q, max(l_tax) AS m FROM lineitem GROUP BY 1"
    estimates = list(tpch.estimates(tpch.plan(sql), batches=3))
    final = {row["l_orderkey"]: (row["q"], row["m"]) for row in estimates[-1].table.to_pylist()}
    for estimate in estimates[:-1]:
        assert 0 < estimate.table.num_rows < len(final)
        assert estimate.relative_error() == float("inf")  # rows are still missing
        for row in estimate.table.to_pylist():
            assert (row["q"], row["m"]) == final[row["l_orderkey"]]
            assert row["q_certified"]
            assert row["m_low"] == row["m_high"] == row["m"]


def test_extremes_bound_one_side(tpch: World) -> None:
    sql = "SELECT min(l_extendedprice) AS lo, max(l_extendedprice) AS hi FROM lineitem"
    *so_far, last = (estimate.table.to_pylist()[0] for estimate in tpch.estimates(tpch.plan(sql), batches=4))
    for row in so_far:
        assert row["lo_low"] is None
        assert row["lo_high"] == row["lo"] >= last["lo"]
        assert row["hi_high"] is None
        assert row["hi_low"] == row["hi"] <= last["hi"]
    assert last["lo_low"] == last["lo_high"] == last["lo"]


def test_top_rows_of_tiny_groups_are_not_scaled(tpch: World) -> None:
    sql = "SELECT l_partkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY q DESC, 1 LIMIT 3"
    first, *_ = tpch.estimates(tpch.plan(sql), batches=4)
    assert any("so far" in warning for warning in first.warnings)
    assert first.table.column("q_low").to_pylist() == [float(q) for q in first.table.column("q").to_pylist()]
    assert first.table.column("q_high").null_count == 3
    assert first.relative_error() == float("inf")


def test_having_leaves_the_answers_rows_open(tpch: World) -> None:
    first, *_ = tpch.estimates(tpch.plan(f"{BY_FLAG} HAVING count(*) > 20000"), batches=4)
    assert not first.rows_are_settled
    assert first.relative_error() == float("inf")


def test_unseen_groups_are_reported(tpch: World) -> None:
    sql = "SELECT l_partkey, count(*) AS n FROM lineitem WHERE l_quantity > 45 GROUP BY 1"
    first, *_, last = tpch.estimates(tpch.plan(sql), batches=5)
    assert first.unseen_groups is not None
    assert first.unseen_groups > 0
    assert last.unseen_groups == 0


@pytest.fixture(scope="module")
def few_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Twenty partitions for three cluster keys: most are empty. `twos` has one key more than `ones`."""
    warehouse, originals = tmp_path_factory.mktemp("few"), tmp_path_factory.mktemp("few-originals")
    with closing(duckdb.connect()) as connection:
        for name, keys in (("ones", 3), ("twos", 4)):
            relation = connection.sql(f"SELECT i % {keys} AS k, i AS v FROM range(60) AS t(i)")
            relation.write_parquet(str(originals / f"{name}.parquet"))
            shuffle(relation, warehouse / name, partitions=20, cluster_by="k")
        add_static(pa.table({"k": [0, 1], "name": ["zero", "one"]}), warehouse / "named")
    with closing(Oracle(originals)) as oracle:
        oracle.rows("CREATE VIEW named AS FROM (VALUES (0, 'zero'), (1, 'one')) AS t(k, name)")
        yield World.open(warehouse, oracle)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n, sum(v) AS s, avg(v) AS a FROM ones",
        "SELECT k, stddev(v) AS s FROM ones GROUP BY 1",
        "SELECT v % 2 AS odd, count(*) AS n, count(DISTINCT v) AS d FROM ones GROUP BY 1",
        "SELECT name, sum(v) AS s FROM ones JOIN named USING (k) GROUP BY 1",
        "SELECT count(*) AS n, sum(a.v * b.v)::BIGINT AS s FROM ones AS a JOIN twos AS b ON a.k = b.k",
        "SELECT count(*) AS n, count(a.v) AS m FROM twos AS b LEFT JOIN ones AS a ON a.k = b.k",
        "SELECT k, v FROM ones WHERE v < 9",
    ],
)
def test_empty_partitions_are_passed_over(few_keys: World, sql: str, seed: int) -> None:
    few_keys.check(sql, seed=seed)


def test_only_partitions_with_rows_are_scanned(few_keys: World) -> None:
    plan = few_keys.folded("SELECT sum(v) AS s FROM ones")
    order = scan_order(plan, few_keys.catalog, seed=0)
    counts = [partition.row_count for partition in few_keys.catalog.table("ones").partitions]
    assert sorted(order) == [i for i, count in enumerate(counts) if count]
    assert len(scheduled_batches(plan, few_keys.catalog, 0, batches=50)) == len(order)


@pytest.mark.parametrize(
    ("sql", "intervals", "expected"),
    [
        (BY_FLAG, True, True),
        (BY_FLAG, False, False),
        ("SELECT l_orderkey, sum(l_tax) AS s FROM lineitem GROUP BY 1", True, False),  # groups are local
        ("SELECT l_returnflag, max(l_tax) AS most FROM lineitem GROUP BY 1", True, False),
        ("SELECT l_tax FROM lineitem", True, False),
    ],
)
def test_partials_are_kept_by_block_only_where_error_bars_are_made_of_blocks(
    tpch: World, sql: str, intervals: bool, expected: bool
) -> None:
    first, *_ = scheduled_batches(tpch.folded(sql, intervals=intervals), tpch.catalog, 0)
    assert first.by_block == expected


def test_a_task_reads_what_the_query_names_as_often_as_it_names_it(tpch: World) -> None:
    def read(condition: str) -> float:
        sql = f"SELECT count(*) AS n FROM orders WHERE o_orderkey > 0 AND {condition}"
        return used_bytes_per_partition(tpch.folded(sql), tpch.catalog)

    def column(table: str, name: str) -> float:
        layout = tpch.catalog.table(table)
        return next(c.byte_count for c in layout.columns if c.name == name) / len(layout.partitions)

    orders, lineitem = column("orders", "o_orderkey"), column("lineitem", "l_orderkey")
    exists = "EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey)"
    assert read("true") == orders
    assert read(exists) == orders + lineitem
    assert read(f"{exists} AND NOT {exists}") == orders + 2 * lineitem


def test_a_table_of_one_row(tmp_path: Path) -> None:
    table = pa.table({"v": [7]})
    shuffle(table, tmp_path / "warehouse" / "one")
    with closing(duckdb.connect()) as connection:
        connection.register("one", table)
        connection.sql("FROM one").write_parquet(str(tmp_path / "one.parquet"))
    with closing(Oracle(tmp_path)) as oracle:
        World.open(tmp_path / "warehouse", oracle).check(
            "SELECT count(*) AS n, sum(v) AS s, stddev(v) AS d FROM one"
        )


def test_many_groups_are_shown_in_part_before_the_end_and_whole_at_it(
    tpch: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimator, "MOST_GROUPS_SHOWN", 5)
    sql = "SELECT l_shipdate, avg(l_tax) AS a FROM lineitem GROUP BY l_shipdate ORDER BY l_shipdate"
    *before, last = tpch.estimates(tpch.plan(sql))
    everything = tpch.oracle.table(sql).column("l_shipdate").to_pylist()
    for estimate in before:
        shown = estimate.table.column("l_shipdate").to_pylist()
        assert len(shown) == 5
        assert shown == sorted(shown)
        assert estimate.unseen_groups is None
        assert estimate.relative_error() == float("inf")  # no target is met by a part of the answer
        assert "only 5 of the groups are shown before the end" in estimate.warnings
    assert last.table.column("l_shipdate").to_pylist() == everything


def test_partial_results_are_measured_where_no_condition_filters(tpch: World) -> None:
    def size(sql: str) -> float:
        return result_bytes_per_partition(tpch.folded(sql), tpch.catalog)

    lineitem = tpch.catalog.table("lineitem")
    rows = lineitem.row_count / len(lineitem.partitions)
    assert size(BY_FLAG) == 3 * VALUE_BYTES * (1 + 4 + 1)  # three groups: key, two sums and two counts, rows
    assert size("SELECT l_tax, l_orderkey FROM lineitem") == rows * VALUE_BYTES * (2 + 1)
    assert size("SELECT l_tax, l_orderkey FROM lineitem WHERE l_tax > 0.01") == 0.0


@pytest.mark.parametrize("column", ["tailnum", "arr_delay"])
def test_the_interval_of_a_distinct_count_holds_at_every_look(
    flights: World, flights_by_plane: World, column: str
) -> None:
    sql = f"SELECT count(DISTINCT {column}) AS n FROM flights"
    held = []
    for world in (flights, flights_by_plane):
        truth = world.oracle.table(sql).column("n")[0].as_py()
        for seed in range(4):
            for estimate in world.estimates(world.plan(sql), seed=seed):
                [row] = estimate.table.select(["n_low", "n_high"]).to_pylist()
                held.append(row["n_low"] <= truth <= row["n_high"])
    assert np.mean(held) >= 0.95


def test_the_rows_of_one_table_of_a_full_join_are_sampling_units_too(tpch: World) -> None:
    """Many orders have no line here. Each is seen in one unit, so as many are to come as the share says."""
    sql = "SELECT count(DISTINCT o_orderkey) AS n FROM lineitem FULL JOIN orders ON {}"
    sql = sql.format("o_orderkey = l_orderkey AND l_tax > 0.07")
    truth = tpch.oracle.table(sql).column("n")[0].as_py()
    for estimate in tpch.estimates(tpch.plan(sql), batches=4):
        [row] = estimate.table.to_pylist()
        assert row["n_certified"]
        assert row["n_low"] <= truth <= row["n_high"]


GRID = {
    "groups": BY_FLAG,
    "quantile": "SELECT l_returnflag, median(l_quantity) AS m, count(*) AS n FROM lineitem GROUP BY 1",
    "distinct": "SELECT l_returnflag, count(DISTINCT l_suppkey) AS n FROM lineitem GROUP BY 1",
    "ranked": "SELECT l_linenumber, sum(l_quantity) AS s FROM lineitem GROUP BY 1 ORDER BY s DESC LIMIT 3",
    "having": "SELECT l_linenumber, sum(l_tax) AS s FROM lineitem GROUP BY 1 HAVING count(*) > 9",
    "refined": "SELECT l_returnflag, count(*) AS n FROM lineitem "
    "WHERE l_tax > (SELECT avg(l_tax) FROM lineitem) GROUP BY 1",
    "share": "SELECT l_linenumber, sum(l_tax) / (SELECT sum(l_tax) FROM lineitem) AS s "
    "FROM lineitem GROUP BY 1",
    "all rows": "SELECT count(*) AS n, avg(l_tax) AS t FROM lineitem",
    "one": "SELECT avg(l_tax) AS t FROM lineitem",
}


@pytest.mark.parametrize("anytime", [False, True])
@pytest.mark.parametrize("sql", GRID.values(), ids=GRID.keys())
def test_intervals_for_the_table_are_those_of_a_higher_confidence(
    tpch: World, sql: str, anytime: bool
) -> None:
    """Each uncertain cell has a share of what the confidence leaves, and so have rows that are picked."""
    plan = tpch.plan(sql)

    def estimates(request: IntervalRequest) -> list[Estimate]:
        return list(tpch.estimates(plan, batches=4, request=request))

    alone = estimates(IntervalRequest(anytime=anytime))
    together = estimates(IntervalRequest(anytime=anytime, for_table=True))
    for index, (one, all_) in enumerate(zip(alone, together, strict=True)):
        uncertain = one.certified & (one.half_widths > 0)
        if anytime:
            uncertain |= one.widths > 0
        count = int(uncertain.sum())
        count += bool(count) and ("LIMIT" in sql or "HAVING" in sql)
        each = IntervalRequest(anytime=anytime, for_table=True).of_each(count)
        assert each.confidence == pytest.approx(1 - 0.05 / max(1, count))
        expected = estimates(each)[index] if count > 1 else one
        assert all_.table.equals(expected.table)
        assert not (all_.certified & ~one.certified).any()


def test_skewed_averages_are_certified_later_for_the_table(flights: World) -> None:
    """Their tails are far from normal there. Certified are those that no unread row can move far."""
    plan = flights.plan("SELECT carrier, month, avg(dep_delay) AS late FROM flights GROUP BY carrier, month")

    def third(request: IntervalRequest) -> Estimate:
        return list(flights.estimates(plan, batches=8, request=request))[2]

    alone, together = third(IntervalRequest()), third(IntervalRequest(for_table=True))
    each = IntervalRequest(for_table=True).of_each(int(alone.certified.sum()))
    by_hand = third(IntervalRequest(each.confidence))
    assert 0 < together.certified.sum() < 0.8 * by_hand.certified.sum()
    np.testing.assert_array_equal(together.half_widths, by_hand.half_widths)
