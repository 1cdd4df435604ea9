"""Ends of columns by group: what a layout keeps of them, and which averages they certify."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from relaqs_engine.layouts import Layout, read_manifest, verify
from relaqs_engine.layouts import column_statistics as ends_module
from relaqs_engine.layouts.manifest_file import write_manifest
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.plan import EndsByGroup, IntervalRequest

from relaqs import append, compact, shuffle
from tests.conftest import Oracle
from tests.engine.world import World
from tests.few_and_many import few_and_many

ROWS, COUNTRIES = 40_000, 40
BY_COUNTRY = (
    "SELECT country, avg(latitude) AS a, sum(2 * latitude + 1) / count(*) AS b, "
    "avg(latitude) FILTER (WHERE number > 10) AS c, stddev(latitude) AS d FROM cities GROUP BY country"
)


def cities(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """Return cities whose latitude hardly differs within a country, and whose number says nothing of it.

    A few have no country, a few no latitude. Country 3 has none at all, and 5 has one latitude.
    """
    random = np.random.default_rng(seed)
    country = random.integers(0, COUNTRIES, rows)
    latitude = 4.0 * country - 80.0 + random.uniform(0.0, 3.0, rows)
    latitude[country == 5] = -60.0
    no_latitude = (random.random(rows) < 0.02) | (country == 3)
    return pa.table(
        {
            "country": pa.array([f"c{each}" for each in country], mask=random.random(rows) < 0.01),
            "half": pa.array([f"h{each % 2}" for each in country]),
            "latitude": pa.array(latitude, mask=no_latitude),
            "number": pa.array(random.integers(0, 1_000, rows)),
        }
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world_of(tmp_path_factory.mktemp("ends"), cities())


def world_of(folder: Path, rows: pa.Table) -> World:
    source = folder / "cities.parquet"
    duckdb.from_arrow(rows).write_parquet(str(source))
    shuffle(str(source), folder / "warehouse" / "cities", seed=1)
    return World.open(folder / "warehouse", Oracle(folder))


def ends_in(layout: Layout) -> dict[tuple[str, str], dict[int | None, tuple[float | None, float | None]]]:
    """Return the ends by the names of the column and of the group's, and by the hash of its value."""
    found = {}
    for column in layout.columns:
        for ends in column.ends_by:
            distinct = layout.column(ends.by).distinct
            assert distinct is not None
            pairs = zip(ends.lowest, ends.highest, strict=True)
            found[column.name, ends.by] = dict(zip((*distinct.hashes, None), pairs, strict=True))
    return found


def test_a_layout_keeps_the_ends_of_each_group_where_they_are_close_together(world: World) -> None:
    (kept,) = ends_in(world.catalog.table("cities")).items()
    assert kept[0] == ("latitude", "country")
    exact = world.oracle.rows(
        "SELECT CASE WHEN country IS NOT NULL THEN hash(country) END, min(latitude), max(latitude) "
        "FROM cities GROUP BY country"
    )
    assert kept[1] == {hashed: (low, high) for hashed, low, high in exact}


def test_files_read_in_several_parts_give_the_same_ends(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends_module, "COUNTED_FILES_AT_ONCE", 7)
    monkeypatch.setattr(ends_module, "SAMPLE_ROWS", 10_000)
    again = shuffle(cities(), tmp_path / "cities", seed=1)
    assert ends_in(again) == ends_in(world.catalog.table("cities"))


def test_no_more_ends_are_kept_than_a_manifest_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends_module, "MOST_ENDS", COUNTRIES)
    assert ends_in(shuffle(cities(), tmp_path / "cities")) == {}


def test_an_append_drops_the_ends_and_compacting_finds_them(tmp_path: Path) -> None:
    shuffle(cities(), tmp_path / "cities", partitions=4)
    assert ends_in(append(cities(500, seed=9), tmp_path / "cities")) == {}
    whole = shuffle(pa.concat_tables([cities(), cities(500, seed=9)]), tmp_path / "whole", partitions=4)
    assert ends_in(compact(tmp_path / "cities")) == ends_in(whole)
    assert ends_in(read_manifest(tmp_path / "cities")) == ends_in(whole)


def test_ends_that_are_not_those_of_the_rows_are_found(tmp_path: Path) -> None:
    layout = shuffle(cities(), tmp_path / "cities", partitions=4)
    assert verify(tmp_path / "cities").ok
    columns = tuple(
        replace(each, ends_by=tuple(replace(ends, lowest=ends.highest) for ends in each.ends_by))
        for each in layout.columns
    )
    write_manifest(replace(layout, columns=columns))
    failed = [check for check in verify(tmp_path / "cities").checks if not check.ok]
    assert [check.detail for check in failed] == [
        "the ends of latitude by country are others than those recorded"
    ]


def ends_of(world: World, sql: str) -> tuple[EndsByGroup, ...]:
    plan = world.plan(sql)
    assert isinstance(plan, MergePlan)
    return plan.bars.ends_by_group


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT country, avg(latitude) FROM cities GROUP BY country", [0]),
        ("SELECT half, country, avg(latitude) FROM cities GROUP BY half, country", [1]),
        ("SELECT country, avg(latitude) FROM cities WHERE number < 500 GROUP BY country", [0]),
        ("SELECT country, avg(latitude + number), sum(number) FROM cities GROUP BY 1", [0]),
        (
            "SELECT c.country, avg(c.latitude) FROM cities c JOIN cities d ON c.number = d.number GROUP BY 1",
            [0],
        ),
        (
            "SELECT c.country, avg(d.latitude) FROM cities c JOIN cities d ON c.number = d.number GROUP BY 1",
            [],
        ),
        ("SELECT country, avg(number) FROM cities GROUP BY country", []),
        ("SELECT upper(country), avg(latitude) FROM cities GROUP BY 1", []),
        ("SELECT half, avg(latitude) FROM cities GROUP BY half", []),
        ("SELECT country, avg(latitude) FROM cities GROUP BY ROLLUP (country)", []),
        ("SELECT avg(latitude) FROM cities", []),
    ],
)
def test_ends_are_those_of_the_same_tables_plain_keys(world: World, sql: str, keys: list[int]) -> None:
    plan = world.plan(sql)
    found = plan.bars.ends_by_group if isinstance(plan, MergePlan) else ()
    assert [each.key for each in found] == keys


