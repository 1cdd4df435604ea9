"""Layouts that lie in an object store: opened by their manifests, and their files fetched column by column.

A layout's `directory` is then a folder of copies on this machine, see `stores/mirror.py`. The manifest and
the checksums in it say what a copy must hold. So nothing else has to be remembered of what was fetched.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.file_kinds import kind_by_name
from relaqs_engine.layouts.folder import write_text
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout, StoredFile
from relaqs_engine.layouts.manifest_file import parsed_manifest, replace_manifest
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.folder import MissingObjectError, store_folder
from relaqs_engine.stores.mirror import Extent, Remote, fill, mirror_folder

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
    replace_manifest(directory, found[0])
    if not (record := directory.with_name(_ADDRESS_NAME)).exists():
        write_text(record, json.dumps({"address": str(address.parent)}))


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
