"""Values that jump, bend near zero, are rounded, or stand in windows: what their error bars can promise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.plan import OutputKind

from tests.conftest import Oracle
from tests.engine.test_around import rows
from tests.engine.world import World

ROWS = 20_000


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Sales of six shops, of which shop 3 has two. Gains and losses nearly cancel. Two sales are rare."""
    folder = tmp_path_factory.mktemp("bends")
    draw = np.random.default_rng(5)
    shop = draw.integers(0, 5, ROWS)
    shop = np.where(shop == 3, 5, shop)
    shop[:2] = 3
    gain = draw.normal(0.0, 10.0, ROWS)
    sales = pa.table(
        {
            "shop": shop,
            "paid": draw.normal(60.0, 20.0, ROWS).clip(0.0, 120.0),
            "gain": gain - gain.mean() - 0.05,
            "rare": np.arange(ROWS) % 10_000 == 7,
        }
    )
    pq.write_table(sales, folder / "sales.parquet")
    shuffle(sales, folder / "warehouse" / "sales", partitions=40)
    with closing(Oracle(folder)) as oracle:
        yield World.open(folder / "warehouse", oracle)


def early(world: World, sql: str) -> list[Estimate]:
    return list(world.estimates(world.plan(sql), batches=8))[:-1]


TOTAL, GAIN = "(SELECT sum(paid) FROM sales)", "(SELECT sum(gain) FROM sales)"


@pytest.mark.parametrize(
    "value",
    [
        "sum(paid) / sum(gain)",
        "avg(paid) / nullif(avg(gain), 0)",
        "avg(paid) / (avg(paid) - avg(paid) FILTER (WHERE gain > 0))",
        "sum(paid) / (count(*) - 20000)",
        "avg(gain) * avg(gain)",
        "log10(abs(sum(gain)))",
        "log2(abs(sum(gain)))",
        "log(abs(sum(gain)))",
        "sqrt(abs(avg(gain)))",
        "1 + exp(avg(gain))",
        "avg(paid) ** 20 - 1",
        f"{TOTAL} / {GAIN}",
        f"{GAIN} * {GAIN}",
        "1 / (sum(paid / 1e6) - 1)",
        "1 / (count(*) FILTER (WHERE gain > 0) * 0.0001 - 1)",
        "1 / ((SELECT avg(paid) FROM sales) / 60 - 1)",
    ],
)
def test_what_bends_near_zero_is_not_certified(shops: World, value: str) -> None:
    """The sum of the gains is a third of its own error at an eighth of the rows: its inverse is anything."""
    sql = f"SELECT {value} AS v" + ("" if "SELECT" in value else " FROM sales")
    found = early(shops, sql)
    assert found
    for estimate in found:
        assert not estimate.certified.any()
        assert any("near zero" in warning for warning in estimate.warnings)


@pytest.mark.parametrize(
    "value",
    [
        "even(avg(paid)) + avg(gain)",
        "round_even(avg(paid), -1) + avg(gain)",
        "avg(gain) + extract('second' FROM to_timestamp(sum(shop)))",
        "avg(paid) * len(list_filter([1, 2, 3], lambda x: x > avg(gain)))",
    ],
)
def test_what_jumps_is_not_certified(shops: World, value: str) -> None:
    for estimate in early(shops, f"SELECT {value} AS v FROM sales"):
        assert not estimate.certified.any()
        assert any("may jump" in warning for warning in estimate.warnings)


@pytest.mark.parametrize(
    ("value", "is_certified"),
    [
        ("greatest(avg(gain), -1) + avg(paid)", False),
        ("greatest(avg(paid), 60 + avg(gain))", False),
        ("least(avg(paid), 90)", True),
    ],
)
def test_the_larger_of_two_is_a_choice(shops: World, value: str, is_certified: bool) -> None:
    for estimate in early(shops, f"SELECT {value} AS v FROM sales"):
        assert set(estimate.certified.ravel().tolist()) == {is_certified}


