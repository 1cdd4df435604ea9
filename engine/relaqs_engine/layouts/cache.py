"""The user's files as tables: `connect(tables={"trips": "trips/*.parquet"})` needs no earlier step.

Parquet files are read where they lie, until there is a layout of them. CSV files are first copied to Parquet.
The cache has both:

    CACHE/trips-<digest of the files' paths>/<digest of their sizes and times>/trips/    the layout
    CACHE/trips-<digest of the files' paths>/<digest of their sizes and times>/staged/   the copy of CSV files

The cache may be deleted at any time. Only the newest state of the same files is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from relaqs_engine.duck import FileState, open_for_reading, open_for_writing
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.build import DEFAULT_MEMORY_LIMIT_BYTES, building
from relaqs_engine.layouts.folder import locked
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, read_manifest
from relaqs_engine.layouts.plain import PlainTable, plain_table
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

_PLAIN_SUFFIXES = (".parquet", ".csv")
_STATIC_BELOW_ROWS = 10_000
"""Reading a smaller table whole takes a few milliseconds: nothing is gained by sampling it."""


def default_cache_directory() -> Path:
    """Return where plain files are laid out: $RELAQS_CACHE, or ~/.cache/relaqs."""
    return Path(os.environ.get("RELAQS_CACHE") or Path.home() / ".cache" / "relaqs")


def plain_files(data: Path) -> dict[str, Path]:
    """Return the Parquet and CSV files at a path by table name. A file's table is called like the file.

    A layout, or a folder of layouts, gives nothing, because its files are parts of tables. Raises LayoutError
    where two files would be one table.
    """
    if data.is_file():
        found = [data]
    elif not data.is_dir() or any(chain(data.glob(MANIFEST_NAME), data.glob(f"*/{MANIFEST_NAME}"))):
        return {}
    else:
        found = sorted(path for path in data.iterdir() if path.suffix in _PLAIN_SUFFIXES)
    tables: dict[str, Path] = {}
    for path in found:
        name = re.sub(r"\W+", "_", path.stem).strip("_").lower() or "data"
        if name in tables:
            raise LayoutError(
                f"{tables[name]} and {path} would both be table {name!r}; move one elsewhere, "
                "or name each with connect(tables={…})"
            )
        tables[name] = path
    return tables


@dataclass(frozen=True, slots=True)
class CachedFiles:
    """Files of the user's, and where the cache keeps what is made of their present state.

    Attributes:
        table: the name of their table.
        source: what the user named.
        files: the files.
        states: their states.
        home: the folder of these files, for all of their states.
    """

    table: str
    source: PathLike
    files: tuple[Path, ...]
    states: tuple[FileState, ...]
    home: Path

    @classmethod
    def of(cls, table: str, source: PathLike, cache_directory: Path) -> CachedFiles:
        """Return the files that a path names. Raises LayoutError where there are none."""
        files = find_files(source)
        states = fingerprint(files)
        home = Path(os.path.abspath(cache_directory)) / f"{table}-{_digest([path for path, *_ in states])}"
        return cls(table, source, files, states, home)

    @property
    def layout(self) -> Path:
        """Return the folder of the layout."""
        return self.home / _digest(self.states) / self.table

    @property
    def staged(self) -> Path:
        """Return the folder of the copy."""
        return self.home / _digest(self.states) / "staged"

    @property
    def in_words(self) -> str:
        size = sum(byte_count for _, byte_count, _ in self.states)
        return f"{self.table} ({_counted(self.files)}, {_size(size)})"

    def forget_other_states(self) -> None:
        """Remove what was made of earlier states, and what writers that died have left."""
        for entry in self.home.iterdir():
            if entry != self.layout.parent:
                shutil.rmtree(entry, ignore_errors=True)


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
    _check_table_name(table)
    if (folder := _layout_folder(source)) is not None:
        return dataclasses.replace(read_manifest(folder), table=table)
    cached = CachedFiles.of(table, source, cache_directory)
    cached.home.mkdir(parents=True, exist_ok=True)
    with locked(cached.home, wait=True):
        if not (cached.layout / MANIFEST_NAME).is_file():
            announce(f"laying out {cached.in_words} once into {cached.layout}")
            _lay_out(source, cached.layout, spread)
            cached.forget_other_states()
    return read_manifest(cached.layout)


def _check_table_name(table: str) -> None:
    if "/" in table or table in ("", ".", ".."):
        raise LayoutError(f"{table!r} cannot name a table here: it becomes a folder's name")


def _layout_folder(source: PathLike) -> Path | None:
    return Path(source) if (Path(source) / MANIFEST_NAME).is_file() else None


def _as_they_lie(cached: CachedFiles) -> PlainTable:
    with closing(open_for_reading()) as cursor:
        opened = parquet_source(cached.files, cursor, source_names(cached.source))
        return plain_table(cached.table, opened, cached.states, cursor)


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
        return plain_table(cached.table, opened, fingerprint(files), cursor)


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


def _lay_out(source: PathLike, into: Path, spread: Spread) -> Layout:
    with building(
        source, into, force=True, memory_limit_bytes=DEFAULT_MEMORY_LIMIT_BYTES, threads=None
    ) as build:
        rows = build.source.row_count
        if rows < _STATIC_BELOW_ROWS:
            return store_whole(build)
        return sample(build, suitable_partitions(rows), spread=spread)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _counted(files: tuple[Path, ...]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def _size(byte_count: int) -> str:
    return f"{byte_count / 1e9:.1f} GB" if byte_count >= 1e9 else f"{byte_count / 1e6:.1f} MB"
