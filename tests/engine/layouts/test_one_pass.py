"""A source that is read once gives the partitions that the SQL of the assignment gives."""

from __future__ import annotations

import datetime
import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from relaqs_engine.errors import DataError
from relaqs_engine.layouts import Layout, gathering, pieces, shuffle, shuffling, verify
from relaqs_engine.layouts.column_statistics import SAMPLE_ROWS

import relaqs

ROWS = 6_000


def typed_columns(rows: int, seed: int) -> dict[str, pa.Array]:
    """Return a column of each type that is read in one pass, most with NULLs, some with few values."""
    rng = np.random.default_rng(seed)

    def with_nulls(values: Any, kind: pa.DataType, share: float = 0.1) -> pa.Array:
        return pa.array(values, kind, mask=rng.random(rows) < share)

    def whole(bits: int, signed: bool = True) -> np.ndarray:
        kind = np.dtype(f"{'int' if signed else 'uint'}{bits}")
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, rows, kind, endpoint=True)

    reals = rng.normal(size=rows)
    cents = [Decimal(int(cent)).scaleb(-2) for cent in rng.integers(-(10**15), 10**15, rows)]
    words = [f"wörd {i} " * (i % 5) for i in rng.integers(0, 10**9, rows)]
    return {
        "id": pa.array(np.arange(rows)),
        "flag": with_nulls(rng.random(rows) < 0.5, pa.bool_()),
        **{
            f"i{bits}": with_nulls(whole(bits), pa.from_numpy_dtype(f"i{bits // 8}"))
            for bits in (8, 16, 32, 64)
        },
        **{
            f"u{bits}": with_nulls(whole(bits, signed=False), pa.from_numpy_dtype(f"u{bits // 8}"))
            for bits in (8, 16, 32, 64)
        },
        "few": with_nulls(rng.integers(0, 5, rows), pa.int64()),
        "real": with_nulls(reals, pa.float64()),
        "with NaN": with_nulls(np.where(reals > 2, np.nan, reals), pa.float64()),
        "single": with_nulls(reals.astype(np.float32), pa.float32()),
        "money": with_nulls(cents, pa.decimal128(18, 2)),
        "small money": with_nulls([Decimal(i % 300).scaleb(-1) for i in range(rows)], pa.decimal128(4, 1)),
        "day": with_nulls(rng.integers(-800_000, 800_000, rows).astype("datetime64[D]"), pa.date32()),
        "at": with_nulls(rng.integers(-(10**17), 10**17, rows), pa.timestamp("us")),
        "instant": with_nulls(rng.integers(-(10**17), 10**17, rows), pa.timestamp("us", tz="Europe/Berlin")),
        "word": with_nulls(words, pa.string()),
        "mode": with_nulls(rng.choice(["AIR", "RAIL", "", "Bahn ü"], rows), pa.string()),
        "nothing": pa.nulls(rows, pa.int32()),
        "no.text": pa.nulls(rows, pa.string()),
        'say "hi"': with_nulls(rng.choice(["x", "y"], rows), pa.string(), 0.9),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of one table, the second without rows, the third with its columns in another order."""
    folder = tmp_path_factory.mktemp("typed")
    table = pa.table(typed_columns(ROWS, seed=1))
    pq.write_table(table.slice(0, 4_000), folder / "a.parquet", row_group_size=900)
    pq.write_table(table.slice(0, 0), folder / "b.parquet")
    turned = table.select(table.schema.names[::-1]).slice(4_000)
    pq.write_table(turned, folder / "c.parquet", row_group_size=700, use_dictionary=False)
    return folder


@contextmanager
def by_sql_alone() -> Iterator[None]:
    """Let DuckDB write the partitions inside the block, as it does where a type is not known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffling, "pieces_of", lambda source: None)
        yield


def is_read_once(layout: Layout) -> bool:
    writers = {pq.read_metadata(path).created_by.split()[0] for path in layout.paths}
    assert len(writers) == 1
    return writers == {"parquet-cpp-arrow"}


def rows_of(layout: Layout, partition: int) -> list[tuple[object, ...]]:
    table = f"read_parquet(['{layout.paths[partition]}'], hive_partitioning = false)"
    types = duckdb.sql(f"DESCRIBE SELECT * FROM {table}").fetchall()
    rows = duckdb.sql(f"SELECT COLUMNS(*)::VARCHAR FROM {table}").fetchall()
    return [*((name, kind) for name, kind, *_ in types), *rows]


