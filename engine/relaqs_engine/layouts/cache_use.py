"""What a session uses of the cache. Nothing of it is removed meanwhile, by this process or by another.

A session holds a shared lock on each folder that it reads. Whoever removes a folder needs the lock alone. The
system drops the locks of a process that dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from relaqs_engine.file_locks import Lock, lock
from relaqs_engine.layouts.cache_folder import Cache
from relaqs_engine.layouts.cached_files import CachedFiles
from relaqs_engine.layouts.file_state import change_in_words
from relaqs_engine.layouts.session_folder import SessionFolder

_LOOK_SECONDS = 1.0


class CacheUse:
    """The folders of the cache that a session reads, and what of the user's they stand for.

    Attributes:
        cache: the cache.
        folder: for copies that no later session recognises.
    """

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache or Cache()
        self.folder = SessionFolder(self.cache.directory)
        self._held: dict[Path, Lock] = {}
        self._read: dict[str, CachedFiles] = {}
        self._named: dict[str, object] = {}
        self._told: set[str] = set()
        self._looked_at = float("-inf")

    def hold(self, folder: Path) -> bool:
        """Keep a folder until `release`, and note that it was used now. Return whether it is there."""
        if folder not in self._held:
            try:
                held = lock(folder, shared=True)
            except FileNotFoundError:
                return False
            if not held.is_on(folder) or self._held.setdefault(folder, held) is not held:
                held.release()
        if is_there := folder in self._held:
            _note_use(folder)
        return is_there

    def let_go(self, folder: Path) -> None:
        """Hold a folder no more."""
        if (held := self._held.pop(folder, None)) is not None:
            held.release()

    def release(self) -> None:
        """Hold nothing any more, and remove the folder."""
        for folder in list(self._held):
            self.let_go(folder)
        self.folder.remove()

    def __del__(self) -> None:
        self.release()

    def names(self, table: str, source: object) -> None:
        """Note what the user named as a table."""
        self._named[table] = source

    def source_of(self, table: str) -> object | None:
        """Return what the user named as a table, None for a table of a warehouse."""
        return self._named.get(table)

    def reads(self, cached: CachedFiles) -> None:
        """Note that a table is read from the cache, and remove what there is of its earlier states."""
        if cached.home.parent != self.cache.directory:
            return
        with suppress(OSError):  # a cache that may only be read
            cached.record()
        self._read[cached.table] = cached
        self._told.discard(cached.table)
        self.cache.forget_earlier(cached.name, cached.home)

    def news(self, now_seconds: float) -> Iterator[str]:
        """Yield once, of each table that is read in the place of files that have changed since, what changed.

        The files are looked at once a second at most. now_seconds: on any clock.
        """
        if now_seconds - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now_seconds
        for table, cached in list(self._read.items()):
            if table not in self._told and (change := _first_change(cached)):
                self._told.add(table)
                yield f'{change}; answers stay about the rows of before; db.refresh("{table}") takes the new'


def _first_change(cached: CachedFiles) -> str | None:
    for state in cached.states:
        if (change := change_in_words(state)) is not None:
            return f"{state[0]} changed since this session was opened: {change}"
    return None


def _note_use(folder: Path) -> None:
    """Set the time of a folder's last use, which is the time of its last change."""
    with suppress(OSError):  # a cache that may only be read
        os.utime(folder)
