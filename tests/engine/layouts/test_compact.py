"""Compacting keeps the rows and their order, and the files of before as long as they are read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.errors import DataError
from relaqs_engine.layouts import Layout, append, compact, read_manifest, shuffle, verify
from relaqs_engine.layouts.folder import InUse
from relaqs_engine.layouts.manifest import MANIFEST_NAME

from tests.engine.layouts.reading import rows_in_any_order, stored_rows


def sales(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "shop": random.integers(0, 300, count),
            "price": pa.array(random.pareto(1.3, count).round(3), mask=random.random(count) < 0.01),
            "kind": random.choice(["a", "b", "c"], count),
        }
    )


PARTS = [sales(12_000, 1), sales(800, 2), sales(700, 3)]


@pytest.fixture(params=[(), ("shop",)])
def grown(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    shuffle(PARTS[0], tmp_path / "sales", partitions=5, cluster_by=request.param)
    for part in PARTS[1:]:
        layout = append(part, tmp_path / "sales")
    return layout


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def assert_tidy(layout: Layout) -> None:
    folders = {Path(stored.file).parts[0] for stored in layout.all_files}
    assert names_in(layout.directory) == {MANIFEST_NAME, *folders}
    assert verify(layout.directory).ok


def test_each_partition_is_one_file_of_the_same_rows_in_the_same_order(grown: Layout) -> None:
    before = stored_rows(grown)
    layout = compact(grown.directory)
    assert [len(partition.files) for partition in layout.partitions] == [1] * 5
    assert stored_rows(layout).to_pylist() == before.to_pylist()
    assert [p.block_rows for p in layout.partitions] == [p.block_rows for p in grown.partitions]
    assert (layout.row_count, layout.unit_count, layout.max_unit_rows) == (
        grown.row_count,
        grown.unit_count,
        grown.max_unit_rows,
    )
    assert layout.outliers is not None
    assert len(layout.outliers.files) == 1
    assert_tidy(layout)
    assert compact(grown.directory) == layout
    assert append(PARTS[1], grown.directory).row_count == grown.row_count + len(PARTS[1])
    assert verify(grown.directory).ok


def test_files_that_are_read_stay_until_the_first_write_after(grown: Layout) -> None:
    reader = InUse([grown])
    layout = compact(grown.directory)
    outliers = [grown.directory / each.file for each in grown.outlier_files]
    assert all(path.exists() for path in (*grown.paths, *outliers, *layout.paths))
    layout = append(PARTS[1], grown.directory)
    assert all(path.exists() for path in grown.paths)
    reader.release()
    layout = append(PARTS[2], grown.directory)
    assert not any(path.exists() for path in grown.paths)
    assert_tidy(layout)


def test_damage_is_not_made_good(grown: Layout) -> None:
    path = grown.paths_of(3)[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} does not hold the bytes that were written"):
        compact(grown.directory)
    assert read_manifest(grown.directory) == grown


VICTIM = """
import os, signal, sys
from relaqs_engine.layouts import compact, folder

directory, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def report(share, doing):
    if doing == moment:
        die()

write_manifest, retire = folder.write_manifest, folder.retire
if moment == "before the old state is kept":
    folder.retire = die
elif moment == "before the manifest is replaced":
    folder.write_manifest = die
elif moment == "after the manifest is replaced":
    folder.write_manifest = lambda layout: (write_manifest(layout), die())
compact(directory, progress=report)
"""


@pytest.mark.parametrize(
    "moment",
    [
        "writing partition 3 of 5",
        "before the old state is kept",
        "before the manifest is replaced",
        "after the manifest is replaced",
    ],
)
def test_killed_at_any_moment_no_row_is_lost_and_the_next_write_cleans_up(
    tmp_path: Path, moment: str
) -> None:
    shuffle(PARTS[0], tmp_path / "sales", partitions=5)
    grown = append(PARTS[1], tmp_path / "sales")
    rows = rows_in_any_order(pa.concat_tables(PARTS[:2]))
    words = [sys.executable, "-c", VICTIM, str(grown.directory), moment]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    found = read_manifest(grown.directory)
    assert (found == grown) is (moment != "after the manifest is replaced")
    assert rows_in_any_order(stored_rows(found)) == rows
    layout = append(PARTS[2], grown.directory)
    assert layout.row_count == sum(map(len, PARTS))
    assert_tidy(layout)
