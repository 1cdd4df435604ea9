"""Copies on this machine of what was read in object stores. All copies together are bounded.

    CACHE/stores/<digest of the address>/trips/manifest.json
    CACHE/stores/<digest of the address>/trips/data-…/part-00000.parquet
    CACHE/stores/.locks/17

A copy has the size of its object, and holes in the place of all that was not fetched. Whoever reads a copy
must know by checksums what it holds. While a process reads copies it holds the locks of their groups, so that
no other process removes them.

**Single objects**, files of the user's that nobody laid out, have copies of their own:

    CACHE/stores/objects-<digest of the address>/year=2013/0f3c…-trips.parquet        with holes
    CACHE/stores/objects-<digest of the address>/year=2013/0f3c…-trips.parquet.held   what was fetched

The digits before the name are those of the object's state: its size and the store's mark of its content. Of
another state there is another copy. The first line of `.held` says what the object is. Each further one says
where bytes are that were fetched, and their checksum. What a crash has lost of either is fetched again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import xxhash

from relaqs_engine.errors import StoreError
from relaqs_engine.shared_files import Lock, lock, replace_content
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.object_folder import (
    NoRangesError,
    StoredObject,
    StoreFolder,
    endpoint,
    store_folder,
)

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


OBJECTS_PREFIX = "objects-"
"""What the names of folders with copies of objects begin with."""

_COPY = re.compile(rf"/{OBJECTS_PREFIX}[0-9a-f]{{16}}/")
_HELD = ".held"
_END_BYTES = 64 << 10
"""Of an object, fetched first: most footers are shorter."""


@dataclass(frozen=True, slots=True)
class ObjectCopy:
    """A copy, and what it is a copy of.

    Attributes:
        mark: the store's mark of its content.
        modified_ns: when it was written.
    """

    path: Path
    address: Address
    byte_count: int
    mark: str
    modified_ns: int

    @property
    def state(self) -> tuple[str, int, int]:
        """Return the copy's path, the object's size, and the time when it was written in nanoseconds."""
        return str(self.path), self.byte_count, self.modified_ns

    @property
    def root(self) -> Path:
        """Return the folder of all copies."""
        found = _COPY.search(str(self.path))
        assert found is not None
        return Path(str(self.path)[: found.start()])

    def missing(self, extents: Iterable[Extent]) -> list[Extent]:
        """Return those of these bytes that are not in the copy."""
        hollow(self.path, self.byte_count)
        found = _found(self.path)
        wanted = [each for each in dict.fromkeys(extents) if each[1] and each not in found]
        if not wanted or self._whole in found:
            return []
        known = _held(self.path)
        if known.get(self._whole) == _checksum(self.path, self._whole):
            found.add(self._whole)
            return []
        missing = [each for each in wanted if _checksum(self.path, each) != known.get(each)]
        found.update(set(wanted).difference(missing))
        return missing

    @property
    def _whole(self) -> Extent:
        return 0, self.byte_count

    def fetch(self, extents: Iterable[Extent]) -> None:
        """Have these bytes in the copy. Raises StoreError where the object has changed, or is gone."""
        if not (missing := self.missing(extents)):
            return
        try:
            self._fetch_ranges(missing)
        except NoRangesError:
            missing = [self._whole]
            self._fetch_whole()
        self._note(missing)

    def _fetch_ranges(self, extents: Sequence[Extent]) -> None:
        folder, name = store_folder(self.address.parent), self.address.name
        self._check_same()
        for some in pieces(extents):
            contents = folder.ranges(name, [at for at, _ in some], [length for _, length in some])
            self._check_same()  # before it is written: others may read these bytes already
            write(self.path, some, contents)

    def _fetch_whole(self) -> None:
        """Fetch all into another file, which then takes the place of the copy."""
        draft = self.path.with_name(f"{self.path.name}-{secrets.token_hex(4)}")
        try:
            with draft.open("wb") as file:
                for content in store_folder(self.address.parent).pieces(self.address.name):
                    file.write(content)
            self._check_same()
            if (got := draft.stat().st_size) != self.byte_count:
                raise StoreError(f"{self.address} ended after {got:,} of {self.byte_count:,} bytes")
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)

    def _check_same(self) -> None:
        found = store_folder(self.address.parent).described(self.address.name)
        if found is None or found.state != (self.byte_count, self.mark):
            raise StoreError(
                f"{self.address} changed since it was opened; open a new session (relaqs.connect)"
            )

    def _note(self, extents: Sequence[Extent]) -> None:
        lines = "".join(f"{at} {length} {_checksum(self.path, (at, length))}\n" for at, length in extents)
        with open(f"{self.path}{_HELD}", "a", encoding="ascii") as file:
            file.write(lines)
        _found(self.path).update(extents)


def object_copy(address: Address, stored: StoredObject, root: Path) -> ObjectCopy:
    """Return the copy of an object in its present state, made now if need be. root: of all copies."""
    folder, name = address.parent, address.name
    whole = f"{endpoint()} {folder}"
    byte_count, mark = stored.state
    state = hashlib.sha256(f"{byte_count} {mark}".encode()).hexdigest()[:16]
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    hive = [part for part in folder.path.split("/") if "=" in part]  # the names of folders may be columns
    path = root.joinpath(f"{OBJECTS_PREFIX}{digest}", *hive, f"{state}-{name}")
    modified_ns = int(stored.modified.timestamp()) * 1_000_000_000
    hollow(path, byte_count)
    held = Path(f"{path}{_HELD}")
    if not held.exists():
        first = {"address": str(address), "bytes": byte_count, "mark": mark, "modified_ns": modified_ns}
        replace_content(held, f"{json.dumps(first)}\n".encode(), is_synced=False)
    return ObjectCopy(path, address, byte_count, mark, modified_ns)


def copy_at(path: str | Path) -> ObjectCopy | None:
    """Return the copy at a path, None where there is a file of the user's, or none."""
    return _opened(str(path)) if _COPY.search(str(path)) else None


