"""The user's files as tables: `connect(tables={"trips": "trips/*.parquet"})` needs no earlier step.

Parquet files are read where they lie, until there is a layout of them. CSV files are first copied to Parquet.
The cache has both, see `cached_files.py`. It may be deleted at any time. Only the newest state of the same
files is kept.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from relaqs_engine.duck import Cursor, open_for_reading, open_for_writing
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.build import DEFAULT_MEMORY_LIMIT_BYTES, Progress, building
from relaqs_engine.layouts.cached_files import CachedFiles
from relaqs_engine.layouts.folder import locked
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, read_manifest
from relaqs_engine.layouts.plain import PlainTable, plain_table
from relaqs_engine.layouts.remote_files import remote_tables
from relaqs_engine.layouts.shuffle import sample
from relaqs_engine.layouts.sources import (
    PathLike,
    are_csv,
    find_files,
    fingerprint,
    open_source,
    parquet_source,
    source_names,
)
from relaqs_engine.layouts.spread import Spread, in_turn
from relaqs_engine.layouts.static import store_whole
from relaqs_engine.layouts.stored import stored_layout
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import mirror_root
from relaqs_engine.stores.objects import fetch_whole

_PLAIN_SUFFIXES = (".parquet", ".csv")
_STATIC_BELOW_ROWS = 10_000
"""Reading a smaller table whole takes a few milliseconds: nothing is gained by sampling it."""


def plain_files(source: PathLike) -> dict[str, PathLike]:
    """Return the Parquet and CSV files at a path by table name. A file's table is called like the file.

    A layout, or a folder of layouts, gives nothing, because its files are parts of tables. Raises LayoutError
    where two files would be one table.
    """
    if (address := Address.of(source)) is not None:
        return _tables_of(list(remote_tables(address)))
    data = Path(source)
    if data.is_file():
        found = [data]
    elif not data.is_dir() or any(chain(data.glob(MANIFEST_NAME), data.glob(f"*/{MANIFEST_NAME}"))):
        return {}
    else:
        found = sorted(path for path in data.iterdir() if path.suffix in _PLAIN_SUFFIXES)
    return _tables_of(found)


def _tables_of(found: Sequence[PathLike]) -> dict[str, PathLike]:
    tables: dict[str, PathLike] = {}
    for path in found:
        name = re.sub(r"\W+", "_", Path(path).stem).strip("_").lower() or "data"
        if name in tables:
            raise LayoutError(
                f"{tables[name]} and {path} would both be table {name!r}; move one elsewhere, "
                "or name each with connect(tables={…})"
            )
        tables[name] = path
    return tables


def opened_table(
    table: str, source: PathLike, cache_directory: Path, announce: Callable[[str], None]
) -> Layout:
    """Return the table of a path: the layout of it that there is, or else its files as they lie.

    CSV files are copied to Parquet now, once. Raises LayoutError and DataError as `shuffle` does.

    Args:
        table: its name.
        source: a file, folder or glob; or the folder of a layout.
        cache_directory: where layouts and copies are kept.
        announce: called with a sentence before anything that takes time.
    """
    _check_table_name(table)
    if (folder := _layout_folder(source)) is not None:
        return dataclasses.replace(read_manifest(folder), table=table)
    if (stored := _stored_layout(source, cache_directory)) is not None:
        return dataclasses.replace(stored, table=table)
    cached = CachedFiles.of(table, source, cache_directory)
    if (cached.layout / MANIFEST_NAME).is_file():
        return read_manifest(cached.layout)
    return _staged(cached, announce) if are_csv(cached.files) else _as_they_lie(cached)


def laid_out_once(
    table: str,
    source: PathLike,
    cache_directory: Path,
    announce: Callable[[str], None],
    spread: Spread = in_turn,
) -> Layout:
    """Return the layout of plain files or of a table's folder. New or changed files are laid out now.

    Processes that need the same table wait for the one that lays it out. Arguments and errors are those of
    `opened_table`. `spread` gives threads to do so on.
    """
    opened = opened_table(table, source, cache_directory, announce)
    return lay_out(opened, LayingOut(announce, spread=spread)) if isinstance(opened, PlainTable) else opened


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
    """

    announce: Callable[[str], None]
    waits: bool = True
    threads: int | None = None
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES
    begun: Callable[[Cursor], None] = lambda cursor: None
    ended: Callable[[], None] = lambda: None
    progress: Progress = lambda share, doing: None
    spread: Spread = in_turn


