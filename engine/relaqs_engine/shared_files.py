"""Files that several processes use: locks on them, and a new content in one step.

A new content is written to a draft beside the file, `.NAME-PROCESS-8 HEX DIGITS`, and is on disk before the
draft takes the file's name. So a reader sees the old content or the new one, also after a power cut. What a
process that was killed has left, `drafts_of` names.

Locks hold between the processes of one machine, and end with their process. A lock belongs to what lies at a
path, and not to the name. So it holds through links and second names, and a folder that is renamed stays
locked. Windows locks no folders, and renames nothing that is open. There a small file in the folder for
temporary files is locked. Its name is the identity of what the path leads to.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

DRAFT_MARK = r"-(\d+)-[0-9a-f]{8}"
LONGEST_NAME_BYTES = 200
"""What a draft has after its point and the file's name, as a pattern. The group is the process."""


@contextmanager
def replacing(path: Path, *, mode: int | None = None, is_synced: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of another when the block ends well; else nothing is left of it.

    Args:
        path: of what is replaced, if it is there. A link stays, and what it leads to is replaced.
        mode: the permission bits. By default those of what is replaced, or those of any new file.
        is_synced: whether the content is on disk before it takes the place.

    Raises:
        OSError: the folder or the disk does not take it; then what is there stays as it is.
    """
    path = path.resolve()
    draft = path.with_name(f".{_short_name(path)}-{os.getpid()}-{os.urandom(4).hex()}")
    if mode is None:
        mode = _mode_of(path)
    bits = 0o666 if mode is None else mode
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, bits)) as file:
            if mode is not None:
                with suppress(OSError):  # a file system without such bits
                    os.chmod(draft, mode)
            yield file
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        _put_in_place(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def replace_content(path: Path, content: bytes, *, mode: int | None = None, is_synced: bool = True) -> None:
    """Replace what a file has, in one step, as `replacing` does."""
    with replacing(path, mode=mode, is_synced=is_synced) as file:
        file.write(content)


def drafts_of(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the drafts of a file, each with the process that made it."""
    path = path.resolve()
    for draft in path.parent.iterdir():
        if (found := re.fullmatch(rf"\.{re.escape(_short_name(path))}{DRAFT_MARK}", draft.name)) is not None:
            yield draft, int(found[1])


def _short_name(path: Path) -> str:
    """Return the beginning of a name, so that a draft's name is not too long for a file system."""
    return os.fsencode(path.name)[:LONGEST_NAME_BYTES].decode(errors="ignore")


def _mode_of(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return None


def _put_in_place(draft: Path, path: Path) -> None:
    """Rename a draft. A network file system that lost its own reply says that it failed, and did it."""
    identity = _identity(draft.stat())
    try:
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            if _identity(path.stat()) == identity:
                return
        raise


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
