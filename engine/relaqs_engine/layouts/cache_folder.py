"""The cache as a whole: what is in it, what it may take, and what is removed from it.

Several processes use it at once. What one of them uses is never removed: see `cache_use.py`. A removal is one
rename, so that a layout is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.cache_entry import CacheEntry, entries_in, has_rubbish, tidy
from relaqs_engine.layouts.cached_files import SourceRecord, one_at_a_time, size_in_words
from relaqs_engine.layouts.fetched import fetched_entries, remove_fetched
from relaqs_engine.layouts.folder import locked, write_text
from relaqs_engine.layouts.session_folder import sweep_sessions
from relaqs_engine.stores.mirror import default_cache_directory, mirror_root

_HOME = re.compile(r"[^.].*-[0-9a-f]{16}")
_LIMIT_NAME = "limit.json"
_REMOVING_PREFIX = ".removing-"


class Cache:
    """The folder that keeps layouts of plain files, and copies of files that cannot be read where they lie.

    What was fetched of object stores is in it, too.

    Args:
        directory: the folder. By default $RELAQS_CACHE or ~/.cache/relaqs.

    >>> import duckdb, relaqs
    >>> duckdb.sql("SELECT range AS x FROM range(1000)").write_parquet("numbers.parquet")
    >>> with relaqs.connect("numbers.parquet", cache_directory="cache") as db:
    ...     layout = db.lay_out("numbers")
    >>> cache = relaqs.Cache("cache")
    >>> [(entry.kind, entry.state, entry.row_count) for entry in cache.entries()]
    [('layout', 'current', 1000)]
    >>> cache.set_limit(20_000_000_000)
    ()
    >>> len(cache.remove(cache.find("numbers.parquet"))), cache.entries()
    (1, ())
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = Path(os.path.abspath(directory or default_cache_directory()))

    def entries(self) -> tuple[CacheEntry, ...]:
        """Return what is in the cache, the last used first."""
        found = [entry for home in self._homes() for entry in entries_in(home)]
        found += fetched_entries(mirror_root(self.directory))
        return tuple(sorted(found, key=lambda entry: entry.used_at, reverse=True))

    def find(self, *names: str | os.PathLike[str]) -> tuple[CacheEntry, ...]:
        """Return the entries that are called by one of these names, or made of one of these sources.

        Args:
            names: file names without endings, such as "trips"; or paths of sources, or of entries.

        Raises:
            LayoutError: there is nothing by one of the names.
        """
        entries = self.entries()
        found: dict[Path, CacheEntry] = {}
        for name in (os.fspath(name) for name in names):
            chosen = [entry for entry in entries if entry.is_called(name)]
            if not chosen:
                raise LayoutError(
                    f"there is nothing of {name!r} in the cache {self.directory}; `relaqs cache ls` shows "
                    "what there is"
                )
            found |= {entry.path: entry for entry in chosen}
        return tuple(found.values())

    def remove(self, entries: Iterable[CacheEntry]) -> tuple[CacheEntry, ...]:
        """Remove entries, and return those that were removed. One that an open session reads stays."""
        return tuple(entry for entry in entries if self._remove(entry))

    @property
    def limit_bytes(self) -> int | None:
        """Return what the cache may take. None: anything."""
        path = self.directory / _LIMIT_NAME
        try:
            limit = json.loads(path.read_text(encoding="utf-8"))["limit_bytes"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            limit = None
        if not isinstance(limit, int):
            raise LayoutError(f"{path} holds no limit; set one with `relaqs cache limit`, e.g. 20GB")
        return limit

    def set_limit(self, limit_bytes: int | None) -> tuple[CacheEntry, ...]:
        """Keep the cache below a size from now on, and return what was removed for it.

        Whenever something new does not fit beside the rest, what was not used for the longest time is
        removed. Nothing is removed that an open session reads.

        Args:
            limit_bytes: the size. None: there is no limit.
        """
        if limit_bytes is None:
            (self.directory / _LIMIT_NAME).unlink(missing_ok=True)
            return ()
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(self.directory / _LIMIT_NAME, json.dumps({"limit_bytes": limit_bytes}))
        entries = self.entries()
        excess = sum(entry.byte_count for entry in entries) - limit_bytes
        return tuple(self._removed_until(excess, entries))

    def free(self, needed_bytes: int) -> None:
        """Remove what was not used for the longest time until so much more fits, as far as that goes."""
        if (limit := self.limit_bytes) is not None:
            entries = self.entries()
            excess = sum(entry.byte_count for entry in entries) + needed_bytes - limit
            list(self._removed_until(excess, entries))

    def make_room(self, needed_bytes: int, what: str, announce: Callable[[str], None]) -> None:
        """Remove what was not used for the longest time, until so much more fits into the limit.

        Raises LayoutError, and removes nothing, if it cannot fit. what: what needs room, in words.
        """
        if (limit := self.limit_bytes) is None:
            return
        entries = self.entries()
        excess = sum(entry.byte_count for entry in entries) + needed_bytes - limit
        in_use = sum(entry.byte_count for entry in entries if entry.is_in_use)
        if excess > 0 and in_use + needed_bytes > limit:
            used = f", where open sessions use {size_in_words(in_use)}" if in_use else ""
            raise LayoutError(
                f"{what} needs about {size_in_words(needed_bytes)}; the cache {self.directory} is limited to "
                f"{size_in_words(limit)}{used}; raise that with `relaqs cache limit`"
            )
        for entry in self._removed_until(excess, entries):
            size = size_in_words(entry.byte_count)
            announce(
                f"removed the {entry.kind} of {entry.source} ({size}) to keep the cache within its limit"
            )

    def forget_earlier(self, name: str, present: Path) -> None:
        """Remove what was made of earlier states of a source.

        Args:
            name: of the source, as in `CacheEntry.names`.
            present: the folder of what is made of its present state.
        """
        for home in self._homes():
            record = None if home == present else SourceRecord.read(home)
            if record is not None and record.is_earlier(name):
                self.remove(entries_in(home))

    def sweep(self) -> None:
        """Remove what processes left that were killed. What a process is still at work on stays."""
        for left in self._inside(_REMOVING_PREFIX):
            shutil.rmtree(left, ignore_errors=True)
        for home in self._homes():
            if has_rubbish(home):
                self._tidy(home)
        sweep_sessions(self.directory)

    def _homes(self) -> list[Path]:
        return [path for path in self._inside("") if _HOME.fullmatch(path.name)]

    def _inside(self, prefix: str) -> Iterator[Path]:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.directory) as inside:
            for entry in inside:
                if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)

    def _removed_until(self, excess: int, entries: Iterable[CacheEntry]) -> Iterator[CacheEntry]:
        """Remove so many bytes, beginning with what was not used for the longest time, and yield it."""
        for entry in sorted(entries, key=lambda entry: entry.used_at):
            if excess <= 0:
                return
            if self._remove(entry):
                excess -= entry.byte_count
                yield entry

    def _remove(self, entry: CacheEntry) -> bool:
        """Remove an entry unless it is in use. Return whether it is gone."""
        if entry.is_far:
            return remove_fetched(mirror_root(self.directory), entry.path)
        folder = entry.path
        aside = self.directory / f"{_REMOVING_PREFIX}{secrets.token_hex(8)}"
        try:
            with locked(folder, wait=False):
                folder.rename(aside)
            self._clear(aside, folder.parent)
        except FileNotFoundError:
            return True
        except (LayoutError, PermissionError):
            return False
        except BaseException:
            self._clear(aside, folder.parent)  # ctrl-C may come before the rename has returned
            raise
        return True

    def _clear(self, aside: Path, home: Path) -> None:
        """Remove a folder that was put aside, and what it leaves of no use in the folder that it was in."""
        shutil.rmtree(aside, ignore_errors=True)
        if home != self.directory:
            self._tidy(home)

    def _tidy(self, home: Path) -> None:
        """Remove what is of no use in a folder of the cache, unless a process is at work in it."""
        with suppress(LayoutError, OSError), one_at_a_time(home, wait=False):
            tidy(home)
