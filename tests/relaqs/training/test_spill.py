"""Rows on disk between passes: the same bits as in memory, read once by DuckDB, and never a wrong row."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import relaqs.training.launch
import relaqs.training.row_cache
from relaqs import Session, connect
from relaqs.executors.files import FOLDER_VARIABLE, is_in_memory, local_folder
from relaqs.training import BoostedClassifier, KMeans, LogisticRegression, TrainingJob
from relaqs.training.row_cache import KEPT, LIMIT_VARIABLE, SPILL, Spill, SpilledBlock, SpillFile, TornError
from relaqs.training.rows import ALL, PartitionRead, Pieces, Rows
from tests.relaqs.training.conftest import PARTITIONS

JOBS: list[TrainingJob] = [
    KMeans("SELECT * EXCLUDE (y) FROM wine", clusters=5, tolerance=0),
    BoostedClassifier("SELECT * FROM wine_text", "y", trees=3, depth=2),
    LogisticRegression("SELECT * FROM wine", "y"),
]
ROWS = Rows(np.random.default_rng(0).normal(size=(5000, 60)), np.arange(5000))
TARGETS = [np.arange(40), np.linspace(0, 1, 40), np.arange(40) % 3 == 0, np.array(["barolo", "ü"] * 20), None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def db(training_warehouse: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session that can keep no rows in memory."""
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", 0.0)
    KEPT.drop_unused_since(float("inf"))
    with connect(training_warehouse, threads=2) as session:
        yield session


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DuckDB was asked to read, a digest for each partition."""
    found: list[str] = []
    read_rows = PartitionRead.rows

    def rows(self: PartitionRead, owner: str) -> Rows:
        found.append(self.digest)
        return read_rows(self, owner)

    monkeypatch.setattr(PartitionRead, "rows", rows)
    return found


@pytest.fixture(scope="module")
def expected(training_warehouse: Path) -> list[tuple[float, ...]]:
    """The losses of each job where all rows are in memory."""
    with connect(training_warehouse, threads=2) as db:
        return [losses(db, job) for job in JOBS]


def losses(db: Session, job: TrainingJob) -> tuple[float, ...]:
    run = db.train(job, max_steps=8)
    run.result()
    return run.losses


@contextmanager
def files_of_at_most(byte_count: int) -> Iterator[None]:
    """Let the system refuse larger files: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def same(one: Rows, other: Rows) -> bool:
    if one.features.tobytes() != other.features.tobytes():
        return False
    if one.target is None or other.target is None:
        return one.target is other.target
    return one.target.dtype == other.target.dtype and one.target.tobytes() == other.target.tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_mapped_is_what_was_written(tmp_path: Path, target: np.ndarray | None) -> None:
    rows = Rows(np.random.default_rng(1).normal(size=(40, 3)), target)
    file = SpillFile(tmp_path)
    blocks = [SpilledBlock(each) for each in (rows, rows.part(slice(7)), rows.part(slice(0)))]
    for block, each in zip(blocks, (rows, rows.part(slice(7)), rows.part(slice(0))), strict=True):
        block.write(file, each)
        assert same(block.rows(ALL.of(len(block))), each)
    part = Pieces(8, 3, 5).of(40)
    assert same(blocks[0].rows(part).part(part), rows.part(slice(15, 25)))
    assert not blocks[0].rows(part).features.flags.writeable


def test_a_damaged_chunk_is_found_by_those_who_read_it(tmp_path: Path) -> None:
    file, block = SpillFile(tmp_path), SpilledBlock(ROWS)
    block.write(file, ROWS)
    damage(file, at=ROWS.features.nbytes - 5000)  # the tenth row from the end
    assert same(block.rows(slice(0, 2000)), block.rows(slice(0, 2000)))
    with pytest.raises(TornError, match="not those that were written"):
        block.rows(slice(4000, 5000))


def damage(file: SpillFile, at: int, bits: int = 1) -> None:
    """Turn bits of one byte. The same call again turns them back."""
    handle = file._file.fileno()
    byte = os.pread(handle, 1, at)
    os.pwrite(handle, bytes([byte[0] ^ bits]), at)