def lay_out(table: PlainTable, how: LayingOut) -> Layout:
    """Return the layout of a plain table, which the cache has from now on.

    Processes that lay out the same files take turns, and the second finds the layout of the first. Raises
    DataError if the files are not as they were when the table was opened, and LayoutError as `shuffle` does.
    """
    cached = table.cached
    assert cached is not None
    cached.home.mkdir(parents=True, exist_ok=True)
    with locked(cached.home, wait=how.waits):
        if not (cached.layout / MANIFEST_NAME).is_file():
            how.announce(f"laying out {cached.in_words} once into {cached.layout}")
            _write_layout(table, cached, how)
            cached.forget_other_states()
    return read_manifest(cached.layout)


def _write_layout(table: PlainTable, cached: CachedFiles, how: LayingOut) -> None:
    memory, threads = how.memory_limit_bytes, how.threads
    for path, *_ in table.states:
        fetch_whole(path)
    with building(
        table.opened, cached.layout, force=True, memory_limit_bytes=memory, threads=threads
    ) as build:
        if build.state != table.states:
            raise DataError(f"{table.source} changed since it was opened; open it again")
        try:
            how.begun(build.cursor)
            if table.row_count < _STATIC_BELOW_ROWS:
                store_whole(build)
            else:
                sample(build, suitable_partitions(table.row_count), progress=how.progress, spread=how.spread)
        finally:
            how.ended()


def _check_table_name(table: str) -> None:
    if "/" in table or table in ("", ".", ".."):
        raise LayoutError(f"{table!r} cannot name a table here: it becomes a folder's name")


def _layout_folder(source: PathLike) -> Path | None:
    return Path(source) if (Path(source) / MANIFEST_NAME).is_file() else None


def _stored_layout(source: PathLike, cache_directory: Path) -> Layout | None:
    address = Address.of(source)
    if address is None or not address.is_folder:
        return None
    return stored_layout(address, mirror_root(cache_directory))


def _as_they_lie(cached: CachedFiles) -> PlainTable:
    with closing(open_for_reading()) as cursor:
        opened = parquet_source(cached.files, cursor, source_names(cached.source))
        return plain_table(cached, opened, cached.states, cursor)


def _staged(cached: CachedFiles, announce: Callable[[str], None]) -> PlainTable:
    """Return the table of CSV files, over the Parquet file that they are copied to once."""
    cached.home.mkdir(parents=True, exist_ok=True)
    with locked(cached.home, wait=True):
        if not cached.staged.is_dir():
            announce(f"copying {cached.in_words} once into {cached.staged}")
            _stage(cached)
            cached.forget_other_states()
    with closing(open_for_reading()) as cursor:
        files = find_files(cached.staged)
        opened = parquet_source(files, cursor, source_names(cached.source), is_staged=True)
        return plain_table(cached, opened, fingerprint(files), cursor)


def _stage(cached: CachedFiles) -> None:
    """Copy the files to one Parquet file, in a folder that appears whole or not at all."""
    scratch = cached.home / f".copying-{os.getpid()}"
    scratch.mkdir(exist_ok=True)
    try:
        cursor = open_for_writing(
            threads=os.cpu_count() or 1,
            memory_limit_bytes=DEFAULT_MEMORY_LIMIT_BYTES,
            temp_directory=scratch / "spill",
        )
        with closing(cursor):
            open_source(cached.source, cursor, scratch)
        if fingerprint(cached.files) != cached.states:
            raise DataError(f"{source_names(cached.source)} changed while it was being read; open it again")
        cached.staged.parent.mkdir(exist_ok=True)
        scratch.rename(cached.staged)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def suitable_partitions(row_count: int) -> int:
    """Return how many partitions keep a task short, and yet worth its fixed cost of a millisecond or two."""
    return min(max(row_count // 10_000, 20), max(100, row_count // 1_000_000), 1_000)
