"""What a process keeps of the files that its tasks read: which were found intact, and copies of stores.

- **Intact.** Each file of a layout is checked before its first use, and once a day: the columns that a
  statement can read, and the footer. A file that was written to since is checked again at once. A disk
  that loses bits changes neither size nor time. See `relaqs_engine/layouts/checksums.py`. Files that were
  not laid out have no checksums. They must be as they were when their session was opened, before a
  statement reads them and after.
- **Copies** of object stores are fetched when needed, and kept from removal while in use. They may have
  holes: what the check finds missing is fetched, and checked again. All copies on a machine together stay
  below a limit (LIMIT_VARIABLE). What one statement reads must fit. What the next tasks will read is
  fetched ahead, on threads of its own, while one computes (`ReadAhead`).
- **A folder on this machine's disk** has what a worker cannot hold in memory. FOLDER_VARIABLE names it.
  Otherwise a Dask worker has its own folder (`dask worker --local-directory`), and other processes the
  system's folder for temporary files. On many systems that one is in memory. It is left out then, since
  what is written there would free no memory.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from relaqs_engine.errors import DataError, LayoutError, RelaqsError
from relaqs_engine.layouts.cache import Cache
from relaqs_engine.layouts.file_kinds import change_in_words
from relaqs_engine.layouts.folder import retired_states
from relaqs_engine.layouts.manifest import (
    MANIFEST_NAME,
    FirstRead,
    LaidOutRead,
    Layout,
    PlainRead,
    Read,
    StoredFile,
    TableRead,
)
from relaqs_engine.layouts.manifest_file import HOW_TO_MEND, damaged_columns, fault_of, read_manifest
from relaqs_engine.layouts.remote import extents_of, extents_to_read, fetch, fetch_manifest
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import ObjectCopy, Remote, copy_at, hollow, in_use, make_room, note_use

from relaqs.arguments import ArgumentError
from relaqs.jobs.executor import background_thread
from relaqs.memory import amount_bytes

FOLDER_VARIABLE = "RELAQS_SPILL_FOLDER"
"""The environment variable that names the folder."""

_MOUNTS = Path("/proc/self/mountinfo")  # Linux
_IN_MEMORY = ("tmpfs", "ramfs")
_BEFORE_TYPE = " - "  # in a line of it

_of_worker: str | None = None


def use_folder_of_worker(folder: str) -> None:
    """Have the folder of this process's Dask worker be the one, unless the user names another."""
    global _of_worker
    _of_worker = folder


def local_folder() -> Path | None:
    """Return the folder. None: each that there is is in memory. One that the user named may not exist."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    for folder in (_of_worker, tempfile.gettempdir(), "/var/tmp"):
        if folder is not None and Path(folder).is_dir() and not is_in_memory(Path(folder)):
            return Path(folder)
    return None


def is_in_memory(folder: Path) -> bool:
    """Whether a folder is known to be in memory: on Linux, by the type of its file system."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    types = [line.partition(_BEFORE_TYPE)[2].split(" ")[0] for line in lines if line.split(" ")[2] == number]
    return any(each in _IN_MEMORY for each in types)


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
        self, reads: Sequence[Read], *, threads: int = 1, before_each: Callable[[], None] = lambda: None
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
        manifest = self._with_retired(read, manifest)
        return manifest if manifest.files.keys() >= set(read.files) else None

    def _known(self, read: LaidOutRead) -> tuple[Layout, Mapping[str, StoredFile]]:
        """Return the layout that is read, and its files by name."""
        if isinstance(read, FirstRead):
            return read.part, {stored.file: stored for stored in read.part.files}
        manifest = self._with_retired(read, self._manifest_of(read))
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
        manifest = _Manifest(stamp, layout, {stored.file: stored for stored in layout.all_files})
        self._manifests[directory] = manifest
        return manifest

    def _with_retired(self, read: TableRead, manifest: _Manifest) -> _Manifest:
        """Return the manifest with the files of retired states, if something is read that is not in it."""
        if manifest.files.keys() >= set(read.files):
            return manifest
        states = retired_states(Path(read.directory))
        retired = {stored.file: stored for state in states for stored in state.all_files}
        manifest = replace(manifest, files=retired | manifest.files)
        self._manifests[read.directory] = manifest
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


LIMIT_VARIABLE = "RELAQS_STORE_CACHE"
"""The environment variable that says how many bytes all copies may take, such as 50GB."""

FETCHING_THREADS = 8
"""So many files are fetched side by side for one task. They wait for the network, and cost no core."""

_LIMIT = "20GB"
_LOOK_SHARE = 1 / 16
"""Of the limit: after so many bytes were fetched, it is looked how many there are."""


