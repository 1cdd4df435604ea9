"""One thing in the cache, a layout or a copy; and what lies in a folder of the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.cached_files import (
    LAYOUT,
    RECORD_NAME,
    STAGED,
    SourceRecord,
    SourceState,
    absolute,
    size_in_words,
)
from relaqs_engine.layouts.folder import locked, sweep
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from relaqs_engine.layouts.manifest_file import read_manifest

EntryKind = Literal["layout", "copy", "other"]

_KINDS: dict[str, EntryKind] = {LAYOUT: "layout", STAGED: "copy"}


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A layout in the cache, or a copy of files that cannot be read where they lie.

    Attributes:
        path: its folder.
        kind: "layout"; "copy", also of what was fetched of an object store; or "other" for what another
            version of ReLAQS made.
        names: the absolute paths and patterns that its source was opened by.
        state: "current" if the source is as it was when this was made. "changed" or "gone" if it is not: then
            no new session reads this. "unknown" if it is not known what the source was. "far" if it lies in
            an object store or on a web server, which was not asked.
        row_count: its rows, None where they cannot be read.
        byte_count: what it takes on disk.
        made_at: when it was made.
        used_at: when it was last used.
        is_in_use: whether a session that is open now reads it.
    """

    path: Path
    kind: EntryKind
    names: tuple[str, ...]
    state: SourceState
    row_count: int | None
    byte_count: int
    made_at: datetime
    used_at: datetime
    is_in_use: bool

    @property
    def is_stale(self) -> bool:
        """Whether no new session will read it."""
        return self.state not in ("current", "far")

    @property
    def is_far(self) -> bool:
        """Whether this was fetched of an object store or a web server."""
        return self.state == "far"

    @property
    def source(self) -> str:
        """Return what its source was called when it was opened first."""
        return self.names[0].replace("\n", ", ") if self.names else "an unknown source"

    @property
    def in_words(self) -> str:
        """Return what it is, for people."""
        return f"{self.kind} of {self.source} ({size_in_words(self.byte_count)})"

    def is_called(self, name: str) -> bool:
        """Whether people mean this by a name: of its file, or a path of its source or of its own."""
        if self.is_far:
            return name.rstrip("/") in {*map(_table_name, self.names), *self.names, str(self.path)}
        home = self.path if self.kind == "other" else self.path.parent
        own = (home.name, home.name.rpartition("-")[0], str(home), str(self.path))
        path = absolute(name)
        return bool({name, path} & {*own, *self.names}) or any(
            each.startswith(f"{path}:") for each in self.names
        )


def _table_name(address: str) -> str:
    return address.rpartition("/")[2].partition(".")[0]


def tidy(home: Path) -> None:
    """Remove what is of no use in a folder of the cache, and the folder if there is nothing else in it.

    Only for whoever holds the folder's lock.
    """
    layout = home / LAYOUT
    if (layout / MANIFEST_NAME).is_file():
        with suppress(LayoutError), locked(layout, wait=False):
            sweep(layout)
    else:
        shutil.rmtree(layout, ignore_errors=True)
    for entry in home.glob(".*"):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
    if {entry.name for entry in home.iterdir()} <= {RECORD_NAME}:
        shutil.rmtree(home, ignore_errors=True)


def has_rubbish(home: Path) -> bool:
    names = set(os.listdir(home))
    if any(name.startswith(".") for name in names) or names <= {RECORD_NAME}:
        return True
    if LAYOUT not in names:
        return False
    inside = os.listdir(home / LAYOUT)
    return MANIFEST_NAME not in inside or len(inside) > 2  # beside the manifest, the one folder that it names


def entries_in(home: Path) -> Iterator[CacheEntry]:
    """Yield what a folder of the cache holds. What another process removes meanwhile is left out."""
    record = SourceRecord.read(home)
    names = {LAYOUT, STAGED} & set(os.listdir(home))
    if record is None and not names and not has_rubbish(home):
        yield _entry(home, "other", None)
    for name in sorted(names):
        if name == STAGED or (home / LAYOUT / MANIFEST_NAME).is_file():
            with suppress(FileNotFoundError):
                yield _entry(home / name, _KINDS[name], record)


def _entry(path: Path, kind: EntryKind, record: SourceRecord | None) -> CacheEntry:
    files = [file.stat() for file in path.rglob("*") if file.is_file()]
    return CacheEntry(
        path,
        kind,
        record.names if record else (),
        record.state if record else "unknown",
        _row_count(path, kind),
        sum(state.st_size for state in files),
        time_of(max((state.st_mtime for state in files), default=0.0)),
        time_of(path.stat().st_mtime),
        _is_in_use(path),
    )


def _row_count(path: Path, kind: EntryKind) -> int | None:
    import pyarrow as pa  # whoever only asks a question does not need them
    import pyarrow.parquet as pq

    if kind == "other":
        return None
    try:
        if kind == "layout":
            return read_manifest(path).row_count
        return sum(int(pq.read_metadata(file).num_rows) for file in path.glob("*.parquet"))
    except (LayoutError, OSError, pa.ArrowException):
        return None


def _is_in_use(path: Path) -> bool:
    try:
        with locked(path, wait=False):
            return False
    except LayoutError:
        return True


def time_of(seconds: float) -> datetime:
    """Return a time of the system in this place's time zone."""
    return datetime.fromtimestamp(seconds).astimezone()
