"""A folder for what belongs to one session: copies of data that no later session could recognise.

CACHE/sessions/<random>/    locked by the process that made it, for as long as it lives

The system drops the lock of a process that was killed. The next session that makes a folder removes those
that nobody holds.
"""

from __future__ import annotations

import os
import secrets
import shutil
import weakref
from contextlib import suppress
from pathlib import Path

from relaqs_engine.file_locks import Lock, lock
from relaqs_engine.layouts.folder import locked


class SessionFolder:
    """A folder that is made when it is first asked for, and removed with its session."""

    def __init__(self, cache_directory: Path) -> None:
        self._all = _all_folders(cache_directory)
        self._path: Path | None = None
        self._removing: weakref.finalize[[Path, Lock], SessionFolder] | None = None

    @property
    def path(self) -> Path:
        """Return the folder, which exists."""
        if self._path is None:
            self._all.mkdir(parents=True, exist_ok=True)
            with locked(self._all, wait=True):  # so that nobody sweeps it before it is locked itself
                self._path = self._all / secrets.token_hex(8)
                self._path.mkdir()
                held = lock(self._path)
            self._removing = weakref.finalize(self, _remove, self._path, held)
        return self._path

    def remove(self) -> None:
        """Remove the folder with all that is in it. The second call does nothing."""
        if self._removing is not None:
            self._removing()


def _remove(folder: Path, held: Lock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.release()


def _all_folders(cache_directory: Path) -> Path:
    return Path(os.path.abspath(cache_directory)) / "sessions"


def sweep_sessions(cache_directory: Path) -> None:
    """Remove the folders of sessions that have died."""
    folder = _all_folders(cache_directory)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    with locked(folder, wait=True):
        for entry in folder.iterdir():
            with suppress(OSError):
                _remove(entry, lock(entry, wait=False))
