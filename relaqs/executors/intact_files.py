"""Which files of layouts this process has found intact: each is checked before its first use, and once a day.

What is checked are the columns that a statement can read, and the footer. A file that was written to since is
checked again at once. A disk that loses bits changes neither size nor time. See
`relaqs_engine/layouts/checksums.py`.

Of a table in an object store there are copies with holes. What the check finds missing is fetched, and
checked again. See `store_files.py`.

Files that were not laid out have no checksums. They must be as they were when their session was opened,
before a statement reads them and after.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.file_state import change_in_words
from relaqs_engine.layouts.intact import HOW_TO_MEND, damaged_columns, fault_of
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, StoredFile
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.reads import FirstRead, LaidOutRead, PlainRead, Read, TableRead
from relaqs_engine.layouts.retired import retired_states
from relaqs_engine.stores.mirror import Remote

from relaqs.executors.store_files import FETCHING_THREADS, StoreFiles

CHECKED_FOR_SECONDS = 24 * 3600.0
_LAY_OUT_AGAIN = "lay the table out again with relaqs.shuffle"

_Stamp = tuple[int, int, int]
"""What tells a file from the same one after a write: inode, bytes, time of change in nanoseconds."""


class UnseenFileError(DataError):
    """A file or folder that a task must read is not there for the process that runs it."""

    def __init__(self, path: str, remedy: str = _LAY_OUT_AGAIN) -> None:
        super().__init__(path, remedy)
        self.path = path
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.path} is not there; restore it, or {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A table's manifest as it was when it had this stamp. files: by name, also those of retired states."""

    stamp: _Stamp
    layout: Layout
    files: dict[str, StoredFile]


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found intact of a file when it had this stamp: columns by position. It counts until then."""

    stamp: _Stamp
    columns: frozenset[int]
    until_seconds: float


@dataclass(frozen=True, slots=True)
class _Check:
    """A check that is due: of some columns of a file that has a stamp. remote: of a copy."""

    path: Path
    stored: StoredFile
    columns: frozenset[int]
    stamp: _Stamp
    remote: Remote | None = None


class IntactFiles:
    """What a process knows of the files that it reads. Used by its threads at the same time.

    clock: in seconds, and never goes back.
    """

    def __init__(self, stores: StoreFiles, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores = stores
        self._clock = clock
        self._lock = threading.Lock()
        self._fetching_manifest = threading.Lock()
        self._manifests: dict[str, _Manifest] = {}
        self._found: dict[Path, _Found] = {}

    def check(
        self,
        reads: Sequence[Read],
        *,
        threads: int = 1,
        before_each: Callable[[], None] = lambda: None,
    ) -> None:
        """Return once everything that is read is known to hold the bytes that were written.

        threads: so many files are read at a time. before_each: called before each file; it may raise.
        Raises DataError naming the first file that is damaged or has changed, UnseenFileError for one that is
        not there.
        """
        check_unchanged(reads)
        due = [check for read in reads if not isinstance(read, PlainRead) for check in self._due(read)]

        def run(check: _Check) -> None:
            before_each()
            self._run(check)

        if any(check.remote for check in due):
            threads = max(threads, FETCHING_THREADS)
            self._stores.check_fit((check.stored, check.columns) for check in due if check.remote)
        if len(due) == 1 or threads == 1:
            for check in due:
                run(check)
        elif due:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(threads, len(due))) as pool:
                for _ in pool.map(run, due):
                    pass

    def _due(self, read: LaidOutRead) -> Iterator[_Check]:
        layout, stored_files = self._known(read)
        remote = read.remote if isinstance(read, TableRead) else None
        wanted = _positions(layout, read.columns)
        for file in read.files:
            path = layout.directory / file
            stored = stored_files.get(file)
            if stored is None:
                raise DataError(
                    f"{path} is no part of its table any more, which was laid out anew; ask again in a new "
                    "session"
                )
            if remote is not None:
                self._stores.open_copy(path, stored.byte_count)
            stamp = _stamp(path)
            if (known := self._still_known(path, stamp)) is None:
                yield _Check(path, stored, wanted, stamp, remote)
            elif missing := wanted - known.columns:
                yield _Check(path, stored, missing, stamp, remote)

    def _manifest_of(self, read: TableRead) -> _Manifest:
        """Return the table's manifest. That of a table in an object store is fetched where it is missing."""
        if read.remote is None:
            return self._manifest(read.directory)
        if (known := self._copied_manifest(read)) is not None:
            return known
        with self._fetching_manifest:
            if (known := self._copied_manifest(read)) is not None:
                return known
            self._stores.fetch_manifest(read.directory, read.remote.address)
        return self._manifest(read.directory)

    def _copied_manifest(self, read: TableRead) -> _Manifest | None:
        """Return the copy of the manifest if it names all that is read."""
        try:
            manifest = self._manifest(read.directory)
        except UnseenFileError:
            return None
        return manifest if manifest.files.keys() >= set(read.files) else None

    def _known(self, read: LaidOutRead) -> tuple[Layout, Mapping[str, StoredFile]]:
        """Return the layout that is read, and its files by name."""
        if isinstance(read, FirstRead):
            return read.part, {stored.file: stored for stored in read.part.files}
        manifest = self._manifest_of(read)
        return manifest.layout, manifest.files

    def _manifest(self, directory: str) -> _Manifest:
        path = Path(directory, MANIFEST_NAME)
        stamp, known = _stamp(path), self._manifests.get(directory)
        if known is not None and known.stamp == stamp:
            return known
        try:
            layout = read_manifest(directory)
        except LayoutError as error:
            raise DataError(str(error)) from error
        states = (*retired_states(Path(directory)), layout)
        manifest = _Manifest(
            stamp, layout, {stored.file: stored for each in states for stored in each.all_files}
        )
        self._manifests[directory] = manifest
        return manifest

    def _run(self, check: _Check) -> None:
        if check.remote is not None and (missing := damaged_columns(check.path, check.stored, check.columns)):
            self._stores.fetch(check.path, check.stored, missing, check.remote)
            check = replace(check, stamp=_stamp(check.path))
        if fault := fault_of(check.path, check.stored, check.columns):
            raise DataError(f"{_place(check)} {fault}; {HOW_TO_MEND}")
        with self._lock:
            columns, until_seconds = check.columns, self._clock() + CHECKED_FOR_SECONDS
            if (known := self._still_known(check.path, check.stamp)) is not None:
                columns, until_seconds = columns | known.columns, known.until_seconds
            self._found[check.path] = _Found(check.stamp, columns, until_seconds)

    def _still_known(self, path: Path, stamp: _Stamp) -> _Found | None:
        known = self._found.get(path)
        if known is None or known.stamp != stamp or known.until_seconds <= self._clock():
            return None
        return known


