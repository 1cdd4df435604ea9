"""Verification passes what was written and catches what was not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts import Layout, VerifyReport, add_static, shuffle, verify
from relaqs_engine.layouts.assignment import Assignment
from relaqs_engine.layouts.checksums import SEAL, seal
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, MANIFEST_NAME, StoredFile
from relaqs_engine.layouts.manifest_file import write_manifest

from tests.engine.layouts.reading import partition_table

Writer = Callable[..., Path]


@pytest.fixture
def layout(lines_file: Path, tmp_path: Path) -> Layout:
    return shuffle(lines_file, tmp_path / "warehouse" / "lines", partitions=5, cluster_by="order_id")


def failed(report: VerifyReport) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def as_it_is(layout: Layout, file: int, **changes: int) -> StoredFile:
    """Return a file's entry in the manifest, with the size and checksum that the file has now."""
    content = layout.paths[file].read_bytes()
    stored = dataclasses.replace(layout.files[file], byte_count=len(content), checksums=None, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(stored, sha256=hashlib.sha256(content).hexdigest())


def record_as_written(layout: Layout, partition: int, table: pa.Table) -> None:
    """Replace a partition's rows, and make the manifest's size, checksum and block counts agree with them."""
    path = layout.paths[partition]
    pq.write_table(table, path)
    changed = dataclasses.replace(
        layout.partitions[partition],
        files=(as_it_is(layout, partition, row_count=len(table)),),
        row_count=len(table),
        block_rows=tuple(np.bincount(table[BLOCK_COLUMN].to_numpy(), minlength=BLOCK_COUNT).tolist()),
    )
    partitions = [changed if i == partition else p for i, p in enumerate(layout.partitions)]
    row_count = sum(p.row_count for p in partitions)
    write_manifest(dataclasses.replace(layout, partitions=tuple(partitions), row_count=row_count))


def test_what_was_written_is_sound(layout: Layout, lines_file: Path) -> None:
    add_static(lines_file, layout.directory.with_name("small"))
    report = verify(layout.directory.parent)
    assert report.ok
    assert [check.name for check in report.checks if check.table == "lines"] == [
        "files",
        "checksums",
        "schema",
        "rows",
        "values",
        "distinct values",
        "blocks",
        "cluster keys",
        "sampling units",
        "even partitions",
        "even blocks",
        "blocks independent of partitions",
    ]
    assert [check.name for check in report.checks if check.table == "small"] == [
        "files",
        "checksums",
        "schema",
        "rows",
        "values",
        "distinct values",
    ]


def test_a_missing_file_is_named(layout: Layout) -> None:
    layout.paths[2].unlink()
    report = verify(layout.directory)
    assert failed(report) == {"files", "checksums", "schema", "rows"}
    assert all(check.detail == f"{layout.paths[2]} is missing" for check in report.checks)


def test_a_truncated_file_is_named(layout: Layout) -> None:
    path = layout.paths[1]
    path.write_bytes(path.read_bytes()[:-100])
    report = verify(layout.directory)
    assert failed(report) == {"files", "checksums", "schema", "rows"}
    assert f"bytes, not {layout.partitions[1].byte_count}" in report.checks[0].detail


@pytest.mark.parametrize("position", [0.1, 0.5, 0.9])
def test_a_flipped_byte_is_caught(layout: Layout, position: float) -> None:
    path = layout.paths[3]
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 1
    path.write_bytes(content)
    report = verify(layout.directory)
    assert "checksums" in failed(report)
    assert "files" not in failed(report)


def test_swapped_partitions_are_caught(layout: Layout) -> None:
    first, second = layout.paths[:2]
    first.rename(first.with_suffix(".tmp"))
    second.rename(first)
    first.with_suffix(".tmp").rename(second)
    assert "checksums" in failed(verify(layout.directory))


def test_a_changed_column_type_is_caught(layout: Layout) -> None:
    table = partition_table(layout, 0)
    record_as_written(layout, 0, table.set_column(0, "id", table["id"].cast(pa.int32())))
    assert failed(verify(layout.directory)) == {"schema"}


def test_rows_missing_from_the_manifests_count_are_caught(layout: Layout) -> None:
    partition = layout.partitions[0]
    file = dataclasses.replace(partition.files[0], row_count=partition.row_count - 1)
    fewer = dataclasses.replace(
        partition,
        files=(file,),
        row_count=partition.row_count - 1,
        block_rows=(partition.block_rows[0] - 1, *partition.block_rows[1:]),
    )
    partitions = (fewer, *layout.partitions[1:])
    fewer_rows = dataclasses.replace(layout, partitions=partitions, row_count=layout.row_count - 1)
    write_manifest(fewer_rows)
    assert failed(verify(layout.directory)) == {"manifest"}  # a column has a value for each row, and more
    columns = tuple(dataclasses.replace(column, distinct=None, by_group=()) for column in layout.columns)
    write_manifest(dataclasses.replace(fewer_rows, columns=columns))
    assert failed(verify(layout.directory)) == {"rows"}


def test_a_key_in_two_partitions_is_caught_though_all_counts_agree(layout: Layout) -> None:
    stray = partition_table(layout, 1).slice(0, 1)
    record_as_written(layout, 0, pa.concat_tables([partition_table(layout, 0), stray]))
    report = verify(layout.directory)
    assert failed(report) == {"cluster keys", "sampling units"}
    details = {check.name: check.detail for check in report.checks}
    assert details["cluster keys"] == "1 values of order_id are in several partitions or blocks"


def test_rows_in_other_blocks_than_recorded_are_caught(layout: Layout) -> None:
    table = partition_table(layout, 0)
    moved = table.set_column(
        table.schema.get_field_index(BLOCK_COLUMN),
        BLOCK_COLUMN,
        pc.bit_wise_xor(table[BLOCK_COLUMN], pa.scalar(1, pa.uint8())),
    )
    record_as_written(layout, 0, moved)
    manifest = layout.directory / MANIFEST_NAME
    assert verify(layout.directory).ok  # whole keys moved to other blocks, and the manifest says so
    manifest.unlink()
    written = dataclasses.replace(layout.partitions[0], files=(as_it_is(layout, 0),))
    write_manifest(dataclasses.replace(layout, partitions=(written, *layout.partitions[1:])))
    assert failed(verify(layout.directory)) == {"blocks"}


@pytest.mark.parametrize(
    ("partition", "block", "wrong"),
    [
        # The trap: partition and block from the same bits share a factor of four.
        ("({} % 100)::INTEGER", "({} & 63)::UTINYINT", {"blocks independent of partitions"}),
        ("(({} >> 20) % 100)::INTEGER", "least({} & 63, 40)::UTINYINT", {"even blocks"}),
        ("least(({} >> 20) % 100, 80)::INTEGER", "({} & 63)::UTINYINT", {"even partitions"}),
    ],
)
def test_a_layout_that_is_no_random_sample_is_caught(
    write: Writer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition: str,
    block: str,
    wrong: set[str],
) -> None:
    monkeypatch.setattr(Assignment, "partition", lambda self, unit_hash: partition.format(unit_hash))
    monkeypatch.setattr(Assignment, "block", staticmethod(block.format))
    layout = shuffle(write("t.parquet", {"x": np.arange(100_000)}), tmp_path / "t")
    assert failed(verify(layout.directory)) == wrong


def test_a_small_layout_is_not_accused(lines: pa.Table, tmp_path: Path) -> None:
    layout = shuffle(lines.slice(0, 40), tmp_path / "t", partitions=10)
    report = verify(layout.directory)
    assert report.ok
    assert [check.detail for check in report.checks if "even" in check.name] == [
        "too few sampling units to tell"
    ] * 2


def test_a_damaged_manifest_is_a_finding_and_the_other_tables_are_checked(
    layout: Layout, lines_file: Path
) -> None:
    other = add_static(lines_file, layout.directory.with_name("other"))
    (layout.directory / MANIFEST_NAME).write_text("{")
    report = verify(layout.directory.parent)
    assert failed(report) == {"manifest"}
    assert {check.table for check in report.checks} == {"lines", other.table}


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="holds no tables; lay one out with `relaqs shuffle"):
        verify(tmp_path)
    with pytest.raises(LayoutError, match="is not a folder"):
        verify(tmp_path / "nowhere")


