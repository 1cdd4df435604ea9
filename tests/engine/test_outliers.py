"""What is read from the outlier index is counted once and exactly, and never guessed at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.execution.cells import ShownGroups, outliers_agree
from relaqs_engine.layouts import add_static, shuffle
from relaqs_engine.plans.aggregate import Basis, BasisColumn, FoldedPlan, MergePlan
from relaqs_engine.plans.composite import AroundPlan, RefinedPlan
from relaqs_engine.rewrite.exact_rows import read_outliers_apart

from tests.conftest import Oracle
from tests.engine.example import after
from tests.engine.world import World
from tests.few_and_many import few_and_many

ROWS = 60_000


def sales() -> pa.Table:
    """Return sales: heavy tails in x and in the whole numbers k, none in y, NULLs, and ten shops."""
    rng = np.random.default_rng(0)
    x = np.round(rng.pareto(1.5, ROWS) + 1.0, 2)
    return pa.table(
        {
            "shop": rng.integers(0, 10, ROWS),
            "buyer": rng.integers(0, ROWS // 4, ROWS),
            "x": pa.array(x, mask=rng.random(ROWS) < 0.05),
            "k": (rng.pareto(1.2, ROWS) * 10).astype(np.int32),
            "y": rng.random(ROWS),
        }
    )


@pytest.fixture(scope="module", params=["rows", "clusters"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("sales")
    table = sales()
    cluster_by = "buyer" if request.param == "clusters" else None
    shuffle(table, folder / "sales", partitions=20, cluster_by=cluster_by)
    shops = pa.table({"shop": np.arange(10), "city": np.arange(10) % 3})
    add_static(shops, folder / "shops")
    return World.open(folder, oracle_over(folder / "raw", sales=table, shops=shops))


def oracle_over(folder: Path, **tables: pa.Table) -> Oracle:
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return Oracle(folder)


QUERIES = (
    "SELECT shop, sum(x) AS s, avg(x) AS a, count(*) AS n, count(x) AS m FROM sales GROUP BY shop",
    "SELECT sum(k) AS s, stddev(k) AS d, var_pop(x) AS v FROM sales",
    "SELECT city, sum(x * y) AS s, max(x), min(k) FROM sales JOIN shops USING (shop) GROUP BY city",
    "SELECT shop, sum(x) FILTER (WHERE y > 0.5) / sum(k) AS r FROM sales WHERE k < 1000 GROUP BY shop",
    "SELECT shop, sum(x) AS s FROM sales GROUP BY ROLLUP (shop)",
    "SELECT shop, sum(x) AS s FROM sales GROUP BY shop HAVING sum(x) > 100 ORDER BY s DESC LIMIT 3",
    "SELECT shop, sum(x) / sum(sum(x)) OVER () AS share FROM sales GROUP BY shop",
    "SELECT round(avg(x), 2) AS a, CAST(sum(x) AS BIGINT) AS s FROM sales",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_last_answer_is_duckdbs(world: World, sql: str) -> None:
    plan = world.plan(sql)
    parts = plan.parts if isinstance(plan, AroundPlan) else (plan,)
    assert all(isinstance(part, MergePlan) and part.partial.outlier_sql for part in parts)
    assert any("are read first, and counted exactly" in reason for part in parts for reason in part.reasons)
    world.check(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(y) FROM sales",  # not skewed
        "SELECT count(*), max(x) FROM sales",  # not summed
        "SELECT median(x), sum(x) FROM sales",  # values are kept
        "SELECT count(DISTINCT shop), sum(x) FROM sales",
        "SELECT count(*) FROM sales WHERE x > (SELECT avg(x) FROM sales)",
        "SELECT x FROM sales WHERE x > 100",
    ],
)
def test_where_sums_do_not_merge_it_is_not_read(world: World, sql: str) -> None:
    plan = world.plan(sql)
    parts = plan.task_plans if isinstance(plan, FoldedPlan | RefinedPlan) else ()
    assert parts
    assert not any(part.partial.outlier_sql for part in parts)
    world.check(sql)


def test_no_interval_excludes_what_is_known_of_the_outliers(world: World) -> None:
    """From the first estimate on a total is at least what the index adds to it."""
    layout = world.catalog.table("sales")
    index = layout.directory / layout.outlier_files[0].file
    known = duckdb.sql(f"SELECT sum(x) FROM read_parquet('{index}') WHERE x > 20").fetchall()[0][0]
    first = next(iter(world.estimates(world.plan("SELECT sum(x) AS s FROM sales"))))
    assert first.table.column("s_low")[0].as_py() > known


def test_with_outliers_apart_intervals_are_much_narrower(world: World) -> None:
    """The index has most of the variance: three quarters at least, or the column would not be in it."""
    with_index = world.plan("SELECT shop, sum(x) AS s FROM sales GROUP BY shop")
    without = world.plan("SELECT shop, sum(x) AS s, count(DISTINCT y) FROM sales GROUP BY shop")
    widths = [
        float(np.mean(list(world.estimates(plan))[-4].half_widths[:, 0])) for plan in (with_index, without)
    ]
    assert widths[0] < 0.7 * widths[1]


@pytest.mark.slow
@few_and_many("orders", 7, 20)
def test_one_row_a_million_times_larger_is_never_missed(tmp_path: Path, orders: int) -> None:
    """Whatever the order, no certified interval is wrong: the row is in the index, and counted at once."""
    values = np.random.default_rng(4).random(ROWS)
    values[777] = 1e6
    table = pa.table({"g": np.arange(ROWS) % 6, "x": values})
    shuffle(table, tmp_path / "t", partitions=20)
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table))
    plan = world.plan("SELECT g, sum(x) AS s, avg(x) AS a, stddev(x) AS d FROM t GROUP BY g ORDER BY g")
    *_, last = world.estimates(plan)
    wrong = certified = 0
    for seed in range(orders):
        for estimate in world.estimates(plan, seed=seed, batches=14):
            group = 777 % 6
            for name in ("s", "a", "d"):
                truth = last.table.column(name)[group].as_py()
                low, high, sure = (
                    estimate.table.column(f"{name}_{each}")[group].as_py()
                    for each in ("low", "high", "certified")
                )
                certified += sure
                wrong += sure and not low * (1 - 1e-9) <= truth <= high * (1 + 1e-9)
    # Its group's sum is the row and ten thousand others, of which the others alone are estimated: a 95 %
    # interval of those misses now and then, in all looks of an order. Three standard errors are allowed.
    # One that missed the row would be wrong every time.
    assert certified > 20 * orders
    assert wrong < (0.05 + 3 * (0.05 * 0.95 / orders) ** 0.5) * certified


@pytest.mark.parametrize(
    ("expression", "plain", "step"),
    [("round(avg(y), 2)", "avg(y)", 0.005), ("CAST(sum(y) AS BIGINT)", "sum(y)", 0.5)],
)
def test_a_rounded_estimate_has_the_bars_of_the_value_before(
    world: World, expression: str, plain: str, step: float
) -> None:
    sql = "SELECT shop, {} AS v FROM sales GROUP BY shop ORDER BY shop"
    one, other = (list(world.estimates(world.plan(sql.format(each))))[4] for each in (expression, plain))
    np.testing.assert_allclose(one.half_widths, other.half_widths + step, rtol=1e-3)
    assert (one.certified == other.certified).all()


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("sum(length(CAST(x AS VARCHAR)))", "nothing bounds LENGTH(CAST(x AS"),
        ("100 * round(avg(y), 2)", "moves in steps"),
    ],
)
def test_what_cannot_be_bounded_is_never_certified_and_says_so(
    world: World, expression: str, why: str
) -> None:
    for estimate in world.estimates(world.plan(f"SELECT {expression} AS v FROM sales")):
        assert estimate.is_exact or not estimate.certified.any()
        assert estimate.is_exact or any(why in warning for warning in estimate.warnings)


def test_a_row_that_may_meet_many_others_is_never_certified(tmp_path: Path) -> None:
    """One key meets 5,000 rows of the other table and the others one: a sample without it looks calm."""
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 50, ROWS)
    keys[:3] = 99
    table = pa.table({"k": keys, "y": rng.random(ROWS)})
    shuffle(table, tmp_path / "t", partitions=20)
    unique = pa.table({"k": np.arange(100)})
    many = pa.table({"k": np.concatenate([np.arange(50), np.full(5000, 99)])})
    add_static(unique, tmp_path / "once")
    add_static(many, tmp_path / "often")
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table, once=unique, often=many))
    sql = "SELECT sum(y) AS s, count(*) AS n FROM t JOIN {} USING (k)"
    *early, _ = world.estimates(world.plan(sql.format("often")))
    assert not any(estimate.certified.any() for estimate in early)
    assert all("meet several rows of often" in " ".join(estimate.warnings) for estimate in early)
    *early, _ = world.estimates(world.plan(sql.format("once")))
    assert early[-1].certified[0, 0]


@pytest.mark.parametrize(
    ("inner", "is_certified"),
    [
        ("SELECT k FROM many GROUP BY k", True),
        ("SELECT k, place FROM many GROUP BY k, place", False),
        ("SELECT DISTINCT k, place FROM many", False),
        ("SELECT k FROM once UNION SELECT place FROM once WHERE place < 0", True),
        ("SELECT k, place FROM many UNION SELECT k, place FROM many", False),
    ],
)
def test_a_row_that_may_meet_many_groups_of_a_subquery_is_never_certified(
    tmp_path: Path, inner: str, is_certified: bool
) -> None:
    """Distinct rows and groups are told apart by all of their keys, and not by some of them."""
    rng = np.random.default_rng(5)
    keys = rng.integers(0, 50, ROWS)
    keys[:3] = 99
    table = pa.table({"k": keys, "y": rng.random(ROWS)})
    shuffle(table, tmp_path / "t", partitions=20)
    known = np.concatenate([np.arange(50), np.full(5000, 99)])
    tables = {
        "many": pa.table({"k": known, "place": np.arange(len(known))}),
        "once": pa.table({"k": np.arange(50), "place": np.arange(50)}),
    }
    for name, rows in tables.items():
        add_static(rows, tmp_path / name)
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table, **tables))
    *early, _ = world.estimates(world.plan(f"SELECT sum(y) AS s FROM t JOIN ({inner}) AS s ON t.k = s.k"))
    assert any(estimate.certified.any() for estimate in early) is is_certified


def test_a_key_that_a_fifth_of_the_rows_share_is_no_key(tmp_path: Path) -> None:
    """All but one value of it are different, and that one comes with few rows of the sampled table."""
    keys = np.where(np.arange(ROWS) < 3, 0, np.arange(ROWS) % 999 + 1)
    table = pa.table({"k": keys, "y": np.random.default_rng(5).random(ROWS)})
    shuffle(table, tmp_path / "t", partitions=20)
    known = np.concatenate([np.arange(1, 1000), np.zeros(220, int)])
    tables = {"nearly": pa.table({"k": known}), "key": pa.table({"k": np.arange(1000)})}
    for name, rows in tables.items():
        add_static(rows, tmp_path / name)
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table, **tables))
    for name, is_certified in (("key", True), ("nearly", False)):
        *early, _ = world.estimates(world.plan(f"SELECT sum(y) AS s FROM t JOIN {name} USING (k)"))
        assert any(estimate.certified.any() for estimate in early) is is_certified


def test_negative_outliers_take_nothing_from_the_interval(tmp_path: Path) -> None:
    """A sum of positive values but for a few large negative ones, which the index has, can still fall."""
    rng = np.random.default_rng(6)
    values = rng.uniform(100.0, 200.0, ROWS)
    values[:100] = -1e5
    table = pa.table({"x": values})
    shuffle(table, tmp_path / "t", partitions=20)
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table))
    for estimate in list(world.estimates(world.plan("SELECT sum(x) AS s FROM t")))[:-1]:
        value, low = (estimate.table.column(name)[0].as_py() for name in ("s", "s_low"))
        assert low < value


def test_a_group_that_passes_by_its_outliers_is_judged_with_them(tmp_path: Path) -> None:
    """Ten rows of 400 are known of a small group from the start; what is open are fifty of 0 to 1."""
    rng = np.random.default_rng(7)
    values, groups = rng.random(ROWS), np.arange(ROWS) % 10
    groups[:60], values[:10] = 99, 400.0
    total = float(values[:60].sum())
    table = pa.table({"g": groups, "x": values})
    shuffle(table, tmp_path / "t", partitions=20)
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table))
    plan = world.plan(f"SELECT g, sum(x) AS s FROM t GROUP BY g HAVING sum(x) > {total + 2}")
    for seed in range(5):
        for estimate in list(world.estimates(plan, seed=seed))[:-1]:
            shown = dict(zip(estimate.table.column("g").to_pylist(), estimate.certain_rows, strict=True))
            assert not shown.get(99, False)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "WHERE v > (SELECT avg(v) FROM t)"])
def test_one_large_cluster_among_single_rows_is_never_forgotten(tmp_path: Path, where: str) -> None:
    """The largest cluster has a quarter of the rows: until it is read nothing is certified and wrong."""
    rng = np.random.default_rng(8)
    single, large = 15_000, 5_000  # more than are counted apart
    table = pa.table(
        {
            "u": np.concatenate([np.arange(single), np.full(large, single)]),
            "v": np.concatenate([rng.random(single), np.full(large, 0.97)]),
        }
    )
    shuffle(table, tmp_path / "t", partitions=20, cluster_by="u")
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", t=table))
    plan = world.plan(
        f"SELECT avg(v) AS a, sum(v) AS s, count(*) FILTER (WHERE v > 0.58) AS n FROM t {where}"
    )
    wrong = 0
    for seed in range(8):
        *early, last = world.estimates(plan, seed=seed)
        for estimate in early:
            for name in ("a", "s", "n"):
                low, high = (estimate.table.column(f"{name}_{end}")[0].as_py() for end in ("low", "high"))
                sure = estimate.table.column(f"{name}_certified")[0].as_py()
                wrong += sure and not low <= last.table.column(name)[0].as_py() <= high
    assert wrong == 0


@pytest.mark.slow
@few_and_many("orders", 20, 60)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT country, count(*) AS n FROM events GROUP BY country",
        "SELECT country % 3 AS c, count(*) AS n FROM events GROUP BY c",
        "SELECT country, kind, count(*) AS n FROM events GROUP BY country, kind",
    ],
)
def test_counts_over_units_of_unlike_size_hold(tmp_path: Path, sql: str, orders: int) -> None:
    """A country is a user's, and few users have most events: no calm sample is certified without them.

    The cells of an order move together, so an order counts as one: three standard errors of 95 % of so many
    are allowed. With the largest unit's share taken from the sample, 55 to 75 % held.
    """
    rng = np.random.default_rng(5)
    sizes = np.where(rng.random(6_000) < 0.003, 300, 1 + rng.poisson(2, 6_000))
    country, user = rng.integers(0, 8, len(sizes)), np.repeat(np.arange(len(sizes)), sizes)
    kind = (country[user] + (rng.random(len(user)) < 0.1)) % 3
    table = pa.table({"visitor": user, "country": country[user], "kind": kind})
    shuffle(table, tmp_path / "events", partitions=32, cluster_by="visitor")
    world = World.open(tmp_path, oracle_over(tmp_path / "raw", events=table))
    plan = world.plan(sql)
    certified = held = 0
    for seed in range(orders):
        *early, last = world.estimates(plan, seed=seed)
        keys = [name for name in last.columns if name != "n"]
        truth = {tuple(row[key] for key in keys): row["n"] for row in last.table.to_pylist()}
        for row in (row for estimate in early for row in estimate.table.to_pylist() if row["n_certified"]):
            certified += 1
            held += row["n_low"] <= truth[tuple(row[key] for key in keys)] <= row["n_high"]
    assert certified > orders
    assert held / certified > 0.95 - 3 * (0.05 * 0.95 / orders) ** 0.5


def test_an_outlier_below_zero_among_values_above_it_takes_the_sign_from_its_group_alone() -> None:
    """Bounds are those of the rows that are no outliers: 0 and more. An average may be below zero all the
    same."""
    column = BasisColumn("b0", Basis.SUM, "sum(x)", "DOUBLE", lowest=0.0, highest=9.0)
    outliers = np.array([[-500.0], [500.0], [0.0]])
    groups = ShownGroups(
        keys=pa.table({"k": [1, 2, 3]}),
        sums=outliers + 7.0,
        outliers=outliers,
        means=np.zeros((3, 1)),
        products=np.zeros((3, 0)),
        rows=np.full(3, 20.0),
    )
    assert outliers_agree([column], groups).tolist() == [False, True, True]
    assert outliers_agree([replace(column, lowest=-9.0)], groups).all()
    assert outliers_agree([replace(column, lowest=-9.0, highest=0.0)], groups).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("sql", "highest"),
    [
        ("SELECT sum(least(fare, 900)) FROM trips", 80.0),  # more is in the index
        ("SELECT sum(coalesce(fare, 900)) FROM trips", 80.0),
        ("SELECT sum(least(z.zone, 900)) FROM trips JOIN zones AS z ON z.zone = trips.zone", 250.0),
        ("SELECT sum(least(z.zone, 900)) FROM trips LEFT JOIN zones AS z ON z.zone = trips.zone", 900.0),
        ("SELECT sum(coalesce(z.zone, 900)) FROM trips LEFT JOIN zones AS z ON z.zone = trips.zone", 900.0),
    ],
)
def test_what_stands_for_a_missing_value_bounds_those_alone_that_may_be_missing(
    sql: str, highest: float
) -> None:
    assert after(read_outliers_apart, sql).basis[0].highest == highest