def test_ends_of_an_expression_are_worked_out_for_each_group(world: World) -> None:
    (plain,) = ends_of(world, "SELECT country, sum(latitude) FROM cities GROUP BY country")
    (twice,) = ends_of(world, "SELECT country, sum(1 - 2 * latitude) FROM cities GROUP BY country")
    for low, high, least, most in zip(plain.lowest, plain.highest, twice.lowest, twice.highest, strict=True):
        assert (least, most) == (None if high is None else 1 - 2 * high, None if low is None else 1 - 2 * low)


@few_and_many("orders", 6, 60)
def test_averages_of_groups_that_hardly_vary_are_certified_and_hold(world: World, orders: int) -> None:
    """At 2 % of the rows a group has some 20. By the ends of the whole column none of its cells would be."""
    plan = world.plan(BY_COUNTRY)
    exact = {row["country"]: row for row in world.oracle.table(BY_COUNTRY).to_pylist()}
    certified, shown, held = 0, 0, []
    for seed in range(orders):
        for estimate in world.estimates(plan, seed=seed):
            if estimate.is_exact or estimate.fraction < 0.02:
                continue
            rows = [row for row in estimate.table.to_pylist() if row["country"] not in ("c3", "c5", None)]
            shown += 4 * len(rows)
            for row in rows:
                truth = exact[row["country"]]
                inside = [
                    row[f"{name}_low"] <= truth[name] <= row[f"{name}_high"]
                    for name in "abcd"
                    if row[f"{name}_certified"]
                ]
                certified += len(inside)
                held.append(np.mean(inside) if inside else 1.0)
            break
    assert certified >= 0.7 * shown
    # Cells of a group go together: its four are one draw, of about 95 %.
    least = scipy.stats.binom.ppf(1e-4, len(held), 0.95) / len(held)
    assert np.mean(held) >= least


FEW = "avg(latitude) FILTER (WHERE number < 6)"


@few_and_many("orders", 3, 30)
def test_averages_of_few_rows_are_certified_between_the_ends_of_their_group(
    world: World, orders: int
) -> None:
    """Six of the thousand rows of a group are averaged, and of each ten rows one is read."""
    sql = f"SELECT country, {FEW} AS a FROM cities GROUP BY country"
    plan, exact = world.plan(sql), {row["country"]: row["a"] for row in world.oracle.table(sql).to_pylist()}
    certified = {True: 0, False: 0}
    for seed in range(orders):
        estimates = world.estimates(plan, seed=seed)
        look = next(each for each in estimates if each.fraction >= 0.1)
        for row in look.table.to_pylist():
            if row["country"] is None or row["a"] is None:
                continue
            lowest = 4.0 * int(row["country"][1:]) - 80.0
            is_far = abs(lowest) > 21.0 or row["country"] == "c5"  # from zero, beside ends that are 3 apart
            certified[is_far] += row["a_certified"]
            if row["a_certified"]:
                assert row["a_low"] <= exact[row["country"]] <= row["a_high"]
                assert row["country"] == "c5" or lowest <= row["a_low"] < row["a_high"] <= lowest + 3.0
                assert row["country"] != "c5" or row["a_low"] == row["a_high"] == -60.0
            else:
                assert not is_far
    assert certified[True] > 8 * orders


@pytest.mark.parametrize(
    ("sql", "request_"),
    [
        (f"SELECT country, {FEW} + 1 AS a FROM cities GROUP BY country", IntervalRequest()),
        (f"SELECT country, stddev(latitude) + {FEW} AS a FROM cities GROUP BY country", IntervalRequest()),
        (f"SELECT country, {FEW} AS a FROM cities GROUP BY country HAVING {FEW} > -90", IntervalRequest()),
        (f"SELECT country, {FEW} AS a FROM cities GROUP BY country", IntervalRequest(anytime=True)),
        ("SELECT country, avg(sqrt(number)) FILTER (WHERE number < 6) AS a FROM cities GROUP BY country",
         IntervalRequest()),
    ],
)  # fmt: skip
def test_what_is_no_plain_average_between_narrow_ends_needs_ten_rows(
    world: World, sql: str, request_: IntervalRequest
) -> None:
    look = next(each for each in world.estimates(world.plan(sql), request=request_) if each.fraction >= 0.02)
    assert not any(look.table.column("a_certified").to_pylist())


def test_ends_of_another_duckdb_are_not_looked_up(tmp_path: Path) -> None:
    world = world_of(tmp_path, cities())
    write_manifest(replace(world.catalog.table("cities"), hash_probe="another"))
    world = World.open(tmp_path / "warehouse", world.oracle)
    estimates = world.estimates(world.plan(BY_COUNTRY))
    look = next(each for each in estimates if each.fraction >= 0.02)
    assert not any(row["a_certified"] for row in look.table.to_pylist() if row["country"] is not None)
