"""Layouts of one table that change together: all of them, or none.

    orders/manifest.json                          names data-<16 hex digits>; replacing it is the switch
    orders@customer/.next-<the same digits>.json  waits, and is renamed to manifest.json after that

If a process dies between, the next that opens or writes the table finds the manifest that waits. It renames
it where the switch was made, and removes it where not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.folder import Writing, locked
from relaqs_engine.layouts.manifest import LAYOUT_MARK, MANIFEST_NAME, Layout
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.stores.address import Address

_NEXT = re.compile(r"\.next-([0-9a-f]{16})\.json")


def folder_here(table: str | Path) -> Path:
    """Return the absolute path of a table's folder. Raises LayoutError for one in an object store."""
    if (address := Address.of(table)) is not None:
        raise LayoutError(
            f"{address} is in an object store, where tables are not appended to or compacted; change a copy "
            f"in a folder here, and write it there with `relaqs shuffle FOLDER --into {address} --force`"
        )
    return Path(os.path.abspath(table))


def layout_folders(directory: Path) -> list[Path]:
    """Return the folders of all layouts of a table, that of the table's own name first.

    directory: of one of them.
    """
    table = directory.name.partition(LAYOUT_MARK)[0]
    found = sorted(
        path.parent
        for path in directory.parent.glob(f"*/{MANIFEST_NAME}")
        if path.parent.name.partition(LAYOUT_MARK)[0] == table
    )
    return sorted(found, key=lambda folder: LAYOUT_MARK in folder.name)


def publish_together(changes: Sequence[tuple[Writing, Layout]]) -> None:
    """Make each of these layouts its folder's. All are of one table, and the first is that which decides."""
    (first, decides), *others = changes
    waiting = [
        (target, target.publish_later(layout, f".next-{first.data_name.removeprefix('data-')}.json"))
        for target, layout in others
    ]
    first.publish(decides)
    for target, path in waiting:
        with suppress(OSError):  # whoever reads the table next does it, see `settle`
            path.replace(target.directory / MANIFEST_NAME)


def settle(folders: Iterable[Path]) -> None:
    """Bring to an end what a process that died has left of a change of several layouts."""
    for folder in folders:
        if _waiting(folder):
            with suppress(OSError), locked(folder, wait=True):
                _settle(folder)


def _settle(folder: Path) -> None:
    for path, data_name in _waiting(folder):
        if any(_names(other, data_name) for other in layout_folders(folder)):
            path.replace(folder / MANIFEST_NAME)
        else:
            path.unlink()


def _waiting(folder: Path) -> list[tuple[Path, str]]:
    found = [(path, _NEXT.fullmatch(path.name)) for path in folder.glob(".next-*.json")]
    return [(path, f"data-{match[1]}") for path, match in found if match]


def _names(folder: Path, data_name: str) -> bool:
    with suppress(LayoutError):
        return any(Path(each.file).parts[0] == data_name for each in read_manifest(folder).all_files)
    return False