def assert_same(one: Layout, other: Layout) -> None:
    """The same rows in the same order in the same partitions, and the same figures in the manifest."""
    assert len(one.partitions) == len(other.partitions)
    for i in range(len(one.partitions)):
        assert rows_of(one, i) == rows_of(other, i)
    for mine, its in zip(one.partitions, other.partitions, strict=True):
        assert (mine.row_count, mine.unit_count) == (its.row_count, its.unit_count)
        assert mine.block_rows == its.block_rows
    for name in ("unit_count", "max_unit_rows", "typical_unit_rows", "hash_probe", "cluster_key"):
        assert getattr(one, name) == getattr(other, name), name
    for column, known in zip(one.columns, other.columns, strict=True):
        assert (column.name, column.type) == (known.name, known.type)
        assert (column.minimum, column.maximum) == (known.minimum, known.maximum), column.name
        assert type(column.minimum) is type(known.minimum), column.name
        assert column.null_count == known.null_count, column.name


KEYS: list[Any] = [
    None, "id", "few", "i8", "u64", "real", "with NaN", "single", "money", "small money", "day", "at",
    "instant", "word", "mode", "no.text", ["mode", "few"], 'say "hi"',
]  # fmt: skip
# Which partition a row is in depends on its key alone, so two keys try all types of what is beside it.
WITH_ALL_COLUMNS = (None, "id", ["mode", "few"])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_rows_lie_where_the_sql_of_the_assignment_puts_them(files: Path, tmp_path: Path, key: Any) -> None:
    source = files
    if key not in WITH_ALL_COLUMNS:
        source = tmp_path / "source"
        source.mkdir()
        for file in sorted(files.glob("*.parquet")):
            own = [name for name in pq.read_schema(file).names if name in ("id", "mode", key)]
            pq.write_table(pq.read_table(file, columns=own), source / file.name, row_group_size=800)
    one = shuffle(source, tmp_path / "one", partitions=7, cluster_by=key, seed=3)
    with by_sql_alone():
        other = shuffle(source, tmp_path / "other", partitions=7, cluster_by=key, seed=3)
    assert is_read_once(one)
    assert not is_read_once(other)
    assert_same(one, other)
    assert verify(one.directory).ok


@pytest.mark.parametrize("key", [None, "mode"])
def test_windows_change_where_row_groups_end_and_nothing_else(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    one = shuffle(files, tmp_path / "one", partitions=3, cluster_by=key)
    monkeypatch.setattr(shuffling, "_SHARE_OF_MEMORY", 5e-5)
    several = shuffle(files, tmp_path / "several", partitions=3, cluster_by=key)
    groups = [pq.read_metadata(layout.paths[0]).num_row_groups for layout in (one, several)]
    assert groups[0] == 1
    assert 3 <= groups[1] <= 8
    assert_same(several, one)
    assert verify(several.directory).ok
    again = shuffle(files, tmp_path / "again", partitions=3, cluster_by=key, memory_limit_bytes=(4 << 30) + 1)
    assert [p.contents for p in again.partitions] == [p.contents for p in several.partitions]


def test_rows_larger_than_was_probed_end_a_window_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        f"{i:07}" * (1 if i % 1_000 < 500 else 40) for i in range(20_000)
    ]  # the probes see the short ones
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", row_group_size=1_000)
    monkeypatch.setattr("relaqs_engine.layouts.pieces._PROBE_ROWS", 400)
    monkeypatch.setattr(shuffling, "_SHARE_OF_MEMORY", 1e-4)
    sizes = []
    of_windows = gathering.windows

    def measured(*given: Any) -> Iterator[Any]:
        for window in of_windows(*given):
            sizes.append(sum(piece.rows.nbytes for piece in window))
            yield window

    monkeypatch.setattr(shuffling, "windows", measured)
    layout = shuffle(tmp_path / "t.parquet", tmp_path / "t", partitions=2)
    assert is_read_once(layout)
    assert len(sizes) > 4
    assert max(sizes) < 1.25 * 1e-4 * (4 << 30) + 500_000  # and one piece more
    assert verify(layout.directory).ok


def test_columns_that_hide_duckdbs_row_numbers_and_layouts_are_numbered_through(tmp_path: Path) -> None:
    rows = pa.table({"file_index": range(5_000), "x": range(5_000)})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=1_000)
    pairs = []
    for name in ("one", "other"):
        with by_sql_alone() if name == "other" else pytest.MonkeyPatch.context():
            first = shuffle(tmp_path / "t.parquet", tmp_path / name / "first", partitions=3)
            second = shuffle(first.directory, tmp_path / name / "second", partitions=4)
            third = shuffle(first.directory, tmp_path / name / "third", partitions=4, cluster_by="x")
        pairs.append((first, second, third))
    for one, other in zip(*pairs, strict=True):
        assert is_read_once(one)
        assert_same(one, other)


