"""Locks on files and folders, between the processes of one machine. They end with their process.

A lock belongs to what lies at a path, and not to the name. So it holds through links and second names, and a
folder that is renamed stays locked. Windows locks no folders, and renames nothing that is open. There a small
file in the folder for temporary files is locked. Its name is the identity of what the path leads to.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


class Lock:
    """A lock that is held, until `release` or the end of the process."""

    __slots__ = ("_handle", "_identity")

    def __init__(self, handle: int, identity: tuple[int, int]) -> None:
        self._handle = handle
        self._identity = identity

    def is_on(self, path: Path) -> bool:
        """Whether a path leads to what was locked, and not to something that was made later."""
        try:
            return _identity(path.stat()) == self._identity
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Hold it no more. To be called once."""
        os.close(self._handle)


def lock(path: Path, *, shared: bool = False, wait: bool = True) -> Lock:
    """Return the lock of a file or folder, held.

    Args:
        path: of what is locked. It must be there.
        shared: others may hold it at the same time, if theirs is shared too.
        wait: for others that hold it.

    Raises:
        FileNotFoundError: nothing is there.
        BlockingIOError: another holds it, and `wait` is not given.
        OSError: the file system has no locks.
    """
    import portalocker  # a session without a cache takes no lock
    from portalocker import AlreadyLocked, LockException, LockFlags

    handle, identity = _opened(path)
    how = LockFlags.SHARED if shared else LockFlags.EXCLUSIVE
    try:
        portalocker.lock(handle, how if wait else how | LockFlags.NON_BLOCKING)
    except BaseException as error:
        os.close(handle)
        if isinstance(error, AlreadyLocked):
            raise BlockingIOError(f"{path} is locked by another process") from None
        if isinstance(error, LockException):
            raise OSError(f"{path} cannot be locked: {error}") from error
        raise
    return Lock(handle, identity)


def _opened(path: Path) -> tuple[int, tuple[int, int]]:
    """Return the open file that is locked for a path, and the identity of what the path leads to."""
    if sys.platform != "win32":
        handle = os.open(path, os.O_RDONLY)
        return handle, _identity(os.fstat(handle))
    device, number = identity = _identity(path.stat())
    beside = Path(tempfile.gettempdir(), "relaqs-locks", f"{device:x}-{number:x}")
    beside.parent.mkdir(exist_ok=True)
    return os.open(beside, os.O_RDWR | os.O_CREAT, 0o600), identity


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