@lru_cache(maxsize=4096)
def _opened(path: str) -> ObjectCopy | None:
    try:
        with open(f"{path}{_HELD}", encoding="ascii") as file:
            first = json.loads(file.readline())
        address = Address.of(first["address"])
        assert address is not None
        return ObjectCopy(Path(path), address, first["bytes"], first["mark"], first["modified_ns"])
    except (OSError, ValueError, KeyError):
        return None


def addresses_in(folder: Path) -> list[Address]:
    """Return the addresses of the objects that a folder has copies of, by name."""
    paths = (str(path).removesuffix(_HELD) for path in folder.rglob(f"*{_HELD}"))
    found = {str(copy.address): copy.address for path in paths if (copy := _opened(path)) is not None}
    return [address for _, address in sorted(found.items())]


def fetch_whole(path: str | Path) -> None:
    """Have all bytes of a copy there. Nothing happens to a file of the user's."""
    if (copy := copy_at(path)) is not None:
        copy.fetch([(0, copy.byte_count)])


def fetch_end(copy: ObjectCopy) -> None:
    """Have the last bytes of a copy there: a Parquet file's footer, however long it is."""
    begin = max(0, copy.byte_count - _END_BYTES)
    copy.fetch([(begin, copy.byte_count - begin)])
    with copy.path.open("rb") as file:
        file.seek(max(0, copy.byte_count - 8))
        length = int.from_bytes(file.read(4), "little") + 8
    if copy.byte_count - length < begin and 0 < length <= copy.byte_count:
        copy.fetch([(copy.byte_count - length, length)])


_FOUND: dict[Path, tuple[tuple[int, int, int], set[Extent]]] = {}
"""What this process has found in copies: by path its identity, and the extents."""


def _found(path: Path) -> set[Extent]:
    there = identity(path)
    if (known := _FOUND.get(path)) is None or known[0] != there:
        known = _FOUND[path] = there, set()
    return known[1]


def _held(path: Path) -> dict[Extent, str]:
    """Return the extents that were fetched, with their checksums. A line that is not whole is left out."""
    found: dict[Extent, str] = {}
    with open(f"{path}{_HELD}", encoding="ascii", errors="replace") as file:
        for line in list(file)[1:]:
            words = line.split()
            if len(words) == 3 and line.endswith("\n") and words[0].isdigit() and words[1].isdigit():
                found[int(words[0]), int(words[1])] = words[2]
    return found


def _checksum(path: Path, extent: Extent) -> str:
    digest, (at, left) = xxhash.xxh3_64(), extent
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        while left and (piece := file.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()
