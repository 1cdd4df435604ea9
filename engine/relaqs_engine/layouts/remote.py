"""Files in an object store or on a web server: fetched as copies, and put when a layout is written.

**Layouts that lie in a store** are opened by their manifests, and their files fetched column by column. A
layout's `directory` is then a folder of copies on this machine, see `stores/mirror.py`. The manifest and
the checksums in it say what a copy must hold. So nothing else has to be remembered of what was fetched.

**Files in a store.** Of a Parquet file the footer is fetched when it is found, with all else that belongs
to no column. Columns are fetched when a statement reads them. Other files are fetched whole.

**Writing a layout to a store**: it is made in a folder of this machine, then put, the manifest last.

    TABLE/data-<16 hex digits>/part-00000.parquet   put first, under names that nothing uses yet
    TABLE/manifest.json                             put last, and only if it is still the one that was found

Putting the manifest is the switch. Of several writers the first one wins. The others fail, and remove what
they put. A writer that dies before the switch leaves files that no manifest names. A later write removes
them when they are a day old: younger ones may be another writer's.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from relaqs_engine.errors import DataError, LayoutError, StoreError
from relaqs_engine.layouts.checksums import extents_between
from relaqs_engine.layouts.file_kinds import is_data, kind_by_name
from relaqs_engine.layouts.folder import Writing, check_replaceable, writing
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, StoredFile
from relaqs_engine.layouts.manifest_file import manifest_text, parsed_manifest
from relaqs_engine.shared_files import replace_content
from relaqs_engine.stores.address import WRITABLE, Address
from relaqs_engine.stores.mirror import (
    Extent,
    ObjectCopy,
    Remote,
    default_cache_directory,
    fetch_end,
    fetch_whole,
    fill,
    mirror_folder,
    mirror_root,
    object_copy,
)
from relaqs_engine.stores.object_folder import MissingObjectError, StoredObject, StoreFolder, store_folder

_ADDRESS_NAME = "address.json"
"""Says where the tables beside it come from."""


def stored_layout(address: Address, root: Path) -> Layout | None:
    """Return the layout at an address, None where there is none. root: of the copies.

    Raises LayoutError where it is damaged, StoreError where the store does not answer.
    """
    if (found := store_folder(address).content(MANIFEST_NAME)) is None:
        return None
    directory = mirror_folder(root, address)
    layout = parsed_manifest(directory, found[0], str(address / MANIFEST_NAME))
    return replace(layout, remote=Remote(address, str(root)))


def stored_again(table: Layout, remote: Remote) -> Layout:
    """Return a table as it is in its store now. Raises LayoutError where it is not there any more."""
    if (found := stored_layout(remote.address, Path(remote.root))) is None:
        raise LayoutError(f"{remote.address} holds no layout any more; open a new session (relaqs.connect)")
    return replace(found, table=table.table)


def may_be_folder(address: Address) -> bool:
    """Whether this is no pattern, and has no ending of a file."""
    is_file = glob.has_magic(address.path) or kind_by_name(Path(address.name)) is not None
    return address.is_listable and not is_file


def is_stored_warehouse(address: Address) -> bool:
    """Whether this is a layout in a store, or a folder of layouts."""
    return may_be_folder(address) and bool(stored_tables(address))


def stored_warehouse(warehouse: Address, root: Path) -> dict[str, Callable[[], Layout | None]]:
    """Return what opens the layouts in a folder of a store, by name. A folder that holds none gives None."""
    return {
        name: partial(stored_layout, warehouse / name, root) for name in store_folder(warehouse).entries()[0]
    }


def no_stored_tables(warehouse: Address) -> LayoutError:
    """Return what to raise where a folder of a store holds no layout."""
    hint = f"lay one out with `relaqs shuffle SOURCE --into {warehouse}/TABLE`"
    if store_folder(warehouse).described(MANIFEST_NAME) is not None:
        hint = f"it is a table itself: open {warehouse.parent}"
    return LayoutError(f"{warehouse} holds no tables; {hint}")


def stored_tables(address: Address) -> list[Address]:
    """Return where the layouts at an address are: there itself, or in its folders."""
    if store_folder(address).described(MANIFEST_NAME) is not None:
        return [address]
    inside = [address / name for name in store_folder(address).entries()[0]]
    return [each for each in inside if store_folder(each).described(MANIFEST_NAME) is not None]


def download(address: Address, into: Path) -> Path:
    """Copy all objects of a table to a folder inside of `into`, and return that folder."""
    folder, directory = store_folder(address), into / address.name
    for stored in folder.below():
        path = directory / stored.key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in folder.pieces(stored.key):
                file.write(piece)
    return directory


def fetch_manifest(directory: Path, address: Address) -> None:
    """Copy the manifest that a table has now. Raises MissingObjectError where there is none."""
    found = store_folder(address).content(MANIFEST_NAME)
    if found is None:
        raise MissingObjectError(f"{address} holds no layout any more; lay the table out again")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        parsed_manifest(directory, found[0], str(address / MANIFEST_NAME))
    except LayoutError:
        (directory / MANIFEST_NAME).unlink(missing_ok=True)
        raise
    replace_content(directory / MANIFEST_NAME, found[0])
    if not (record := directory.with_name(_ADDRESS_NAME)).exists():
        replace_content(record, json.dumps({"address": str(address.parent)}).encode())


def address_of_copies(directory: Path) -> list[Address]:
    """Return the address of the table that a folder has copies of, [] where it was not recorded."""
    try:
        text = json.loads(directory.with_name(_ADDRESS_NAME).read_text(encoding="utf-8"))["address"]
        address = Address.of(text)
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [] if address is None else [address / directory.name]


def extents_of(stored: StoredFile, columns: Iterable[int | None]) -> list[Extent]:
    """Return where some columns lie in a file, by position; None is all that belongs to no column."""
    checksums = stored.checksums
    if checksums is None:  # of an older layout all is fetched
        return [(0, stored.byte_count)]
    found: list[Extent] = []
    for column in columns:
        if column is None:
            found += checksums.extents_of_rest(stored.byte_count)
        else:
            found += checksums.extents_of(column)
    return found


def fetch(path: Path, stored: StoredFile, columns: Iterable[int | None], address: Address) -> None:
    """Fetch columns of a table's file into its copy. Errors are those of `StoreFolder.ranges`."""
    fill(store_folder(address), stored.file, path, extents_of(stored, columns))


