"""Files in an object store or on a web server, as copies on this machine with what was asked for in them.

Of a Parquet file the footer is fetched when it is found, with all else that belongs to no column. Columns are
fetched when a statement reads them. Other files are fetched whole.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.checksums import extents_between
from relaqs_engine.layouts.file_kinds import is_data
from relaqs_engine.layouts.stored import may_be_folder
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.folder import StoredObject, store_folder
from relaqs_engine.stores.mirror import Extent, default_cache_directory, mirror_root
from relaqs_engine.stores.objects import ObjectCopy, fetch_end, fetch_whole, object_copy

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
    copy: ObjectCopy,
    columns: tuple[str, ...] | None,
    row_groups: tuple[tuple[str, int], ...] | None = None,
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