@pytest.mark.parametrize(
    "value",
    [
        "sum(gain) / sum(paid)",
        "100.0 * sum(paid) / count(*)",
        "ln(sum(paid))",
        "sqrt(avg(paid))",
        "abs(avg(paid)) / 7",
        "stddev(gain) / avg(paid)",
        "corr(gain, paid) / 2",
        "avg(paid) ** 2",
        f"{GAIN} / {TOTAL}",
    ],
)
def test_what_is_smooth_stays_certified(shops: World, value: str) -> None:
    sql = f"SELECT {value} AS v" + ("" if "SELECT" in value else " FROM sales")
    assert all(estimate.certified.all() for estimate in early(shops, sql))


@pytest.mark.parametrize(
    ("value", "is_certified"),
    [
        ("1 / (v - 3)", False),
        ("ln(v - 1)", False),
        ("1 / (coalesce(v, 0) - 1)", False),
        ("s / (n - 1)", True),
        ("sum(s) / (sum(n) - 1)", True),
        ("avg(1 / (v - 1))", False),
        ("1 / (sum(s) - 1)", False),
    ],
)
def test_only_a_number_of_rows_stays_away_from_small_numbers(
    shops: World, value: str, is_certified: bool
) -> None:
    parts = "SELECT shop, avg(paid) / 60 AS v, sum(paid) AS s, count(*) AS n FROM sales WHERE shop <> 3"
    sql = f"SELECT {value} AS v FROM ({parts} GROUP BY shop)"
    for estimate in early(shops, sql):
        assert set(estimate.certified.ravel().tolist()) == {is_certified}


def by_shop(over: str, end: str = "") -> str:
    return f"SELECT shop, sum(sum(paid)) OVER {over} AS v FROM sales GROUP BY shop {end}"


@pytest.mark.parametrize(
    "sql",
    [
        by_shop("w", "WINDOW w AS (ORDER BY sum(gain))"),
        by_shop("(w ROWS 1 PRECEDING)", "WINDOW w AS (ORDER BY shop)"),
    ],
)
def test_a_window_with_a_name_is_not_certified(shops: World, sql: str) -> None:
    assert not any(estimate.certified.any() for estimate in early(shops, sql))


@pytest.mark.parametrize(
    ("frame", "beside"),
    [
        ("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", 4),
        ("GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING", 2),
    ],
)
def test_a_frame_that_a_missing_group_changes_is_certified_once_it_was_met(
    shops: World, frame: str, beside: int
) -> None:
    """Shop 3 has two sales. Until one is read, the shop before shop 4 seems to be shop 2.

    The manifest has how many shops there are. Sums with shop 3 in them are of few rows even then.
    """
    plan = shops.plan(by_shop(f"(ORDER BY shop {frame})"))
    found = [
        rows(estimate)
        for seed in range(4)
        for estimate in list(shops.estimates(plan, seed=seed, batches=8))[:-1]
    ]
    for each in found:
        is_met = 3 in {row["shop"] for row in each}
        sure = {row["shop"] for row in each if row["v_certified"]}
        assert sure == ({0, 1, 2, 4, 5} - {beside} if is_met else set())
    assert len({len(each) for each in found}) == 2  # with shop 3 and without


@pytest.mark.parametrize(
    "frame", ["", "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW", "ROWS UNBOUNDED PRECEDING"]
)
def test_a_frame_of_values_is_certified(shops: World, frame: str) -> None:
    for estimate in early(shops, by_shop(f"(ORDER BY shop {frame})")):
        assert {row["shop"] for row in rows(estimate) if row["v_certified"]} >= {0, 1, 2, 4, 5}


