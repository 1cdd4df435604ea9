"""Correlations, regressions and higher moments: the end is DuckDB's answer, and certified intervals hold."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.plan import Mode, OutputKind

from tests.conftest import Oracle
from tests.engine.world import World
from tests.rows import rows_of

SEEDS = 25

OF_PAIRS = (
    *("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count"),
    *("regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy"),
)
OF_ONE = ("skewness", "kurtosis", "kurtosis_pop", "sem", "var_pop", "stddev")


@pytest.mark.parametrize("condition", ["true", "distance < 200", "distance < 0"])
def test_all_functions_of_pairs_end_as_in_duckdb(flights: World, condition: str) -> None:
    values = ", ".join(f"{name}(dep_delay, distance) AS {name}" for name in OF_PAIRS)
    plan = flights.check(f"SELECT origin, {values} FROM flights WHERE {condition} GROUP BY origin")
    assert {output.kind for output in plan.outputs[1:]} == {OutputKind.ESTIMATE}
    flights.check(f"SELECT {values} FROM flights WHERE {condition}")


@pytest.mark.parametrize("value", ["distance", "dep_delay"])
def test_all_functions_of_one_value_end_as_in_duckdb(flights: World, value: str) -> None:
    values = ", ".join(f"{name}({value}) AS {name}" for name in OF_ONE)
    plan = flights.check(f"SELECT carrier, {values} FROM flights GROUP BY carrier")
    assert {output.kind for output in plan.outputs[1:]} == {OutputKind.ESTIMATE}


def test_values_far_from_zero_lose_no_digits(flights: World) -> None:
    """Raw sums of third powers of numbers near a million would keep none of the digits compared here."""
    near, far = (
        ", ".join(f"{name}({value}) AS {name}" for name in OF_ONE) for value in ("hour", "1e6 + hour")
    )
    found = rows_of(flights.last(f"SELECT origin, {far} FROM flights GROUP BY 1 ORDER BY 1"))
    wanted = flights.oracle.rows(f"SELECT origin, {near} FROM flights GROUP BY 1 ORDER BY 1")
    for our, their in zip(found, wanted, strict=True):
        assert our[0] == their[0]
        assert our[1:] == pytest.approx(their[1:], rel=1e-8)


def test_values_without_spread_have_no_correlation(flights: World) -> None:
    """Adding 0.1 many times rounds, differently in each partition. This must not become a spread."""
    constant = "0.1::DOUBLE"
    values = f"corr(distance, {constant}) AS c, regr_r2(distance, {constant}) AS r, skewness({constant}) AS s"
    flights.check(f"SELECT {values}, var_pop({constant}) AS v FROM flights")


def test_conditions_of_aggregates_and_functions_of_them(flights: World) -> None:
    flights.check("SELECT corr(dep_delay, distance) FILTER (WHERE origin = 'JFK') * 2 AS c FROM flights")
    flights.check("SELECT weighted_avg(dep_delay, distance) AS w, wavg(distance, 2) AS v FROM flights")
    flights.check(
        "SELECT carrier, regr_slope(dep_delay, distance) AS s FROM flights GROUP BY 1 "
        "HAVING regr_count(dep_delay, distance) > 5000 ORDER BY s DESC LIMIT 3",
        ordered=True,
    )


def test_certified_intervals_hold(flights: World) -> None:
    """25 seeds at a quarter of the table. Cells of one seed move together, so the seeds count.

    95 % less 2.6 standard errors of 75 independent intervals, three airports a seed, is 88 %.
    """
    sql = (
        "SELECT origin, corr(dep_delay, distance) AS a, regr_slope(distance, hour) AS b, "
        "skewness(distance) AS c, kurtosis(distance) AS d FROM flights GROUP BY origin"
    )
    plan = flights.plan(sql)
    truth = {row[0]: row[1:] for row in flights.oracle.rows(sql)}
    held: dict[str, list[bool]] = {name: [] for name in "abcd"}
    for seed in range(SEEDS):
        first = next(flights.estimates(plan, seed=seed, batches=4))
        for row in first.table.to_pylist():
            for name, true in zip("abcd", truth[row["origin"]], strict=True):
                if row[f"{name}_certified"]:
                    held[name].append(row[f"{name}_low"] <= true <= row[f"{name}_high"])
    for name in "bd":
        assert len(held[name]) >= 0.6 * 3 * SEEDS, name
    assert np.mean([each for name in held for each in held[name]]) >= 0.88


def test_a_square_of_a_covariance_is_not_certified(flights: World) -> None:
    plan = flights.plan(
        "SELECT regr_r2(dep_delay, distance) AS r, corr(dep_delay, distance) AS c FROM flights"
    )
    assert [output.certifiable for output in plan.outputs] == [False, True]


def test_what_columns_stand_for_is_estimated(flights: World) -> None:
    plan = flights.check("SELECT origin, avg(COLUMNS('^distance|^hour')) FROM flights GROUP BY origin")
    assert [output.name for output in plan.outputs] == ["origin", "distance", "hour"]
    assert [output.kind for output in plan.outputs[1:]] == [OutputKind.ESTIMATE] * 2
    named = flights.check(
        "SELECT max(COLUMNS(['distance', 'hour'])) AS \"most_\\0\", count(*) AS n FROM flights"
    )
    assert [output.name for output in named.outputs] == ["most_distance", "most_hour", "n"]
    assert named.mode is Mode.MERGEABLE


def test_the_kurtosis_of_a_group_with_one_outlier_is_not_that_of_the_rows_that_were_read(
    tmp_path: Path,
) -> None:
    """One value far from n others has a kurtosis of about n. A sample of 20 rows had 1.2 times as much."""
    x = np.random.default_rng(4).uniform(0.0, 10.0, 40_000)
    x[0] = 1e4
    table = pa.table({"g": np.arange(40_000) % 200, "x": x})
    pq.write_table(table, tmp_path / "t.parquet")
    shuffle(table, tmp_path / "warehouse" / "t", partitions=40)
    with closing(Oracle(tmp_path)) as oracle:
        world = World.open(tmp_path / "warehouse", oracle)
        plan = world.plan("SELECT kurtosis(x) AS k, skewness(x) ** 2 AS s, count(*) AS n FROM t WHERE g = 0")
        for seed in range(4):
            [row] = rows_of(next(iter(world.estimates(plan, batches=10, seed=seed))).table.slice(0, 1))
            assert row[:2] == pytest.approx((row[2], row[2]), rel=0.05)


def test_the_error_of_small_values_is_the_same_beside_large_ones(flights: World) -> None:
    """By steps for the squares of large values, the kurtosis of small ones was 450 ± 300,000."""
    small, large = "kurtosis(distance / 1e6)", "kurtosis(distance * 1e6)"
    ends = []
    for beside in (large.replace("*", "/"), large):
        sql = f"SELECT hour * 31 + day AS k, {small} AS s, {beside} AS l FROM flights GROUP BY k ORDER BY k"
        table = list(flights.estimates(flights.plan(sql), batches=8))[2].table
        ends.append([table.column("s_low").to_pylist(), table.column("s_high").to_pylist()])
    assert np.isfinite(np.array(ends[0], float)).sum() > 200
    assert np.array(ends[1], float) == pytest.approx(np.array(ends[0], float), rel=1e-3, nan_ok=True)


def test_spreads_of_two_values_hold_where_these_are_as_frequent(tmp_path: Path) -> None:
    """Of 250 groups of 20 to 200 rows and one of two values each, a quarter and a half of the rows read.

    Cells of one order are of other groups, and nearly independent: of more than 1,500 cells that hold at 95 %
    two standard errors are 1.1 points. By the tangent alone, which is flat at a half, 90 % held.
    """
    draw = np.random.default_rng(3)
    group = np.repeat(np.arange(250), draw.integers(20, 200, 250))
    rows = pa.table({"g": group, "half": (draw.random(len(group)) < 0.4).astype(np.int32)})
    pq.write_table(rows, tmp_path / "t.parquet")
    shuffle(rows, tmp_path / "warehouse" / "t", partitions=16)
    certified, held = 0, 0
    with closing(Oracle(tmp_path)) as oracle:
        world = World.open(tmp_path / "warehouse", oracle)
        sql = "SELECT g, stddev(half) AS s FROM t GROUP BY g"
        truth = dict(rows_of(oracle.table(sql)))
        for seed in range(4):
            for estimate in list(world.estimates(world.plan(sql), seed=seed, batches=4))[:2]:
                for row in estimate.table.to_pylist():
                    if row["s_certified"]:
                        certified += 1
                        held += row["s_low"] <= truth[row["g"]] <= row["s_high"]
    assert certified > 1_500
    assert 0.93 < held / certified < 0.985
