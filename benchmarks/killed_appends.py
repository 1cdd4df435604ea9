"""Appends that are killed at random moments: `python -m benchmarks.killed_appends --kills 100`.

Each batch is appended by a process of its own, under a name. Some of these processes are killed after a
random time. The batch is then tried again, until it is in. At no moment may the table have half a batch. At
the end every row must be there exactly once, in both layouts of the table.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
from relaqs_engine.layouts import read_manifest, shuffle, verify

ROWS, BATCH_ROWS = 20_000, 200
_APPEND = "import sys; from relaqs_engine.layouts import append; append(*sys.argv[1:3], batch=sys.argv[3])"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        kills: processes that were killed before they had ended.
        had_switched: how many of these had appended their batch.
        lost: rows that are not there.
        doubled: rows that are there and should not be.
        is_sound: whether `verify` finds nothing.
    """

    kills: int
    had_switched: int
    lost: int
    doubled: int
    is_sound: bool


def killed_appends(folder: Path, appends: int, kills: int, seed: int = 0) -> Outcome:
    """Return what came of so many appends with so many kills in between. folder: to work in."""
    draws, into = random.Random(seed), folder / "trips"
    files = [_batch(folder / f"{i}.parquet", ROWS + i * BATCH_ROWS, BATCH_ROWS) for i in range(appends)]
    first = _batch(folder / "first.parquet", 0, ROWS)
    shuffle(first, into, partitions=10, cluster_by="driver")
    shuffle(first, folder / "trips@row", partitions=5)
    took_seconds, killed, had_switched = 1.0, 0, 0
    for i, file in enumerate(files):
        due = kills * (i + 1) // appends - kills * i // appends
        while due or read_manifest(into).row_count == ROWS + i * BATCH_ROWS:
            began = time.perf_counter()
            delay = draws.uniform(0.0, 1.2 * took_seconds) if due else None
            if _append(file, into, f"batch {i}", delay):
                took_seconds = time.perf_counter() - began
            else:
                killed += 1
                had_switched += _has(into, i)
            due -= due > 0
            assert read_manifest(into).row_count in (ROWS + i * BATCH_ROWS, ROWS + (i + 1) * BATCH_ROWS)
    lost, doubled = _differences([first, *files], into)
    also = _differences([first, *files], folder / "trips@row")
    return Outcome(killed, had_switched, lost + also[0], doubled + also[1], verify(folder).ok)


def _batch(path: Path, start: int, count: int) -> Path:
    numbers = f"range({start}, {start + count}) AS t(i)"
    sql = f"SELECT i AS id, hash(i) % 700 AS driver, hash(i, 1) % 1000 / 10.0 AS fare FROM {numbers}"
    duckdb.sql(sql).write_parquet(str(path))
    return path


def _append(file: Path, into: Path, batch: str, kill_after_seconds: float | None) -> bool:
    """Append in a process of its own. Return whether it ended before it was killed."""
    process = subprocess.Popen([sys.executable, "-c", _APPEND, str(file), str(into), batch])
    try:
        return process.wait(kill_after_seconds) == 0
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        return process.wait() == 0


def _has(into: Path, batch: int) -> bool:
    return f"batch {batch}" in read_manifest(into).batches


def _differences(files: list[Path], into: Path) -> tuple[int, int]:
    """Return how many rows the table lacks, and how many it has too many."""
    stored = f"SELECT id, driver, fare FROM read_parquet({[str(path) for path in read_manifest(into).paths]})"
    given = f"FROM read_parquet({[str(file) for file in files]})"
    ((lost,),) = duckdb.sql(f"SELECT count(*) FROM (({given}) EXCEPT ALL ({stored}))").fetchall()
    ((doubled,),) = duckdb.sql(f"SELECT count(*) FROM (({stored}) EXCEPT ALL ({given}))").fetchall()
    return lost, doubled


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=50)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(killed_appends(Path(folder), options.appends, options.kills, options.seed))


if __name__ == "__main__":
    main()
