"""What the user has as tables: `connect(tables={"trips": "trips/*.parquet"})` needs no earlier step.

Files are read where they lie, until there is a layout of them. So are DuckDB files, and data in memory.
What can be read only once is first copied to Parquet. The cache has layouts and copies, see
`cached_files.py`. It may be deleted at any time. Of a source only the newest state is kept, and of the
same files one layout, whatever names they are opened by.

**The cache as a whole**: what is in it, what it may take, and what is removed from it. Several processes
use it at once, and what one of them uses is never removed, by this process or by another. A session holds
a shared lock on each folder that it reads. Whoever removes a folder needs the lock alone. The system drops
the locks of a process that dies. A removal is one rename, so that a layout is there whole or not at all.

**Copies of what lies in object stores and on web servers** are entries too (see `stores/mirror.py`). An
entry is all that was fetched of one table, or of the files in one folder. Its small records stay when its
copies are removed: a session that is open may fetch the same bytes again.

**A folder for what belongs to one session**: copies of data that no later session could recognise.

    CACHE/sessions/<random>/    locked by the process that made it, for as long as it lives

The next session that makes a folder removes those that nobody holds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_engine.duck import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    CivilTime,
    Cursor,
    FileState,
    ReadingDatabase,
    file_state,
    open_for_writing,
)
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.assignment import Spread, in_turn
from relaqs_engine.layouts.cached_files import (
    LAYOUT,
    STAGED,
    CachedFiles,
    CacheEntry,
    SourceRecord,
    entries_in,
    has_rubbish,
    one_at_a_time,
    size_in_words,
    tidy,
    time_of,
    written_path,
)
from relaqs_engine.layouts.file_kinds import (
    DuckTable,
    FileKind,
    change_in_words,
    duck_table,
    is_duck_file,
    kind_of,
)
from relaqs_engine.layouts.folder import locked, write_errors
from relaqs_engine.layouts.in_memory import dataset_files, held, in_words
from relaqs_engine.layouts.lakes import LakeTable, lake_table
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, Table
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.plain import PlainTable, plain_table, table_in_file, table_in_memory, table_of_text
from relaqs_engine.layouts.remote import address_of_copies, may_be_folder, stored_again, stored_layout
from relaqs_engine.layouts.sources import (
    BrokenSource,
    TableSource,
    find_files,
    fingerprint,
    is_path,
    lake_files,
    layout_folder,
    open_source,
    parquet_source,
    paths_in_call,
    the_only,
)
from relaqs_engine.shared_files import Lock, lock, replace_content
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import (
    OBJECTS_PREFIX,
    addresses_in,
    are_read,
    copies_in,
    default_cache_directory,
    fetch_whole,
    held_bytes,
    mirror_root,
    remove_copies,
)

if TYPE_CHECKING:
    from relaqs_engine.layouts.build import Build, Progress
    from relaqs_engine.layouts.manifest import FirstPart


class SessionFolder:
    """A folder that is made when it is first asked for, and removed with its session."""

    def __init__(self, cache_directory: Path) -> None:
        self._all = _all_folders(cache_directory)
        self._path: Path | None = None
        self._removing: weakref.finalize[[Path, Lock], SessionFolder] | None = None

    @property
    def path(self) -> Path:
        """Return the folder, which exists."""
        if self._path is None:
            self._all.mkdir(parents=True, exist_ok=True)
            with locked(self._all, wait=True):  # so that nobody sweeps it before it is locked itself
                self._path = self._all / secrets.token_hex(8)
                self._path.mkdir()
                held = lock(self._path)
            self._removing = weakref.finalize(self, _remove, self._path, held)
        return self._path

    def remove(self) -> None:
        """Remove the folder with all that is in it. The second call does nothing."""
        if self._removing is not None:
            self._removing()


def _remove(folder: Path, held: Lock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.release()


def _all_folders(cache_directory: Path) -> Path:
    return Path(os.path.abspath(cache_directory)) / "sessions"


def sweep_sessions(cache_directory: Path) -> None:
    """Remove the folders of sessions that have died."""
    folder = _all_folders(cache_directory)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    with locked(folder, wait=True):
        for entry in folder.iterdir():
            with suppress(OSError):
                _remove(entry, lock(entry, wait=False))


def fetched_entries(root: Path) -> Iterator[CacheEntry]:
    """Yield what was fetched into the folder of all copies."""
    for folder in _folders(root):
        copies = dict(copies_in(folder))
        if not (byte_count := sum(map(held_bytes, copies.values()))):
            continue
        with suppress(FileNotFoundError):
            yield CacheEntry(
                folder,
                "copy",
                _names(folder),
                "far",
                None,
                byte_count,
                made_at=time_of(folder.stat().st_mtime),
                used_at=time_of(max(state.st_atime for state in copies.values())),
                is_in_use=are_read(root, copies),
            )


def remove_fetched(root: Path, folder: Path) -> bool:
    """Remove the copies in an entry's folder, but those that are read now. Return whether all are gone."""
    return remove_copies(root, (path for path, _ in copies_in(folder)))