_PARQUET = ".parquet"


def remote_files(address: Address) -> list[Path]:
    """Return the copies of the files that an address names: one, those of a folder, or those of a pattern.

    Raises LayoutError where there is none, StoreError where the store does not answer.
    """
    root = mirror_root(default_cache_directory())
    copies = [object_copy(at, stored, root) for at, stored in _named(address)]
    if not copies:
        raise LayoutError(f"there is nothing at {address}; name a file, a folder or a pattern that exists")
    for copy in copies:
        _fetch_beginning(copy)
    return [copy.path for copy in copies]


def remote_tables(address: Address) -> Iterator[str]:
    """Yield what is a table each at an address: a file, a pattern, or the files in a folder."""
    if not may_be_folder(address):
        yield str(address)
        return
    folders, objects = store_folder(address).entries()
    if any("=" in name for name in folders):
        yield str(address)
        return
    yield from (str(address / name) for name in objects if is_data(Path(name)))


def extents_to_read(
    copy: ObjectCopy, columns: tuple[str, ...] | None, row_groups: tuple[tuple[str, int], ...] | None = None
) -> list[Extent]:
    """Return where the bytes of some columns of some row groups are, None for all of them.

    Of what is not Parquet it is all bytes. row_groups: pairs of a file's path and a place in it.
    The footer is fetched if it is missing. Raises StoreError where the object has changed.
    """
    if columns is None or not copy.address.name.lower().endswith(_PARQUET):
        return [(0, copy.byte_count)]
    _fetch_beginning(copy)
    path = str(copy.path)
    wanted = None if row_groups is None else {place for file, place in row_groups if file == path}
    return [
        chunk.extent
        for chunk in _chunks(copy)
        if chunk.column in columns and (wanted is None or chunk.row_group in wanted)
    ]


def _named(address: Address) -> Iterator[tuple[Address, StoredObject]]:
    if not address.is_listable:
        if glob.has_magic(address.path):
            raise LayoutError(f"{address} is a pattern, and a web server lists no files; name each file")
        if (stored := store_folder(address.parent).described(address.name)) is not None:
            yield address, stored
        return
    if glob.has_magic(address.path):
        folder = address
        while glob.has_magic(folder.path):
            folder = folder.parent
        for stored in store_folder(folder).below():
            if fnmatchcase(f"{folder.path}/{stored.key}", address.path):
                yield folder / stored.key, stored
        return
    if address.name and (stored := store_folder(address.parent).described(address.name)) is not None:
        yield address, stored
        return
    for stored in store_folder(address).below():
        if stored.key.lower().endswith(_PARQUET):
            yield address / stored.key, stored