@pytest.mark.parametrize("value", ["exp(avg(ln(paid + 1)))", "geomean(paid + 1)", "exp(avg(gain) * 9)"])
def test_what_multiplies_errors_is_certified_where_they_are_small(shops: World, value: str) -> None:
    """A mean gain is 0.2 off at an eighth of the rows, and its ninefold bends EXP."""
    sql = f"SELECT {value} AS v FROM sales"
    for estimate in early(shops, sql):
        [row] = rows(estimate)
        half = (row["v_high"] - row["v_low"]) / 2
        assert row["v_certified"] == (half <= 0.6 * abs(row["v"]))
    assert early(shops, sql)[0].certified.all() == ("9" not in value)


@pytest.mark.parametrize(
    ("value", "rounding"),
    [
        ("round({} / 100) * 100", 50.0),
        ("round({}, -1) + 1", 5.0),
        ("round({}, -1)", 5.0),
        ("CAST({} AS INTEGER)", 0.5),
        ("CAST({} AS DECIMAL(9, 1))", 0.05),
        ("CAST({} AS DOUBLE)", 0.0),
    ],
)
def test_intervals_around_answers_allow_for_rounding(shops: World, value: str, rounding: float) -> None:
    mean = "(SELECT avg(paid) FROM sales)"
    moved = 1 if value.endswith("+ 1") else 0
    sql, plain = f"SELECT {value.format(mean)} AS v", f"SELECT {mean} + {moved} AS v"
    [(truth,)] = shops.oracle.rows(sql)
    for rounded, smooth in zip(early(shops, sql), early(shops, plain), strict=True):
        [row], [other] = rows(rounded), rows(smooth)
        assert row["v_certified"]
        assert row["v_low"] <= truth <= row["v_high"] or not rounding
        width = other["v_high"] - other["v_low"] + 2 * rounding
        assert row["v_high"] - row["v_low"] == pytest.approx(width, rel=1e-6)


@pytest.mark.parametrize("factor", ["round(shop / 3)", "CAST(shop / 3 AS INTEGER)", "floor(shop / 3)"])
def test_the_rounding_of_a_key_stays(shops: World, factor: str) -> None:
    """Rounding is taken off estimates alone: no interval is widened by how far that of a key goes."""
    groups = "(SELECT shop, sum(paid) AS s FROM sales GROUP BY shop)"
    sql = f"SELECT shop, s * {factor} AS v, CASE WHEN {factor} = 1 THEN s END AS w FROM {groups}"
    truth = {shop: (v, w) for shop, v, w in shops.oracle.rows(sql)}
    for estimate in early(shops, sql):
        for row in rows(estimate):
            v, w = truth[row["shop"]]
            assert (row["w"] is None) == (w is None)
            assert row["v"] == pytest.approx(v, rel=0.1) or not row["v_certified"]


def test_a_sum_of_rounded_totals_has_no_interval(shops: World) -> None:
    """Each shop has 240,000 or 480,000, which 600,000 as a step makes 0 or one step."""
    totals = "SELECT shop, {} AS s FROM (SELECT shop, sum(paid) AS s FROM sales GROUP BY shop)"
    sql = f"SELECT sum(s) AS v FROM ({totals.format('round(s / 600000) * 600000')})"
    assert shops.plan(sql).outputs[0].kind is OutputKind.OPAQUE
    assert (
        shops.plan(f"SELECT sum(s) AS v FROM ({totals.format('s')})").outputs[0].kind is OutputKind.ESTIMATE
    )
    shops.check(sql, batches=4)


def test_a_union_with_a_value_that_moves_in_steps_has_no_interval(shops: World) -> None:
    sides = "SELECT even(avg(paid)) * 2 AS v FROM sales UNION ALL SELECT floor(avg(paid)) * 2 AS v FROM sales"
    sql = f"SELECT sum(v) AS v FROM ({sides})"
    for each in (sides, sql):
        for estimate in early(shops, each):
            assert not estimate.certified.any()
            assert not np.isinf(estimate.half_widths).any()