@pytest.mark.parametrize("bits", [1, 128, 255])
def test_every_damaged_byte_is_found(tmp_path: Path, bits: int) -> None:
    """In the head and in the values. Where the rows are the same all the same, it was padding."""
    rows = ROWS.part(slice(1))
    file, block = SpillFile(tmp_path), SpilledBlock(rows)
    block.write(file, rows)
    harmless = 0
    for at in range(os.fstat(file._file.fileno()).st_size):
        damage(file, at, bits)
        try:
            assert same(block.rows(ALL.of(1)), rows)
            harmless += 1
        except TornError:
            pass
        damage(file, at, bits)
    assert harmless < 200


@pytest.mark.parametrize("left_bytes", [0, 100, 1_000_000])
def test_a_file_that_was_cut_is_found(tmp_path: Path, left_bytes: int) -> None:
    file, block = SpillFile(tmp_path), SpilledBlock(ROWS)
    block.write(file, ROWS)
    os.ftruncate(file._file.fileno(), left_bytes)
    with pytest.raises(TornError, match=f"{left_bytes} bytes are left"):
        block.rows(slice(0, 1))


def test_after_damage_the_job_spills_no_more_and_others_do(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spill = Spill()
    for partition in range(3):
        spill.put("run", "data", partition, ROWS)
    damage(spill._files["data"], at=10_000)
    assert spill.rows("run", "data", 0, ALL) is None
    assert spill.rows("run", "data", 1, ALL) is None
    spill.put("run", "data", 0, ROWS)
    assert spill.byte_count == 0
    assert caplog.text.count("a spilled partition is damaged") == 1
    spill.put("other", "data", 0, ROWS)
    found = spill.rows("run", "data", 0, ALL)
    assert found is not None
    assert same(found, ROWS)


def test_files_go_with_the_last_run_that_is_open_for_their_data(folder: Path) -> None:
    spill = Spill()
    for run in ("one", "two"):
        spill.open(run, "data")
    spill.put("one", "data", 0, ROWS)
    handle = spill._files["data"]._file.fileno()
    assert os.fstat(handle).st_size > ROWS.features.nbytes
    assert list(folder.iterdir()) == []
    spill.close("one", "data")
    assert spill.rows("two", "data", 0, ALL) is not None
    spill.close("two", "data")
    gc.collect()
    assert spill.byte_count == 0
    assert not spill._files


def test_threads_that_write_and_read_at_once_have_whole_rows(folder: Path) -> None:
    spill = Spill()
    parts = [ROWS.part(slice(100 * number, 100 * number + 700)) for number in range(40)]

    def found(turn: int) -> Rows:
        number = turn * 7 % len(parts)  # each partition again and again, by several threads
        spill.put("run", "data", number, parts[number])
        rows = spill.rows("run", "data", number, ALL)
        return parts[number] if rows is None else rows  # None: another thread is writing it

    with ThreadPoolExecutor(8) as pool:
        everything = list(pool.map(found, range(400)))
    assert all(same(rows, parts[turn * 7 % len(parts)]) for turn, rows in enumerate(everything))
    assert all(spill.rows("run", "data", number, ALL) is not None for number in range(40))


@pytest.mark.parametrize("job", range(len(JOBS)))
def test_duckdb_reads_once_and_the_losses_are_the_same_bits(
    db: Session, folder: Path, reads: list[str], expected: list[tuple[float, ...]], job: int
) -> None:
    assert losses(db, JOBS[job]) == expected[job]
    assert len(reads) == len(set(reads)) == PARTITIONS
    assert SPILL.byte_count == 0
    assert list(folder.iterdir()) == []


def test_pieces_of_a_spilled_partition_are_tasks_of_their_own(
    db: Session, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaqs.training.passes, "PIECE_ROWS", 8)  # four pieces of each partition
    monkeypatch.setattr(relaqs.training.passes, "TASK_SECONDS", 1e-9)
    monkeypatch.setattr(relaqs.training.row_cache, "_CHUNK_BYTES", 1 << 9)
    KEPT.drop_unused_since(float("inf"))
    cut = losses(db, JOBS[0])
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", 0.5)
    assert cut == losses(db, JOBS[0])
    assert len(reads) == 2 * PARTITIONS


def test_with_a_limit_of_zero_nothing_is_spilled(
    db: Session,
    reads: list[str],
    expected: list[tuple[float, ...]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    assert losses(db, JOBS[0]) == expected[0]
    assert len(reads) == (1 + len(expected[0])) * PARTITIONS
    assert not caplog.records


def no_folder(folder: Path) -> None:
    folder.rmdir()


def small_limit(folder: Path) -> None:
    os.environ[LIMIT_VARIABLE] = "200kB"  # two partitions of seven


@pytest.mark.parametrize(
    ("fault", "said"),
    [(no_folder, "cannot be written: No such file"), (small_limit, "RELAQS_SPILL_LIMIT is 0.0002 GB")],
)
def test_what_cannot_be_spilled_is_read_again_and_said_once(
    db: Session,
    folder: Path,
    reads: list[str],
    expected: list[tuple[float, ...]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Callable[[Path], None],
    said: str,
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "1GB")
    fault(folder)
    assert losses(db, JOBS[1]) == expected[1]
    assert len(reads) > 8 * 4
    assert [said in message for message in caplog.messages] == [True]


def test_a_disk_that_is_full_costs_time_and_no_row(
    db: Session, reads: list[str], expected: list[tuple[float, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    with files_of_at_most(8000):  # two partitions of wine
        assert losses(db, JOBS[0]) == expected[0]
    assert len(reads) >= len(expected[0]) * PARTITIONS
    assert [message for message in caplog.messages if "cannot be written: File too large" in message]
    assert len(caplog.messages) == 1
    assert losses(db, JOBS[0]) == expected[0]  # another run spills again
    assert len(caplog.messages) == 1


def test_a_disk_is_never_filled(
    db: Session, reads: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relaqs.training.row_cache, "FREE_SHARE", 1.0)
    monkeypatch.setattr(relaqs.training.row_cache, "MOST_FREE_BYTES", 1 << 60)
    passes = len(losses(db, JOBS[0]))
    assert len(reads) == (1 + passes) * PARTITIONS
    assert ["is nearly full" in message for message in caplog.messages] == [True]


def test_a_limit_that_is_no_size_is_refused_before_it_trains(
    db: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "a lot")
    with pytest.raises(relaqs.DataError, match="RELAQS_SPILL_LIMIT is 'a lot'; it must be a size"):
        db.train(JOBS[0])


TRAINS = """
import sys, time
import relaqs, relaqs.training.launch
from relaqs.training import LogisticRegression
from relaqs.training.row_cache import SPILL

relaqs.training.launch.KEPT_SHARE = 0.0
db = relaqs.connect(sys.argv[1], threads=1)
run = db.train(LogisticRegression("SELECT * FROM wine", target="y", tolerance=1e-13))
while len(run.losses) < 2:
    time.sleep(0.01)
run.pause()
print(SPILL.byte_count, flush=True)
time.sleep(60)
"""


def opened_by(process: int) -> list[str]:
    """Return the files that a process has open. Its last pass may open and close some meanwhile."""
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(entry))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not seen here")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_process_that_ends(
    folder: Path, training_warehouse: Path, signal_number: signal.Signals
) -> None:
    words = [sys.executable, "-c", TRAINS, str(training_warehouse)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 40_000
        opened = opened_by(process.pid)
        assert [path for path in opened if path.startswith(str(folder)) and path.endswith("(deleted)")]
        assert list(folder.iterdir()) == []
        process.send_signal(signal_number)
        assert process.wait() != 0
    assert list(folder.iterdir()) == []


def test_folders_in_memory_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or not is_in_memory(shared):
        pytest.skip("there is no folder in memory here")
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    assert local_folder() != shared
    monkeypatch.setenv(FOLDER_VARIABLE, str(shared))  # who names it, means it
    assert local_folder() == shared