HARMLESS = {  # what plans are made by, and what people read
    *("manifest_version", "created_with", "source", "source_files", "batches", "byte_count", "hash_scheme"),
    *("hash_probe", "distinct_count", "relative_error"),
}
COPIES = ("outliers", "outlier_units", "heavy", "companions")  # people read how many units these have


def numbers(entries: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of all numbers, of long lists those of the first two."""
    if isinstance(entries, dict):
        for name in entries.keys() - HARMLESS - {SEAL}:
            yield from numbers(entries[name], (*place, name))
    elif isinstance(entries, list):
        for position, each in enumerate(entries[:2]):
            yield from numbers(each, (*place, position))
    elif isinstance(entries, int | float) and not isinstance(entries, bool):
        yield place


def with_lie(entries: dict[str, Any], place: tuple[str | int, ...]) -> None:
    """Make a number less than it was, a lower bound more: what is a bound does not hold then."""
    holder: Any = entries
    for step in place[:-1]:
        holder = holder[step]
    value = holder[place[-1]]
    away = 1 + abs(value) // 2
    holder[place[-1]] = value + away if place[-1] == "least" else value - away


def visits(rows: int) -> pa.Table:
    """Return visits of users of whom few have very many, with values far out."""
    rng = np.random.default_rng(rows)
    user = np.where(rng.random(rows) < 0.08, rng.integers(0, 20, rows), rng.integers(20, 3_000, rows))
    return pa.table(
        {
            "user": user,
            "country": user % 4,
            "price": np.round(rng.exponential(10, rows) * np.where(rng.random(rows) < 0.002, 500, 1), 2),
            "day": pa.array(rng.integers(0, 30, rows), mask=rng.random(rows) < 0.1),
            "text": rng.integers(10, 99, rows).astype(str),
            "zero": np.zeros(rows, dtype=np.int64),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "user"])
def test_no_number_of_a_manifest_is_believed(tmp_path: Path, key: str | None) -> None:
    """Each number that answers rest on is read off of the files again, whoever wrote the manifest."""
    shuffle(visits(22_000), tmp_path / "other", partitions=3, cluster_by=key)
    layout = shuffle(visits(25_000), tmp_path / "t", partitions=3, cluster_by=key)
    if key is not None:
        assert layout.outlier_units is not None
        assert layout.outlier_units.keys
        assert layout.heavy is not None
        assert layout.companions
    assert layout.outliers is not None
    assert verify(tmp_path / "t").ok
    path = tmp_path / "t" / MANIFEST_NAME
    text = path.read_text()
    believed = set()
    for place in numbers(json.loads(text)):
        entries = json.loads(text)
        with_lie(entries, place)
        del entries[SEAL]
        path.write_bytes(seal(json.dumps(entries)))
        if verify(tmp_path / "t").ok:
            believed.add(place)
    believed -= {place for place in believed if place[0] in COPIES and place[-1] == "unit_count"}
    assert believed == ({("seed",)} if key is None else set())  # where rows were in their source
