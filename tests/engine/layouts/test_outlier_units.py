"""What units have and sum to is as plain DuckDB counts it, and those with most rows are counted apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts import Layout, add_static, append, compact, outliers, shuffle, verify
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.outliers import unit_condition
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_engine.sql.binder import Binder
from scipy.stats import binom

import relaqs
from benchmarks.replay import Replay, Truth, nearest_batches
from tests.few_and_many import few_and_many


def events(seed: int, rows: int = 6_000) -> pa.Table:
    """Return events of users with few and with very many of them, and with NULL among keys and values."""
    rng = np.random.default_rng(seed)
    user = rng.zipf(1.4, rows) % 700
    return pa.table(
        {
            "visitor": pa.array(user, mask=user == 5),
            "device": pa.array(rng.integers(0, 2, rows).astype(str)),
            "country": pa.array(user % 11, mask=user % 11 == 3),
            "day": pa.array(rng.integers(0, 40, rows), mask=rng.random(rows) < 0.2),
            "f": rng.choice([0.0, -0.0, np.nan, 1.5], rows),
            "dec": pa.array(rng.integers(0, 5, rows).astype(np.int32)).cast(pa.decimal128(12, 2)),
            "moment": pa.array(rng.integers(0, 9, rows)).cast(pa.timestamp("us")),
            "many": rng.random(rows),
            "none": pa.nulls(rows, pa.int32()),
            "words": pa.array([["a"], ["b"]] * (rows // 2)),
        }
    )


@few_and_many("seeds", 1, 6)
@pytest.mark.parametrize("key", [("visitor",), ("visitor", "device"), ("device",)])
@pytest.mark.parametrize("at_once", [1_000, 8_000_000])
def test_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...], at_once: int, seeds: int
) -> None:
    monkeypatch.setattr(outliers, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(outliers, "SAMPLE_ROWS", 500)
    for seed in range(seeds):
        table = events(seed)
        layout = shuffle(table, tmp_path / f"t{seed}", partitions=8, cluster_by=key)
        known = {each.name: each.most_unit_rows for each in layout.columns}
        columns = {"visitor", "device", "country", "day", "f", "dec", "moment"} - set(key)
        assert {name for name, most in known.items() if most is not None} == columns
        units = sizes(table, key)
        for name in columns:
            assert known[name] == max(sizes(table, (*key, name)))
        squares, fourths = (sum(float(rows) ** power for rows in units) for power in (2, 4))
        assert layout.unit_kurtosis_rows == pytest.approx(table.num_rows * fourths / squares**2)
        assert read_manifest(layout.directory) == layout
        assert verify(layout.directory).ok


def sizes(visits: pa.Table, by: tuple[str, ...]) -> list[int]:
    """Return the rows of each group."""
    found = duckdb.sql(f"SELECT count(*) FROM visits GROUP BY {', '.join(by)}").fetchall()
    return [rows for (rows,) in found]


def test_after_an_append_they_are_not_known_until_the_table_is_compacted(tmp_path: Path) -> None:
    both = pa.concat_tables([events(0), events(1)])
    shuffle(events(0), tmp_path / "t", partitions=8, cluster_by="visitor")
    grown = append(events(1), tmp_path / "t")
    assert grown.unit_kurtosis_rows is None
    assert all(each.most_unit_rows is None for each in grown.columns)
    whole = compact(tmp_path / "t")
    assert whole.column("day").most_unit_rows == max(sizes(both, ("visitor", "day")))


@pytest.mark.parametrize("key", [None, "pair"])
def test_units_of_few_rows_have_none(tmp_path: Path, key: str | None) -> None:
    table = pa.table({"pair": np.arange(4_000) // 2, "g": np.arange(4_000) % 3})
    layout = shuffle(table, tmp_path / "t", partitions=8, cluster_by=key)
    assert layout.unit_kurtosis_rows is None
    assert all(each.most_unit_rows is None for each in layout.columns)


def visits(key: pa.Array, rows: int = 30_000) -> pa.Table:
    """Return visits of users: a few have a third of them. Their keys are taken from a list of 3,000."""
    rng = np.random.default_rng(3)
    user = np.where(rng.random(rows) < 0.08, rng.integers(0, 9, rows), rng.integers(0, 3_000, rows))
    return pa.table(
        {
            "user": key.take(pa.array(user)),
            "country": pa.array(user % 7),
            "day": pa.array(rng.integers(0, 30, rows)),
            "paid": np.round(rng.gamma(2.0, 20.0, rows), 2),
            "skewed": rng.lognormal(0.0, 3.0, rows),
        }
    )


NUMBERS = pa.array(range(3_000))
KEYS = {
    "numbers": NUMBERS,
    "texts": pa.array([f"o'{i}" for i in range(3_000)]),
    "with NULL": pa.array([None, *range(1, 3_000)]),
    "days": NUMBERS.cast(pa.int32()).cast(pa.date32()),
    "decimals": NUMBERS.cast(pa.int32()).cast(pa.decimal128(12, 2)),
}
countries = pa.table({"country": range(7), "name": list("abcdefg")})


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Layout]:
    """Give the visits with keys of a kind, by user, beside a table of countries. No test may change them."""

    @cache
    def layout(kind: str) -> Layout:
        folder = tmp_path_factory.mktemp("visits")
        add_static(countries, folder / "countries")
        return shuffle(visits(KEYS[kind]), folder / "visits", partitions=16, cluster_by="user")

    return layout


@pytest.mark.parametrize("kind", KEYS)
def test_the_keys_with_most_rows_are_apart_and_the_others_are_measured(
    laid_out: Callable[[str], Layout], kind: str
) -> None:
    table, layout = visits(KEYS[kind]), laid_out(kind)
    assert table.num_rows == layout.row_count
    units = layout.outlier_units
    assert units is not None
    assert len(units.keys) >= 9
    assert read_manifest(layout.directory) == layout
    assert verify(layout.directory).ok
    heavy = unit_condition(layout, units.keys)
    ((rows, number),) = duckdb.sql(
        f'SELECT count(*), count(DISTINCT coalesce("user"::VARCHAR, \'none\')) FROM "table" WHERE {heavy}'
    ).fetchall()
    others = layout.without_outlier_units()
    assert (layout.row_count - others.row_count, layout.unit_count - others.unit_count) == (rows, number)
    assert number == len(units.keys)
    low, high = (getattr(layout.column("skewed"), end) for end in ("inlier_low", "inlier_high"))
    for column in units.others.columns:
        if column.middle is None:
            continue
        away = f"({column.column} - {column.middle!r}::DOUBLE)"
        among = f"FILTER ({column.column} BETWEEN {low} AND {high})" if column.column == "skewed" else ""
        of_all = (column.above_of_all, column.below_of_all, column.squares_of_all)
        for condition, known in ((among, (column.above, column.below, column.squares)), ("", of_all)):
            ((most, *sums),) = duckdb.sql(
                "SELECT max(n), max(a), max(b), max(s) FROM (SELECT count(*) AS n, "
                f"sum(greatest({away}, 0)) {condition} AS a, sum(greatest(-{away}, 0)) {condition} AS b, "
                f'sum({away} ** 2) {condition} AS s FROM "table" WHERE NOT ({heavy}) GROUP BY "user")'
            ).fetchall()
            assert units.others.max_unit_rows == most
            assert known == pytest.approx(tuple(sums))


@pytest.mark.slow
def test_an_append_drops_them_and_a_compaction_finds_them_again(tmp_path: Path) -> None:
    shuffle(visits(NUMBERS), tmp_path / "t", partitions=16, cluster_by="user")
    assert append(visits(NUMBERS), tmp_path / "t").outlier_units is None
    assert verify(tmp_path / "t").ok
    whole = compact(tmp_path / "t")
    assert whole.outlier_units is not None
    assert whole.row_count == 60_000
    assert verify(tmp_path / "t").ok


@pytest.mark.parametrize("kind", KEYS)
def test_answers_that_count_them_apart_end_as_duckdb_s_and_hold(tmp_path: Path, kind: str) -> None:
    visits_table = visits(KEYS[kind])
    shuffle(visits_table, tmp_path / "w" / "visits", partitions=32, cluster_by="user")
    held = certified = 0
    with relaqs.connect(tmp_path / "w", exact_below_seconds=0) as db:
        for select in (
            'country, count(*) AS v, count(DISTINCT "user") AS w',
            "country, avg(paid) AS v, sum(skewed) AS w",
            "day, sum(paid * 2 - 1) AS v, sum(paid) / count(*) AS w",
            "day, stddev(paid) AS v, count(*) FILTER (paid > 50) AS w",
        ):
            query = f"SELECT {select} FROM {{}} GROUP BY 1 ORDER BY 1"
            truth = duckdb.sql(query.format("visits_table")).fetchall()
            *early, last = db.online_sql(query.format("visits"), batches=8)
            for row, true in zip(last.table.select([0, "v", "w"]).to_pylist(), truth, strict=True):
                assert tuple(row.values()) == pytest.approx(true)
            for snapshot in early:
                for row, true in zip(snapshot.table.to_pylist(), truth, strict=True):
                    for name, value in zip("vw", true[1:], strict=True):
                        if row[f"{name}_certified"]:
                            certified += 1
                            held += row[f"{name}_low"] <= value <= row[f"{name}_high"]
    assert certified > 300
    assert binom.cdf(held, certified, 0.90) > 1e-3  # 95 % of them hold, and those of one order move together


OF_USERS = {
    "n": "count(*)",
    "m": "count(paid) FILTER (paid > 50)",
    "s": "sum(paid)",
    "t": "sum(2 * paid - 50) / count(*)",
    "w": "sum(skewed)",
    "d": "max(day) - min(day)",
    "days": "count(DISTINCT day)",
    "a": "avg(paid)",
    "sd": "stddev(paid)",
    "c": "any_value(country)",
    "q": "median(skewed)",
}

ALL_OF_USER = "count(*) AS n, sum(paid) AS s, any_value(country) AS c"


@pytest.mark.parametrize("kind", ["numbers", "with NULL"])
@pytest.mark.parametrize("where", ["", "WHERE day < 20"])
def test_rows_that_are_made_of_units_lie_within_their_bounds(
    laid_out: Callable[[str], Layout], kind: str, where: str
) -> None:
    table, layout = visits(KEYS[kind]), laid_out(kind)
    assert table.num_rows == layout.row_count
    catalog = Catalog.open(layout.directory.parent)
    assert layout.outlier_units is not None
    others = f"NOT ({unit_condition(layout, layout.outlier_units.keys)})"
    inside = ", ".join(f"{value} AS {name}" for name, value in OF_USERS.items())
    sums = ", ".join(f"sum({name}) AS {name}" for name in OF_USERS)
    sql = f'SELECT {sums} FROM (SELECT "user" AS u, {inside} FROM visits {where} GROUP BY "user")'
    plan = plan_query(sql, catalog, Binder(catalog))
    assert isinstance(plan, MergePlan)
    assert plan.leaves_units_out
    assert plan.bars.most_unit_rows == 1
    assert not any(output.never_certified for output in plan.outputs)
    found = duckdb.sql(f'SELECT {inside} FROM "table" {where or "WHERE true"} AND {others} GROUP BY "user"')
    ends = {name: found.aggregate(f"min({name}), max({name})").fetchall()[0] for name in OF_USERS}
    totals = dict(zip(OF_USERS, (output.total for output in plan.outputs), strict=True))
    bounds = {column.name: column for column in plan.columns.basis}
    for name, (least, most) in ends.items():
        column = bounds[totals[name] or ""]
        assert column.lowest is not None
        assert column.highest is not None
        assert column.lowest <= least
        assert most <= column.highest
    if not where:
        assert bounds[totals["n"] or ""].highest == layout.outlier_units.others.max_unit_rows


@pytest.mark.parametrize(
    ("total", "count", "least", "most"),
    [
        ("sum(dec)", "count(*)", 0.0, 4.0),
        ("sum(dec)", "count(day)", None, None),  # fewer rows may be counted than are added up
        ("sum(dec + 1)", "count(dec + 1)", 1.0, 5.0),
        ("sum(dec + 1)", "count(*)", 0.0, 5.0),  # of an expression it is not known whether it may be NULL
        ("sum(day - 30)", "count(*)", -30.0, 9.0),
        ("sum(day - 60)", "count(*)", -60.0, 0.0),  # rows without a day are counted, too
        ("sum(day - 60)", "count(day - 60)", -60.0, -21.0),
        ("sum(dec) FILTER (device = '1')", "count(*)", 0.0, 4.0),
        ("sum(day - 60) FILTER (device = '1')", "count(*) FILTER (device = '1')", -60.0, 0.0),
        ("sum(dec)", "count(*) FILTER (device = '1')", None, None),
        ("sum(DISTINCT dec)", "count(*)", 0.0, None),
        ("sum(dec)", "count(DISTINCT dec)", None, None),
        ("count_if(device = '1')", "count(*)", 0.0, 1.0),
    ],
)
def test_a_sum_by_its_rows_is_as_large_as_they_are(
    tmp_path: Path, total: str, count: str, least: float | None, most: float | None
) -> None:
    table = events(3)
    shuffle(table, tmp_path / "events", partitions=8, cluster_by="visitor")
    catalog = Catalog.open(tmp_path)
    inside = f"SELECT visitor, {total} AS s, {count} AS n, {total} / {count} AS q FROM {{}} GROUP BY visitor"
    for value in ("s / n", "q", "CAST(s AS DOUBLE) / n", "s * 1.0 / nullif(n, 0)", "(2 * s) / n / 2"):
        sql = f"SELECT count(*) AS n, sum({value}) AS s FROM ({inside.format('events')})"
        plan = plan_query(sql, catalog, Binder(catalog))
        assert isinstance(plan, MergePlan)
        [column] = [each for each in plan.columns.basis if each.name == plan.outputs[1].total]
        assert least is None or (column.lowest is not None and column.lowest >= least - 1e-9)
        assert most is None or (column.highest is not None and column.highest <= most + 1e-9)
        quotients = duckdb.sql(inside.format('"table"')).filter("n > 0")
        [(low, high)] = quotients.aggregate(f"min({value}), max({value})").fetchall()
        assert low is None or column.lowest is None or column.lowest <= low + 1e-9
        assert high is None or column.highest is None or high - 1e-9 <= column.highest


@pytest.mark.parametrize("kind", KEYS)
def test_derived_tables_of_units_end_as_duckdb_s(laid_out: Callable[[str], Layout], kind: str) -> None:
    visits_table = visits(KEYS[kind])
    assert visits_table.num_rows == 30_000
    inside = 'SELECT "user" AS u, {} FROM visits {} GROUP BY "user"'
    with relaqs.connect(laid_out(kind).directory.parent, exact_below_seconds=0) as db:
        for sql in (
            f"SELECT avg(n), avg(s), min(c), max(n), count(*) FROM ({inside.format(ALL_OF_USER, '')})",
            f"SELECT sum(n), sum(s), count(u), count(DISTINCT u) FROM ({inside.format(ALL_OF_USER, '')})",
            f"SELECT c, sum(n), stddev(s) FROM ({inside.format(ALL_OF_USER, '')} HAVING count(*) > 3) "
            "GROUP BY c ORDER BY c",
            f"SELECT name, avg(s) FROM ({inside.format(ALL_OF_USER, 'WHERE day < 9')}) "
            "JOIN countries ON c = country GROUP BY name ORDER BY name",
            f"SELECT median(n), avg(s) FROM ({inside.format(ALL_OF_USER, '')}) WHERE u IS NOT NULL",
            f"SELECT day, avg(n) FROM ({inside.format('day, count(*) AS n', '')}, day) GROUP BY 1 ORDER BY 1",
        ):
            *_, last = db.online_sql(sql, batches=6)
            truth = duckdb.sql(sql.replace("FROM visits", "FROM visits_table")).fetchall()
            found = last.table.select(range(len(truth[0]))).to_pylist()
            for row, true in zip(found, truth, strict=True):
                assert tuple(row.values()) == pytest.approx(true)


NUMBERS_OF_USERS = (
    "SELECT avg(n) AS v, avg(s) AS w FROM (SELECT {of} FROM events GROUP BY u)",
    "WITH of_user AS (SELECT {of} FROM events GROUP BY u HAVING count(*) > 1) "
    "SELECT avg(CASE WHEN n > 3 THEN 1 ELSE 0 END) AS v, stddev(n) AS w FROM of_user",
    "SELECT c, avg(n) AS v, count(*) AS w FROM (SELECT {of}, any_value(country) AS c FROM events GROUP BY u) "
    "GROUP BY c",
    "SELECT country, avg(n) AS v, avg(s) AS w FROM (SELECT {of}, country FROM events WHERE day < 20 "
    "GROUP BY u, country) GROUP BY country",
)


@pytest.mark.slow
@few_and_many("orders", 6, 24)
@pytest.mark.parametrize("sizes", ["log-normal", "Pareto"])
def test_numbers_by_user_are_certified_and_hold(tmp_path: Path, sizes: str, orders: int) -> None:
    """Cells of one order move together, so that a query's cells of an order at one share count as one."""
    rng = np.random.default_rng(7)
    rows = rng.lognormal(1.3, 1.1, 4_000) if sizes == "log-normal" else rng.pareto(1.3, 4_000) + 1.0
    user = rng.permutation(np.repeat(np.arange(4_000), np.clip(rows, 1, 1_000).astype(int)))
    events = pa.table(
        {
            "u": user,
            "country": user * 7 % 3,
            "day": rng.integers(0, 30, len(user)),
            "paid": np.round(rng.uniform(10.0, 50.0, len(user)), 2),
        }
    )
    shuffle(events, tmp_path / "events", partitions=64, cluster_by="u")
    held = certified = looks = 0.0
    for query in NUMBERS_OF_USERS:
        sql = query.format(of="u, count(*) AS n, sum(paid) AS s")
        replay = Replay(sql, Catalog.open(tmp_path))
        truth = Truth.of(replay.plan, duckdb.sql(sql).to_arrow_table())
        for order in range(orders):
            wanted = nearest_batches(replay.batches(order), (0.1, 0.5))
            for _, estimate in replay.estimates(order, IntervalRequest(), wanted.__contains__):
                look = truth.look(estimate)[1]
                looks += 1
                if look.certified.any():
                    certified += 1
                    held += (look.certified & look.held).sum() / look.certified.sum()
        replay.close()
    assert certified > (0.9 if sizes == "log-normal" else 0.6) * looks
    assert binom.cdf(round(held), round(certified), 0.90) > 1e-3  # 95 % of them hold


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_variance_of_users_of_very_unlike_size_is_what_their_numbers_vary_by(
    tmp_path: Path, share: float
) -> None:
    """Over 24 orders. Small blocks have none of the largest users, so that they say little.

    Of normal errors, Σ(error / standard error)² has 24 degrees of freedom at most, since orders share their
    layout. Its root mean is below √(χ²(24) / 24) = 1.47 in 99.9 of 100, for standard errors that are right.
    """
    rng = np.random.default_rng(3)
    rows = np.clip(rng.pareto(1.3, 6_000) + 1.0, 1, 200).astype(int)
    users = rng.permutation(np.repeat(np.arange(6_000), rows))
    events = pa.table(
        {"u": users, "paid": rng.uniform(0.9, 1.1, len(users))}
    )  # rows, but for their exact total
    shuffle(events, tmp_path / "events", partitions=64, cluster_by="u")
    sql = "SELECT avg(s) AS v FROM (SELECT u, sum(paid) AS s FROM events GROUP BY u)"
    replay = Replay(sql, Catalog.open(tmp_path))
    ((true,),) = duckdb.sql(sql).fetchall()
    errors = []
    for order in range(24):
        wanted = nearest_batches(replay.batches(order), (share,))
        for _, estimate in replay.estimates(order, IntervalRequest(), wanted.__contains__):
            (row,) = estimate.table.to_pylist()
            errors.append((row["v"] - true) / (row["v_high"] - row["v_low"]) * 2 * 1.96)
    replay.close()
    assert np.sqrt(np.mean(np.square(errors))) < 1.47