class StoreFiles:
    """What a process fetches. Used by its threads at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fetched_bytes: dict[str, int] = {}  # by folder of copies, since the last look at it
        self._look_count = 0  # looks at how many bytes there are

    @contextmanager
    def in_use(self, reads: Sequence[Read]) -> Iterator[None]:
        """Keep the copies of what is read from being removed inside the block."""
        looks_before = self._look_count
        try:
            with ExitStack() as held:
                for read in reads:
                    if isinstance(read, TableRead) and read.remote is not None:
                        paths = [Path(read.directory, file) for file in read.files]
                        held.enter_context(in_use(Path(read.remote.root), paths))
                    elif isinstance(read, PlainRead):
                        self._fetch_plain(read, held)
                yield
        finally:
            if self._look_count > looks_before:
                self._remove_surplus()

    def _fetch_plain(self, read: PlainRead, held: ExitStack) -> None:
        """Fetch the columns that are read of files in a store, which stay until `held` is closed."""
        copies = [copy for path, *_ in read.files if (copy := copy_at(path))]
        if not copies:
            return
        from concurrent.futures import ThreadPoolExecutor  # whoever has no copies needs none

        held.enter_context(in_use(copies[0].root, [copy.path for copy in copies]))

        def fetch_copy(copy: ObjectCopy) -> None:
            try:
                missing = copy.missing(extents_to_read(copy, read.columns, read.row_groups))
                self._make_room(copy.root, sum(length for _, length in missing))
                copy.fetch(missing)
                note_use(copy.path, time.time_ns())
            except OSError as error:
                raise _unwritable(copy.path, error) from error

        with ThreadPoolExecutor(min(FETCHING_THREADS, len(copies))) as pool:
            list(pool.map(fetch_copy, copies))

    def open_copy(self, path: Path, byte_count: int) -> None:
        """Have a copy there, with holes maybe, and remember that it is used. Raises DataError."""
        try:
            hollow(path, byte_count)
            note_use(path, time.time_ns())
        except OSError as error:
            raise _unwritable(path, error) from error

    def fetch_manifest(self, directory: str, address: Address) -> None:
        """Fetch the manifest that a stored table has now. Raises DataError."""
        try:
            fetch_manifest(Path(directory), address)
        except OSError as error:
            raise _unwritable(Path(directory), error) from error

    def check_fit(self, wanted: Iterable[tuple[StoredFile, Iterable[int]]]) -> None:
        """Raise DataError if all these columns of files are more than copies may take."""
        needed, limit = sum(_byte_count(stored, columns) for stored, columns in wanted), limit_bytes()
        if needed > limit:
            raise DataError(
                f"one statement reads {needed / 1e9:.1f} GB of an object store, and copies may take "
                f"{limit / 1e9:.1f} GB; set {LIMIT_VARIABLE} to more, or ask about fewer columns"
            )

    def fetch(self, path: Path, stored: StoredFile, columns: Sequence[int | None], remote: Remote) -> None:
        """Fetch columns of a file into its copy. Raises DataError, StoreError."""
        try:
            self._make_room(Path(remote.root), _byte_count(stored, columns))
            fetch(path, stored, columns, remote.address)
        except OSError as error:
            raise _unwritable(path, error) from error

    def _make_room(self, root: Path, needed_bytes: int) -> None:
        cache = Cache(root.parent)
        limit = _limit_of(cache)
        with self._lock:
            fetched = self._fetched_bytes.get(str(root), limit) + needed_bytes
            is_due = fetched >= _LOOK_SHARE * limit
            self._fetched_bytes[str(root)] = 0 if is_due else fetched
            self._look_count += is_due
        if is_due:
            make_room(root, limit, needed_bytes)
            cache.free(needed_bytes)

    def _remove_surplus(self) -> None:
        """Make the room that several needed at once, or that could not be made for what was in use."""
        with self._lock:
            roots = [Path(root) for root in self._fetched_bytes]
        for root in roots:
            with suppress(OSError):  # the answer is there; whoever fetches next tries again, and says why
                make_room(root, _limit_of(Cache(root.parent)), 0)


def limit_bytes() -> int:
    """Return how many bytes all copies may take. Raises DataError where the environment says no amount."""
    text = os.environ.get(LIMIT_VARIABLE) or _LIMIT
    try:
        return amount_bytes(text)
    except ArgumentError:
        raise DataError(f"{LIMIT_VARIABLE} is {text!r}; it must be a size, such as 50GB") from None


def _limit_of(cache: Cache) -> int:
    """Return how many bytes the copies in a cache may take: the lesser of its own limit and theirs."""
    of_cache = cache.limit_bytes
    return limit_bytes() if of_cache is None else min(limit_bytes(), of_cache)


def _byte_count(stored: StoredFile, columns: Iterable[int | None]) -> int:
    return sum(length for _, length in extents_of(stored, columns))


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"the copy {path} cannot be written: {error.strerror}; make room there, or set RELAQS_CACHE to a "
        "folder that this process and all workers may write to"
    )


_THREADS = 4  # they wait for the network, and cost no core
_MOST_WAITING = 256
"""Reads. Beyond them the oldest are left to the tasks themselves."""


class ReadAhead:
    """What is to be fetched, and the threads that do so. They end when nothing is left.

    fetch: called with each read. What it raises is left to the task, which will meet it as well.
    """

    def __init__(self, fetch: Callable[[Read], None]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._waiting: deque[Read] = deque(maxlen=_MOST_WAITING)
        self._running = 0
        _OPEN.add(self)

    def add(self, reads: Sequence[Read]) -> None:
        """Fetch these, some time."""
        if not reads:
            return
        with self._changed:
            self._waiting.extend(reads)
            for _ in range(min(_THREADS - self._running, len(self._waiting))):
                self._running += 1
                background_thread(self._work, "relaqs-ahead").start()

    def stop(self) -> None:
        """Fetch no more but what is being fetched now."""
        with self._changed:
            self._waiting.clear()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until nothing is left to fetch; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout_seconds)

    def _work(self) -> None:
        while (read := self._next()) is not None:
            with suppress(RelaqsError):
                self._fetch(read)

    def _next(self) -> Read | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            self._changed.notify_all()
            return None


_OPEN: weakref.WeakSet[ReadAhead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for each in list(_OPEN):
        each.stop()
