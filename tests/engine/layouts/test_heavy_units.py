"""The index of heavy units has all rows of the units that sum to most, and bounds those of all others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.layouts import Layout, append, compact, read_manifest, shuffle, verify
from relaqs_engine.layouts.heavy_units import MOST_SHARE, UnitTotals

import relaqs

ROWS, ORDERS = 40_000, 8_000


def items(seed: int = 0, rows: int = ROWS) -> pa.Table:
    """Return items of orders: a price, a weight that is sometimes NULL, a rate and the number of a part."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "order_id": pa.array(rng.integers(0, ORDERS, rows), mask=rng.random(rows) < 0.0001),
            "price": np.round(rng.exponential(20.0, rows), 2),
            "weight": pa.array(rng.random(rows) * 50, mask=rng.random(rows) < 0.1),
            "rate": rng.random(rows),
            "part": rng.permutation(rows),
            "change": rng.normal(size=rows),
        }
    )


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return shuffle(items(), tmp_path / "items", partitions=10, cluster_by="order_id")


def sums(layout: Layout, *, inside: bool) -> list[tuple[float, ...]]:
    assert layout.heavy is not None
    files, index = [str(path) for path in layout.paths], layout.directory / layout.heavy.index.files[0].file
    totals = ", ".join(
        f'coalesce(sum("{b.column}"), 0)' if b.column else "count(*)" for b in layout.heavy.bounds
    )
    return duckdb.sql(
        f"SELECT {totals} FROM read_parquet({files}) GROUP BY order_id "
        f"HAVING (order_id IN (SELECT order_id FROM '{index}')) = {inside}"
    ).fetchall()


def test_units_outside_keep_to_the_bounds_and_those_inside_do_not(layout: Layout) -> None:
    assert layout.heavy is not None
    bounds = [bound.most for bound in layout.heavy.bounds]
    outside, inside = sums(layout, inside=False), sums(layout, inside=True)
    assert len(outside) > len(inside) == layout.heavy.index.unit_count > 10
    assert all(
        total <= bound * (1 + 1e-9) for unit in outside for total, bound in zip(unit, bounds, strict=True)
    )
    assert all(
        any(total > bound * (1 - 1e-9) for total, bound in zip(unit, bounds, strict=True)) for unit in inside
    )


def test_it_has_all_rows_of_its_units_and_few_of_all(layout: Layout) -> None:
    assert layout.heavy is not None
    files, index = [str(path) for path in layout.paths], layout.directory / layout.heavy.index.files[0].file
    whole = f"FROM read_parquet({files}) WHERE order_id IN (SELECT order_id FROM '{index}') ORDER BY ALL"
    assert duckdb.sql(whole).fetchall() == duckdb.sql(f"FROM '{index}' ORDER BY ALL").fetchall()
    assert 0.7 * MOST_SHARE * ROWS < layout.heavy.index.row_count <= MOST_SHARE * ROWS


def test_ids_rates_and_what_may_be_negative_have_no_bound(layout: Layout) -> None:
    assert layout.heavy is not None
    assert {bound.column for bound in layout.heavy.bounds} == {"", "price", "weight"}


def test_where_no_unit_stands_out_there_is_none(tmp_path: Path) -> None:
    rows = pa.table({"k": np.repeat(np.arange(10_000), 2), "x": np.ones(20_000)})
    assert shuffle(rows, tmp_path / "alike", partitions=10, cluster_by="k").heavy is None
    assert shuffle(items(), tmp_path / "by_row", partitions=10).heavy is None
    assert shuffle(items(rows=5_000), tmp_path / "small", partitions=5, cluster_by="order_id").heavy is None


