"""Every byte of a layout's file belongs to one column or to the rest, and is checked with it."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.layouts import Layout, shuffle
from relaqs_engine.layouts.checksums import Checksums

COLUMNS = 6
REST = None


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    folder = tmp_path_factory.mktemp("checksums")
    source = folder / "trips.parquet"
    duckdb.sql(
        "SELECT i, hash(i) % 1000 / 10.0 AS fare, 'zone ' || (i % 13) AS zone, "
        "{'a': i, 'b': [i, i]} AS nested, {'x': i} AS \"nested, b\" FROM range(300_000) AS numbers(i)"
    ).write_parquet(str(source))
    return shuffle(source, into=folder / "trips", partitions=2)


def checksums(layout: Layout) -> Checksums:
    found = layout.files[0].checksums
    assert found is not None
    return found


def test_what_was_written_is_intact(layout: Layout) -> None:
    for path, stored in zip(layout.paths, layout.files, strict=True):
        assert stored.checksums is not None
        assert stored.checksums.damaged(path, range(COLUMNS)) == []


def test_columns_cover_nearly_all_of_a_file_and_never_the_same_byte(layout: Layout) -> None:
    extents = sorted(extent for i in range(COLUMNS) for extent in checksums(layout).extents_of(i))
    assert len(extents) == COLUMNS * 2  # row groups: 150,000 rows are two
    assert all(at + size <= after for (at, size), (after, _) in pairwise(extents))
    assert sum(size for _, size in extents) > 0.95 * layout.partitions[0].byte_count


def test_a_flipped_bit_is_found_in_its_column_alone(layout: Layout, tmp_path: Path) -> None:
    written = layout.paths[0].read_bytes()
    damaged_file, draws = tmp_path / "damaged.parquet", random.Random(12)
    found = set()
    for _ in range(200):
        at, bit = draws.randrange(len(written)), draws.randrange(8)
        damaged = bytearray(written)
        damaged[at] ^= 1 << bit
        damaged_file.write_bytes(damaged)
        (part,) = checksums(layout).damaged(damaged_file, range(COLUMNS))
        owners = [
            column
            for column in range(COLUMNS)
            if any(begin <= at < begin + size for begin, size in checksums(layout).extents_of(column))
        ]
        assert owners == ([] if part is REST else [part])
        found.add(part)
    assert {0, 1, 3, 4, 5} <= found


@pytest.mark.parametrize("place", [0, 3, -1, -5, -200])
def test_the_footer_and_the_ends_are_checked_whatever_is_read(
    layout: Layout, tmp_path: Path, place: int
) -> None:
    damaged = bytearray(layout.paths[0].read_bytes())
    damaged[place] ^= 1
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    assert checksums(layout).damaged(tmp_path / "damaged.parquet", []) == [REST]
