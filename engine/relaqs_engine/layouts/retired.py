"""States of a layout that were replaced, and are still read.

    TABLE/manifest.json                 the present state
    TABLE/.retired-<16 hex digits>.json the manifest of an earlier one, whose files are still there

Whoever reads a state holds a shared lock on its manifest, the same file under either name. So the next write
knows which of the retired states are not read any more, and removes their files. The system drops the lock
when its holder dies. Where the file system has no such locks or no second names, the files of an earlier
state go at once, and what reads them fails with an error.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from relaqs_engine.errors import LayoutError
from relaqs_engine.file_locks import Lock, lock
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout
from relaqs_engine.layouts.manifest_file import read_state

RETIRED_NAME = r"\.retired-[0-9a-f]{16}\.json"
_PATTERN = ".retired-*.json"


class InUse:
    """Layouts that are read, until `release` or until nothing refers to this."""

    def __init__(self, layouts: Iterable[Layout]) -> None:
        held = [lock for each in layouts for lock in _shared(each.directory / MANIFEST_NAME)]
        self._release = weakref.finalize(self, _release_all, held)

    def release(self) -> None:
        """Read them no more. The second call does nothing."""
        self._release()


def retire(directory: Path, name: str) -> None:
    """Keep the present manifest under a second name, so that its files stay as long as they are read.

    name: 16 hexadecimal digits that no other retired state has.
    """
    with suppress(OSError):
        os.link(directory / MANIFEST_NAME, directory / f".retired-{name}.json")


def retired_states(directory: Path) -> Iterator[Layout]:
    """Yield the states of a table that were replaced and are still there."""
    for path in sorted(directory.glob(_PATTERN)):
        with suppress(LayoutError):
            yield read_state(directory, path)


def forget_unread(directory: Path) -> list[Path]:
    """Remove the manifests of retired states that nothing reads. Return those of the others."""
    return [path for path in directory.glob(_PATTERN) if not _forgotten(path)]


def _forgotten(path: Path) -> bool:
    try:
        held = lock(path, wait=False)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    try:
        path.unlink(missing_ok=True)
    except OSError:  # it stays, and goes with a later write
        return False
    finally:
        held.release()
    return True


def _shared(manifest: Path) -> Iterator[Lock]:
    with suppress(OSError):
        yield lock(manifest, shared=True)


def _release_all(held: Iterable[Lock]) -> None:
    for each in held:
        each.release()
