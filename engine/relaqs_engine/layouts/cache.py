"""Plain files, laid out on first use: `connect(tables={"trips": "trips/*.parquet"})` needs no earlier step.

    CACHE/trips-<digest of the files' paths>/<digest of their sizes and times>/trips/

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
from itertools import chain
from pathlib import Path

from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.build import DEFAULT_MEMORY_LIMIT_BYTES, building
from relaqs_engine.layouts.folder import locked
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, read_manifest
from relaqs_engine.layouts.shuffle import sample
from relaqs_engine.layouts.sources import PathLike, find_files, fingerprint
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


def laid_out_once(
    table: str,
    source: PathLike,
    cache_directory: Path,
    announce: Callable[[str], None],
    spread: Spread = in_turn,
) -> Layout:
    """Return the layout of plain files or of a table's folder. New or changed files are laid out now.

    Processes that need the same table wait for the one that lays it out. Raises LayoutError and DataError as
    `shuffle` does.

    `announce` is called with a sentence before anything that takes time. `spread` gives threads to do so on.
    """
    if "/" in table or table in ("", ".", ".."):
        raise LayoutError(f"{table!r} cannot name a table here: it becomes a folder's name")
    if (Path(source) / MANIFEST_NAME).is_file():
        return dataclasses.replace(read_manifest(Path(source)), table=table)
    files = find_files(source)
    state = fingerprint(files)
    home = Path(os.path.abspath(cache_directory)) / f"{table}-{_digest([path for path, *_ in state])}"
    into = home / _digest(state) / table
    home.mkdir(parents=True, exist_ok=True)
    with locked(home, wait=True):
        if not (into / MANIFEST_NAME).is_file():
            size = sum(byte_count for _, byte_count, _ in state)
            announce(f"laying out {table} ({_counted(files)}, {_size(size)}) once into {into}")
            _lay_out(source, into, spread)
            _forget_other_states(home, keep=into.parent)
    return read_manifest(into)


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


def _forget_other_states(home: Path, keep: Path) -> None:
    for state in home.iterdir():
        if state != keep:
            shutil.rmtree(state, ignore_errors=True)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _counted(files: tuple[Path, ...]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def _size(byte_count: int) -> str:
    return f"{byte_count / 1e9:.1f} GB" if byte_count >= 1e9 else f"{byte_count / 1e6:.1f} MB"
