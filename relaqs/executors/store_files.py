"""The copies that this process reads of object stores: fetched when needed, kept from removal while in use.

All copies on a machine together stay below a limit (LIMIT_VARIABLE). What one statement reads must fit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from relaqs_engine.errors import DataError
from relaqs_engine.layouts.cache_folder import Cache
from relaqs_engine.layouts.manifest import StoredFile
from relaqs_engine.layouts.reads import PlainRead, Read, TableRead
from relaqs_engine.layouts.remote_files import extents_to_read
from relaqs_engine.layouts.stored import extents_of, fetch, fetch_manifest
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import Remote, hollow, in_use, make_room, note_use
from relaqs_engine.stores.objects import ObjectCopy, copy_at

from relaqs.arguments import ArgumentError
from relaqs.memory import amount_bytes

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
