"""Checkpoints: the state of a running query in a file, so that it goes on from there after its process died.

A file belongs to one query over one state of the data: what it was made for is in it, and anything else is
not taken. Written aside and renamed, so a crash leaves the old state or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import DUCKDB_VERSION
from relaqs_engine.errors import RelaqsError
from relaqs_engine.plans.plan import OnlinePlan

from relaqs.jobs.job import Job
from relaqs.queries.options import QueryOptions

if TYPE_CHECKING:
    from relaqs.queries.folded import FoldedQueryJob, SavedState

FORMAT = 2  # 2: a checksum before the state
SECONDS_BETWEEN = 2.0
LARGEST_BYTES = 64 << 20  # of partial rows: a larger state is not kept, reading again is about as fast
LARGEST_SHARE = 0.05  # of a query's time that may go into keeping its state
_KEY = b"relaqs"
_MAGIC = b"relaqs checkpoint 2\n"
_MAGIC_BEFORE = b"ARROW1"  # of format 1, without a checksum
_BEGIN = len(_MAGIC) + hashlib.sha256().digest_size  # of the state, in the file


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a checkpoint holds. elapsed_seconds: that the query had run."""

    state: SavedState
    elapsed_seconds: float


class Checkpoint:
    """Keeps the state of one query. identity: of the query and its data, see `query_identity`.

    clock: in seconds. Used by one thread at a time.
    """

    def __init__(self, path: Path, identity: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._identity = identity
        self._clock = clock
        self._due_seconds = clock() + SECONDS_BETWEEN

    def load(self) -> Resumed | None:
        """Return what was kept; None where nothing was, or it is of another query, data or version.

        A damaged file is not taken either, and a warning names it.
        """
        from relaqs.queries.folded import SavedState

        try:
            content = self._path.read_bytes()
        except OSError:
            return None
        if content.startswith(_MAGIC_BEFORE):
            return None
        if content[:_BEGIN] != _MAGIC + hashlib.sha256(content[_BEGIN:]).digest():
            warnings.warn(f"{self._path} is a damaged checkpoint; the query begins anew", stacklevel=2)
            return None
        with pa.ipc.open_file(content[_BEGIN:]) as reader:
            rows = reader.read_all()
        entries = json.loads(rows.schema.metadata[_KEY])
        if entries.get("format") != FORMAT or entries.get("identity") != self._identity:
            return None
        state = SavedState(
            entries["folded"],
            rows.replace_schema_metadata(None),
            np.array(entries["block_rows"], dtype=np.int64),
        )
        return Resumed(state, entries["elapsed_seconds"])

    def is_due(self) -> bool:
        return self._clock() >= self._due_seconds

    def save(self, state: SavedState | None, elapsed_seconds: float) -> None:
        """Keep the state, unless there is none, it is too large, or the disk does not take it."""
        if state is None or state.rows.nbytes > LARGEST_BYTES:
            return
        started = self._clock()
        entries = {
            "format": FORMAT,
            "identity": self._identity,
            "folded": state.folded,
            "block_rows": state.block_rows.tolist(),
            "elapsed_seconds": elapsed_seconds,
        }
        rows = state.rows.replace_schema_metadata({_KEY: json.dumps(entries).encode()})
        draft = self._path.with_name(f".{self._path.name}-{os.getpid()}")
        try:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            kept = sink.getvalue()
            with draft.open("wb") as file:
                file.writelines((_MAGIC, hashlib.sha256(kept).digest(), kept))
            draft.replace(self._path)
        except OSError:
            draft.unlink(missing_ok=True)  # a query is not to fail because it cannot be saved
        took = self._clock() - started
        self._due_seconds = self._clock() + max(SECONDS_BETWEEN, took / LARGEST_SHARE)


class Keeper:
    """Keeps a job's state in a checkpoint while it runs; does nothing where there is no state or no file."""

    def __init__(self, job: FoldedQueryJob | None, checkpoint: Checkpoint | None) -> None:
        self._job = job
        self._checkpoint = checkpoint

    @classmethod
    def of(
        cls, job: Job, plan: OnlinePlan, catalog: Catalog, options: QueryOptions, path: str | Path | None
    ) -> Keeper:
        """Return the keeper of a job's state. Raises RelaqsError if the file's folder is not there."""
        if path is None:
            return cls(None, None)
        from relaqs.queries.folded import FoldedQueryJob

        if not isinstance(job, FoldedQueryJob):
            return cls(None, None)
        identity = query_identity(plan, catalog, options.seed, options.batches)
        return cls(job, Checkpoint(checked_path(path), identity))

    def resume(self) -> float:
        """Let the job go on from what was kept; return the seconds that it had run."""
        if self._checkpoint is None or self._job is None or (kept := self._checkpoint.load()) is None:
            return 0.0
        self._job.restore(kept.state)
        return kept.elapsed_seconds

    def keep_if_due(self, elapsed_seconds: float) -> None:
        if self._checkpoint is not None and self._checkpoint.is_due():
            self.keep(elapsed_seconds)

    def keep(self, elapsed_seconds: float) -> None:
        if self._checkpoint is not None and self._job is not None:
            with contextlib.suppress(RelaqsError):  # a query is not to fail because it cannot be saved
                self._checkpoint.save(self._job.saved(), elapsed_seconds)


def query_identity(plan: OnlinePlan, catalog: Catalog, seed: int, batches: int | None) -> str:
    """Return what tells a query over this state of its data from any other.

    The files of static tables are in the plan, in folders whose names are drawn anew at each write.
    """
    streams = sorted({stream.table for stream in plan.streams})
    files = [(name, [each.contents for each in catalog.table(name).partitions]) for name in streams]
    what = (replace(plan, sql=""), files, seed, batches, DUCKDB_VERSION)
    return hashlib.sha256(repr(what).encode()).hexdigest()


def checked_path(path: str | Path) -> Path:
    """Return the path. Raises RelaqsError if its folder is not there."""
    chosen = Path(path)
    if not chosen.parent.is_dir():
        raise RelaqsError(f"there is no folder {chosen.parent} to keep a checkpoint in; make it first")
    return chosen