def check_unchanged(reads: Sequence[Read]) -> None:
    """Return if the files that were not laid out are as they were when the session was opened.

    Raises DataError naming the first that has changed, UnseenFileError for one that is not there.
    """
    for read in (read for read in reads if isinstance(read, PlainRead)):
        for state in read.files:
            if (change := change_in_words(state)) is not None:
                _fail_on_change(read.table, state[0], change)


def _fail_on_change(table: str, path: str, change: str) -> NoReturn:
    remedy = f'open a new session (relaqs.connect) or call db.refresh("{table}") to ask about it as it is now'
    if not os.path.exists(path):
        raise UnseenFileError(path, remedy)
    raise DataError(f"{path} changed since this session was opened: {change}; {remedy}")


def _positions(layout: Layout, columns: Sequence[str]) -> frozenset[int]:
    """Return the positions of columns in the table's files, with that of the block, which is last."""
    named = set(columns)
    found = {i for i, column in enumerate(layout.columns) if column.name in named}
    return frozenset(found | ({len(layout.columns)} if layout.is_sampled else set()))


def _place(check: _Check) -> str:
    """Return where the file is, for people."""
    return str(check.path if check.remote is None else check.remote.address / check.stored.file)


def _stamp(path: Path) -> _Stamp:
    try:
        state = os.stat(path)
    except OSError as error:
        raise UnseenFileError(str(path)) from error
    return state.st_ino, state.st_size, state.st_mtime_ns
