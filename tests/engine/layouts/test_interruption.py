"""A write that fails, is stopped or is killed leaves the old layout or none, and the next one cleans up."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import duckdb
import pytest
from relaqs_engine.duck import translated_errors
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts import Layout, add_static, read_manifest, shuffle, verify
from relaqs_engine.layouts import partitions as partitions_module
from relaqs_engine.layouts import shuffling as one_pass_module
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Partition

# Runs a shuffle of seed 1 and kills itself: at a progress message, or around a step of publishing.
VICTIM = """
import os, signal, sys
from relaqs_engine.layouts import folder, shuffle

source, into, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def report(share, doing):
    if doing == moment:
        die()

if moment == "before the data is moved":
    folder._sync_directory = die
elif moment == "before the manifest is replaced":
    folder.write_manifest = die
elif moment == "after the manifest is replaced":
    write_manifest = folder.write_manifest
    folder.write_manifest = lambda layout: (write_manifest(layout), die())
shuffle(source, into, partitions=4, seed=1, force=True, progress=report)
"""
EARLY = ("opening the source", "reading", "writing partition 1 of 4", "counting distinct values")
MOMENTS = [
    *(pytest.param(moment, marks=pytest.mark.slow) for moment in EARLY),
    "writing partition 3 of 4",
    "before the data is moved",
    "before the manifest is replaced",
]
"""When nothing of the new layout may show yet."""
AFTER = "after the manifest is replaced"


def kill_a_shuffle(source: Path, into: Path, moment: str) -> None:
    ended = subprocess.run([sys.executable, "-c", VICTIM, str(source), str(into), moment], check=False)
    assert ended.returncode == -signal.SIGKILL


def assert_tidy(layout: Layout) -> None:
    """Nothing but the manifest and the folder it names is in the table's folder, and all of it is sound."""
    assert {path.name for path in layout.directory.iterdir()} == {MANIFEST_NAME, layout.paths[0].parent.name}
    assert verify(layout.directory).ok


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_without_an_old_layout_there_is_none_and_the_next_write_works(
    lines_file: Path, tmp_path: Path, moment: str
) -> None:
    into = tmp_path / "t"
    kill_a_shuffle(lines_file, into, moment)
    assert not (into / MANIFEST_NAME).exists()
    assert_tidy(shuffle(lines_file, into, partitions=4))


@pytest.mark.parametrize("moment", ["writing partition 3 of 4", "before the manifest is replaced", AFTER])
def test_killed_while_replacing_there_is_the_old_layout_or_the_new_one(
    lines_file: Path, tmp_path: Path, moment: str
) -> None:
    into = tmp_path / "t"
    old = shuffle(lines_file, into, partitions=3)
    kill_a_shuffle(lines_file, into, moment)
    found = read_manifest(into)
    assert (found == old) is (moment != AFTER)
    assert verify(into).ok
    assert_tidy(shuffle(lines_file, into, partitions=4, force=True))


def test_interrupted_at_every_step_the_old_layout_stays(lines_file: Path, tmp_path: Path) -> None:
    into = tmp_path / "t"
    old = shuffle(lines_file, into, partitions=2)
    steps: list[str] = []
    shuffle(lines_file, tmp_path / "other", partitions=4, progress=lambda share, doing: steps.append(doing))
    assert len(steps) > 6
    for last in range(len(steps) - 1):  # the final report comes when the new layout is there
        left = last

        def interrupt(share: float, doing: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            shuffle(lines_file, into, partitions=4, force=True, progress=interrupt)
        assert read_manifest(into) == old
        assert_tidy(old)


def test_ctrl_c_while_duckdb_asks_python_for_rows_is_a_keyboard_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), translated_errors("COPY …"):
        raise duckdb.InvalidInputException(
            "Invalid Input Error: exporting a stream from the object 'x' failed: KeyboardInterrupt: "
        )


def test_ctrl_c_inside_duckdb_ends_as_a_keyboard_interrupt_and_leaves_nothing(tmp_path: Path) -> None:
    # An endless relation: DuckDB is busy with it until the signal comes, however late that is.
    script = """
import sys, duckdb
from relaqs_engine.layouts import shuffle
duckdb.execute("SET enable_progress_bar = false")
endless = duckdb.sql("SELECT a.range AS x FROM range(10000000) a, range(10000000) b")
print("reading", flush=True)
try:
    shuffle(endless, sys.argv[1])
except KeyboardInterrupt:
    print("stopped")
"""
    into = tmp_path / "warehouse" / "t"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(into)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    while not list(into.glob(".writing-*/source.parquet")):
        assert process.poll() is None, "it ended before it was interrupted"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == ("stopped\n", 0), errors
    assert not into.parent.exists()