def test_how_many_units_there_are_and_their_rows_are_known_at_once(laid_out: Callable[[str], Layout]) -> None:
    of_user = (
        'SELECT "user" AS u, count(*) AS n, sum(paid) AS s, count(u) AS k FROM visits {} GROUP BY "user"'
    )
    of_user = of_user.replace("count(u)", 'count("user")')
    with relaqs.connect(laid_out("with NULL").directory.parent, exact_below_seconds=0) as db:
        sums = "count(*) AS a, sum(n) AS b, count(n) AS c, count(u) AS d, sum(s) AS e, sum(k) AS f"
        sql = f"SELECT {sums} FROM ({{}})"
        first, *_, last = db.online_sql(sql.format(of_user.format("")), batches=4)
        known = [name for name in "abcdef" if first.table[f"{name}_low"] == first.table[f"{name}_high"]]
        assert known == ["a", "b", "c"]
        assert all(first.table[name] == last.table[name] for name in known)
        first, *_ = db.online_sql(sql.format(of_user.format("WHERE day < 20")), batches=4)
        assert not any(first.table[f"{name}_low"] == first.table[f"{name}_high"] for name in "abcdef")


def test_a_key_beside_the_units_own_bounds_the_rows_of_their_groups(
    laid_out: Callable[[str], Layout],
) -> None:
    catalog = Catalog.open(laid_out("numbers").directory.parent)
    units = catalog.table("visits").outlier_units
    assert units is not None
    (day,) = (each for each in units.others.columns if each.column == "day")
    inside = 'SELECT day, count(*) AS n FROM visits GROUP BY "user", day'
    for outside, rows in (("day, avg(n)", 1), ("avg(n)", min(units.others.max_unit_rows, 31))):
        keys = "GROUP BY day" if rows == 1 else ""
        plan = plan_query(f"SELECT {outside} FROM ({inside}) {keys}", catalog, Binder(catalog))
        assert isinstance(plan, MergePlan)
        assert plan.columns.basis[0].highest == day.most_unit_rows
        assert plan.bars.most_unit_rows == rows
