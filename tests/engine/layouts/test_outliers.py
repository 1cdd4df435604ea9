"""The outlier index holds the rows with values far out, all of them and no others, and few of all."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.layouts import Layout, read_manifest, shuffle, verify
from relaqs_engine.layouts.manifest import Column
from relaqs_engine.layouts.outliers import MOST_SHARE, literal, outlier_condition

ROWS = 40_000


def laid_out(folder: Path, **columns: np.ndarray | pa.Array) -> Layout:
    return shuffle(pa.table(columns), folder / "t", partitions=20)


def heavy(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).pareto(1.5, ROWS) + 1.0


def index_of(layout: Layout) -> Path:
    return layout.directory / layout.outlier_files[0].file


def rows_of(layout: Layout) -> list[tuple[object, ...]]:
    return duckdb.sql(f"FROM '{index_of(layout)}' ORDER BY ALL").fetchall()


def test_it_is_a_copy_of_the_rows_outside_the_ends(tmp_path: Path) -> None:
    layout = laid_out(tmp_path, id=np.arange(ROWS), x=heavy())
    column = layout.column("x")
    assert column.has_outliers
    assert layout.outliers is not None
    assert 0.005 * ROWS < layout.outliers.row_count <= MOST_SHARE * ROWS
    files = [str(path) for path in layout.paths]
    outside = duckdb.sql(
        f"FROM read_parquet({files}) WHERE x < {column.inlier_low} OR x > {column.inlier_high} ORDER BY ALL"
    ).fetchall()
    assert rows_of(layout) == outside


@pytest.mark.parametrize("of_two", [False, True])
def test_each_row_either_is_one_or_is_none(of_two: bool) -> None:
    """NULL is none, NaN is one, and so is what is far out in one column only, whatever the other has."""
    ends = {"minimum": 0.0, "maximum": 9.0, "null_count": 0, "distinct_count": 9, "byte_count": 9}
    columns = [Column(name, "DOUBLE", **ends, inlier_low=2.0, inlier_high=8.0) for name in "xy"[: 1 + of_two]]
    condition = outlier_condition(columns)
    values = "UNNEST([NULL, 'nan', '-inf', '1', '2', '5', '8', '9', 'inf']::DOUBLE[])"
    one = "coalesce({0} < 2 OR {0} > 8 OR isnan({0}), false)"
    expected = " OR ".join(one.format(each.name) for each in columns)
    found = duckdb.sql(
        f"SELECT ({condition}) IS NOT NULL, ({condition}) = ({expected}), ({condition}) != (NOT {condition}) "
        f"FROM (SELECT {values} AS x) CROSS JOIN (SELECT {values} AS y)"
    ).fetchall()
    assert len(found) == 81
    assert set(found) == {(True, True, True)}


def test_tame_columns_have_none(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    layout = laid_out(
        tmp_path, u=rng.random(ROWS), n=rng.normal(size=ROWS), e=rng.exponential(size=ROWS), k=np.arange(ROWS)
    )
    assert layout.outliers is None
    assert not any(column.has_outliers for column in layout.columns)


def test_one_row_far_out_is_found_though_no_sample_of_rows_has_it(tmp_path: Path) -> None:
    values = np.random.default_rng(2).random(ROWS)
    values[12_345] = 1e6
    layout = laid_out(tmp_path, x=values)
    assert layout.column("x").inlier_high is not None
    assert max(row[0] for row in rows_of(layout)) == 1e6


def test_columns_share_the_index_and_those_that_grow_together_have_more_of_it_each(tmp_path: Path) -> None:
    x = heavy()
    together = laid_out(tmp_path / "together", x=x, twice=2 * x)
    apart = laid_out(tmp_path / "apart", x=x, y=heavy(7))
    for layout in (together, apart):
        assert layout.outliers is not None
        assert layout.outliers.row_count <= MOST_SHARE * ROWS
    assert together.column("x").inlier_high < apart.column("x").inlier_high  # type: ignore[operator]


def test_what_is_not_a_number_is_an_outlier(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(ROWS)
    values[[5, 10]] = np.nan, np.inf
    layout = laid_out(tmp_path, x=values)
    column = layout.column("x")
    assert column.maximum is None
    assert column.without_outliers().maximum == column.inlier_high
    kept = [row[0] for row in rows_of(layout)]
    assert any(np.isnan(kept))
    assert np.inf in kept


def test_a_column_that_is_often_not_a_number_has_none(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(ROWS)
    values[: ROWS // 20] = np.nan
    assert laid_out(tmp_path, x=values).outliers is None


def test_ends_are_of_the_columns_own_type(tmp_path: Path) -> None:
    prices = [Decimal(f"{value:.2f}") for value in heavy()]
    layout = laid_out(tmp_path, price=pa.array(prices, pa.decimal128(12, 2)), whole=heavy().astype(np.int32))
    assert isinstance(layout.column("whole").inlier_high, int)
    high = layout.column("price").inlier_high
    assert high is not None
    assert round(high, 2) == high


def test_small_tables_have_none(tmp_path: Path) -> None:
    assert shuffle(pa.table({"x": heavy()[:5000]}), tmp_path / "t", partitions=5).outliers is None


def test_it_does_not_depend_on_threads(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": heavy()}), file)
    one, two = (shuffle(file, tmp_path / str(n) / "t", partitions=20, threads=n) for n in (1, 2))
    assert one.columns == two.columns
    assert index_of(one).read_bytes() == index_of(two).read_bytes()


def test_the_manifest_keeps_it_and_one_without_reads_as_before(tmp_path: Path) -> None:
    layout = laid_out(tmp_path, x=heavy())
    assert read_manifest(tmp_path / "t") == layout


def test_verify_reads_it(tmp_path: Path) -> None:
    layout = laid_out(tmp_path, x=heavy())
    assert verify(tmp_path / "t").ok
    content = bytearray(index_of(layout).read_bytes())
    content[len(content) // 2] ^= 1
    index_of(layout).write_bytes(bytes(content))
    [fault] = [check for check in verify(tmp_path / "t").checks if not check.ok]
    assert fault.name == "outlier index"
    assert str(index_of(layout)) in fault.detail


@pytest.mark.parametrize(("value", "text"), [(12, "12"), (-0.5, "-0.5"), (1e-07, "1e-07")])
def test_a_number_in_sql(value: float, text: str) -> None:
    assert literal(value) == text
    assert duckdb.sql(f"SELECT {literal(value)}::DOUBLE").fetchall() == [(value,)]