def test_a_unit_too_large_for_the_index_is_its_columns_bound(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    key = np.where(rng.random(ROWS) < 0.1, 0, rng.integers(1, ORDERS, ROWS))
    layout = shuffle(
        pa.table({"k": key, "x": rng.random(ROWS) * 9}), tmp_path / "t", partitions=10, cluster_by="k"
    )
    if layout.heavy is not None:
        assert layout.heavy.index.row_count <= MOST_SHARE * ROWS
        (largest,) = duckdb.sql(
            f"SELECT sum(x) FROM '{layout.directory}/data-*/part-*.parquet' WHERE k = 0"
        ).fetchall()[0]
        assert max(bound.most for bound in layout.heavy.bounds) >= largest * 0.99


def test_it_does_not_depend_on_threads(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(items(), file)
    one, two = (
        shuffle(file, tmp_path / str(n) / "t", partitions=10, cluster_by="order_id", threads=n)
        for n in (1, 2)
    )
    assert one.heavy is not None
    assert two.heavy is not None
    assert (one.heavy.bounds, one.heavy.name) == (two.heavy.bounds, two.heavy.name)


def test_the_manifest_keeps_it(tmp_path: Path, layout: Layout) -> None:
    assert read_manifest(tmp_path / "items") == layout


def test_a_table_laid_out_alike_has_its_rows_of_the_heavy_units(tmp_path: Path, layout: Layout) -> None:
    assert layout.heavy is not None
    ids = pa.table({"id": np.arange(ORDERS), "day": np.arange(ORDERS) % 365})
    orders = shuffle(ids, tmp_path / "orders", partitions=10, cluster_by="id")
    rows = orders.rows_of_heavy(layout.heavy.name)
    assert rows is not None
    found = duckdb.sql(f"SELECT id FROM '{orders.directory / rows.files[0].file}' ORDER BY id").fetchall()
    index = layout.directory / layout.heavy.index.files[0].file
    assert (
        found
        == duckdb.sql(
            f"SELECT DISTINCT order_id FROM '{index}' WHERE order_id IS NOT NULL ORDER BY 1"
        ).fetchall()
    )
    assert shuffle(ids, tmp_path / "others", partitions=5, cluster_by="id").companions == ()
    assert verify(tmp_path / "orders").ok


def more_items(place: int, rows: int, kind: str) -> pa.Table:
    """Return further items: of orders that are there, of new ones, or few of one order."""
    rows = rows // 10 if kind == "one" else rows
    found = items(place + 1, rows)
    ids = {
        "old": found["order_id"],
        "new": pa.array(np.random.default_rng(place).integers(0, 200, rows) + ORDERS + 200 * place),
        "one": pa.array(np.full(rows, 17)),
    }
    return found.set_column(0, "order_id", ids[kind])


KINDS_OF_MORE = ("old", "new", "one")


@pytest.mark.parametrize(
    ("times", "rows", "kinds"),
    [
        *((times, rows, (kind,)) for times, rows in ((1, 2_000), (5, 1_000)) for kind in KINDS_OF_MORE),
        (50, 60, KINDS_OF_MORE),  # by turns
        *(pytest.param(50, 60, (kind,), marks=pytest.mark.slow) for kind in KINDS_OF_MORE),
    ],
)
def test_appended_rows_keep_it_sound_and_useful(
    tmp_path: Path, layout: Layout, times: int, rows: int, kinds: Sequence[str]
) -> None:
    given = [items()]
    for place in range(times):
        given.append(more_items(place, rows, kinds[place % len(kinds)]))
        layout = append(given[-1], tmp_path / "items")
    assert layout.heavy is not None
    assert verify(tmp_path / "items").ok
    assert layout.heavy.index.row_count <= 2 * MOST_SHARE * layout.row_count
    assert len(sums(layout, inside=True)) == layout.heavy.index.unit_count
    test_units_outside_keep_to_the_bounds_and_those_inside_do_not(layout)
    assert layout.companions == ()
    sql = "SELECT order_id, sum(price) AS paid FROM items GROUP BY order_id ORDER BY paid DESC LIMIT 10"
    with duckdb.connect() as connection:
        connection.register("items", pa.concat_tables(given))
        truth = {row["order_id"]: row["paid"] for row in connection.sql(sql).to_arrow_table().to_pylist()}
    for seed in range(3):
        with relaqs.connect(tmp_path, threads=1, exact_below_seconds=0) as session:
            *early, last = session.online_sql(sql, seed=seed, batches=5)
        assert [row["order_id"] for row in last.estimate.to_pylist()] == list(truth)
        found = [
            row["order_id"]
            for each in early
            for row, sure in zip(each.estimate.to_pylist(), each.certain_rows, strict=True)
            if sure
        ]
        assert set(found) <= set(truth)
        assert len(found) >= 5


def test_compacting_makes_it_again(tmp_path: Path, layout: Layout) -> None:
    append(items(1, 2_000), tmp_path / "items")
    whole = compact(tmp_path / "items")
    assert whole.heavy is not None
    assert whole.heavy.index.row_count <= MOST_SHARE * whole.row_count
    assert len(sums(whole, inside=True)) == whole.heavy.index.unit_count
    assert verify(tmp_path / "items").ok


def test_a_column_that_may_be_negative_now_has_no_bound_any_more(tmp_path: Path, layout: Layout) -> None:
    rows = items(1, 50)
    negative = rows.set_column(1, "price", pa.array(np.full(50, -1.0)))
    unknown = rows.set_column(2, "weight", pa.array(np.full(50, np.nan)))
    grown = append(negative, tmp_path / "items")
    assert grown.heavy is not None
    assert {bound.column for bound in grown.heavy.bounds} == {"", "weight"}
    grown = append(unknown, tmp_path / "items")
    assert grown.heavy is not None
    assert {bound.column for bound in grown.heavy.bounds} == {""}
    assert verify(tmp_path / "items").ok


def test_verify_finds_rows_that_it_lacks_and_damage(tmp_path: Path, layout: Layout) -> None:
    assert layout.heavy is not None
    assert verify(tmp_path / "items").ok
    path = layout.directory / layout.heavy.index.files[0].file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert not verify(tmp_path / "items").ok


def test_bounds_together_use_what_is_allowed() -> None:
    rng = np.random.default_rng(2)
    rows, x = np.full(10_000, 4.0), rng.random(10_000)
    units = UnitTotals(rows, np.stack([x, x + 1e-9 * rng.random(10_000), rng.random(10_000)], axis=1))
    bounds = units.bounds_together(400.0)
    assert 0.8 * 400 <= rows[units.above(bounds)].sum() <= 400
