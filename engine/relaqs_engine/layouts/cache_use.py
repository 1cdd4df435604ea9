"""What a session uses of the cache. Nothing of it is removed meanwhile, by this process or by another.

A session holds a shared lock on each folder that it reads. Whoever removes a folder needs the lock alone. The
system drops the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from relaqs_engine.layouts.cached_files import CachedFiles, is_still
from relaqs_engine.layouts.file_state import change_in_words

_LOOK_SECONDS = 1.0


class CacheUse:
    """The folders of the cache that a session reads, and the files of the user's that they stand for."""

    def __init__(self) -> None:
        self._handles: dict[Path, int] = {}
        self._sources: dict[str, CachedFiles] = {}
        self._told: set[str] = set()
        self._looked_at = float("-inf")

    def hold(self, folder: Path) -> bool:
        """Keep a folder until `release`, and note that it was used now. Return whether it is there."""
        if folder not in self._handles:
            try:
                handle = os.open(folder, os.O_RDONLY)
            except FileNotFoundError:
                return False
            fcntl.flock(handle, fcntl.LOCK_SH)
            if not is_still(handle, folder) or self._handles.setdefault(folder, handle) != handle:
                os.close(handle)
        if is_there := folder in self._handles:
            _note_use(folder)
        return is_there

    def let_go(self, folder: Path) -> None:
        """Hold a folder no more."""
        if (handle := self._handles.pop(folder, None)) is not None:
            os.close(handle)

    def release(self) -> None:
        """Hold nothing any more."""
        for folder in list(self._handles):
            self.let_go(folder)

    def __del__(self) -> None:
        self.release()

    def stands_for(self, cached: CachedFiles) -> None:
        """Note that a table is read from the cache in the place of these files."""
        self._sources[cached.table] = cached
        self._told.discard(cached.table)

    def news(self, now_seconds: float) -> Iterator[str]:
        """Yield once, of each table that is read in the place of files that have changed since, what changed.

        The files are looked at once a second at most. now_seconds: on any clock.
        """
        if now_seconds - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now_seconds
        for table, cached in list(self._sources.items()):
            if table not in self._told and (change := _first_change(cached)):
                self._told.add(table)
                yield f'{change}; answers stay about the rows of before; db.refresh("{table}") takes the new'

    def source_of(self, table: str) -> CachedFiles | None:
        """Return the files that a table of the cache stands for, None if it is not one of the cache."""
        return self._sources.get(table)


def _first_change(cached: CachedFiles) -> str | None:
    for state in cached.states:
        if (change := change_in_words(state)) is not None:
            return f"{state[0]} changed since this session was opened: {change}"
    return None


def _note_use(folder: Path) -> None:
    """Set the time of a folder's last use, which is the time of its last change."""
    with suppress(OSError):  # a cache that may only be read
        os.utime(folder)
