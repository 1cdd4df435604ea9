"""Plain tables: the user's own files, read where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Database, DatabaseConfig, ReadingDatabase
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.plain import ESTIMATED_ABOVE_SECONDS, MEASURED_BELOW_ROWS, PlainTable

ROWS = pa.table({"id": range(3), "fare": [1.5, None, -2.0], "zone": ["a", "b", "a"]})

Open = Callable[[str | Path], Layout]


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, announced: list[str]) -> Open:
    def open(source: str | Path) -> Layout:
        catalog = Catalog.of_sources(
            {"trips": source}, Opening(CacheUse(Cache(tmp_path / "a=1" / "cache")), announced.append)
        )
        return catalog.table("trips")

    return open


def types(table: Layout) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in table.columns]


def test_columns_have_their_types_and_nothing_is_read_of_the_rows(opened: Open, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    table = opened(tmp_path / "trips.parquet")
    assert types(table) == [("id", "BIGINT"), ("fare", "DOUBLE"), ("zone", "VARCHAR")]
    fare = table.column("fare")
    assert (fare.minimum, fare.maximum, fare.null_count, fare.distinct_count) == (None, None, 3, 0)
    assert table.summary == f"trips: 3 rows, plain, read whole, in {tmp_path}"


def beside_a_large_one(table: Layout) -> Layout:
    """Return a table as it is opened beside one that takes long to be read."""
    assert isinstance(table, PlainTable)
    stored = replace(table.files[0], byte_count=int(2e9 * ESTIMATED_ABOVE_SECONDS))
    large = replace(table, table="large", files=(stored,))
    with closing(ReadingDatabase()) as reading:
        alone = Catalog((table,)).measured(reading)
        assert alone.table(table.table) is table, "nothing is estimated: nothing is measured"
        return Catalog((table, large)).measured(reading).table(table.table)


def test_a_small_table_beside_a_large_one_has_statistics(opened: Open, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    fare = beside_a_large_one(opened(tmp_path / "trips.parquet")).column("fare")
    assert (fare.minimum, fare.maximum, fare.null_count, fare.distinct_count) == (-2.0, 1.5, 1, 2)


@pytest.mark.parametrize("other", [ROWS.slice(0, 2), None])
def test_no_statistics_are_those_of_another_state(
    opened: Open, tmp_path: Path, other: pa.Table | None
) -> None:
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    table = opened(tmp_path / "trips.parquet")
    if other is None:
        (tmp_path / "trips.parquet").unlink()
    else:
        pq.write_table(other, tmp_path / "trips.parquet")
    assert beside_a_large_one(table) is table


def test_what_is_not_known_of_a_large_table_promises_nothing(opened: Open, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(MEASURED_BELOW_ROWS)}), tmp_path / "trips.parquet")
    column = beside_a_large_one(opened(tmp_path / "trips.parquet")).column("id")
    assert (column.minimum, column.maximum, column.null_count) == (None, None, MEASURED_BELOW_ROWS)


def test_a_table_of_many_columns_is_not_measured(opened: Open, tmp_path: Path) -> None:
    """Its statistics took longer than the first question about it."""
    values = pa.array(range(MEASURED_BELOW_ROWS - 1))
    few, many = ({f"c{i}": values for i in range(count)} for count in (2, 40))
    for name, columns in (("few", few), ("many", many)):
        pq.write_table(
            pa.table(columns), tmp_path / f"{name}.parquet", compression="none", use_dictionary=False
        )
    least = [
        beside_a_large_one(opened(tmp_path / f"{name}.parquet")).column("c0") for name in ("few", "many")
    ]
    assert [each.maximum for each in least] == [MEASURED_BELOW_ROWS - 2, None]


def test_folders_of_a_hive_table_are_columns(opened: Open, tmp_path: Path) -> None:
    for year in (2012, 2013):
        folder = tmp_path / "trips" / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(ROWS.slice(0, year - 2011), folder / "part.parquet")
    table = opened(tmp_path / "trips")
    assert types(table)[-1] == ("year", "BIGINT")
    assert [file.row_count for file in table.files] == [1, 2]
    year = beside_a_large_one(table).column("year")
    assert (year.minimum, year.maximum) == (2012, 2013)


def test_files_of_other_columns_are_united_by_name(opened: Open, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "1.parquet")
    pq.write_table(ROWS.drop_columns("fare"), tmp_path / "2.parquet")
    table = opened(tmp_path / "*.parquet")
    assert isinstance(table, PlainTable)
    assert table.uneven.names == {"fare"}
    assert "union_by_name" in table.sql
    pq.write_table(ROWS, tmp_path / "2.parquet")
    alike = opened(tmp_path / "*.parquet")
    assert "union_by_name" not in alike.sql  # type: ignore[attr-defined]  # it is plain


def test_a_damaged_file_is_named(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "trips.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match=r"trips\.parquet cannot be read as Parquet"):
        opened(tmp_path / "trips.parquet")


def test_a_database_of_plain_tables_reads_these_files_alone(opened: Open, tmp_path: Path) -> None:
    for name in ("trips", "others"):
        pq.write_table(ROWS, tmp_path / f"{name}.parquet")
    table = opened(tmp_path / "trips.parquet")
    assert isinstance(table, PlainTable)
    cursor = Database(DatabaseConfig((), 64 << 20, files=table.states)).cursor()
    assert cursor.rows(f"SELECT count(*) FROM read_parquet(['{tmp_path}/trips.parquet'])") == [(3,)]
    with pytest.raises(DataError, match=r"others\.parquet"):
        cursor.rows(f"SELECT count(*) FROM read_parquet(['{tmp_path}/others.parquet'])")


def read(table: Layout, sql: str) -> list[tuple[object, ...]]:
    """Return what a closed database answers, with the table's rows in the place of {rows}."""
    assert isinstance(table, PlainTable)
    cursor = Database(DatabaseConfig((), 64 << 20, files=table.states, lent=table.lent)).cursor()
    return cursor.rows(sql.format(rows=table.sql))


