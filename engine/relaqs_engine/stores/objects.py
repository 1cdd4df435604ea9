"""Copies on this machine of single objects: files of the user's that nobody laid out.

    CACHE/stores/objects-<digest of the address>/year=2013/0f3c…-trips.parquet        with holes
    CACHE/stores/objects-<digest of the address>/year=2013/0f3c…-trips.parquet.held   what was fetched

The digits before the name are those of the object's state: its size and the store's mark of its content. Of
another state there is another copy. The first line of `.held` says what the object is. Each further one says
where bytes are that were fetched, and their checksum. What a crash has lost of either is fetched again.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import xxhash

from relaqs_engine.errors import StoreError
from relaqs_engine.shared_files import replace_content
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.folder import NoRangesError, StoredObject, endpoint, store_folder
from relaqs_engine.stores.mirror import Extent, hollow, identity, pieces, write

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
        byte_count: its size.
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
