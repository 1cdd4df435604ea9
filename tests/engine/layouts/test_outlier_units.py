"""What units have and sum to is as plain DuckDB counts it, and those with most rows are counted apart."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.layouts import append, compact, outlier_units, shuffle, verify
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.outliers import unit_condition
from scipy.stats import binom

import relaqs
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
    monkeypatch.setattr(outlier_units, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(outlier_units, "SAMPLE_ROWS", 500)
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


@pytest.mark.parametrize("kind", KEYS)
def test_the_keys_with_most_rows_are_apart_and_the_others_are_measured(tmp_path: Path, kind: str) -> None:
    table = visits(KEYS[kind])
    layout = shuffle(table, tmp_path / "t", partitions=16, cluster_by="user")
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
    assert (number, others.known_rows) == (len(units.keys), table.num_rows)
    low, high = (getattr(layout.column("skewed"), end) for end in ("inlier_low", "inlier_high"))
    for column in units.others.columns:
        if column.middle is None:
            continue
        away = f"({column.column} - {column.middle!r}::DOUBLE)"
        among = f"FILTER ({column.column} BETWEEN {low} AND {high})" if column.column == "skewed" else ""
        ((most, above, below, squares),) = duckdb.sql(
            "SELECT max(n), max(a), max(b), max(s) FROM (SELECT count(*) AS n, "
            f"sum(greatest({away}, 0)) {among} AS a, sum(greatest(-{away}, 0)) {among} AS b, "
            f'sum({away} ** 2) {among} AS s FROM "table" WHERE NOT ({heavy}) GROUP BY "user")'
        ).fetchall()
        assert units.others.max_unit_rows == most
        assert (column.above, column.below, column.squares) == pytest.approx((above, below, squares))


def test_an_append_drops_them_and_a_compaction_finds_them_again(tmp_path: Path) -> None:
    shuffle(visits(NUMBERS), tmp_path / "t", partitions=16, cluster_by="user")
    assert append(visits(NUMBERS), tmp_path / "t").outlier_units is None
    assert verify(tmp_path / "t").ok
    whole = compact(tmp_path / "t")
    assert whole.outlier_units is not None
    assert whole.without_outlier_units().known_rows == 60_000
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