UNKNOWN: dict[str, pa.Array] = {
    "list": pa.array([[1], None, []]),
    "struct": pa.array([{"a": 1}, None, {"a": 2}]),
    "wide decimal": pa.array([Decimal(10) ** 20, None, Decimal(1)], pa.decimal128(38, 2)),
    "time": pa.array([datetime.time(1), None, datetime.time(2)]),
    "bytes": pa.array([b"\xff", None, b""]),
    "milliseconds": pa.array([1, None, 2], pa.timestamp("ms")),
    "nanoseconds": pa.array([1, None, 2], pa.timestamp("ns")),
    "half": pa.array(np.array([1, 2, 3], np.float16)),
    "UUID": pa.array([b"0" * 16, None, b"1" * 16], pa.uuid()),
    "JSON": pa.array(["{}", None, "[1]"], pa.json_()),
    "duration": pa.array([1, None, 2], pa.duration("us")),
    "NULL": pa.nulls(3),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_type_that_is_not_known_is_left_to_duckdb(tmp_path: Path, kind: str) -> None:
    pq.write_table(pa.table({"id": range(3), "x": UNKNOWN[kind]}), tmp_path / "t.parquet")
    layout = shuffle(tmp_path / "t.parquet", tmp_path / "t", partitions=2)
    assert not is_read_once(layout)
    table = f"read_parquet({[str(path) for path in layout.paths]}, hive_partitioning = false)"
    stored = duckdb.sql(f"SELECT id, x::VARCHAR, typeof(x) FROM {table} ORDER BY id").fetchall()
    original = f"FROM '{tmp_path}/t.parquet' ORDER BY id"
    assert stored == duckdb.sql(f"SELECT id, x::VARCHAR, typeof(x) {original}").fetchall()


def test_int96_timestamps_and_hive_folders_are_left_to_duckdb(tmp_path: Path) -> None:
    old = pa.table({"at": pa.array([1, 2], pa.timestamp("us"))})
    pq.write_table(old, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    assert not is_read_once(shuffle(tmp_path / "int96.parquet", tmp_path / "t", partitions=2))
    (tmp_path / "hive" / "year=2024").mkdir(parents=True)
    pq.write_table(old, tmp_path / "hive" / "year=2024" / "a.parquet")
    layout = shuffle(tmp_path / "hive", tmp_path / "h", partitions=2)
    assert [(column.name, column.minimum) for column in layout.columns][1] == ("year", 2024)


TEXTS = [None if i % 7 == 0 else f"name {i % 11}" for i in range(4_000)]


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (pa.array(TEXTS, pa.large_string()), {}),
        (pa.array(TEXTS, pa.string_view()), {}),
        (pa.array(TEXTS).dictionary_encode(), {}),
        (pa.array([f"{text} {i}" for i, text in enumerate(TEXTS)]).dictionary_encode(), {}),
        (pa.array(TEXTS), {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}),
        (pa.array(TEXTS), {"use_dictionary": False, "column_encoding": {"x": "DELTA_LENGTH_BYTE_ARRAY"}}),
        (pa.array(TEXTS), {"dictionary_pagesize_limit": 20, "data_page_version": "2.0"}),
    ],
)
@pytest.mark.parametrize("key", [None, "x"])
def test_texts_are_read_however_they_are_stored(
    tmp_path: Path, values: pa.Array, options: dict[str, Any], key: str | None
) -> None:
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet", row_group_size=1_500, **options)
    one = shuffle(tmp_path / "t.parquet", tmp_path / "one", partitions=3, cluster_by=key)
    with by_sql_alone():
        other = shuffle(tmp_path / "t.parquet", tmp_path / "other", partitions=3, cluster_by=key)
    assert is_read_once(one)
    assert_same(one, other)


