"""The most rows that a sampling unit has with one value of a column are those that plain DuckDB counts."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.layouts import append, compact, shuffle, outlier_units, verify
from relaqs_engine.layouts.manifest_file import read_manifest

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
