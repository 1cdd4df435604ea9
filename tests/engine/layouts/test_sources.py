"""Every kind of source gives the same rows, and a source that cannot be used says why."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
from relaqs_engine.duck import open_for_writing, quote_text
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts import Layout, add_static, shuffle, verify
from relaqs_engine.layouts.sources import find_files

from tests.engine.layouts.reading import rows_in_any_order, stored_rows

Writer = Callable[..., Path]

ROWS = pa.table({"id": range(1_000), "name": [f"name {i % 7}" for i in range(1_000)]})


def halves(write: Writer) -> Path:
    """Write the rows as two files and return their folder."""
    write("folder/a.parquet", ROWS.slice(0, 400))
    return write("folder/b.parquet", ROWS.slice(400)).parent


def csv_file(write: Writer, name: str) -> Path:
    path = write("marker.parquet", ROWS).with_name(name)
    with gzip.open(path, "wb") if name.endswith(".gz") else path.open("wb") as file:
        pyarrow.csv.write_csv(ROWS, file)
    return path


SOURCES: dict[str, Callable[[Writer], Any]] = {
    "path": lambda write: write("t.parquet", ROWS),
    "text": lambda write: str(write("t.parquet", ROWS)),
    "glob": lambda write: str(halves(write) / "*.parquet"),
    "folder": lambda write: halves(write),
    "list": lambda write: sorted(halves(write).iterdir()),
    "glob and its own files": lambda write: [halves(write) / "a.parquet", str(halves(write) / "*")],
    "CSV": lambda write: csv_file(write, "t.csv"),
    "packed CSV": lambda write: csv_file(write, "t.csv.gz"),
    "Arrow table": lambda write: ROWS,
    "Arrow batch": lambda write: ROWS.to_batches()[0],
    "Arrow reader": lambda write: ROWS.to_reader(max_chunksize=64),
    "pandas": lambda write: pd.DataFrame(ROWS.to_pydict()),
    "polars": lambda write: pl.DataFrame(ROWS.to_pydict()),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_is_laid_out_alike(write: Writer, tmp_path: Path, kind: str) -> None:
    layout = shuffle(SOURCES[kind](write), tmp_path / "t", partitions=3)
    assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(ROWS)
    assert [(column.name, column.type) for column in layout.columns] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
    ]
    assert {path.name for path in layout.directory.iterdir()} == {
        "manifest.json",
        layout.paths[0].parent.name,
    }


@pytest.mark.parametrize("key", [None, "name"])
@pytest.mark.parametrize("first_key", [None, "id"])
def test_a_layout_is_laid_out_another_way(tmp_path: Path, first_key: str | None, key: str | None) -> None:
    first = shuffle(ROWS, tmp_path / "warehouse=1" / "t", partitions=3, cluster_by=first_key)
    second = shuffle(first.directory, tmp_path / "second", partitions=4, cluster_by=key)
    assert rows_in_any_order(stored_rows(second)) == rows_in_any_order(ROWS)
    assert [(c.name, c.type) for c in second.columns] == [(c.name, c.type) for c in first.columns]
    assert verify(second.directory).ok
    if key is None:
        assert all(partition.row_count > 0 for partition in second.partitions)


def test_a_static_table_is_laid_out_as_a_sample_and_back(tmp_path: Path) -> None:
    static = add_static(ROWS, tmp_path / "static")
    sampled = shuffle([str(static.directory)], tmp_path / "sampled", partitions=3)
    again = add_static(sampled.directory, tmp_path / "again")
    assert rows_in_any_order(stored_rows(sampled)) == rows_in_any_order(stored_rows(again))
    assert rows_in_any_order(stored_rows(again)) == rows_in_any_order(ROWS)


def test_files_of_a_layout_are_refused_by_themselves(tmp_path: Path) -> None:
    layout = shuffle(ROWS, tmp_path / "t", partitions=3)
    with pytest.raises(LayoutError, match="name a layout by its folder"):
        shuffle(layout.paths[0], tmp_path / "again")


def test_a_duckdb_relation_is_read_from_the_users_own_connection(tmp_path: Path) -> None:
    with closing(duckdb.connect()) as connection:
        connection.register("in_memory", ROWS)
        connection.execute("CREATE TEMP TABLE mine AS SELECT *, sum(id) OVER () AS total FROM in_memory")
        layout = shuffle(connection.table("mine"), tmp_path / "t", partitions=3)
        assert connection.execute("SELECT count(*) FROM mine").fetchone() == (1_000,)
    # HUGEINT, which Parquet would turn into DOUBLE, comes over Arrow as an exact decimal.
    assert [column.type for column in layout.columns] == ["BIGINT", "VARCHAR", "DECIMAL(38,0)"]
    assert layout.column("total").minimum == sum(range(1_000))


def test_a_uuid_of_a_duckdb_relation_stays_one(tmp_path: Path) -> None:
    with closing(duckdb.connect()) as connection:
        rows = connection.sql("SELECT i, i::VARCHAR AS name, md5(i::VARCHAR)::UUID AS u FROM range(9) r(i)")
        layout = add_static(rows, tmp_path / "t")
        assert [column.type for column in layout.columns] == ["BIGINT", "VARCHAR", "UUID"]
        file = quote_text(str(layout.paths[0]))
        kept = connection.execute(f"SELECT i, name, u FROM {file} ORDER BY i").fetchall()
        assert (
            kept
            == connection.execute("SELECT i, i::VARCHAR, md5(i::VARCHAR)::UUID FROM range(9) r(i)").fetchall()
        )


@pytest.mark.parametrize(
    "value", ["'101'::BIT", "'10:00:00+02'::TIMETZ", "['10:00:00+02'::TIMETZ]", "{'flags': '1'::BIT}"]
)
def test_a_relation_with_values_that_arrow_changes_is_refused(tmp_path: Path, value: str) -> None:
    refused = pytest.raises(LayoutError, match="which Arrow does not keep; cast it to VARCHAR")
    with closing(duckdb.connect()) as connection, refused:
        add_static(connection.sql(f"SELECT {value} AS x"), tmp_path / "t")


def test_a_field_may_be_called_bit(tmp_path: Path) -> None:
    with closing(duckdb.connect()) as connection:
        layout = add_static(connection.sql("SELECT {'bit': 1} AS x, 'BIT' AS bit"), tmp_path / "t")
    assert [column.type for column in layout.columns] == ['STRUCT("bit" INTEGER)', "VARCHAR"]


def test_a_relation_that_fails_says_so(tmp_path: Path) -> None:
    with closing(duckdb.connect()) as connection:
        wrong = connection.sql("SELECT CAST('x' || range AS INT) AS n FROM range(3)")
        with pytest.raises(DataError, match=r"in memory cannot be read: .*Could not convert string 'x0'"):
            add_static(wrong, tmp_path / "t")
    with pytest.raises(DataError, match=r"in memory cannot be read: .*closed"):
        add_static(wrong, tmp_path / "t")


def test_a_folder_named_like_a_hive_partition_adds_no_column_to_the_layout(
    write: Writer, tmp_path: Path
) -> None:
    layout = shuffle(write("t.parquet", ROWS), tmp_path / "year=2024" / "t", partitions=2)
    assert [column.name for column in layout.columns] == ["id", "name"]


def test_a_hive_partitioned_source_keeps_its_column(write: Writer, tmp_path: Path) -> None:
    for year in (2023, 2024):
        write(f"hive/year={year}/part.parquet", ROWS.slice(0, year - 2020))
    layout = add_static(tmp_path / "hive", tmp_path / "t")
    assert [(c.name, c.minimum, c.maximum) for c in layout.columns][-1] == ("year", 2023, 2024)
    assert stored_rows(layout)["year"].to_pylist() == [2023] * 3 + [2024] * 4


def _layout_of_types(tmp_path: Path, expression: str) -> tuple[Layout, list[Any]]:
    with closing(open_for_writing(tmp_path, threads=1, memory_limit_bytes=1 << 28)) as cursor:
        cursor.run(f"COPY (SELECT {expression} AS x) TO '{tmp_path}/typed.parquet'")
        original = cursor.rows(f"SELECT x::VARCHAR, typeof(x) FROM '{tmp_path}/typed.parquet'")
        layout = add_static(tmp_path / "typed.parquet", tmp_path / "t")
        stored = cursor.rows(f"SELECT x::VARCHAR, typeof(x) FROM '{layout.paths[0]}'")
    assert stored == original
    return layout, original


@pytest.mark.parametrize(
    "expression",
    [
        "TIMESTAMPTZ '2020-01-01 12:00:00+02'",
        "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'",
        "TIME '10:00:01'",
        "uuid()",
        "1.234::DECIMAL(38,3)",
        "{'a': 1, 'b': [1, 2]}",
        "MAP {'a': 1}",
        "'x'::BLOB",
        "'{}'::JSON",
        "'nan'::FLOAT",
        "INTERVAL 3 DAY",
        "18446744073709551615::UBIGINT",
        "NULL",
    ],
)
def test_every_parquet_type_is_stored_unchanged(tmp_path: Path, expression: str) -> None:
    layout, ((_, type_text),) = _layout_of_types(tmp_path, expression)
    assert layout.columns[0].type == type_text


@pytest.mark.parametrize("type_text", ["TIMESTAMP_S", "TIMESTAMP_MS", "INTEGER[2]"])
def test_types_that_parquet_widens_are_stored(tmp_path: Path, type_text: str) -> None:
    text = "[1, 2]" if "[" in type_text else "2020-01-01"
    with closing(duckdb.connect()) as connection:
        rows = connection.sql(f"SELECT '{text}'::{type_text} AS x")
        layout = add_static(rows, tmp_path / "t")
    assert layout.columns[0].type in ("TIMESTAMP", "INTEGER[]")


@pytest.mark.parametrize("type_text", ["BIT", "UNION(a INTEGER)"])
def test_types_that_parquet_changes_are_refused(tmp_path: Path, type_text: str) -> None:
    with duckdb.connect(tmp_path / "t.duckdb") as connection:
        value = "'101'::BIT" if type_text == "BIT" else "union_value(a := 1)"
        connection.execute(f"CREATE TABLE t AS SELECT {value} AS x")
    with pytest.raises(LayoutError, match=r"column 'x' is .*, which Parquet keeps as .*; cast it"):
        add_static(tmp_path / "t.duckdb", tmp_path / "t")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda write: write("lines.parquet", ROWS).with_name("line.parquet"), LayoutError,
         r"there is no file .*line\.parquet; did you mean lines\.parquet"),
        (lambda write: "nowhere/at/all.parquet", LayoutError, r"no file nowhere/at/all\.parquet \(looked"),
        (lambda write: "nowhere/*.parquet", LayoutError, r"no file matches nowhere/\*\.parquet"),
        (lambda write: write("t.txt", ROWS).parent, LayoutError, "holds no Parquet, CSV or JSON file"),
        (lambda write: [], LayoutError, "no source was given"),
        (lambda write: "ftp://host/t.parquet", LayoutError, "ftp:// is no kind of address.*s3://bucket"),
        (lambda write: 42, LayoutError, r"an int \(42\) is no table; give Parquet, CSV, JSON"),
        (lambda write: [write("a.parquet", ROWS), csv_file(write, "b.csv")], LayoutError,
         r"a\.parquet is Parquet and b\.csv is CSV; give files of one kind"),
        (lambda write: [write("a.parquet", ROWS), csv_file(write, "manifest.json")], LayoutError,
         "give files of one kind"),
        (lambda write: pa.table({"_RELAQS_block": [1]}), LayoutError, "has a name that layouts keep"),
        (lambda write: pa.table({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), LayoutError,
         "'x' is INTERVAL, which Parquet does not keep exactly"),
        (lambda write: pa.table({}), LayoutError, "a Table without columns"),
        (lambda write: pl.DataFrame({"a": [1], "x": pl.Series([2**100], dtype=pl.Int128)}), LayoutError,
         r"column 'x' is a Int128 of polars, which Arrow has no type for; cast it, as in frame"),
        (lambda write: pl.DataFrame({"x": pl.Series([1], dtype=pl.Int128)}).lazy(), LayoutError,
         r"column 'x' is a Int128 of polars"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_used_says_why(
    write: Writer, tmp_path: Path, make: Callable[[Writer], Any], error: type[Exception], message: str
) -> None:
    source = make(write)
    with pytest.raises(error, match=message):
        shuffle(source, tmp_path / "warehouse" / "t")
    assert not (tmp_path / "warehouse").exists()


def test_files_whose_columns_no_type_holds_together_are_named(write: Writer, tmp_path: Path) -> None:
    write("folder/a.parquet", ROWS)
    write("folder/b.parquet", ROWS.set_column(0, "id", pa.array([0] * 1_000, pa.date32())))
    with pytest.raises(
        DataError, match=r"'id' is BIGINT in .*a\.parquet and DATE in .*b\.parquet, and no type"
    ):
        shuffle(tmp_path / "folder", tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_files_with_columns_in_another_order_are_one_table(write: Writer, tmp_path: Path) -> None:
    write("folder/a.parquet", ROWS.slice(0, 10))
    write("folder/b.parquet", ROWS.slice(10).select(["name", "id"]))
    layout = shuffle(tmp_path / "folder", tmp_path / "t", partitions=2)
    assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(ROWS)


@pytest.mark.parametrize("lay_out", [shuffle, add_static])
def test_columns_that_differ_only_by_case_are_refused(lay_out: Callable[..., Layout], tmp_path: Path) -> None:
    """A query that groups by `ä` would take the groups for those of the cluster key `Ä`."""
    rows = pa.table({"Ä": [1], "ä": [2]})
    with pytest.raises(LayoutError, match=r"columns 'Ä' and 'ä' differ only by case.*rename one"):
        lay_out(rows, tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("keep_bytes", [0, 3, 1_000, -1])
def test_a_truncated_parquet_file_is_named(write: Writer, tmp_path: Path, keep_bytes: int) -> None:
    path = write("t.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:keep_bytes])
    with pytest.raises(
        DataError, match=r"t\.parquet cannot be read as Parquet.*write it again or leave it out"
    ):
        shuffle(path, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_damaged_data_behind_a_sound_footer_is_an_error_and_leaves_nothing(
    write: Writer, tmp_path: Path
) -> None:
    path = write("t.parquet", ROWS)
    content = bytearray(path.read_bytes())
    content[4:1_000] = bytes(996)
    path.write_bytes(content)
    with pytest.raises(DataError):
        shuffle(path, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_csv_files_of_different_columns_are_united_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n3,4\n")
    layout = shuffle(str(tmp_path / "*.csv"), tmp_path / "t", partitions=1)
    expected = pa.table({"x": [1, 3], "y": [2, None], "z": [None, 4]})
    assert rows_in_any_order(stored_rows(layout)) == rows_in_any_order(expected)


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n" + "1,2\n" * 200 + "1,2,3,4\n",  # DuckDB alone drops the 200 rows and the header
        "a,b\n1,2\n3\n4,5\n",
        "a;b\n1;2\n3;4;5\n",
        "My report\n\na,b\n1,2\n",
    ],
)
def test_csv_lines_of_different_lengths_are_refused_and_none_is_dropped(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match="do not all have the same number of fields"):
        shuffle(tmp_path / "t.csv", tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("1,x\n2,y\n", ["column0", "column1"], 2),
        ("only\none\ncolumn\n", ["only"], 2),
        ('a,b\n"x, y","two\nlines"\n', ["a", "b"], 1),
        ("# a comment\na,b\n1,2\n", ["a", "b"], 1),
        ("\ufeffa\tb\n1\t2\n", ["a", "b"], 1),
    ],
)
def test_csv_of_every_usual_form(tmp_path: Path, text: str, columns: list[str], rows: int) -> None:
    (tmp_path / "t.csv").write_text(text)
    layout = add_static(tmp_path / "t.csv", tmp_path / "t")
    assert ([column.name for column in layout.columns], layout.row_count) == (columns, rows)


def test_types_of_a_csv_column_come_from_all_its_rows(tmp_path: Path) -> None:
    # DuckDB looks at 20,480 rows unless told otherwise; the fraction comes later.
    (tmp_path / "t.csv").write_text("x\n" + "1\n" * 30_000 + "2.5\n")
    assert add_static(tmp_path / "t.csv", tmp_path / "t").columns[0].type == "DOUBLE"


def test_a_source_that_changes_while_it_is_read_is_refused(write: Writer, tmp_path: Path) -> None:
    path = write("t.parquet", ROWS)

    def replace_source(share: float, doing: str) -> None:
        if doing == "writing partition 2 of 2":
            state = path.stat()
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))

    with pytest.raises(DataError, match="changed while it was being laid out"):
        shuffle(path, tmp_path / "t", partitions=2, progress=replace_source)
    assert not (tmp_path / "t").exists()


def test_paths_are_absolute_and_named_once(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("t.parquet", ROWS)
    monkeypatch.chdir(tmp_path)
    assert find_files(["t.parquet", "./t.parquet", "*.parquet"]) == (tmp_path / "t.parquet",)