def test_csv_is_read_where_it_lies_and_nothing_is_written(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "trips.csv").write_text('id,day,note\n1,2020-01-01,x\n,,\n3,2020-01-03,"a, b"\n')
    table = opened(tmp_path / "trips.csv")
    assert types(table) == [("id", "BIGINT"), ("day", "DATE"), ("note", "VARCHAR")]
    assert read(table, "SELECT sum(id), count(day), count(note) FROM {rows}") == [(4, 2, 2)]
    assert not (tmp_path / "a=1").exists()


@pytest.mark.parametrize(
    ("name", "first", "later"),
    [
        ("t.csv", "1", "2.5"),
        ("t.csv", "1", "007"),
        ("t.csv", "1", "1e3"),
        ("t.csv", "2020-01-01", "2020-01-01 10:00:00"),
        ("t.csv", "10:00:00", "10:00:00+02"),
        ("t.ndjson", '{"x": 1}', '{"x": 2.5}'),
        ("t.ndjson", '{"x": 1}', '{"x": true}'),
    ],
)
def test_a_late_value_that_duckdb_would_change_is_an_error_until_all_rows_were_looked_at(
    opened: Open, tmp_path: Path, name: str, first: str, later: str
) -> None:
    """DuckDB takes types from 20,480 rows, and then rounds 2.5 to 3."""
    lines = [*(["x"] if name.endswith("csv") else []), *[first] * 30_000, later]
    (tmp_path / name).write_text("\n".join(lines))
    table = opened(tmp_path / name)
    with pytest.raises(DataError, match=r"first values of column 'x' are .* takes the type from all rows"):
        read(table, "SELECT max(x) FROM {rows}")
    assert read(table, "SELECT count(*) FROM {rows}") == [(30_001,)]
    how = Opening(CacheUse(Cache(tmp_path / "cache")))
    laid_out = Catalog.of_sources({"t": tmp_path / name}, how, lay_out=True).table("t")
    assert laid_out.row_count == 30_001
    assert laid_out.column("x").type in ("DOUBLE", "VARCHAR", "TIMESTAMP", "JSON")


@pytest.mark.parametrize("text", ["d\n25/12/2020\n", "d,n\n25.12.2020,1\n"])
def test_dates_of_another_form_are_read_into_a_copy(
    opened: Open, tmp_path: Path, announced: list[str], text: str
) -> None:
    (tmp_path / "trips.csv").write_text(text)
    table = opened(tmp_path / "trips.csv")
    assert read(table, "SELECT d::VARCHAR FROM {rows}") == [("2020-12-25",)]
    assert [line.split(" (")[0] for line in announced] == ["copying trips"]
    assert opened(tmp_path / "trips.csv") == table
    assert len(announced) == 1


def test_the_copy_of_an_earlier_state_goes(opened: Open, tmp_path: Path, announced: list[str]) -> None:
    path = tmp_path / "trips.json"
    path.write_text('{"id": {"part": 1}}\n')
    (old,) = opened(path).paths
    path.write_text('{"id": {"part": 1}}\n{"id": {"part": 2}}\n')
    (old.parents[1] / ".copying-1").mkdir()  # of a process that died
    assert opened(path).row_count == 2
    assert (len(announced), old.exists(), len(os.listdir(old.parents[2]))) == (2, False, 1)


def test_csv_that_cannot_be_read_leaves_nothing(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "trips.csv"
    path.write_text("a title\nid,fare\n1,2\n")
    for _ in range(2):
        with pytest.raises(DataError, match="does not read as one table"):
            opened(path)
    assert not (tmp_path / "a=1").exists()


def test_a_layout_of_the_files_is_read_in_their_place(opened: Open, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "trips.parquet")
    sources = {"trips": tmp_path / "trips.parquet"}
    how = Opening(CacheUse(Cache(tmp_path / "a=1" / "cache")))
    laid_out = Catalog.of_sources(sources, how, lay_out=True).table("trips")
    assert laid_out.is_sampled
    assert opened(tmp_path / "trips.parquet") == laid_out


def test_files_of_two_kinds_are_refused(opened: Open, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "trips.parquet")
    (tmp_path / "trips.csv").write_text("id\n1\n")
    with pytest.raises(LayoutError, match="give files of one kind"):
        opened(tmp_path / "trips.*")