def test_a_layout_is_not_overwritten_without_force(lines_file: Path, tmp_path: Path) -> None:
    old = shuffle(lines_file, tmp_path / "t", partitions=2)
    for write in (shuffle, add_static):
        with pytest.raises(LayoutError, match=r"holds a layout already; give force=True \(--force\)"):
            write(lines_file, tmp_path / "t")
    assert read_manifest(tmp_path / "t") == old
    new = add_static(lines_file, tmp_path / "t", force=True)
    assert_tidy(new)
    assert not old.paths[0].exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_with_other_things_in_it_is_left_alone(
    lines_file: Path, tmp_path: Path, force: bool
) -> None:
    precious = tmp_path / "t" / "data-20240101" / "precious.csv"
    precious.parent.mkdir(parents=True)
    precious.write_text("x")
    with pytest.raises(LayoutError, match=r"is not empty and holds no layout \(it has data-20240101\)"):
        shuffle(lines_file, tmp_path / "t", force=force)
    assert precious.read_text() == "x"


def test_a_table_cannot_be_put_where_a_file_is(lines_file: Path) -> None:
    with pytest.raises(LayoutError, match="cannot be made a table's folder: File exists"):
        shuffle(lines_file, lines_file)


def test_a_damaged_manifest_is_replaced_by_force_alone(lines_file: Path, tmp_path: Path) -> None:
    shuffle(lines_file, tmp_path / "t", partitions=2)
    (tmp_path / "t" / MANIFEST_NAME).write_text("{")
    with pytest.raises(LayoutError, match="holds a layout already"):
        shuffle(lines_file, tmp_path / "t")
    assert_tidy(shuffle(lines_file, tmp_path / "t", force=True, partitions=2))


def test_two_writers_do_not_meet_and_the_second_is_told(lines_file: Path, tmp_path: Path) -> None:
    refused: list[LayoutError] = []

    def write_too(share: float, doing: str) -> None:
        if doing == "reading":
            with pytest.raises(LayoutError, match="is being written by another process") as caught:
                shuffle(lines_file, tmp_path / "t")
            refused.append(caught.value)

    layout = shuffle(lines_file, tmp_path / "t", partitions=2, progress=write_too)
    assert refused
    assert_tidy(layout)


def test_a_disk_too_small_is_noticed_before_anything_is_written(
    lines_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    with pytest.raises(LayoutError, match=r"is full: about 17 MB are needed and 1 MB are free"):
        shuffle(lines_file, tmp_path / "t")
    assert not (tmp_path / "t").exists()


# Made in the test: an error that outlives it would hold what its traceback names, a connection among others.
FULL_DISK: tuple[Callable[[], Exception], ...] = (
    lambda: DataError('IO Error: Could not write file "x": No space left on device'),
    lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    lambda: OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
)


@pytest.mark.parametrize("failure", FULL_DISK)
@pytest.mark.parametrize("module", [one_pass_module, partitions_module])
def test_a_disk_that_fills_up_leaves_the_old_layout(
    lines_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Callable[[], Exception],
    module: ModuleType,
) -> None:
    old = shuffle(lines_file, tmp_path / "t", partitions=2)
    if module is partitions_module:  # DuckDB writes what the other way is not known to be right for
        monkeypatch.setattr(one_pass_module, "pieces_of", lambda source: None)
    settle: Callable[..., Partition] = module.settled

    def fill_the_disk(cursor: object, target: object, file: Path, *counts: object) -> Partition:
        if file.name == "part-00002.parquet":
            raise failure()
        return settle(cursor, target, file, *counts)

    monkeypatch.setattr(module, "settled", fill_the_disk)
    with pytest.raises(LayoutError, match=r"is full: .* had been written and .* are free; nothing was left"):
        shuffle(lines_file, tmp_path / "t", partitions=4, force=True)
    assert read_manifest(tmp_path / "t") == old
    assert_tidy(old)
