"""Copies on this machine of what was read in object stores. All copies together are bounded.

    CACHE/stores/<digest of the address>/trips/manifest.json
    CACHE/stores/<digest of the address>/trips/data-…/part-00000.parquet
    CACHE/stores/.locks/17

A copy has the size of its object, and holes in the place of all that was not fetched. Whoever reads a copy
must know by checksums what it holds. While a process reads copies it holds the locks of their groups, so that
no other process removes them.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.shared_files import Lock, lock
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.folder import StoreFolder, endpoint

_LOCKS = ".locks"
_KEPT = (".json", ".held")  # small, and good for any copy that is made again
_LOCK_GROUPS = 64
_PIECE_BYTES = 8 << 20
_BYTES_AT_ONCE = 64 << 20
_BLOCK_BYTES = 512  # what `st_blocks` counts, where a file system can have holes
_LATEST_DRAWN_NS = 10**18  # in 2001: a time to come would look like a file that is being written
_FREED_SHARE = 0.1  # of the limit, beyond what is needed: the next removal is not due at once


Extent = tuple[int, int]
"""Where bytes lie in an object: offset, length."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Where copies come from.

    Attributes:
        address: of the folder that is copied.
        root: the folder of all copies on each machine.
    """

    address: Address
    root: str


def default_cache_directory() -> Path:
    """Return where copies and layouts of files are: $RELAQS_CACHE, or ~/.cache/relaqs."""
    return Path(os.environ.get("RELAQS_CACHE") or Path.home() / ".cache" / "relaqs")


def mirror_root(cache_directory: Path) -> Path:
    """Return the folder of all copies."""
    return Path(os.path.abspath(cache_directory)) / "stores"


def mirror_folder(root: Path, address: Address) -> Path:
    """Return the folder of the copies of what lies at an address. It is called like that folder."""
    whole = f"{endpoint()} {address.parent}"
    return root / hashlib.sha256(whole.encode()).hexdigest()[:16] / address.name


def hollow(path: Path, byte_count: int) -> None:
    """Make a copy that holds nothing yet, if there is none of this size.

    Its time of change is drawn at random, and stays: so a copy that was removed and made again differs.
    """
    if path.is_file() and path.stat().st_size == byte_count:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(handle, byte_count)
    finally:
        os.close(handle)
    drawn_ns = secrets.randbelow(_LATEST_DRAWN_NS)
    os.utime(path, ns=(drawn_ns, drawn_ns))


def fill(folder: StoreFolder, key: str, path: Path, extents: Iterable[Extent]) -> None:
    """Fetch parts of an object into its copy. Errors are those of `StoreFolder.ranges`."""
    for some in pieces(extents):
        write(path, some, folder.ranges(key, [at for at, _ in some], [length for _, length in some]))


def pieces(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Yield the extents, as many at a time as are held in memory at once. Large ones are cut."""
    some: list[Extent] = []
    size = 0
    for at, length in extents:
        for start in range(at, at + length, _PIECE_BYTES):
            some.append((start, min(_PIECE_BYTES, at + length - start)))
            size += some[-1][1]
            if size >= _BYTES_AT_ONCE:
                yield some
                some, size = [], 0
    if some:
        yield some


def write(path: Path, extents: Iterable[Extent], contents: Iterable[memoryview]) -> None:
    """Write parts into a copy. Its time of change stays that which it was made with."""
    before = path.stat()
    try:
        with path.open("r+b") as file:
            for (start, _), content in zip(extents, contents, strict=True):
                file.seek(start)
                file.write(content)
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def note_use(path: Path, now_ns: int) -> None:
    """Remember that a copy is used now. Those that were not used for the longest time are removed first."""
    os.utime(path, ns=(now_ns, path.stat().st_mtime_ns))


def identity(path: Path) -> tuple[int, int, int]:
    """Return what tells a copy from any other that was at its path."""
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


@contextmanager
def in_use(root: Path, paths: Iterable[Path]) -> Iterator[None]:
    """Keep copies from being removed inside the block."""
    with ExitStack() as held:
        for group in sorted({_group(root, path) for path in paths}):
            held.callback(_group_lock(root, group, shared=True).release)
        yield


def make_room(root: Path, limit_bytes: int, needed_bytes: int) -> None:
    """Remove copies that nothing reads until what is needed fits below the limit, as far as that goes."""
    copies = sorted(copies_in(root), key=lambda each: each[1].st_atime_ns)
    left_bytes = sum(held_bytes(state) for _, state in copies)
    if left_bytes + needed_bytes <= limit_bytes:
        return
    wanted = max(0, limit_bytes - needed_bytes - int(_FREED_SHARE * limit_bytes))
    for path, state in copies:
        if left_bytes <= wanted:
            break
        if _removed(root, path):
            left_bytes -= held_bytes(state)


def held_bytes(state: os.stat_result) -> int:
    """Return the bytes on disk of a copy in this state. Holes take none, except on Windows."""
    blocks: int | None = getattr(state, "st_blocks", None)
    return state.st_size if blocks is None else blocks * _BLOCK_BYTES


def are_read(root: Path, paths: Iterable[Path]) -> bool:
    """Whether a process reads some of these copies now."""
    for group in {_group(root, path) for path in paths}:
        try:
            _group_lock(root, group, wait=False).release()
        except BlockingIOError:
            return True
    return False


def remove_copies(root: Path, paths: Iterable[Path]) -> bool:
    """Remove the copies that no process reads now. Return whether these were all."""
    kept = [path for path in paths if not _removed(root, path)]
    return not kept


def copies_in(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the copies below a folder, and their states."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.parent.name != _LOCKS and not name.endswith(_KEPT):
                try:
                    yield path, path.stat()
                except FileNotFoundError:
                    continue


def _group(root: Path, path: Path) -> int:
    """Return the group of a copy. It is the same through any path that leads to the root, such as a link."""
    return zlib.crc32(os.fsencode(os.path.relpath(path, root))) % _LOCK_GROUPS


def _group_lock(root: Path, group: int, *, shared: bool = False, wait: bool = True) -> Lock:
    """Return the lock of a group, held. Raises BlockingIOError where it is not to be waited for."""
    locks = root / _LOCKS
    locks.mkdir(parents=True, exist_ok=True)
    path = locks / str(group)
    path.touch(0o600)
    return lock(path, shared=shared, wait=wait)


def _removed(root: Path, path: Path) -> bool:
    """Remove a copy that nothing reads; return whether it was removed."""
    try:
        held = _group_lock(root, _group(root, path), wait=False)
    except BlockingIOError:
        return False
    try:
        path.unlink(missing_ok=True)
    finally:
        held.release()
    return True
