"""Threads make a layout sooner, never another one; and nothing of theirs outlives a failure."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine import layouts
from relaqs_engine.layouts import read_manifest, verify

import relaqs
from relaqs.executors.spreading import on_threads, shuffle

ROWS = 60_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(6)
    columns = {
        "key": np.repeat(np.arange(ROWS // 3), 3),
        "price": pa.array(rng.gamma(2.0, 50.0, ROWS), mask=rng.random(ROWS) < 0.1),
        "mode": rng.choice(["AIR", "RAIL", "SHIP", "MAIL"], ROWS),
        "text": [f"some text {i * i}" for i in range(ROWS)],
    }
    path = tmp_path_factory.mktemp("source") / "lines.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1_700)
    return path


@pytest.mark.parametrize("key", [None, "key"])
def test_the_bytes_are_the_same_for_any_number_of_threads(
    source: Path, tmp_path: Path, key: str | None
) -> None:
    alone = layouts.shuffle(source, tmp_path / "alone", partitions=9, cluster_by=key, threads=1)
    for threads in (1, 2, 4):
        layout = shuffle(source, tmp_path / str(threads), partitions=9, cluster_by=key, threads=threads)
        assert [p.contents for p in layout.partitions] == [p.contents for p in alone.partitions]
        assert layout.columns == alone.columns
        assert layout.outliers == alone.outliers or layout.outliers.contents == alone.outliers.contents  # type: ignore[union-attr]


def test_it_works_on_threads_of_its_own(source: Path, tmp_path: Path) -> None:
    names: set[str] = set()

    def note(share: float, doing: str) -> None:
        names.update(thread.name for thread in threading.enumerate())

    shuffle(source, tmp_path / "t", partitions=3, threads=2, progress=note)
    assert {name for name in names if name.startswith("relaqs-layout")} == {
        "relaqs-layout_0",
        "relaqs-layout_1",
    }
    assert not [each for each in threading.enumerate() if each.name.startswith("relaqs-layout")]


def test_the_program_and_its_users_get_threads() -> None:
    assert relaqs.shuffle is shuffle
    assert inspect.signature(shuffle) == inspect.signature(layouts.shuffle)
    assert shuffle.__doc__ == layouts.shuffle.__doc__


def test_work_comes_back_in_order_and_never_more_than_asked_for_is_under_way() -> None:
    under_way, most_seen, lock = 0, 0, threading.Lock()
    barrier = threading.Barrier(2)

    def work(item: int) -> int:
        nonlocal under_way, most_seen
        with lock:
            under_way += 1
            most_seen = max(most_seen, under_way)
        if item < 2:
            barrier.wait(timeout=30)  # two are at work at once
        with lock:
            under_way -= 1
        return item * item

    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(20):
            taken.append(i)
            yield i

    with on_threads(4) as spread:
        done = []
        for made in spread(work, items(), 2):
            done.append(made)
            assert len(taken) <= len(done) + 2
    assert done == [i * i for i in range(20)]
    assert most_seen == 2


def test_an_error_comes_in_its_turn_and_nothing_is_at_work_after_it() -> None:
    begun, released = threading.Event(), threading.Event()
    ended: list[int] = []

    def work(item: int) -> int:
        if item == 1:
            begun.wait(timeout=30)
            raise ValueError("item 1")
        if item == 2:
            begun.set()
            released.wait(timeout=30)
        ended.append(item)
        return item

    with on_threads(3) as spread:
        results = spread(work, range(30), 30)
        assert next(results) == 0
        threading.Timer(0.05, released.set).start()
        with pytest.raises(ValueError, match="item 1"):
            next(results)
        assert 2 in ended
        count = len(ended)
        assert count < 29
        assert list(results) == []
        assert len(ended) == count


# Lays a table out on two threads and kills or interrupts itself at a progress message.
VICTIM = """
import os, signal, sys
from relaqs.executors.spreading import shuffle

source, into, moment, sent = sys.argv[1:]

def report(share, doing):
    if doing == moment:
        os.kill(os.getpid(), int(sent))

try:
    shuffle(source, into, partitions=6, seed=1, force=True, threads=2, progress=report)
except KeyboardInterrupt:
    sys.exit(130)
"""


def stopped(source: Path, into: Path, moment: str, by: signal.Signals) -> int:
    words = [sys.executable, "-c", VICTIM, str(source), str(into), moment, str(int(by))]
    return subprocess.run(words, check=False).returncode


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("sorting rows", marks=pytest.mark.slow),
        pytest.param("writing partition 1 of 6", marks=pytest.mark.slow),
        "writing partition 5 of 6",
    ],
)
def test_killed_or_interrupted_in_the_middle_the_old_layout_stays(
    source: Path, tmp_path: Path, moment: str
) -> None:
    into = tmp_path / "t"
    old = shuffle(source, into, partitions=2)

    def names() -> set[str]:
        return {path.name for path in into.iterdir()}

    tidy = names()
    assert stopped(source, into, moment, signal.SIGINT) == 130
    assert names() == tidy
    assert stopped(source, into, moment, signal.SIGKILL) == -signal.SIGKILL
    assert read_manifest(into) == old
    assert verify(into).ok
    new = shuffle(source, into, partitions=4, force=True)
    assert {path.name for path in into.iterdir()} == {"manifest.json", new.paths[0].parent.name}


def test_a_write_that_fails_is_one_clear_error_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    """A file may grow to 20 kB here and no further, in a process of its own."""
    script = (
        "import resource, signal, sys\n"
        "from relaqs.executors.spreading import shuffle\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "shuffle(sys.argv[1], sys.argv[2], partitions=2, threads=2)\n"
    )
    words = [sys.executable, "-c", script, str(source), str(tmp_path / "t")]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "LayoutError" in ended.stderr
    assert "File too large" in ended.stderr
    assert not (tmp_path / "t").exists()