@pytest.mark.parametrize("kind", ["VARCHAR", "BLOB", "BIGINT", "DECIMAL(9, 2)", "DATE"])
def test_nulls_beside_one_value_are_found_again(tmp_path: Path, kind: str) -> None:
    """DuckDB 2.0 takes texts whose footer has one value for both ends for all equal, and none NULL."""
    day = "DATE '2024-01-01' + i::INTEGER"
    value = day if kind == "DATE" else f"(i * 40)::{kind}" if kind != "BLOB" else "i::VARCHAR::BLOB"
    rows = duckdb.sql(f"SELECT i, CASE WHEN i % 2 = 0 THEN {value} END AS x FROM range(100) t(i)")
    layout = shuffle(rows.to_arrow_table(), tmp_path / "t", partitions=48)
    for path in layout.paths:
        for condition in ("x IS NULL", "coalesce(x::VARCHAR, '') = ''"):
            [(found,)] = duckdb.sql(f"SELECT count(i) FROM '{path}' WHERE {condition}").fetchall()
            assert [(found,)] == duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE i % 2 = 1").fetchall()


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_footers_have_no_ends_where_there_is_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Any reader may go by what is left. How many values are NULL is left, too."""
    monkeypatch.setattr(pieces, "ROW_GROUP_ROWS", 100)
    rows = duckdb.sql(
        "SELECT i, CASE WHEN i % 97 = 0 THEN 'NaN'::DOUBLE WHEN i % 7 > 0 THEN i % 50 END AS x, "
        "(i % 3)::DOUBLE AS y FROM range(3000) t(i)".replace("DOUBLE", kind)
    ).to_arrow_table()
    layout = shuffle(rows, tmp_path / "t", partitions=5)
    with_nan = 0
    for path in layout.paths:
        file = pq.ParquetFile(path)
        assert file.num_row_groups > 5
        for i in range(file.num_row_groups):
            x = file.read_row_group(i)["x"]
            has_nan = bool(pc.any(pc.is_nan(x)).as_py())
            chunks = [file.metadata.row_group(i).column(place).statistics for place in (1, 2)]
            assert [chunk.has_min_max for chunk in chunks] == [not has_nan, True]
            assert chunks[0].null_count == x.null_count
            with_nan += has_nan
    assert 10 < with_nan < 30
    truth = duckdb.connect()
    truth.execute("CREATE TABLE t AS FROM rows")
    for condition in ("x > 60", "x < 60", "NOT isnan(x)", "x = 'NaN'::DOUBLE", "x IS NULL", "y > 1"):
        sql = f"SELECT count(*), max(x), max(y) FROM t WHERE {condition}"
        [found] = truth.sql(sql.replace("t WHERE", f"'{layout.directory}/*/*.parquet' WHERE")).fetchall()
        assert repr(found) == repr(truth.sql(sql).fetchall()[0]), condition


def test_values_that_a_dictionary_has_and_no_row_are_not_extremes(tmp_path: Path) -> None:
    codes = pa.array([1, 2, None, 1] * 500, pa.int32())
    values = pa.DictionaryArray.from_arrays(codes, ["a", "b", "c", "z"])
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    column = shuffle(tmp_path / "t.parquet", tmp_path / "t", partitions=2).column("x")
    assert (column.minimum, column.maximum, column.null_count) == ("b", "c", 500)


def test_a_column_that_only_looked_like_few_texts_is_written_by_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_MOST_TEXTS", 50)
    monkeypatch.setattr(shuffling, "_SHARE_OF_MEMORY", 1e-6)  # windows: some of it is on disk by then
    few, many = [f"text {i % 30}" for i in range(10_000)], [f"text {i}" for i in range(10_000)]
    table = pa.table({"x": [*few, *few, *few, *many, *few, *few, *few, *few]})  # the probes see the few
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=10_000)
    layout = shuffle(tmp_path / "t.parquet", tmp_path / "t", partitions=3)
    assert not is_read_once(layout)
    assert verify(layout.directory).ok


def test_texts_that_are_not_utf_8_are_an_error_and_leave_nothing(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    good = [f"text {i}" for i in range(1_000)]
    path = write("t.parquet", {"x": good, "few": ["few"] * 1_000})
    damaged = path.read_bytes().replace(b"text 77", b"text \xff7", 1)
    path.write_bytes(damaged)
    pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"text 77", b"text \xff7"))
    with pytest.raises(DataError, match=r"t\.parquet cannot be read as Parquet \(.*UTF8"):
        shuffle(path, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_row_groups_too_large_for_the_memory_are_left_to_duckdb(tmp_path: Path) -> None:
    rows = 3_000_000
    pq.write_table(pa.table({"x": np.arange(rows)}), tmp_path / "t.parquet", row_group_size=rows)
    tight = shuffle(tmp_path / "t.parquet", tmp_path / "tight", partitions=2, memory_limit_bytes=100 << 20)
    roomy = shuffle(tmp_path / "t.parquet", tmp_path / "roomy", partitions=2)
    assert (is_read_once(tight), is_read_once(roomy)) == (False, True)


def test_more_partitions_than_files_a_process_may_have_open(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(5_000)}), tmp_path / "t.parquet", row_group_size=1_000)
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 100, most))
    try:
        layout = shuffle(tmp_path / "t.parquet", tmp_path / "t", partitions=300)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    assert is_read_once(layout)
    assert layout.row_count == 5_000


def test_more_partitions_than_are_gathered_are_left_to_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "MOST_PARTITIONS", 30)
    pq.write_table(pa.table({"x": np.arange(5_000)}), tmp_path / "t.parquet", row_group_size=1_000)
    made = [shuffle(tmp_path / "t.parquet", tmp_path / f"{count}", partitions=count) for count in (30, 31)]
    assert [is_read_once(layout) for layout in made] == [True, False]


def test_distinct_counts_are_of_the_right_size(tmp_path: Path) -> None:
    rows = 3 * SAMPLE_ROWS
    rng = np.random.default_rng(4)
    columns = {
        "unique": rng.permutation(rows),
        "in fours": np.repeat(np.arange(rows // 4), 4),
        "ten": rng.integers(0, 10, rows),
        "some": rng.integers(0, 20_000, rows),
        "many": rng.integers(0, 400_000, rows),
        "skewed": np.minimum(rng.zipf(1.3, rows), 10**9),
        "of four": np.repeat(rng.integers(0, 50_000, rows // 4), 4),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=100_000)
    known = {name: len(np.unique(values)) for name, values in columns.items()}
    for key in (None, "in fours"):
        layout = shuffle(tmp_path / "t.parquet", tmp_path / str(key), partitions=30, cluster_by=key)
        ratios = {column.name: column.distinct_count / known[column.name] for column in layout.columns}
        assert 0.4 < ratios.pop("skewed") < 1.5
        assert ratios.pop("ten") == 1.0
        assert all(0.85 < ratio < 1.15 for ratio in ratios.values()), (key, ratios)


def test_small_tables_have_exact_distinct_counts(files: Path, tmp_path: Path) -> None:
    layout = shuffle(files, tmp_path / "t", partitions=5)
    table = f"read_parquet('{files}/*.parquet', union_by_name = true)"
    for column in layout.columns:
        name = column.name.replace('"', '""')
        ((exact,),) = duckdb.sql(f'SELECT count(DISTINCT "{name}") FROM {table}').fetchall()
        assert column.distinct_count == exact, column.name


def test_a_flipped_bit_is_found_in_its_column_alone(files: Path, tmp_path: Path) -> None:
    layout = shuffle(files, tmp_path / "t", partitions=2)
    written, draws = layout.paths[0].read_bytes(), random.Random(5)
    found = layout.files[0].checksums
    assert found is not None
    count = len(layout.columns) + 1
    assert found.damaged(layout.paths[0], range(count)) == []
    for _ in range(100):
        at = draws.randrange(len(written))
        damaged = bytearray(written)
        damaged[at] ^= 1 << draws.randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        owners = [
            i for i in range(count) if any(begin <= at < begin + size for begin, size in found.extents_of(i))
        ]
        assert found.damaged(tmp_path / "damaged", range(count)) == (owners or [None])


def written(layout: Layout, column: int) -> tuple[int, set[str]]:
    """Return the compressed bytes of a column in the partitions, and its encodings."""
    files = [file.file for partition in layout.partitions for file in partition.files]
    footers = [pq.read_metadata(layout.directory / file) for file in files]
    chunks = [f.row_group(i).column(column) for f in footers for i in range(f.num_row_groups)]
    return sum(each.total_compressed_size for each in chunks), {e for each in chunks for e in each.encodings}


def test_texts_that_come_back_have_a_dictionary_and_others_do_not(tmp_path: Path) -> None:
    """As in the source. Without one, the pages of a site take twice the bytes."""
    rows = 400_000
    rng = np.random.default_rng(7)
    table = pa.table(
        {
            "page": pa.array([f"/p/{i}" for i in (rng.random(rows) ** 2 * 4000).astype(int)]),
            "text": pa.array([f"text {i}" for i in rng.permutation(rows)]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100_000)
    layout = shuffle(tmp_path / "t.parquet", tmp_path / "w" / "t", partitions=10)
    size, encodings = written(layout, 0)
    assert "RLE_DICTIONARY" in encodings
    source = pq.read_metadata(tmp_path / "t.parquet")
    assert size <= 1.2 * sum(source.row_group(i).column(0).total_compressed_size for i in range(4))
    assert "RLE_DICTIONARY" not in written(layout, 1)[1]
    counts = "SELECT page, count(*), max(text) FROM '{}' GROUP BY page ORDER BY page"
    with relaqs.connect(tmp_path / "w", threads=1) as session:
        answer = session.sql(counts.format("").replace("''", "t")).fetchall()
    assert answer == duckdb.sql(counts.format(tmp_path / "t.parquet")).fetchall()