def _fetch_beginning(copy: ObjectCopy) -> None:
    """Fetch what is read of a file before any row is."""
    if not copy.address.name.lower().endswith(_PARQUET):
        fetch_whole(copy.path)
        return
    fetch_end(copy)
    chunks = [chunk.extent for chunk in _chunks(copy)]
    copy.fetch(extents_between(chunks, copy.byte_count))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group. column: of the table. extent: where its bytes are."""

    row_group: int
    column: str
    extent: Extent


def _chunks(copy: ObjectCopy) -> list[_Chunk]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(copy.path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].replace(str(copy.path), str(copy.address))
        raise DataError(f"{copy.address} cannot be read as Parquet ({reason}); write it again") from error
    found = []
    for place in range(footer.num_row_groups):
        group = footer.row_group(place)
        for chunk in (group.column(i) for i in range(group.num_columns)):
            found.append(_Chunk(place, chunk.path_in_schema.split(".")[0], _extent(chunk)))
    return found


def _extent(chunk: Any) -> Extent:
    begin = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        begin = min(begin, chunk.dictionary_page_offset)
    return begin, chunk.total_compressed_size


LEFT_BEHIND = timedelta(days=1)
_DATA = re.compile(r"(data-[0-9a-f]{16})/")


@dataclass(frozen=True, slots=True)
class StoreWriting(Writing):
    """A write to an object store under way. `directory` and `scratch` are on this machine.

    Attributes:
        replaced: the manifest that is there, None where there is none.
        root: of the copies on this machine.
    """

    address: Address
    replaced: StoredObject | None
    root: Path

    def publish(self, layout: Layout) -> Layout:
        """Put the written partitions and then the manifest. Return the layout as it lies in the store."""
        folder = store_folder(self.address)
        before = folder.content(MANIFEST_NAME)
        put: list[str] = []
        try:
            for file in sorted(self.parts.iterdir()):
                put.append(f"{self.data_name}/{file.name}")
                folder.put(put[-1], file)
            self._switch(folder, manifest_text(layout))
        except BaseException:
            with suppress(StoreError):  # what cannot be removed now is removed by a later write
                folder.delete(put)
            raise
        _sweep(folder, _data_folders(before[0] if before else b""), self.data_name)
        directory = mirror_folder(self.root, self.address)
        return replace(layout, directory=directory, remote=Remote(self.address, str(self.root)))

    def _switch(self, folder: StoreFolder, manifest: bytes) -> None:
        if not folder.replace(MANIFEST_NAME, manifest, self.replaced):
            raise LayoutError(
                f"{self.address} was written by somebody else meanwhile, and has that layout now; "
                "write again to replace it"
            )


@contextmanager
def writing_to_store(address: Address, root: Path, *, force: bool) -> Iterator[Writing]:
    """Give a place on this machine to write a table's new layout for an object store.

    Raises LayoutError as `folder.writing` does, StoreError where the store does not answer.
    """
    if not address.is_writable:
        kinds = ", ".join(f"{scheme}://" for scheme in WRITABLE)
        raise LayoutError(f"{address} can only be read; tables can be written to {kinds} and to folders")
    if not address.name:
        raise LayoutError(f"{address} is no table's folder; name one, e.g. {address}/trips")
    folder = store_folder(address)
    replaced = folder.described(MANIFEST_NAME)
    found = () if replaced is not None else folder.below()
    strangers = [each.key for each in found if not _DATA.match(each.key)]
    check_replaceable(folder.address, strangers, has_layout=replaced is not None, force=force)
    staging = root / "writing" / hashlib.sha256(str(address).encode()).hexdigest()[:16] / address.name
    with writing(staging, force=True) as target:
        yield StoreWriting(target.directory, target.scratch, address, replaced, root)


def _sweep(folder: StoreFolder, replaced: set[str], current: str) -> None:
    """Remove the files of the layout that was replaced, and what writers that died have left."""
    with suppress(StoreError):  # the new layout is there; a later write removes the rest
        there = folder.below()
        now = max(each.modified for each in there if each.key == MANIFEST_NAME)
        for each in there:
            data = _DATA.match(each.key)
            if data is None or data[1] == current:
                continue
            if data[1] in replaced or now - each.modified > LEFT_BEHIND:
                folder.delete([each.key])


def _data_folders(manifest: bytes) -> set[str]:
    """Return the data folders that a manifest names, none where it cannot be understood."""
    try:
        partitions = json.loads(manifest)["partitions"]
        files = [stored for each in partitions for stored in each.get("files", [each])]
        return {str(stored["file"]).split("/")[0] for stored in files}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()
