"""A first part of a layout can be asked before the rest is there, and changes no byte of the layout."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.layouts import Layout, shuffling, verify
from relaqs_engine.layouts.build import building
from relaqs_engine.layouts.manifest import FirstPart
from relaqs_engine.layouts.sampled import sample

ROWS = 20_000
MEMORY_LIMIT_BYTES = 4 << 30


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    columns = {
        "id": pa.array(np.arange(ROWS)),
        "fare": pa.array(rng.gamma(2.0, 50.0, ROWS), mask=rng.random(ROWS) < 0.1),
        "mode": pa.array(rng.choice(["AIR", "RAIL", "SHIP"], ROWS)),
        "text": pa.array([f"some text {i * i}" for i in range(ROWS)]),
    }
    path = tmp_path / "trips.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1_700)
    return path


def laid_out(
    source: Path, into: Path, *, cluster_by: str | None = None, partitions: int = 40, asks: bool = True
) -> tuple[Layout, list[tuple[FirstPart, int]]]:
    """Return the layout, and each first part with the rows that its files held when it was handed over."""
    parts = []

    def note(part: FirstPart) -> None:
        assert not (into / "manifest.json").exists()
        rows = sum(pq.read_metadata(path).num_rows for path in part.paths)
        parts.append((part, rows))

    with building(source, into, force=False, memory_limit_bytes=MEMORY_LIMIT_BYTES, threads=1) as build:
        layout = sample(build, partitions, cluster_by=cluster_by, first_there=note if asks else None)
    return layout, parts


@pytest.mark.parametrize("share_of_memory", [0.5, 2e-5])
def test_no_byte_depends_on_a_first_part(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_of_memory: float
) -> None:
    monkeypatch.setattr(shuffling, "_SHARE_OF_MEMORY", share_of_memory)
    plain, none = laid_out(source, tmp_path / "plain" / "t", asks=False)
    layout, parts = laid_out(source, tmp_path / "waves" / "t")
    assert (len(none), len(parts)) == (0, 1)
    assert [stored.sha256 for stored in layout.files] == [stored.sha256 for stored in plain.files]
    assert layout.columns == plain.columns
    assert all(column.distinct is None for column in parts[0][0].columns)  # its values are not counted yet
    assert all(column.distinct is not None for column in layout.columns)
    assert verify(layout.directory).ok
    groups = pq.read_metadata(layout.paths[0]).num_row_groups
    assert groups == 1 if share_of_memory == 0.5 else groups > 2


def test_a_first_part_knows_the_whole_table(source: Path, tmp_path: Path) -> None:
    layout, [(part, rows)] = laid_out(source, tmp_path / "t")
    assert not part.is_made
    assert part.is_sampled
    assert part.partitions == layout.partitions[:2]  # a twentieth of forty
    assert part.paths == layout.paths[:2]
    assert rows == sum(partition.row_count for partition in part.partitions)
    assert (part.row_count, part.unit_count) == (ROWS, ROWS)
    known = [(c.name, c.type, c.minimum, c.maximum, c.null_count) for c in layout.columns]
    assert [(c.name, c.type, c.minimum, c.maximum, c.null_count) for c in part.columns] == known
    assert not any(column.has_outliers for column in part.columns)
    assert sum(c.byte_count for c in part.columns) < sum(p.byte_count for p in part.partitions)


def test_there_is_none_where_it_would_not_be_sound_or_not_be_sooner(source: Path, tmp_path: Path) -> None:
    clustered, of_clustered = laid_out(source, tmp_path / "clustered", cluster_by="mode")
    one, of_one = laid_out(source, tmp_path / "one", partitions=1)
    duckdb.sql(f"SELECT [range] AS nested FROM range({ROWS})").write_parquet(str(tmp_path / "n.parquet"))
    nested, of_nested = laid_out(tmp_path / "n.parquet", tmp_path / "nested")
    assert (of_clustered, of_one, of_nested) == ([], [], [])
    assert all(verify(layout.directory).ok for layout in (clustered, one, nested))


def test_an_error_of_whoever_gets_it_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def fail(part: FirstPart) -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        building(
            source, tmp_path / "t", force=False, memory_limit_bytes=MEMORY_LIMIT_BYTES, threads=1
        ) as build,
    ):
        sample(build, 40, first_there=fail)
    assert not (tmp_path / "t").exists()
