"""What the user has as tables: `connect(tables={"trips": "trips/*.parquet"})` needs no earlier step.

Files are read where they lie, until there is a layout of them. So are DuckDB files, and data in memory. What
can be read only once is first copied to Parquet.
The cache has layouts and copies, see `cached_files.py`. It may be deleted at any time. Of a source only the
newest state is kept, and of the same files one layout, whatever names they are opened by.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_engine.duck import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    CivilTime,
    Cursor,
    ReadingDatabase,
    file_state,
    open_for_writing,
)
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.cache_entry import tidy
from relaqs_engine.layouts.cache_use import CacheUse
from relaqs_engine.layouts.cached_files import CachedFiles, one_at_a_time
from relaqs_engine.layouts.duck_tables import DuckTable, duck_table, is_duck_file
from relaqs_engine.layouts.file_kinds import FileKind, kind_of
from relaqs_engine.layouts.folder import write_errors
from relaqs_engine.layouts.in_memory import dataset_files, held, in_words
from relaqs_engine.layouts.lakes import LakeTable, lake_table
from relaqs_engine.layouts.lent import table_in_file, table_in_memory, table_of_text
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.plain import PlainTable, plain_table
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
    the_only,
)
from relaqs_engine.layouts.spread import Spread, in_turn
from relaqs_engine.layouts.stored import may_be_folder, stored_again, stored_layout
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import mirror_root
from relaqs_engine.stores.objects import fetch_whole

if TYPE_CHECKING:
    from relaqs_engine.layouts.build import Build, Progress
    from relaqs_engine.layouts.first_part import FirstPart

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


def opened_table(table: str, source: TableSource, how: Opening) -> Layout:
    """Return a source as a table: the layout of it that there is, or else the data where they lie.

    Readers, lazy frames and relations are copied to Parquet now, for this session. Raises LayoutError and
    DataError as `shuffle` does.

    Args:
        table: its name.
        source: files, data in memory, or the folder of a layout.
        how: where the cache is, and who uses it.
    """
    _check_table_name(table)
    source = the_only(source)
    how.use.names(table, source)
    if isinstance(source, BrokenSource):
        raise source.error
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


def reopened_table(table: Layout, how: Opening) -> Layout:
    """Return a table as its source is now. Raises LayoutError and DataError as `opened_table` does."""
    source = how.use.source_of(table.table)
    if source is None and table.remote is not None:
        return stored_again(table, table.remote)
    if source is None:
        return dataclasses.replace(read_manifest(table.directory), table=table.table)
    if isinstance(source, DuckTable):
        source = duck_table(source.file, table.table)
    return opened_table(table.table, source, how)


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
    if not isinstance(opened, PlainTable):
        return opened
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
        civil_time: by which texts are read as moments. None: that of the process.
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
    from relaqs_engine.layouts.build import building  # whoever only asks needs none of these
    from relaqs_engine.layouts.static import store_whole

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
    from relaqs_engine.layouts.exchange import UnseenHereError
    from relaqs_engine.layouts.sampled import sample

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
