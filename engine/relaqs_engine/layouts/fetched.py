"""Copies of what lies in object stores and on web servers, as entries of the cache (see `stores/mirror.py`).

An entry is all that was fetched of one table, or of the files in one folder. Its small records stay when its
copies are removed: a session that is open may fetch the same bytes again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from relaqs_engine.layouts.cache_entry import CacheEntry, time_of
from relaqs_engine.layouts.stored import address_of_copies
from relaqs_engine.stores.mirror import are_read, copies_in, held_bytes, remove_copies
from relaqs_engine.stores.objects import OBJECTS_PREFIX, addresses_in


def fetched_entries(root: Path) -> Iterator[CacheEntry]:
    """Yield what was fetched into the folder of all copies."""
    for folder in _folders(root):
        copies = dict(copies_in(folder))
        if not (byte_count := sum(map(held_bytes, copies.values()))):
            continue
        with suppress(FileNotFoundError):
            yield CacheEntry(
                folder,
                "copy",
                _names(folder),
                "far",
                None,
                byte_count,
                made_at=time_of(folder.stat().st_mtime),
                used_at=time_of(max(state.st_atime for state in copies.values())),
                is_in_use=are_read(root, copies),
            )


def remove_fetched(root: Path, folder: Path) -> bool:
    """Remove the copies in an entry's folder, but those that are read now. Return whether all are gone."""
    return remove_copies(root, (path for path, _ in copies_in(folder)))


def _folders(root: Path) -> Iterator[Path]:
    for folder in _inside(root):
        if folder.name.startswith(OBJECTS_PREFIX):
            yield folder
        else:
            yield from _inside(folder)


def _inside(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [Path(each) for each in os.scandir(folder) if each.is_dir() and not each.name.startswith(".")]
    return []


def _names(folder: Path) -> tuple[str, ...]:
    """Return the addresses that an entry is called by: of the folder or the table, then of its files."""
    if not folder.name.startswith(OBJECTS_PREFIX):
        return tuple(map(str, address_of_copies(folder)))
    found = addresses_in(folder)
    return tuple(dict.fromkeys(map(str, [*(each.parent for each in found[:1]), *found])))
