"""Queries over plain files with many row groups: estimates from some of them, and then the exact answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.execution.estimate import Estimate, Reason, text_of
from relaqs_engine.execution.row_group_estimates import (
    ENOUGH_ROW_GROUPS,
    MOST_ABSENT,
    absent_share,
    intervals_wider_by,
)
from relaqs_engine.layouts.row_groups import RowGroup, RowGroupTable
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.plans.composite import SampledThenExact
from relaqs_engine.plans.explain import explain
from relaqs_engine.rewrite.row_group_marks import Mark, unlike

from relaqs.queries import sampled_then_exact
from tests.conftest import Oracle
from tests.engine.row_group_files import decimals, write_trips
from tests.engine.world import World
from tests.few_and_many import few_and_many

RULES = RowGroupRules(least_seconds=1e-5, fewest=16, share=0.2)
BY_ZONE = (
    "SELECT zone, sum(fare) AS fare, avg(km) AS km, count(*) AS n FROM trips GROUP BY zone ORDER BY zone"
)


def opened(folder: Path, rules: RowGroupRules = RULES, **files: Path) -> World:
    return World.of_files(Oracle(folder), folder / "cache", rules, **files)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("plain")
    duckdb.sql("SELECT i AS zone, 'z' || i // 2 AS city FROM range(5) AS t(i)").write_parquet(
        str(folder / "zones.parquet")
    )
    found = opened(folder, trips=write_trips(folder / "trips.parquet"), zones=folder / "zones.parquet")
    with closing(found.states), closing(found.oracle):
        yield found


def planned(world: World, sql: str) -> SampledThenExact:
    plan = world.plan(sql)
    assert isinstance(plan, SampledThenExact), explain(plan)
    assert isinstance(plan.part, RowGroupTable)
    return plan


def before_the_end(world: World, sql: str, seed: int = 0) -> list[Estimate]:
    *estimates, last = world.estimates(planned(world, sql), seed=seed)
    assert last.is_exact
    return estimates


@pytest.mark.parametrize(
    "sql",
    [
        BY_ZONE,
        "SELECT count(*) AS n, sum(fare) AS s, min(km) AS l, max(id) AS h FROM trips WHERE day < 90",
        "SELECT name, sum(fare * km) AS s FROM trips WHERE zone IN (1, 3) GROUP BY 1 ORDER BY s DESC LIMIT 2",
        "SELECT day % 7 AS d, count(*) AS n FROM trips GROUP BY 1 HAVING count(*) > 28000 ORDER BY 1",
        "SELECT zone, grouping(name) AS g, count(*) AS n FROM trips GROUP BY ROLLUP (zone, name)",
        "SELECT city, sum(fare) AS s, count(km) AS n FROM trips t JOIN zones z ON t.zone = z.zone GROUP BY 1",
        "SELECT sum(fare) / sum(km) AS r, count(*) FILTER (WHERE name = 'a') AS n FROM trips WHERE id > 9000",
    ],
)
def test_estimates_are_sound_and_the_end_is_duckdbs_answer(world: World, sql: str) -> None:
    planned(world, sql)
    world.check(sql)


def test_mini_batches_grow(world: World) -> None:
    estimates = before_the_end(world, BY_ZONE)
    assert [round(each.fraction * 200) for each in estimates] == [8, 24, 40]
    for each in estimates:
        assert each.certified.all()
        assert 0.0 < each.relative_error() < 0.2


def test_the_luck_of_few_row_groups_does_not_widen_the_one_error(world: World) -> None:
    """Five like zones from 8 row groups: without pooling the widest bar counts, which is so by luck."""
    first = before_the_end(world, BY_ZONE)[0]
    assert first.relative_error() < 0.95 * replace(first, freedom=None).relative_error()


@pytest.mark.slow
@few_and_many("draws", 60, 200)
def test_coverage_is_that_of_the_confidence(world: World, draws: int) -> None:
    """15 certified cells a draw at 95 %. Those of one draw are dependent: they are taken for five."""
    exact = world.oracle.table(BY_ZONE).to_pydict()
    plan, inside = planned(world, BY_ZONE), []
    for seed in range(draws):
        first = next(world.estimates(plan, seed=seed))
        assert first.certified.all()
        for name in ("fare", "km", "n"):
            low, high = (np.array(first.table.column(f"{name}_{end}")) for end in ("low", "high"))
            inside.append((low <= exact[name]) & (exact[name] <= high))
    deviation = (0.95 * 0.05 / (5 * draws)) ** 0.5
    assert abs(np.mean(inside) - 0.95) < 4 * deviation


def test_groups_of_the_column_that_orders_the_file_are_not_certified(world: World) -> None:
    """Ten days lie in ten row groups of 200, so what was drawn says nothing of the other days."""
    sql = "SELECT day // 10 AS dekade, sum(fare) AS s, avg(fare) AS a FROM trips GROUP BY 1"
    for each in before_the_end(world, sql):
        assert not each.certified.any()
        assert each.relative_error() == np.inf
        assert each.unseen_groups is None
        assert "groups that lie only in row groups not read yet are missing" in each.warnings


@few_and_many("draws", 60, 200)
def test_averages_of_few_row_groups_have_intervals_that_are_wide_enough(world: World, draws: int) -> None:
    """Forty days of 200, of which 8 are drawn: each stretch is met by one to three row groups."""
    sql = "SELECT day // 40 AS d, avg(fare) AS a FROM trips GROUP BY 1"
    exact = {row["d"]: row["a"] for row in world.oracle.table(sql).to_pylist()}
    plan, inside = planned(world, sql), []
    for seed in range(draws):
        for row in next(world.estimates(plan, seed=seed)).table.to_pylist():
            if row["a_low"] is not None:
                inside.append(row["a_low"] <= exact[row["d"]] <= row["a_high"])
    assert len(inside) > draws
    assert np.mean(inside) > 0.95 - 4 * (0.95 * 0.05 / len(inside)) ** 0.5


@pytest.mark.parametrize("tail", ["ORDER BY s DESC LIMIT 2", "HAVING sum(fare) > 100"])
def test_nothing_is_certified_where_groups_not_read_may_be_picked(world: World, tail: str) -> None:
    for each in before_the_end(world, f"SELECT zone, sum(fare) AS s FROM trips GROUP BY zone {tail}"):
        assert not each.certified.any()
        assert not each.certain_rows.any()


def test_the_same_seed_draws_the_same_row_groups(world: World) -> None:
    first, again, other = (before_the_end(world, BY_ZONE, seed)[0].table for seed in (3, 3, 4))
    assert first.equals(again)
    assert not first.equals(other)


@pytest.mark.parametrize(
    ("condition", "first", "last"),
    [
        ("day >= 150", 150, 199),
        ("day BETWEEN 20 AND 49 AND fare > 0", 20, 49),
        ("day IN (30, 60, 90)", 30, 90),
        ("99 >= day AND id >= 50000.5", 50, 99),
        ("day + 1 > 150 OR day = 3", 0, 199),
    ],
)
def test_row_groups_that_cannot_match_are_not_drawn_from(
    world: World, condition: str, first: int, last: int
) -> None:
    plan = planned(world, f"SELECT sum(fare) AS s FROM trips WHERE {condition}")
    read = (*plan.groups, *plan.part.certain)
    assert sorted(group.position for group in read) == list(range(first, last + 1))


@few_and_many("draws", 30, 100)
def test_row_groups_at_the_ends_of_a_condition_are_counted_exactly(world: World, draws: int) -> None:
    """Few rows of the first and of the last one meet it, and all rows of the 60 between them."""
    sql = "SELECT sum(fare) AS s, count(*) AS n FROM trips WHERE id BETWEEN 39900 AND 100010 AND fare > 2"
    plan = planned(world, sql)
    assert sorted(group.position for group in plan.part.certain) == [39, 100]
    exact = world.oracle.table(sql).to_pylist()[0]
    inside = []
    for seed in range(draws):
        [row] = next(world.estimates(plan, seed=seed)).table.to_pylist()
        assert row["s_certified"]
        inside.append(row["s_low"] <= exact["s"] <= row["s_high"])
    assert np.mean(inside) > 0.95 - 4 * (0.95 * 0.05 / len(inside)) ** 0.5


def test_row_groups_too_unlike_to_tell_of_each_other_certify_nothing(tmp_path: Path) -> None:
    """In a sixth of them only half of the rows meet the condition, and ten are read."""
    half = np.arange(200_000) // 1000 % 6 == 0
    x = np.where(half & (np.arange(200_000) % 2 == 0), 200, np.arange(200_000) % 100)
    pq.write_table(pa.table({"x": x}), tmp_path / "t.parquet", row_group_size=1_000)
    world = opened(tmp_path, replace(RULES, share=0.05), t=tmp_path / "t.parquet")
    sql = "SELECT sum(x) AS s FROM t WHERE x < 150"
    assert "too unlike" in explain(planned(world, sql))
    assert all("its row groups are too unlike" in each.warnings[-1] for each in before_the_end(world, sql))
    assert not any(each.certified.any() for each in before_the_end(world, sql))


@few_and_many("draws", 12, 100)
def test_row_groups_with_values_far_out_are_counted_exactly(tmp_path: Path, draws: int) -> None:
    """All rows are alike but for three, in three row groups. An estimate without these would be far off."""
    values = np.random.default_rng(1).uniform(0, 1, 200_000)
    values[[5_000, 50_000, 95_000]] = 1e6
    pq.write_table(pa.table({"x": decimals(values, 9)}), tmp_path / "spikes.parquet", row_group_size=1_000)
    world = opened(tmp_path, spikes=tmp_path / "spikes.parquet")
    sql = "SELECT sum(x) AS s, avg(x) AS a, count(*) AS n FROM spikes"
    plan = planned(world, sql)
    assert sorted(group.position for group in plan.part.certain) == [5, 50, 95]
    inside = []
    for seed in range(draws):
        for each in before_the_end(world, sql, seed):
            [row] = each.table.to_pylist()
            assert (row["n"], row["n_certified"]) == (200_000, True)
            assert row["s_certified"]
            assert float(row["s"]) == pytest.approx(values.sum(), rel=1e-2)
            assert row["a"] == pytest.approx(values.mean(), rel=1e-2)
            inside.append(float(row["s_low"]) <= values.sum() <= float(row["s_high"]))
    assert np.mean(inside) > 0.95 - 4 * (0.95 * 0.05 / draws) ** 0.5
    world.check(sql)


@few_and_many("draws", 12, 100)
@pytest.mark.parametrize(
    ("begin", "end", "factor", "of_all"),
    [
        (30_000, 30_200, 2.9, "40 + 20 * random"),  # both ends are above all others
        (30_040, 30_080, 2.9, "40 + 20 * random"),  # one end is
        (30_000, 30_200, 0.4, "40 + 20 * random"),
        (30_120, 30_200, -1.0, "40 + 20 * random"),
        (30_000, 30_200, 0.0, "40 + 20 * random"),
        (30_000, 30_200, np.nan, "40 + 20 * random"),  # all are NULL
        (30_000, 30_200, 9.0, "100 + 20 * normal"),
        (30_000, 30_200, 0.3, "100 + 20 * normal"),
    ],
)
def test_a_row_group_that_is_unlike_all_others_is_counted_exactly(
    tmp_path: Path, begin: int, end: int, factor: float, of_all: str, draws: int
) -> None:
    """It moves an average of 50 by up to 0.5, by far more than what is drawn tells."""
    made = np.random.default_rng(1)
    x = 40 + 20 * made.random(40_000) if "random" in of_all else 100 + 20 * made.normal(size=40_000)
    x[begin:end] *= factor
    k = made.integers(0, 3, 40_000)
    pq.write_table(pa.table({"x": decimals(x, 3), "k": k}), tmp_path / "t.parquet", row_group_size=200)
    world = opened(tmp_path, replace(RULES, share=0.05), t=tmp_path / "t.parquet")
    sql = "SELECT k, avg(x) AS a, sum(x) AS s FROM t GROUP BY k"
    plan = planned(world, sql)
    assert [group.position for group in plan.part.certain] == [150]
    exact = {row["k"]: row for row in world.oracle.table(sql).to_pylist()}
    inside = []
    for seed in range(draws):
        for row in next(world.estimates(plan, seed=seed)).table.to_pylist():
            assert row["a_certified"]
            assert row["s_certified"]
            truth = exact[row["k"]]
            inside += [row[f"{name}_low"] <= truth[name] <= row[f"{name}_high"] for name in ("a", "s")]
    assert np.mean(inside) > 0.95 - 4 * (0.95 * 0.05 / (2 * draws)) ** 0.5


def test_a_row_group_that_is_counted_exactly_makes_the_others_no_more_unlike(tmp_path: Path) -> None:
    """The condition chooses rows by x, and 150 alone has other values of it."""
    made = np.random.default_rng(1)
    x = 40 + 20 * made.random(40_000)
    x[30_000:30_200] *= 2.9
    pq.write_table(
        pa.table({"x": x, "k": made.integers(0, 3, 40_000)}), tmp_path / "t.parquet", row_group_size=200
    )
    world = opened(tmp_path, replace(RULES, share=0.05), t=tmp_path / "t.parquet")
    plan = planned(world, "SELECT k, avg(x) AS a, count(*) AS n FROM t WHERE isfinite(x) GROUP BY k")
    assert [group.position for group in plan.part.certain] == [150]
    for row in next(world.estimates(plan)).table.to_pylist():
        assert row["a_certified"]
        assert row["n_certified"]


@pytest.mark.parametrize(
    ("kinds", "certain", "least_drawn"),
    [
        (np.zeros(400), 0, 8),
        (np.arange(400), 0, 8),  # rises along the file
        (np.arange(400) == 7, 1, 8),
        (np.arange(400) >= 390, 10, 8),  # a few at the end
        (np.arange(400) >= 320, 0, 8),  # the last fifth: each draw has its share of them
        (np.arange(400) >= 380, 0, 24),
        (np.arange(400) % 16 == 0, 0, None),  # spread over the file, and too many to be read
        (np.arange(400) % 2, 0, 8),
        (1000 / (np.arange(400) + 1), 2, 8),
    ],
)
def test_a_draw_is_rehearsed_on_what_footers_tell(
    kinds: FloatArray, certain: int, least_drawn: int | None
) -> None:
    groups = [RowGroup(("t.parquet", 1, 1), i, 100) for i in range(400)]
    found = unlike(groups, [Mark(100.0 * kinds, np.full(400, 100.0))], (8, 24), 12)
    assert (len(found.certain), found.least_drawn) == (certain, least_drawn)


def test_where_footers_ask_for_more_row_groups_the_first_estimate_is_not_certified(tmp_path: Path) -> None:
    """The level of the last twentieth of the file is half as high again. Eight row groups may miss it."""
    x = np.random.default_rng(1).uniform(40, 60, 80_000) + np.where(np.arange(80_000) < 76_000, 0, 25)
    pq.write_table(pa.table({"x": decimals(x, 3)}), tmp_path / "t.parquet", row_group_size=200)
    world = opened(tmp_path, replace(RULES, share=0.06), t=tmp_path / "t.parquet")
    sql = "SELECT avg(x) AS a, sum(x) AS s FROM t"
    assert planned(world, sql).sizes == (8, 24)
    first, second = before_the_end(world, sql)
    assert not first.certified.any()
    assert first.reasons()[0] == (text_of(Reason.UNLIKE_ROW_GROUPS),)
    assert second.certified.all()
    for each in (first, second):
        assert (
            "not seen: a row group unlike all others, in 94% of cases, if its footer does not tell"
            in each.warnings
        )


def test_one_large_value_that_may_be_in_any_row_group_certifies_nothing(tmp_path: Path) -> None:
    """Each row group has a value a thousand times the others, so the next may have one that is seen late."""
    values = np.random.default_rng(1).uniform(0, 1, 100_000)
    values[::20_000] = 1e6
    pq.write_table(
        pa.table({"x": values}), tmp_path / "t.parquet", row_group_size=500, write_statistics=False
    )
    world = opened(tmp_path, t=tmp_path / "t.parquet")
    for each in before_the_end(world, "SELECT sum(x) AS s FROM t"):
        assert not each.certified.any()


def test_without_statistics_a_group_must_be_in_twenty_row_groups(tmp_path: Path) -> None:
    """Eight are read first, and then 32."""
    write_trips(tmp_path / "a" / "trips.parquet")
    table = pq.read_table(tmp_path / "a" / "trips.parquet")
    path = tmp_path / "trips.parquet"
    pq.write_table(table, path, row_group_size=1000, write_statistics=["fare", "id"])
    world = opened(tmp_path, trips=path)
    for key in ("zone", "name"):
        sql = f"SELECT {key}, count(*) AS n FROM trips GROUP BY {key}"
        first, *others = before_the_end(world, sql)
        assert not first.certified.any()
        assert first.reasons()[0] == (text_of(Reason.FEW_ROW_GROUPS),)
        assert all(each.certified.all() for each in others)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(DISTINCT zone) AS n FROM trips", "numbers of distinct values"),
        ("SELECT median(fare) AS m FROM trips", "quantiles"),
        ("SELECT stddev(fare) AS s FROM trips", "how values spread"),
        (
            "SELECT a.zone, count(a.km) AS n FROM trips a JOIN trips b ON a.id = b.id GROUP BY 1",
            "read 2 times",
        ),
        ("SELECT id, fare FROM trips WHERE fare > 89.9", "without aggregates"),
        ("SELECT max(fare) AS m FROM trips", "nothing in it is estimated"),
        ("SELECT count(*) AS n FROM trips WHERE day = 3", "1 of its row groups can match"),
        (
            "SELECT count(*) AS n FROM zones LEFT JOIN trips ON zones.zone = trips.zone",
            "keeps unmatched rows",
        ),
        ("SELECT count(*) AS n FROM trips WHERE fare > (SELECT avg(fare) FROM trips)", "read 2 times"),
        ("SELECT sum(n) AS s FROM (SELECT zone, count(*) AS n FROM trips GROUP BY 1)", "derived table"),
        ("SELECT count(*) AS n FROM trips", "cannot be read one by one"),
    ],
)
def test_what_has_no_sound_estimate_runs_as_a_whole(world: World, sql: str, why: str) -> None:
    plan = world.check(sql)
    assert not plan.is_estimated
    assert why in explain(plan)


def test_two_large_tables_run_as_a_whole(tmp_path: Path) -> None:
    for name in ("trips", "rides"):
        write_trips(tmp_path / f"{name}.parquet", rows=20_000, row_groups=50)
    world = opened(tmp_path, trips=tmp_path / "trips.parquet", rides=tmp_path / "rides.parquet")
    plan = world.check("SELECT count(trips.km) AS n FROM trips JOIN rides ON trips.id = rides.id")
    assert "rides and trips are both large" in explain(plan)


def test_many_groups_are_not_estimated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_then_exact, "MOST_PARTIAL_ROWS", 5_000)
    plan = planned(world, "SELECT id % 60000 AS k, sum(fare) AS s FROM trips GROUP BY 1")
    assert [(each.is_exact, each.table.num_rows) for each in world.estimates(plan)] == [(True, 60_000)]


def test_files_of_a_folder_are_drawn_from_together(tmp_path: Path) -> None:
    """Files of unequal sizes and numbers of row groups."""
    for i, rows in enumerate((30_000, 5_000, 60_000)):
        write_trips(tmp_path / "trips" / f"{i}.parquet", rows, row_groups=20 * (i + 1))
    world = opened(tmp_path, trips=tmp_path / "trips")
    sql = "SELECT name, sum(fare) AS s, count(*) AS n FROM trips GROUP BY name ORDER BY name"
    assert len(planned(world, sql).groups) == 120
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW trips AS FROM '{tmp_path}/trips/*.parquet'")
        exact = connection.sql(sql).to_arrow_table().to_pylist()
    first, *_ = before_the_end(world, sql)
    for row, truth in zip(first.table.to_pylist(), exact, strict=True):
        assert row["s_certified"]
        assert row["s_low"] <= truth["s"] <= row["s_high"]
    *_, last = world.estimates(world.plan(sql))
    assert last.table.column("n").to_pylist() == [row["n"] for row in exact]


def test_columns_that_are_names_of_folders_are_not_sampled(tmp_path: Path) -> None:
    """The folders say another zone than the files, and DuckDB believes the folders."""
    for zone in (7, 8):
        write_trips(tmp_path / "trips" / f"zone={zone}" / "0.parquet", rows=50_000, row_groups=50)
    world = opened(tmp_path, trips=tmp_path / "trips")
    assert not world.plan("SELECT zone, sum(fare) AS s FROM trips GROUP BY zone").is_estimated
    planned(world, "SELECT name, sum(fare) AS s FROM trips GROUP BY name")


def test_a_column_that_is_called_like_duckdbs_own_is_not_taken_for_it(tmp_path: Path) -> None:
    table = pa.table({"file_index": np.zeros(100_000, dtype=np.int64), "x": np.arange(100_000)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1_000)
    world = opened(tmp_path, t=tmp_path / "t.parquet")
    assert not world.check("SELECT sum(x) AS s FROM t").is_estimated


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(fare) AS s FROM trips WHERE NOT (day BETWEEN 20 AND 29)",
        "SELECT sum(fare) AS s FROM trips WHERE day < 20 OR day >= 30",
        f"SELECT sum(fare) AS s FROM trips WHERE day IN (0, {', '.join(map(str, range(11, 200)))})",
        "SELECT sum(CASE WHEN day < 190 THEN fare END) AS s FROM trips",
        "SELECT sum(fare) FILTER (WHERE day < 190) AS s FROM trips",
        "SELECT day < 190 AS early, sum(fare) AS s FROM trips GROUP BY early",
        "SELECT city, sum(km) AS s FROM trips t LEFT JOIN zones z ON t.zone = z.zone AND day > 9 GROUP BY 1",
    ],
)
def test_what_few_row_groups_do_not_meet_is_not_certified(world: World, sql: str) -> None:
    """A twentieth of the row groups is unlike the others. Most samples of 8 have none of them."""
    assert "too unlike" in explain(planned(world, sql))
    assert not any(each.certified.any() for each in before_the_end(world, sql))


@pytest.mark.slow
@few_and_many("draws", 15, 40)
@pytest.mark.parametrize("late", [None, 0.0])
def test_row_groups_without_values_are_counted_exactly(
    tmp_path: Path, late: float | None, draws: int
) -> None:
    """From some day on a column is NULL, or 0, in ten row groups of 200."""
    early = np.arange(40_000) < 38_000
    values = np.where(early, np.random.default_rng(1).uniform(1, 2, 40_000), np.nan if late is None else late)
    pq.write_table(pa.table({"x": decimals(values, 9)}), tmp_path / "t.parquet", row_group_size=200)
    world = opened(tmp_path, t=tmp_path / "t.parquet")
    sql = "SELECT sum(x) AS s FROM t"
    part = planned(world, sql).part
    assert isinstance(part, RowGroupTable)
    assert sorted(each.position for each in part.certain) == list(range(190, 200))
    [exact] = world.oracle.table(sql).column("s").to_pylist()
    inside = []
    for seed in range(draws):
        [row] = before_the_end(world, sql, seed)[0].table.to_pylist()
        assert row["s_certified"]
        inside.append(row["s_low"] <= exact <= row["s_high"])
    assert np.mean(inside) > 0.95 - 4 * (0.95 * 0.05 / len(inside)) ** 0.5


def test_an_average_is_of_the_row_groups_that_have_values(tmp_path: Path) -> None:
    """Two in five row groups have values: of the first 8 that are drawn three or so, too few to certify."""
    draw = np.random.default_rng(3)
    has_values = np.repeat(draw.permutation(np.arange(200) % 5 < 2), 200)
    values = np.where(has_values, np.repeat(draw.uniform(1, 2, 200), 200), np.nan)
    pq.write_table(pa.table({"x": decimals(values, 9)}), tmp_path / "t.parquet", row_group_size=200)
    first, *_, last = before_the_end(opened(tmp_path, t=tmp_path / "t.parquet"), "SELECT avg(x) AS a FROM t")
    assert first.reasons()[0] == (text_of(Reason.FEW_ROW_GROUPS),)
    assert last.certified.all()


def test_subqueries_over_small_tables_stand_in_conditions(world: World) -> None:
    world.check("SELECT sum(fare) AS s FROM trips WHERE zone IN (SELECT zone FROM zones) AND day >= 20")


def test_sums_of_what_rises_along_the_file_are_certified(world: World) -> None:
    assert all(each.certified.all() for each in before_the_end(world, "SELECT sum(id) AS s FROM trips")[1:])


@pytest.mark.slow
@few_and_many("draws", 30, 300)
def test_what_goes_with_the_order_of_the_file_varies_as_neighbours_do(world: World, draws: int) -> None:
    """24 of 200 row groups: random ones would be off by 23 %, but one of each 24th of the file is drawn."""
    sql = "SELECT sum(id) AS s, avg(day) AS d, avg(fare) AS f FROM trips"
    [exact] = world.oracle.table(sql).to_pylist()
    plan, inside = planned(world, sql), {"s": 0, "d": 0, "f": 0}
    for seed in range(draws):
        _, second, *_ = world.estimates(plan, seed=seed)
        [row] = second.table.to_pylist()
        for name in inside:
            assert row[f"{name}_certified"]
            inside[name] += row[f"{name}_low"] <= exact[name] <= row[f"{name}_high"]
        assert max(row["s_high"] / float(row["s"]), row["d_high"] / row["d"]) < 1.08
    for held in inside.values():
        assert held >= scipy.stats.binom.ppf(1e-4, draws, 0.95)


@pytest.mark.slow
def test_neighbours_are_those_of_the_draw_whatever_the_files_are_called(tmp_path: Path) -> None:
    """In a list of files in any order the sample is as good as random, though values go with the names."""
    files = [tmp_path / f"d{i:04}.parquet" for i in range(200)]
    for i, file in enumerate(files):
        pq.write_table(pa.table({"id": np.arange(i * 100, (i + 1) * 100)}), file)
    random.Random(3).shuffle(files)
    world = World.of_files(Oracle(tmp_path), tmp_path / "cache", RULES, trips=files)
    plan, draws, held = world.plan("SELECT avg(id) AS a FROM trips"), 30, 0
    with closing(world.states), closing(world.oracle):
        for seed in range(draws):
            _, second, *_ = world.estimates(plan, seed=seed)
            [row] = second.table.to_pylist()
            held += row["a_low"] <= 9_999.5 <= row["a_high"]
    assert held >= scipy.stats.binom.ppf(1e-4, draws, 0.95)


def test_dates_that_python_has_not_are_no_ends(tmp_path: Path) -> None:
    dates = np.arange(20_000, dtype=np.int32)
    dates[[5_000, 15_000]] = 2**31 - 1, -(2**31) + 1  # infinite, in DuckDB
    table = pa.table({"d": pa.array(dates, pa.date32()), "x": np.arange(20_000)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=200)
    world = opened(tmp_path, t=tmp_path / "t.parquet")
    plan = world.check("SELECT sum(x) AS s FROM t WHERE d > DATE '1980-01-01'")
    assert isinstance(plan, SampledThenExact)
    assert plan.groups


@pytest.mark.parametrize("mean_found", [17, 18, 19, 20])
def test_totals_of_groups_that_luck_has_certified_are_covered(mean_found: int) -> None:
    """24 of many row groups are drawn. A group has three runs of rows in each, and few of them are its own.

    Where it is found in 20, the draw has probably shown too much of it.
    """
    random = np.random.default_rng(mean_found)
    share = 1 - (1 - mean_found / 24) ** (1 / 3)
    runs = random.binomial(3, share, size=(200_000, 24))
    runs = runs[(runs > 0).sum(axis=1) >= ENOUGH_ROW_GROUPS]
    reach = scipy.stats.t.ppf(0.975, 23) * runs.std(axis=1, ddof=1) / 24**0.5
    away = np.abs(runs.mean(axis=1) - 3 * share)
    wider = intervals_wider_by((runs > 0).sum(axis=1).astype(float), 24)
    assert np.mean(away <= reach * wider) > 0.93
    assert mean_found > 18 or np.mean(away <= reach) < 0.93


def test_groups_that_luck_has_shown_in_all_row_groups_are_told_by_those_like_them() -> None:
    """Twelve groups are in four of five row groups each. In eight that were drawn, about two are in all."""
    random = np.random.default_rng(4)
    found = random.binomial(8, 0.8, size=(2_000, 12)).astype(float)
    rows = found * random.uniform(200.0, 400.0, found.shape)
    shares = np.array([absent_share(r, f, 8) for r, f in zip(rows, found, strict=True)])
    in_all = found == 8
    assert in_all.sum() > 3_000
    assert (shares[in_all] <= MOST_ABSENT).mean() < 0.02
    assert (absent_share(np.full(12, 300.0), np.full(12, 8.0), 8) == 0.0).all()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return rows of three writers in 100 row groups. The last column has one NaN, the others have none."""
    folder = tmp_path_factory.mktemp("measured")
    values = np.random.default_rng(1).uniform(0, 1, 204_800)
    rows = pa.table({"i": np.arange(204_800), "x": values, "y": values.astype(np.float32), "z": values})
    late = pa.array(np.where(np.arange(204_800) == 190_000, np.nan, values))
    rows = rows.append_column("nan", late)
    pq.write_table(rows, folder / "arrow.parquet", row_group_size=2_048)
    pl.from_arrow(rows).write_parquet(folder / "polars.parquet", row_group_size=2_048)
    (folder / "truth").mkdir()
    for name in ("duck", "truth/arrow", "truth/polars", "truth/duck"):
        duckdb.sql(f"COPY (FROM rows) TO '{folder / name}.parquet' (ROW_GROUP_SIZE 2048)")
    files = {name: folder / f"{name}.parquet" for name in ("arrow", "polars", "duck")}
    found = World.of_files(Oracle(folder / "truth"), folder / "cache", RULES, **files)
    with closing(found.states), closing(found.oracle):
        yield found


