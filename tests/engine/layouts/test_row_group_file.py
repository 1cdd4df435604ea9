"""Single row groups as files: what DuckDB reads of them is what it reads of the user's file there."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.duck import Database, DatabaseConfig, FileState, state_digest
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.footers import RowGroupFile, Zone, flat_columns, footer
from relaqs_engine.layouts.row_groups import RowGroup, ends, is_sound

from relaqs.executors.row_group_files import RowGroupFileSystem

ROWS = 3_000
COLUMNS = ("i", "u", "f", "d", "t", "b", "day", "moment")


def table() -> pa.Table:
    random = np.random.default_rng(0)
    day = datetime.date(2020, 1, 1)
    return pa.table(
        {
            "nested": pa.array([{"x": [i], "y": "n"} for i in range(ROWS)]),
            "i": pa.array(random.integers(-5, 5, ROWS), mask=random.random(ROWS) < 0.2),
            "u": pa.array(random.integers(0, 200, ROWS), pa.uint8()),
            "f": random.normal(size=ROWS),
            "d": pa.array(
                [Decimal(int(n)) / 100 for n in random.integers(0, 9999, ROWS)], pa.decimal128(9, 2)
            ),
            "t": pa.array([f"text {n}" for n in random.integers(0, 50, ROWS)]),
            "b": random.random(ROWS) < 0.5,
            "day": pa.array([day + datetime.timedelta(int(n)) for n in random.integers(0, 99, ROWS)]),
            "moment": pa.array(random.integers(0, 10**15, ROWS), pa.timestamp("us")),
        }
    )


def state_of(path: Path) -> FileState:
    found = path.stat()
    return str(path), found.st_size, found.st_mtime_ns


@pytest.fixture(params=["snappy", "zstd", "gzip", "lz4", "brotli", "none"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileState, Database]]:
    path = tmp_path / "t.parquet"
    plain = {
        "use_dictionary": ["t"],
        "column_encoding": {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT"},
    }
    options: dict[str, Any] = plain if request.param == "zstd" else {}
    pq.write_table(table(), path, row_group_size=1_000, compression=request.param, **options)
    state = state_of(path)
    with closing(Database(DatabaseConfig((), 1 << 28, files=(state,)))) as database:
        database.serve(RowGroupFileSystem([state]))
        yield state, database


def test_a_row_group_reads_as_its_part_of_the_file(written: tuple[FileState, Database]) -> None:
    state, database = written
    columns = ", ".join(COLUMNS)
    with closing(database.cursor()) as cursor:
        for position in range(3):
            name = RowGroup(state, position, 1_000).file(COLUMNS)
            low, high = position * 1_000, position * 1_000 + 999
            theirs = f"SELECT {columns} FROM '{state[0]}' WHERE file_row_number BETWEEN {low} AND {high}"
            assert cursor.table(f"SELECT {columns} FROM '{name}'").equals(cursor.table(theirs))


def test_each_thread_has_its_own_place_in_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path)
    state = state_of(path)
    name = RowGroup(state, 0, ROWS).file(["i"])
    ends_of_data = [100, 2_000, state[1] - 8]  # the last read goes on into the new footer
    with RowGroupFileSystem([state]).open(name) as opened, ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in ends_of_data]
        for thread, at in zip(threads, ends_of_data, strict=True):
            assert thread.submit(opened.seek, at).result() == at
        read = [thread.submit(opened.read, 12).result() for thread in threads]
    data = path.read_bytes()
    assert read[:2] == [data[100:112], data[2_000:2_012]]
    assert read[2][:8] == data[-8:]
    assert len(read[2]) == 12


def test_only_files_of_the_database_are_served(written: tuple[FileState, Database], tmp_path: Path) -> None:
    _, database = written
    path = tmp_path / "other.parquet"
    pq.write_table(table(), path)
    with closing(database.cursor()) as cursor, pytest.raises(DataError, match="disabled by configuration"):
        cursor.table(f"SELECT * FROM '{RowGroup(state_of(path), 0, ROWS).file(['i'])}'")


def test_nested_columns_are_not_flat(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path)
    assert set(flat_columns(state_of(path))) == set(COLUMNS)


def test_a_name_belongs_to_one_state_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path)
    before = state_of(path)
    os.utime(path, ns=(1, 1))
    assert state_digest(before) != state_digest(state_of(path))
    with pytest.raises(DataError, match="changed since this session was opened"):
        footer(before)


@pytest.mark.parametrize(
    "name",
    [
        "t.parquet",
        "rowgroup://zz/0/1-11d52a51.parquet",
        "rowgroup://0a/0/../1-11d52a51.parquet",
        "rowgroup://0a/4/0-3-11d52a51.parquet",
    ],
)
def test_other_names_stand_for_nothing(name: str) -> None:
    assert RowGroupFile.named(name) is None
    system = RowGroupFileSystem([])
    assert not system.exists(name)
    with pytest.raises(FileNotFoundError):
        system.open(name)


@pytest.mark.parametrize(
    ("type_text", "low", "high", "sound"),
    [
        ("BIGINT", -1, 5, True),
        ("BIGINT", 5, -1, False),
        ("UBIGINT", -1, 5, False),
        ("DOUBLE", 0.0, float("inf"), False),
        ("DOUBLE", 0.0, 1.0, True),
        ("DECIMAL(9,2)", Decimal(1), Decimal(2), True),
        ("VARCHAR", b"a", b"b", False),
        ("VARCHAR", "a", "b", True),
        ("DATE", datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), True),
        ("TIMESTAMP", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), None, False),
        ("BIGINT", None, None, False),
    ],
)
def test_ends_that_cannot_be_trusted_are_not(type_text: str, low: Any, high: Any, sound: bool) -> None:
    assert is_sound(type_text, Zone(10, low, high, 0)) is sound
    if not sound:
        assert ends(type_text, [Zone(10, low, high, 0)]) == (None, None)