def test_a_total_without_a_row_yet_may_still_be_large(shops: World) -> None:
    """Two sales count 5,000 times. COALESCE has 0 for them until one is read."""
    rare = "sum(paid * 5000) FILTER (WHERE rare) AS s"
    groups = f"SELECT shop, {rare}, sum(paid) AS m, avg(paid) AS q FROM sales GROUP BY shop"
    sql = f"SELECT sum(coalesce(s, 0) + m) AS v, max(q) AS q FROM ({groups})"
    [(truth, _)] = shops.oracle.rows(sql)
    for seed in range(4):
        for estimate in list(shops.estimates(shops.plan(sql), batches=8, seed=seed))[:-1]:
            [row] = rows(estimate)
            assert not row["v_certified"] or row["v_low"] <= truth <= row["v_high"]


@pytest.mark.parametrize("beside", ["max(gain)", "count(DISTINCT shop)", "median(gain)"])
def test_a_number_that_never_changes_stands_beside_values_so_far(shops: World, beside: str) -> None:
    nothing = "SELECT count(*) FROM sales WHERE shop = 1 AND shop <> 1"
    sql = f"SELECT (SELECT {beside} FROM sales WHERE gain > 0) AS v, ({nothing}) * 100 AS n"
    plan = shops.plan(sql)
    for estimate in shops.estimates(plan, batches=4):
        assert [row["n"] for row in rows(estimate)] == [0]


APART = "avg(even) FILTER (WHERE i % 2 = 0) - avg(even) FILTER (WHERE i % 2 = 1)"
FOLDS = {
    "abs(avg(even))": True,
    f"abs({APART})": True,
    "abs(sum(even)) / count(*)": True,
    "abs(avg(one) - 1)": True,
    "sqrt(abs(avg(even)))": False,
    "sqrt(abs(sum(even))) / sqrt(sum(one))": False,
    "avg(even) * avg(even)": False,
    "pow(avg(even), 2)": False,
    "(avg(one) - 1) * (avg(one) - 1)": False,
    "1 / (avg(one) - 0.999)": False,
    "ln(abs(avg(one) - 1.001))": False,
    "greatest(avg(even), 0)": True,
    "greatest(0, least(avg(even), 0.05)) - 1": True,
    "round(100 * abs(abs(avg(even)) - 0.02), 3)": True,
    "abs(avg(even)) * avg(one)": True,
    "avg(even) + abs(avg(even))": False,
    "abs(avg(even) + 0.01) + abs(avg(even) - 0.01)": False,
    "greatest(avg(even), 0) * avg(even)": False,
    "greatest(avg(even), -avg(even))": False,
    "CASE WHEN avg(even) > 0 THEN avg(even) ELSE 0 END": False,
}
OF_ANSWERS = {
    "SELECT v * 2 AS v FROM (SELECT abs(avg(even)) AS v FROM t)": True,
    "SELECT abs(avg(one) - (SELECT avg(one) FROM t)) AS v FROM t WHERE i % 2 = 0": True,
    "SELECT abs(avg(even)) AS v FROM t UNION ALL SELECT abs(avg(even)) AS v FROM t WHERE i >= 0": True,
    "SELECT a / b AS v FROM (SELECT avg(one) AS a, abs(avg(even)) AS b FROM t)": False,
    "SELECT v FROM (SELECT greatest(avg(even), 0) AS v FROM t)": True,
    "SELECT v * 2 AS v FROM (SELECT greatest(avg(even), 0) AS v FROM t)": False,
    "SELECT a + b AS v FROM (SELECT avg(even) AS a, abs(avg(even)) AS b FROM t)": False,
    "SELECT sum(v) AS v FROM (SELECT i // 2 % 50 AS k, abs(avg(even)) AS v FROM t GROUP BY k)": False,
    "SELECT avg(v) AS v FROM (SELECT i // 2 % 50 AS k, greatest(avg(even), 0) AS v FROM t GROUP BY k)": False,
}