@pytest.mark.parametrize("column", ["x", "y", "nan"])
@pytest.mark.parametrize("writer", ["arrow", "polars", "duck"])
def test_floats_are_certified_where_footers_count_nan(measured: World, writer: str, column: str) -> None:
    """Of files of others nobody knows before the end whether they have NaN, which makes a sum NaN."""
    sql = f"SELECT sum({column}) AS s, avg({column}) AS a, avg(i) AS i FROM {writer}"
    is_known = writer == "duck" and column != "nan"
    for each in before_the_end(measured, sql):
        assert each.certified.tolist() == [[is_known, is_known, True]]
    measured.check(sql)
    warnings = " ".join(planned(measured, sql).warnings)
    assert (f"footers do not say whether {column} has NaN" in warnings) is (writer != "duck")


@pytest.mark.parametrize(
    ("condition", "is_without"),
    [
        ("isfinite(nan)", True),
        ("NOT isnan(nan)", True),
        ("nan < 2", True),
        ("2.5 >= nan AND i >= 0", True),
        ("nan BETWEEN -1 AND 2", True),
        ("nan > -1", False),
        ("nan < 'NaN'::DOUBLE OR i > 5", False),
        ("nan <= x", False),
        ("isfinite(x)", False),
        ("nan <> 3", False),
        ("NOT nan > 3", False),
    ],
)
def test_rows_without_nan_are_certified(measured: World, condition: str, is_without: bool) -> None:
    sql = f"SELECT avg(nan) AS a FROM arrow WHERE {condition}"
    assert all(each.certified.all() == is_without for each in before_the_end(measured, sql))
    measured.check(sql)
