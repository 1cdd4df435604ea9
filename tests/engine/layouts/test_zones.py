"""Zones: which conditions no row meets, by the ends of columns in ranges of another one."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout, column_statistics, read_manifest, verify
from relaqs_engine.layouts.manifest import Zones
from relaqs_engine.layouts.manifest_file import manifest_text, parsed_manifest, write_manifest
from relaqs_engine.plans.plan import NO_ROW

import relaqs
from relaqs import append, compact, shuffle
from relaqs.training import KMeans
from tests.conftest import Oracle
from tests.engine.world import World
from tests.rows import rows_of

ROWS = 6_000


def sales(rows: int = ROWS, seed: int = 0, most: int = 50) -> pa.Table:
    """Return sales with a price of about ten a piece, and a few values of each column that are odd.

    most: pieces. The day and the moment of a sale are close together, and so are its shop and its state. A
    weight is about twice the number of pieces, in two types of floats, some of them not a number.
    """
    draw = np.random.default_rng(seed)
    pieces = draw.integers(1, most + 1, rows)
    days = draw.integers(0, 1_000, rows)
    weight = 2.0 * pieces + draw.random(rows)
    weight[draw.random(rows) < 0.01] = math.nan
    shop = draw.integers(0, 200, rows)
    found = pa.table(
        {
            "pieces": pa.array(pieces, mask=draw.random(rows) < 0.02),
            "cents": pa.array(pieces * draw.integers(900, 1_100, rows), mask=draw.random(rows) < 0.02),
            "days": days,
            "seconds": pa.array(days * 86_400 + draw.integers(0, 10 * 86_400, rows)),
            "weight": pa.array(weight, mask=draw.random(rows) < 0.02),
            "shop": shop,
            "mixed": draw.integers(0, 1_000, rows),
        }
    )
    return (
        duckdb.from_arrow(found)
        .query(
            "found",
            "SELECT pieces, (cents / 100)::DECIMAL(12,2) AS price, DATE '2020-01-01' + days::INT AS day, "
            "TIMESTAMP '2020-01-01' + to_seconds(seconds) AS sold, weight, "
            "(weight * 3)::FLOAT AS heavy, shop, "
            "CASE WHEN shop < 190 THEN 's' || lpad((shop // 10)::VARCHAR, 2, '0') END AS state, mixed "
            "FROM found",
        )
        .to_arrow_table()
    )


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_statistics, "ZONED_ROWS", 100)


@pytest.fixture
def world(few_rows: None, tmp_path: Path) -> World:
    return world_of(tmp_path, sales())


def world_of(folder: Path, *parts: pa.Table) -> World:
    """Return a layout that the first part is laid out in and the others are added to."""
    into = folder / "warehouse" / "sales"
    shuffle(parts[0], into, partitions=8, seed=1)
    for part in parts[1:]:
        append(part, into)
    duckdb.from_arrow(pa.concat_tables(parts)).write_parquet(str(folder / "sales.parquet"))
    return World.open(folder / "warehouse", Oracle(folder))


def is_ruled_out(world: World, condition: str) -> bool:
    return NO_ROW in world.plan(f"SELECT count(*) AS n FROM sales WHERE {condition}").reasons


def drawn(draw: random.Random) -> str:
    """Return one to three comparisons of columns that say something of each other, or of all columns."""

    def day() -> str:
        return f"2{draw.choice(['020', '021', '022'])}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"

    def moved() -> str:
        unit = draw.choice(["DAY", "DAYS", "WEEK", "MONTH", "YEAR"])
        count = draw.choice([str(draw.randint(0, 40)), f"'{draw.randint(0, 3)}'"])
        return f"{draw.choice('+-')} INTERVAL {count} {unit}"

    usual = {
        "pieces": lambda: draw.choice([f"{draw.randint(0, 51)}", f"{draw.random() * 50:.3f}"]),
        "price": lambda: f"{draw.random() * 550:.2f}",
        "day": lambda: draw.choice([f"'{day()}'", f"DATE '{day()}'", f"DATE '{day()}' {moved()}"]),
        "sold": lambda: draw.choice(
            [f"'{day()} 06:30:00'", f"TIMESTAMP '{day()}'", f"(TIMESTAMP '{day()} 01:02:03.5' {moved()})"]
        ),
        "weight": lambda: draw.choice([f"{draw.random() * 100:.1f}", f"{draw.randint(0, 101)}"]),
        "heavy": lambda: f"{draw.random() * 300:.1f}",
        "shop": lambda: f"{draw.randint(-1, 200)}",
        "state": lambda: f"'s{draw.randint(0, 20):02}'",
        "mixed": lambda: f"{draw.randint(0, 1_000)}",
    }
    odd = {
        "pieces": ["'7'", "2e1", "7 + 5", "NULL"],
        "price": [f"CAST('{draw.randint(0, 550)}' AS DOUBLE)", "-3", "1e400"],
        "day": [f"DATE '{day()}' + INTERVAL 3 DAY", f"TIMESTAMP '{day()} 12:00'", "'infinity'"],
        "sold": [f"DATE '{day()}'", f"TIMESTAMP '{day()} 10:00' + INTERVAL 30 HOUR"],
        "heavy": ["'inf'", "1e30", "CAST('nan' AS FLOAT)", "0.1::FLOAT", "16777217"],
        "weight": ["'nan'", "0.1 * 3", f"CAST({draw.random()} AS FLOAT)"],
    }
    values = {
        column: (
            lambda each=column: (
                draw.choice(odd[each]) if each in odd and draw.random() < 0.1 else usual[each]()
            )
        )
        for column in usual
    }

    def compared(column: str) -> str:
        value = values[column]
        sign = draw.choice(["<", "<=", ">", ">=", "="])
        understood = [
            f"{column} {sign} {value()}",
            f"{value()} {sign} {column}",
            f"sales.{column} BETWEEN {value()} AND {value()}",
            f"({column.upper()} IN ({value()}, {value()}))",
        ]
        others = [
            f"({column} {sign} {value()} OR {column} > {value()})",
            f"NOT {column} {sign} {value()}",
            f"{column} <> {value()}",
            f"{column} NOT BETWEEN {value()} AND {value()}",
            f"{column} NOT IN ({value()})",
            f"{column} NOT IN ({value()}, {value()})",
            f"{column} IS DISTINCT FROM {value()}",
            f"{column} IS NULL",
        ]
        return draw.choice(understood * 3 + others)

    def joined(columns: list[str], depth: int = 0) -> str:
        if depth < 3 and draw.random() < (0.5 if depth == 0 else 0.3):
            sides = [joined(columns, depth + 1) for _ in range(2)]
            return draw.choice(["({} OR {})", "({} AND {})", "NOT ({} OR {})", "NOT ({} AND {})"]).format(
                *sides
            )
        return " AND ".join(map(compared, columns))

    pairs = [
        ("pieces", "price"),
        ("day", "sold"),
        ("pieces", "weight"),
        ("weight", "heavy"),
        ("shop", "state"),
    ]
    columns = draw.choice([*pairs, *pairs, *pairs, draw.sample(list(values), 3)])
    return joined(list(columns))


def test_what_is_ruled_out_is_met_by_no_row_and_much_is_ruled_out(tmp_path: Path, few_rows: None) -> None:
    draw = random.Random(3)
    for name in ("one", "grown"):
        (tmp_path / name).mkdir()
    worlds = [world_of(tmp_path / "one", sales())]
    worlds.append(
        world_of(tmp_path / "grown", sales(most=20), sales(seed=1), sales(rows=30, seed=2, most=90))
    )
    empty = found = 0
    for world in worlds:
        for _ in range(400):
            condition = drawn(draw)
            ((rows,),) = world.oracle.rows(f"SELECT count(*) FROM sales WHERE {condition}")
            if is_ruled_out(world, condition):
                assert rows == 0, condition
                found += 1
            empty += not rows
    # Ends do not tell of values between them that no row has.
    assert found > 0.3 * empty > 60


@pytest.mark.parametrize(
    "condition",
    [
        "(pieces < 10 AND price > 150) OR (pieces > 40 AND price < 300)",
        "NOT (pieces >= 10 OR price <= 150)",
        "pieces < 10 AND NOT price <= 150",
        "pieces NOT BETWEEN 10 AND 50 AND price > 150",
        "(pieces < 10 OR pieces = 11) AND price > 150",
        "(pieces < 10 AND price > 150) OR (day < DATE '2020-06-01' AND sold > TIMESTAMP '2021-01-01')",
        "sold < DATE '2020-03-01' AND day >= DATE '2020-12-31' + INTERVAL 1 MONTH - INTERVAL '1' YEAR "
        "AND day > DATE '2020-03-31' - INTERVAL 1 DAY",
        "weight < 20 AND heavy > 100 AND heavy < 110.5",
        "pieces < 10 AND price <> 5 AND price > 150",
    ],
)
def test_much_that_no_row_meets_is_told(world: World, condition: str) -> None:
    assert world.oracle.rows(f"SELECT count(*) FROM sales WHERE {condition}") == [(0,)]
    assert is_ruled_out(world, condition)


def test_long_conditions_are_read_as_before(world: World) -> None:
    for word in ("AND", "OR"):
        condition = f" {word} ".join(f"pieces <> {i}" for i in range(900))
        assert not is_ruled_out(world, condition)


def test_the_answer_of_what_no_row_meets_is_that_of_duckdb(world: World) -> None:
    nothing = "pieces < 10 AND price > 150"
    for sql in (
        f"SELECT count(*), sum(price), min(day), list(shop) FROM sales WHERE {nothing}",
        f"SELECT state, avg(price) AS p, count(*) AS n FROM sales WHERE {nothing} GROUP BY state",
        f"SELECT * FROM sales AS s WHERE {nothing.replace('price', 's.price')} ORDER BY day LIMIT 3",
        "SELECT a.pieces, count(b.shop) AS n FROM sales a LEFT JOIN sales b ON a.shop = b.shop "
        "WHERE b.pieces < 10 AND b.price > 150 GROUP BY ALL",
        f"WITH cheap AS (SELECT pieces + 1 AS x FROM sales WHERE {nothing}) "
        "SELECT count(*), max(x) FROM cheap UNION ALL SELECT 7, 8 ORDER BY 1",
        f"SELECT count(*) FROM sales WHERE {nothing} HAVING count(*) > 5",
        f"SELECT count(*) AS n FROM sales WHERE {nothing} AND shop IN (SELECT shop FROM sales)",
        f"SELECT sum(pieces) OVER (ORDER BY day) AS s FROM sales WHERE ({nothing}) AND weight IS NOT NULL",
    ):
        plan = world.plan(sql)
        assert plan.reasons == (NO_ROW,), sql
        assert not plan.whole_reads
        *_, last = world.estimates(plan)
        exact = world.oracle.table(sql)
        assert rows_of(last.table) == rows_of(exact)
        assert last.table.schema.names == exact.schema.names


def test_infinity_is_an_end_beyond_all_numbers(few_rows: None, tmp_path: Path) -> None:
    value = "if(price > pieces * 10, 'inf'::DOUBLE, '-inf'::DOUBLE)"
    sql = f"SELECT * REPLACE ({value} AS weight, ({value})::FLOAT AS heavy) FROM found"
    infinite = duckdb.from_arrow(sales(seed=1)).query("found", sql).to_arrow_table()
    world = world_of(tmp_path, sales(), infinite)
    for column, condition in product(
        ("weight", "heavy"), ("{} > 160", "NOT {} < 160", "{} < 1", "NOT {} > 1")
    ):
        asked = condition.replace("{}", column)
        assert world.oracle.rows(f"SELECT count(*) FROM sales WHERE {asked}") > [(0,)]
        assert not is_ruled_out(world, asked)


def test_what_no_row_meets_is_answered_where_estimates_are_wanted(few_rows: None, tmp_path: Path) -> None:
    world_of(tmp_path, sales())
    sql = "SELECT count(*) AS n FROM sales WHERE pieces < 10 AND price > 150"
    with relaqs.connect(tmp_path / "warehouse", threads=1) as db:
        assert NO_ROW in db.plan(sql).reasons
        assert db.online_sql(sql, fallback="error").result().fetchall() == [(0,)]
        training = KMeans(f"SELECT weight FROM sales WHERE {sql.partition('WHERE ')[2]}", clusters=2)
        with pytest.raises(relaqs.DataError, match="returns no rows; there is nothing to learn from"):
            db.train(training)


def test_verify_takes_two_ways_to_write_an_end_for_one(world: World) -> None:
    """Of 0.0 and -0.0 either is the least value, by which thread was first."""
    layout = world.catalog.table("sales")
    assert isinstance(layout, Layout)
    zones = next(each for each in layout.zones if "weight" in each.columns[1:])
    place = 2 * zones.columns.index("weight")
    ends = tuple((*each[:place], f"+{each[place]}", *each[place + 1 :]) for each in zones.ends if each[place])
    others = tuple(each for each in layout.zones if each is not zones)
    write_manifest(replace(layout, zones=(*others, replace(zones, ends=ends))))
    assert verify(layout.directory).ok


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM sales WHERE pieces < 10 OR price > 150",
        "SELECT count(*) AS n FROM sales WHERE NOT (pieces < 10 AND price > 150)",
        "SELECT count(*) AS n FROM sales WHERE pieces + 0 < 10 AND price > 150",
        "SELECT count(*) AS n FROM sales WHERE (pieces < 10 AND price > 150) IS NULL",
        "SELECT count(*) FILTER (WHERE pieces < 10 AND price > 150) AS n FROM sales",
        "SELECT count(*) AS n FROM sales WHERE day > 'tomorrow'",
        "SELECT count(*) AS n FROM sales WHERE day > '20990101'",
        "SELECT count(*) AS n FROM sales WHERE day > '2099-W01-1'",
        "SELECT count(*) AS n FROM (SELECT 5 AS pieces, 200 AS price, -7 AS shop) AS a "
        "ANTI JOIN sales AS b ON a.shop = b.shop WHERE pieces < 10 AND price > 150",
        "SELECT count(*) AS n FROM (SELECT 5 AS pieces, 200 AS price, -7 AS shop) AS a "
        "SEMI JOIN sales AS b ON a.shop <> b.shop WHERE pieces < 10 AND price > 150",
        "SELECT count(*) AS n FROM sales WHERE sold > TIMESTAMPTZ '2030-01-01'",
        "SELECT count(*) AS n FROM sales a LEFT JOIN sales b ON b.pieces < 10 AND b.price > 150",
        "SELECT count(*) AS n FROM sales a FULL JOIN sales b USING (pieces) "
        "WHERE pieces < 10 AND b.price > 150",
        "SELECT count(*) AS n FROM sales WHERE CASE WHEN pieces < 10 AND price > 150 THEN 0 ELSE 1 END = 1",
        "SELECT count(*) AS n FROM sales AS s(price, pieces) WHERE pieces < 10 AND price > 150",
        "SELECT count(*) AS n FROM (SELECT price AS pieces, pieces AS price FROM sales) "
        "WHERE pieces < 10 AND price > 150",
        "WITH sales AS (SELECT 1 AS pieces, 200 AS price) SELECT count(*) AS n FROM sales "
        "WHERE pieces < 10 AND price > 150",
        "SELECT count(*) AS n FROM sales WHERE EXISTS (FROM sales WHERE pieces < 10 AND price > 150)",
        "SELECT count(*) AS n FROM sales WHERE pieces < 10 AND price > (SELECT max(price) FROM sales)",
        "SELECT count(*) AS n FROM sales WHERE pieces < 10 UNION ALL "
        "SELECT count(*) FROM sales WHERE pieces < 10 AND price > 150",
    ],
)
def test_what_says_more_is_not_ruled_out(world: World, sql: str) -> None:
    assert NO_ROW not in world.plan(sql).reasons


def test_zones_stay_true_as_a_table_grows_and_is_made_one_again(few_rows: None, tmp_path: Path) -> None:
    condition = "pieces < 10 AND price > 150"
    assert is_ruled_out(world_of(tmp_path, sales()), condition)
    into = tmp_path / "warehouse" / "sales"
    append(sales(rows=50, seed=5), into)
    assert is_ruled_out(World.open(into.parent, Oracle(tmp_path)), condition)
    odd = sales(rows=1, seed=6).set_column(0, "pieces", pa.array([3], pa.int64()))
    append(odd.set_column(1, "price", pa.array([200], pa.decimal128(12, 2))), into)
    for layout in (read_manifest(into), compact(into)):
        assert not is_ruled_out(World.open(into.parent, Oracle(tmp_path)), condition)
        assert is_ruled_out(World.open(into.parent, Oracle(tmp_path)), "pieces < 10 AND price > 201")
        assert layout.zones
        assert verify(into).ok


def test_a_manifest_keeps_zones_and_refuses_what_are_none(world: World) -> None:
    layout = world.catalog.table("sales")
    assert isinstance(layout, Layout)
    assert read_manifest(layout.directory).zones == layout.zones
    assert json.loads(manifest_text(layout))["manifest_version"] == 11
    for wrong in (
        replace(layout, zones=(Zones(("pieces", "mass"), (("1", "2", "3", "4"),)),)),
        replace(layout, zones=(Zones(("pieces", "price"), (("1", "2", "3"),)),)),
        replace(layout, zones=(Zones((), ()),)),
    ):
        with pytest.raises(LayoutError, match="zones"):
            parsed_manifest(layout.directory, manifest_text(wrong), "it")


def test_verify_finds_zones_that_are_not_those_of_the_rows(world: World) -> None:
    layout = world.catalog.table("sales")
    assert isinstance(layout, Layout)
    assert verify(layout.directory).ok
    first, *others = layout.zones
    narrower = replace(
        first, ends=(first.ends[0][:3] + first.ends[0][2:3] + first.ends[0][4:], *first.ends[1:])
    )
    write_manifest(replace(layout, zones=(narrower, *others)))
    (wrong,) = (check for check in verify(layout.directory).checks if not check.ok)
    assert f"ranges of {first.columns[0]} are others" in wrong.detail


def test_a_small_table_has_no_zones(tmp_path: Path) -> None:
    assert not shuffle(sales(), tmp_path / "sales", partitions=8).zones