def _folders(root: Path) -> Iterator[Path]:
    for folder in _inside(root):
        if folder.name.startswith(OBJECTS_PREFIX):
            yield folder
        else:
            yield from _inside(folder)


def _inside(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [Path(each) for each in os.scandir(folder) if each.is_dir() and not each.name.startswith(".")]
    return []


def _names(folder: Path) -> tuple[str, ...]:
    """Return the addresses that an entry is called by: of the folder or the table, then of its files."""
    if not folder.name.startswith(OBJECTS_PREFIX):
        return tuple(map(str, address_of_copies(folder)))
    found = addresses_in(folder)
    return tuple(dict.fromkeys(map(str, [*(each.parent for each in found[:1]), *found])))


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
        replace_content(self.directory / _LIMIT_NAME, json.dumps({"limit_bytes": limit_bytes}).encode())
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


_LOOK_SECONDS = 1.0
VERSIONS_KEPT = 4  # of what the cache has of a table whose files change


class CacheUse:
    """The folders of the cache that a session reads, and what of the user's they stand for.

    Attributes:
        folder: for copies that no later session recognises.
        read: the tables that are read from the cache, by name.
        manifests: those of layouts that are open as they are, by folder.
    """

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache or Cache()
        self.folder = SessionFolder(self.cache.directory)
        self._held: dict[Path, Lock] = {}
        self.read: dict[str, CachedFiles] = {}
        self.manifests: dict[Path, FileState] = {}
        self._versions: dict[str, list[Path]] = {}
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

    def names(self, table: str, source: object | None) -> None:
        """Note what the user named as a table. None: nothing any more."""
        if source is None:
            self._named.pop(table, None)
        else:
            self._named[table] = source

    def source_of(self, table: str) -> object | None:
        """Return what the user named as a table, None for a table of a warehouse."""
        return self._named.get(table)

    def named_paths(self) -> dict[str | tuple[str, ...], str]:
        """Return which table was opened from what: an absolute path or pattern, or a name in DuckDB files.

        A name of several tables is left out.
        """
        found: dict[str | tuple[str, ...], str] = {}
        duck = [(table, each) for table, each in self._named.items() if isinstance(each, DuckTable)]
        several = Counter(name for _, each in duck for name in each.names)
        for table, source in self._named.items():
            if isinstance(source, str | os.PathLike):
                found[written_path(source)] = table
        return found | {name: table for table, each in duck for name in each.names if several[name] == 1}

    def reads(self, cached: CachedFiles) -> None:
        """Note that a table is read from the cache, and remove what there is of its earlier states.

        The last of these stay: queries that run may still read them.
        """
        if cached.home.parent != self.cache.directory:
            return
        versions = self._versions.setdefault(cached.table, [])
        versions[:] = [home for home in versions if home != cached.home] + [cached.home]
        while len(versions) > VERSIONS_KEPT:
            old = versions.pop(0)
            self.let_go(old / LAYOUT)
            self.let_go(old / STAGED)
        with suppress(OSError):  # a cache that may only be read
            cached.record()
        self.read[cached.table] = cached
        self._told.discard(cached.table)
        self.cache.forget_earlier(cached.name, cached.home)

    def news(self, now_seconds: float) -> Iterator[str]:
        """Yield once, of each table that is read in the place of files that have changed since, what changed.

        The files are looked at once a second at most. now_seconds: on any clock.
        """
        if now_seconds - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now_seconds
        for table, cached in list(self.read.items()):
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


Announce = Callable[[str], None]

_STATIC_BELOW_ROWS = 10_000
"""Reading a smaller table whole takes a few milliseconds: nothing is gained by sampling it."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How tables are opened.

    Attributes:
        use: where the cache is, and what is held of it.
        announce: called with a sentence before anything that takes time.
        spread: threads to lay tables out on.
        processes: other processes to do so on.
        reading: what looks into files. Close it when the tables are open.
    """

    use: CacheUse = field(default_factory=CacheUse)
    announce: Announce = lambda message: None
    spread: Spread = in_turn
    processes: Spread | None = None
    reading: ReadingDatabase = field(default_factory=ReadingDatabase)

    @property
    def zone(self) -> str:
        """Return the time zone that texts without one are read in, and views of DuckDB files."""
        with closing(self.reading.cursor()) as cursor:
            return cursor.civil_time.zone


def opened_table(table: str, source: TableSource, how: Opening) -> Table:
    """Return a source as a table: the layout of it that there is, or else the data where they lie.

    Readers, lazy frames and relations are copied to Parquet now, for this session. Raises LayoutError and
    DataError as `shuffle` does.

    Args:
        source: files, data in memory, or the folder of a layout.
    """
    _check_table_name(table)
    source = the_only(source)
    how.use.names(table, source)
    if isinstance(source, BrokenSource):
        raise source.error
    if paths := paths_in_call(source):
        cached = CachedFiles.of_call(table, str(source), paths, how.use.cache.directory).in_zone(how.zone)
        return _found_layout(cached, how.use) or _staged(cached, source, how)
    if (folder := layout_folder(source)) is not None:
        return dataclasses.replace(read_manifest(folder), table=table)
    if (stored := _stored_layout(source, how.use.cache.directory)) is not None:
        return dataclasses.replace(stored, table=table)
    if (recognised := _recognised(table, source, how)) is None:
        with _about(table):
            return _of_session(table, source, how)
    cached, open_as_it_lies = recognised
    if (found := _found_layout(cached, how.use)) is not None:
        return found
    opened = open_as_it_lies()
    if opened.cached in (None, cached):
        return opened
    return _found_layout(opened.cached, how.use) or opened


def reopened_table(table: Table, how: Opening) -> Table:
    """Return a table as its source is now. Raises LayoutError and DataError as `opened_table` does."""
    source = how.use.source_of(table.table)
    if source is None and isinstance(table, Layout) and table.remote is not None:
        return stored_again(table, table.remote)
    if source is None:
        return dataclasses.replace(read_manifest(table.directory), table=table.table)
    if isinstance(source, DuckTable):
        source = duck_table(source.file, table.table)
    return opened_table(table.table, source, how)


def has_changed(table: Table, how: Opening) -> bool:
    """Whether a table's source is no longer what was opened: other rows, other files, or a later version.

    Data in memory do not change, and object stores are not asked. Raises LayoutError and DataError as
    `opened_table` does.
    """
    source, use = how.use.source_of(table.table), how.use
    opened = table.cached if isinstance(table, PlainTable) else use.read.get(table.table)
    if isinstance(table, Layout) and table.remote is None and opened is None:
        state = file_state(str(table.directory / MANIFEST_NAME))
        if use.manifests.get(table.directory) != state:
            if dataclasses.replace(read_manifest(table.directory), table=table.table) != table:
                return True
            use.manifests[table.directory] = state
    if source is None or opened is None:
        return False
    if any(map(change_in_words, opened.states)):
        return True
    if paths := paths_in_call(source):
        now = CachedFiles.of_call(table.table, str(source), paths, use.cache.directory)
    elif isinstance(source, str | os.PathLike) and is_duck_file(source):
        return False
    elif (recognised := _recognised(table.table, source, how)) is not None:
        now = recognised[0]
    else:
        return False
    return opened.home != now.home and opened.home != now.in_zone(how.zone).home


@contextmanager
def _about(table: str) -> Iterator[None]:
    """Say in the block's errors which table they are about: data in memory have no name of their own."""
    try:
        yield
    except (DataError, LayoutError) as error:
        raise type(error)(f"table {table!r}: {error}") from error


def _recognised(
    table: str, source: TableSource, how: Opening
) -> tuple[CachedFiles, Callable[[], PlainTable]] | None:
    """Return where the cache keeps a layout of a source, and what opens the source without one.

    None where no later session could tell that it has the same source.
    """
    cache = how.use.cache.directory
    if (lake := lake_table(source)) is not None:
        cached = CachedFiles.of_lake(table, lake, cache)
        return cached, partial(_of_lake, lake, cached, how)
    if isinstance(source, str | os.PathLike) and is_duck_file(source):
        source = duck_table(Path(os.path.abspath(source)), table)
    if isinstance(source, DuckTable):
        cached = CachedFiles.of_part(table, source, cache)
        cached = cached.in_zone(how.zone) if source.is_view else cached
        return cached, partial(table_in_file, source, cached)
    if not is_path(source):
        return None
    cached = CachedFiles.of(table, source, cache)
    kind = kind_of(cached.files)
    if kind is FileKind.PARQUET:
        return cached, partial(_as_they_lie, cached, how)
    return cached, partial(_of_text, kind, cached, source, how)


def _found_layout(cached: CachedFiles, use: CacheUse) -> Layout | None:
    """Return the layout that the cache has of a source in its present state, None where it has none."""
    if not (cached.has_layout and use.hold(cached.layout)):
        return None
    use.reads(cached)
    return dataclasses.replace(read_manifest(cached.layout), table=cached.table)


def _of_lake(lake: LakeTable, cached: CachedFiles, how: Opening) -> PlainTable:
    """Return a version of a lake's table: its files, an Arrow dataset of them, or a copy of its rows."""
    with closing(how.reading.cursor()) as cursor:
        if (opened := lake_files(lake, cursor)) is not None:
            return plain_table(cached, opened, fingerprint(lake.files))
        if lake.dataset is not None:
            return table_in_memory(lake.dataset, lake.in_words, cached, cursor, fingerprint(lake.files))
    return _staged(cached, lake, how)


def _of_text(kind: FileKind, cached: CachedFiles, source: TableSource, how: Opening) -> PlainTable:
    """Return CSV or JSON files as they lie, or else a copy of them."""
    with closing(how.reading.cursor()) as cursor:
        found = table_of_text(kind, cached, cursor)
    return found or _staged(cached.in_zone(how.zone), source, how)


def _of_session(table: str, source: object, how: Opening) -> PlainTable:
    """Return data in memory as a table. What can be read only once is copied to a file of the session."""
    words, data, files = in_words(source), held(source), dataset_files(source)
    home = how.use.folder.path / f"{table}-{secrets.token_hex(4)}"
    cached = CachedFiles(table, words, (), (), home)
    if data is not None or files:
        given = source if data is None else data
        with closing(how.reading.cursor()) as cursor:
            return table_in_memory(given, words, cached, cursor, fingerprint(files))
    cached.staged.mkdir(parents=True)
    with closing(open_for_writing(cached.staged / "spill")) as cursor:
        opened = open_source(source, cursor, cached.staged)
    return plain_table(cached, opened, fingerprint(opened.files))


def laid_out_once(table: str, source: TableSource, how: Opening) -> Layout:
    """Return the layout of a source. New or changed data are laid out now.

    Processes that need the same table wait for the one that lays it out. Arguments and errors are those of
    `opened_table`.
    """
    opened = opened_table(table, source, how)
    if isinstance(opened, Layout):
        return opened
    assert isinstance(opened, PlainTable)
    laying_out = LayingOut(
        how.announce, spread=how.spread, processes=how.processes, civil_time=how.reading.civil_time
    )
    return lay_out(opened, laying_out, how.use)


@dataclass(frozen=True, slots=True)
class LayingOut:
    """How a plain table is laid out.

    Attributes:
        announce: called with a sentence before it begins.
        waits: whether to wait for another process that lays out the same files. If not, LayoutError is
            raised.
        threads: of DuckDB. The default is one for each core.
        memory_limit_bytes: what DuckDB may take.
        begun: called with the cursor that does the work. The caller may interrupt it until `ended` is called.
        ended: called when the work is done, or has failed.
        progress: told how far the work is. It may raise, which ends the work and leaves nothing.
        spread: threads of the caller's, to do so on.
        processes: other processes to do so on. Where they do not see the files or the cache, it is done here.
        first_there: is handed the first part of the layout as soon as it can be asked. None: nobody waits for
            one, which makes the whole less work.
    """

    announce: Announce
    waits: bool = True
    threads: int | None = None
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES
    begun: Callable[[Cursor], None] = lambda cursor: None
    ended: Callable[[], None] = lambda: None
    progress: Progress = lambda share, doing: None
    spread: Spread = in_turn
    processes: Spread | None = None
    first_there: Callable[[FirstPart], None] | None = None
    civil_time: CivilTime | None = None


def lay_out(table: PlainTable, how: LayingOut, use: CacheUse) -> Layout:
    """Return the layout of a plain table, which the cache has from now on.

    Processes that lay out the same files take turns, and the second finds the layout of the first. Raises
    DataError if the files are not as they were when the table was opened, and LayoutError if the cache's
    limit leaves no room, or as `shuffle` does.
    """
    cached = table.cached
    assert cached is not None
    with one_at_a_time(cached.home, wait=how.waits):
        if (layout := _found_layout(cached, use)) is not None:
            return layout
        how.announce(f"laying out {cached.in_words} once into {cached.layout}")
        _make(cached, cached.layout, lambda: _write_layout(table, cached, how), how.announce, use)
        use.reads(cached)
        return dataclasses.replace(read_manifest(cached.layout), table=table.table)


def _make(
    cached: CachedFiles, folder: Path, write: Callable[[], None], announce: Announce, use: CacheUse
) -> None:
    """Write a folder of the cache, hold it, and see to it that the cache stays within its limit."""
    is_temporary = cached.home.parent != use.cache.directory
    try:
        if not is_temporary:
            use.cache.make_room(cached.byte_count, cached.in_words, announce)
            with write_errors(cached.home, cached.home):
                cached.record()
        write()
        use.hold(folder)
        if not is_temporary:
            _keep_within_limit(cached, folder, announce, use)
    finally:
        tidy(cached.home)


def _keep_within_limit(cached: CachedFiles, folder: Path, announce: Announce, use: CacheUse) -> None:
    """Remove what is too much now that the folder has its size, if need be the folder itself."""
    try:
        use.cache.make_room(0, cached.in_words, announce)
    except LayoutError:
        use.let_go(folder)
        shutil.rmtree(folder)
        raise


def _write_layout(table: PlainTable, cached: CachedFiles, how: LayingOut) -> None:
    from relaqs_engine.layouts.build import (
        building,  # whoever only asks needs none of these
        store_whole,
    )

    memory, threads = how.memory_limit_bytes, how.threads
    for path, *_ in table.states:
        fetch_whole(path)
    with building(
        table.origin,
        cached.layout,
        force=True,
        memory_limit_bytes=memory,
        threads=threads,
        civil_time=how.civil_time,
    ) as build:
        if table.states != tuple(file_state(path) for path, *_ in table.states):
            raise DataError(
                f"{table.source} changed since it was opened; open a new session (relaqs.connect) or call "
                f'db.refresh("{table.table}") to lay it out as it is now'
            )
        try:
            how.begun(build.cursor)
            if table.row_count < _STATIC_BELOW_ROWS:
                store_whole(build)
            else:
                _sample(build, table, how)
        finally:
            how.ended()


def _sample(build: Build, table: PlainTable, how: LayingOut) -> None:
    from relaqs_engine.layouts.sampled import sample
    from relaqs_engine.layouts.shuffling import UnseenHereError

    write = partial(
        sample,
        build,
        suitable_partitions(table.row_count),
        progress=how.progress,
        spread=how.spread,
        first_there=how.first_there,
    )
    try:
        write(processes=how.processes)
    except UnseenHereError as error:
        how.announce(f"{table.table} is laid out by this process alone: {error}")
        write()


def _check_table_name(table: str) -> None:
    if "/" in table or table in ("", ".", ".."):
        raise LayoutError(f"{table!r} cannot name a table; choose a name without '/'")


def _stored_layout(source: object, cache_directory: Path) -> Layout | None:
    address = Address.of(source)
    if address is None or not may_be_folder(address):
        return None
    return stored_layout(address, mirror_root(cache_directory))


def _as_they_lie(cached: CachedFiles, how: Opening) -> PlainTable:
    with closing(how.reading.cursor()) as cursor:
        opened = parquet_source(cached.files, cursor, cached.source_in_words)
    here = cached.in_zone(how.zone) if opened.uneven.are_read_in_zone else cached
    return plain_table(here, opened, cached.states)


def _staged(cached: CachedFiles, source: TableSource, how: Opening) -> PlainTable:
    """Return a table over the Parquet file that its source is copied to once."""
    use, announce = how.use, how.announce
    if not use.hold(cached.staged):
        with one_at_a_time(cached.home, wait=True):
            if not use.hold(cached.staged):
                announce(f"copying {cached.in_words} once into {cached.staged}")
                civil_time = how.reading.civil_time
                _make(cached, cached.staged, lambda: _stage(cached, source, civil_time), announce, use)
    use.reads(cached)
    with closing(how.reading.cursor()) as cursor:
        files = find_files(cached.staged)
        opened = parquet_source(files, cursor, cached.source_in_words, is_staged=True)
    return plain_table(cached, opened, fingerprint(files))


def _stage(cached: CachedFiles, source: TableSource, civil_time: CivilTime | None) -> None:
    """Copy the source to one Parquet file, in a folder that appears whole or not at all."""
    scratch = cached.home / f".copying-{os.getpid()}"
    scratch.mkdir(exist_ok=True)
    try:
        with write_errors(cached.home, scratch):
            with closing(open_for_writing(scratch / "spill", civil_time=civil_time)) as cursor:
                open_source(source, cursor, scratch)
            if fingerprint([Path(path) for path, *_ in cached.states]) != cached.states:
                raise DataError(f"{cached.source_in_words} changed while it was being read; open it again")
            scratch.rename(cached.staged)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def suitable_partitions(row_count: int) -> int:
    """Return how many partitions keep a task short, and yet worth its fixed cost of a millisecond or two."""
    return min(max(row_count // 10_000, 20), max(100, row_count // 1_000_000), 1_000)
