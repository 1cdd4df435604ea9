"""What a worker process keeps on disk between passes: partitions' rows that do not fit into memory.

They are decoded already. A pass maps them, which costs a tiny part of what reading them by DuckDB does. Where
they cannot be written or are damaged, the job reads by DuckDB as before, and a line in the log says so.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import weakref
from pathlib import Path

from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.executors.local_folder import FOLDER_VARIABLE, local_folder
from relaqs.memory import amount_bytes
from relaqs.training.blocks import SpilledBlock
from relaqs.training.kept import Kept
from relaqs.training.rows import Pieces, Rows
from relaqs.training.spill_file import SpillFile, TornError

LIMIT_VARIABLE = "RELAQS_SPILL_LIMIT"
"""The environment variable that says how many bytes a process may spill, such as 50GB. 0: none."""

FREE_SHARE = 1 / 20
MOST_FREE_BYTES = 10 << 30
"""So much of the disk is left free: this share of its size, and no more than these bytes."""

logger = logging.getLogger("relaqs.training")


class Spill:
    """Blocks by data and partition. Those of one data set are in one file. Safe to use from any thread."""

    def __init__(self) -> None:
        self._blocks: Kept[SpilledBlock] = Kept(lambda block: block.byte_count)
        self._lock = threading.Lock()
        self._files: weakref.WeakValueDictionary[str, SpillFile] = weakref.WeakValueDictionary()
        self._open: dict[str, set[str]] = {}  # the jobs of this process, by their data
        self._given_up: set[str] = set()  # jobs that spill no more

    @property
    def byte_count(self) -> int:
        return self._blocks.byte_count

    def open(self, job: str, data: str) -> None:
        """Keep what is spilled of some data until this job is closed, if it is used meanwhile."""
        with self._lock:
            self._open.setdefault(data, set()).add(job)

    def close(self, job: str, data: str) -> None:
        """Let go what is spilled of a job's data, if no other job of this process is open for it."""
        with self._lock:
            self._given_up.discard(job)
            jobs = self._open.get(data, set())
            jobs.discard(job)
            if not jobs:
                self._open.pop(data, None)
                self._blocks.forget(data)

    def rows(self, job: str, data: str, partition: int, pieces: Pieces) -> Rows | None:
        """Return a partition's rows, to be used for these pieces alone. None: they have to be read anew."""
        block = self._blocks.get(data, partition)
        if block is None or not block.is_written:
            return None
        try:
            return block.rows(pieces.of(len(block)))
        except TornError as error:
            self._give_up(job, data, f"a spilled partition is damaged: {error}")
            return None

    def put(self, job: str, data: str, partition: int, rows: Rows) -> bool:
        """Write a partition's rows, if there is room for them. Return whether they are there now."""
        if (block := self._blocks.get(data, partition)) is not None:
            return block.is_written
        limit = limit_bytes()
        if limit == 0 or job in self._given_up:
            return False
        if (folder := local_folder()) is None:
            self._stop(job, f"all folders for temporary files are in memory; set {FOLDER_VARIABLE}")
            return False
        try:
            return self._write(job, data, partition, rows, folder, limit)
        except OSError as error:
            self._give_up(job, data, f"{folder} cannot be written: {error.strerror or error}")
            return False

    def _write(
        self, job: str, data: str, partition: int, rows: Rows, folder: Path, limit: int | None
    ) -> bool:
        room = self.byte_count + free_bytes(folder)
        block = SpilledBlock(rows)
        if self._blocks.put(data, partition, block, room if limit is None else min(room, limit)):
            block.write(self._file_of(data, folder), rows)
            return True
        if limit is not None and limit <= room:
            self._stop(job, f"{LIMIT_VARIABLE} is {limit / 1e9:.3g} GB, which is used up")
        else:
            self._stop(job, f"the disk of {folder} is nearly full")
        return False

    def _file_of(self, data: str, folder: Path) -> SpillFile:
        with self._lock:
            file = self._files.get(data)
            if file is None:
                file = self._files[data] = SpillFile(folder)
            return file

    def _give_up(self, job: str, data: str, reason: str) -> None:
        """Let go all that is spilled of some data, which this job does not spill again."""
        self._blocks.forget(data)
        self._stop(job, reason)

    def _stop(self, job: str, reason: str) -> None:
        with self._lock:
            is_first = job not in self._given_up
            self._given_up.add(job)
        if is_first:
            logger.warning("the training run %s reads its rows again in each pass: %s", job, reason)


def free_bytes(folder: Path) -> int:
    """Return how many bytes may be written to a folder, so that enough of its disk is left free."""
    disk = shutil.disk_usage(folder)
    return disk.free - min(int(FREE_SHARE * disk.total), MOST_FREE_BYTES)


def limit_bytes() -> int | None:
    """Return how many bytes a process may spill. None: anything that the disk has. Raises DataError."""
    if not (text := os.environ.get(LIMIT_VARIABLE)):
        return None
    try:
        return amount_bytes(text)
    except ArgumentError:
        raise DataError(f"{LIMIT_VARIABLE} is {text!r}; it must be a size, such as 50GB, or 0") from None


SPILL = Spill()