@pytest.fixture(scope="module")
def level(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return values with averages of 0 and 1 over all rows, over the even ones and over the odd ones."""
    folder = tmp_path_factory.mktemp("level")
    draw = np.random.default_rng(3)
    even, one = draw.normal(0.0, 1.0, (ROWS // 2, 2)), np.abs(draw.normal(0.0, 1.0, (ROWS // 2, 2)))
    even, one = even - even.mean(axis=0), one / one.mean(axis=0)
    table = pa.table({"i": np.arange(ROWS), "even": even.ravel(), "one": one.ravel()})
    pq.write_table(table, folder / "t.parquet")
    shuffle(table, folder / "warehouse" / "t", partitions=40)
    with closing(Oracle(folder)) as oracle:
        yield World.open(folder / "warehouse", oracle)


def certified_and_held(
    world: World, sql: str, names: list[str], orders: int = 60
) -> dict[str, tuple[int, int]]:
    """Return in how many orders the first snapshot certifies each column, and how many hold."""
    truth = dict(zip(names, world.oracle.rows(sql)[0], strict=True))
    plan, found = world.plan(sql), dict.fromkeys(names, (0, 0))
    for seed in range(orders):
        row = rows(next(iter(world.estimates(plan, batches=10, seed=seed))))[0]
        for name in (name for name in names if row[f"{name}_certified"]):
            certified, held = found[name]
            low, high = row[f"{name}_low"] - 1e-9, row[f"{name}_high"] + 1e-9
            found[name] = (certified + 1, held + (low <= truth[name] <= high))
    return found


def holds(certified: int, held: int) -> bool:
    """Whether as many hold as of intervals of 95 %, but for one such number of a thousand."""
    return bool(held >= scipy.stats.binom.ppf(0.001, certified, 0.95))


@pytest.mark.slow
def test_what_folds_at_zero_holds_where_its_truth_is_zero(level: World) -> None:
    names = [f"v{i}" for i in range(len(FOLDS))]
    items = ", ".join(f"{value} AS {name}" for value, name in zip(FOLDS, names, strict=True))
    found = certified_and_held(level, f"SELECT {items} FROM t", names)
    for (value, is_certified), counts in zip(FOLDS.items(), found.values(), strict=True):
        assert (counts[0] > 0) == is_certified, (value, counts)
        assert holds(*counts), (value, counts)


@pytest.mark.parametrize(("sql", "is_certified"), OF_ANSWERS.items())
def test_answers_of_what_folds_at_zero_hold(level: World, sql: str, is_certified: bool) -> None:
    counts = certified_and_held(level, sql, ["v"])["v"]
    assert (counts[0] > 0) == is_certified
    assert holds(*counts), counts


@pytest.mark.slow
def test_the_fold_of_an_interval_holds_near_the_fold(level: World) -> None:
    """The average has an error of 0.021. Where it is far below a fold, nothing of its interval is left."""
    away = (0.0, 0.013, 0.021, 0.032)
    items = [f"greatest(avg(even) + {by}, 0)" for by in away] + [f"least(avg(even) - {by}, 0)" for by in away]
    names = [f"v{i}" for i in range(len(items))]
    sql = f"SELECT {', '.join(f'{item} AS {name}' for item, name in zip(items, names, strict=True))} FROM t"
    for item, counts in zip(items, certified_and_held(level, sql, names, 240).values(), strict=True):
        assert counts[0] >= 228, (item, counts)
        assert holds(*counts), (item, counts)


def test_what_is_folded_has_its_value_within_its_interval(level: World) -> None:
    sql = "SELECT i % 2 AS k, 1 - 2 * greatest(avg(even), 0) AS v, abs(avg(even)) AS w FROM t GROUP BY k"
    for estimate in early(level, sql):
        for row in rows(estimate):
            assert all(row[f"{name}_low"] <= row[name] <= row[f"{name}_high"] for name in ("v", "w"))
            assert row["v_high"] <= 1.0
            assert row["w_low"] >= 0.0
