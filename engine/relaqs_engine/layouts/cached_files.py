"""Files of the user's, in one state, and where the cache keeps what is made of them.

    CACHE/trips-<16 hex digits>/              trips.parquet in one state. The digits are a digest of it.
    CACHE/trips-<16 hex digits>/source.json   the names that it was opened by, and the files' states
    CACHE/trips-<16 hex digits>/layout/       the layout
    CACHE/trips-<16 hex digits>/staged/       the copy, where there must be one

A `CacheEntry` is one thing in the cache, a layout or a copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from relaqs_engine.duck import FileState, file_state
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.file_kinds import DuckTable
from relaqs_engine.layouts.folder import locked, sweep
from relaqs_engine.layouts.lakes import LakeTable
from relaqs_engine.layouts.manifest import MANIFEST_NAME, RECORD_NAME
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.sources import FileSource, find_files, fingerprint, source_names
from relaqs_engine.shared_files import replace_content
from relaqs_engine.stores.address import Address

LAYOUT, STAGED = "layout", "staged"
_BETWEEN_PATHS = "\n"

SourceState = Literal["current", "changed", "gone", "unknown", "far"]
"""Files as they were when something was made of them, others or more, none left, not known, or far away."""


@dataclass(frozen=True, slots=True)
class CachedFiles:
    """What the user has, and where the cache keeps what is made of its present state.

    Attributes:
        source: what the user named, or words for it.
        files: the files that are the table, () where they are not all of it.
        states: of the files that it is read from.
        home: the folder of what is made of it. It is the same one for all names of the same files.
        name: the name of the source that means the same in every folder.
    """

    table: str
    source: FileSource
    files: tuple[Path, ...]
    states: tuple[FileState, ...]
    home: Path
    name: str = ""

    @classmethod
    def of(cls, table: str, source: FileSource, cache_directory: Path) -> CachedFiles:
        """Return the files that a path names. Raises LayoutError where there are none."""
        files = find_files(source)
        states = fingerprint(files)
        home = _home(cache_directory, states)
        return cls(table, source, files, states, home, absolute(source))

    @classmethod
    def of_part(cls, table: str, part: DuckTable, cache_directory: Path) -> CachedFiles:
        """Return a table of a DuckDB file."""
        home = _home(cache_directory, part.states, part.schema, part.name)
        name = f"{part.file}:{part.schema}.{part.name}"
        return cls(table, str(part.file), (), part.states, home, name)

    @classmethod
    def of_lake(cls, table: str, lake: LakeTable, cache_directory: Path) -> CachedFiles:
        """Return one version of a table in a lake."""
        states = fingerprint(lake.files)
        home = _home(cache_directory, states, lake.address, lake.state)
        return cls(table, lake.in_words, (), states, home, lake.address)

    @classmethod
    def of_call(cls, table: str, call: str, paths: Sequence[str], cache_directory: Path) -> CachedFiles:
        """Return the files that paths name, as a call of DuckDB's reads them."""
        if any(Address.of(path) is not None for path in paths):
            raise LayoutError(f"{call} reads what is not on this machine; copy it here first")
        states = fingerprint(find_files(paths))
        home = _home(cache_directory, states, call)
        return cls(table, call, (), states, home, f"{absolute(paths[0])}: {call}")

    def in_zone(self, zone: str) -> CachedFiles:
        """Return these files as they are read in a time zone: what is made of them is kept elsewhere."""
        stem, _, digest = self.home.name.rpartition("-")
        other = hashlib.sha256(f"{digest} {zone}".encode()).hexdigest()[:16]
        return replace(self, home=self.home.with_name(f"{stem}-{other}"))

    @property
    def source_in_words(self) -> str:
        return source_names(self.source)

    @property
    def layout(self) -> Path:
        """Return the folder of the layout."""
        return self.home / LAYOUT

    @property
    def has_layout(self) -> bool:
        return (self.layout / MANIFEST_NAME).is_file()

    @property
    def staged(self) -> Path:
        """Return the folder of the copy."""
        return self.home / STAGED

    @property
    def byte_count(self) -> int:
        """Return the bytes of all files."""
        return sum(max(byte_count, 0) for _, byte_count, _ in self.states)

    @property
    def in_words(self) -> str:
        if not self.files:
            return f"{self.table} ({self.source})"
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"{self.table} ({files}, {size_in_words(self.byte_count)})"

    def record(self) -> None:
        """Write down what is here, for whoever looks into the cache."""
        known = SourceRecord.read(self.home)
        names = known.names if known else ()
        if self.name not in names:
            files = tuple((os.path.realpath(path), size, modified) for path, size, modified in self.states)
            SourceRecord((*names, self.name), files, is_listed=bool(self.files)).write(self.home)


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What a folder of the cache was made of.

    Attributes:
        names: the names that it was opened by: absolute paths and patterns.
        files: the states of the files that it was read from, by their real paths.
        is_listed: whether each name stood for these files and no others.
    """

    names: tuple[str, ...]
    files: tuple[FileState, ...]
    is_listed: bool

    @classmethod
    def read(cls, home: Path) -> SourceRecord | None:
        """Return the record in a folder, None where there is none that can be read."""
        try:
            record = json.loads((home / RECORD_NAME).read_text(encoding="utf-8"))
            files = tuple((str(path), int(size), int(modified)) for path, size, modified in record["files"])
            return cls(tuple(record["names"]), files, bool(record["is_listed"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, home: Path) -> None:
        replace_content(home / RECORD_NAME, json.dumps(asdict(self)).encode())

    @property
    def state(self) -> SourceState:
        """Return whether the files are as they were."""
        found = tuple(file_state(path) for path, *_ in self.files)
        if found and all(byte_count < 0 for _, byte_count, _ in found):
            return "gone"
        if found != self.files:
            return "changed"
        is_current = not self.is_listed or any(self._is_all_of(name) for name in self.names)
        return "current" if is_current else "changed"

    def is_earlier(self, name: str) -> bool:
        """Whether this was made of a source before it had another state. name: of the source."""
        return name in self.names and (self.names == (name,) or self.state != "current")

    def _is_all_of(self, name: str) -> bool:
        """Whether a name still stands for these files, and for no other beside them."""
        try:
            found = find_files(name.split(_BETWEEN_PATHS))
        except LayoutError:
            return False
        return sorted(map(os.path.realpath, found)) == sorted(path for path, *_ in self.files)


@contextmanager
def one_at_a_time(home: Path, *, wait: bool) -> Iterator[None]:
    """Keep other processes from making or removing anything in a folder of the cache, which is made.

    Raises LayoutError if another one does and `wait` is not given.
    """
    while True:
        _make_folder(home)
        with locked(home, wait=wait) as held:
            if held.is_on(home):  # else it was removed while this process waited
                yield
                return


def _make_folder(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayoutError(
            f"the cache {home.parent} cannot be written: {error.strerror}; name another folder with "
            "cache_directory, or in RELAQS_CACHE"
        ) from error


def absolute(source: FileSource) -> str:
    """Return the name of a source that means the same in every folder. A list has a line for each path."""
    paths = [source] if isinstance(source, str | os.PathLike) else source
    return _BETWEEN_PATHS.join(os.path.abspath(Path(path).expanduser()) for path in paths)


def written_path(path: str | os.PathLike[str]) -> str:
    """Return a path as it means the same in every folder: absolute, or the address that it is."""
    address = Address.of(path)
    return absolute(path) if address is None else str(address)


def size_in_words(byte_count: int) -> str:
    """Return an amount of bytes for people.

    >>> size_in_words(517), size_in_words(1_234_567), size_in_words(20_000_000_000)
    ('0.5 kB', '1.2 MB', '20.0 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if byte_count >= size:
            return f"{byte_count / size:.1f} {unit}"
    return f"{byte_count / 1e3:.1f} kB"


def _home(cache_directory: Path, states: Sequence[FileState], *part: str) -> Path:
    """Return the folder for files in a state, whatever path they were found by.

    Folders such as year=2013 on the path a file was found by are columns of its table, so they count. part:
    which part of the files is meant.
    """
    real = sorted(
        (os.path.realpath(path), _hive_folders(path), size, modified) for path, size, modified in states
    )
    digest = hashlib.sha256(json.dumps([real, *part]).encode()).hexdigest()[:16]
    first = os.path.commonpath([path for path, *_ in real]) if real else part[0]
    name = re.sub(r"\W+", "_", os.path.basename(first).split(".")[0]).strip("_").lower()[:40]
    return Path(os.path.abspath(cache_directory)) / f"{name or 'data'}-{digest}"


def _hive_folders(path: str) -> list[str]:
    return [folder for folder in Path(path).parts[:-1] if "=" in folder]


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
