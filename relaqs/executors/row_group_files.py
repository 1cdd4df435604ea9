"""A file system for DuckDB whose files are single row groups of the user's own Parquet files.

A name is served if it stands for a file that the database may read. See
`relaqs_engine/layouts/footers.py` for what is behind it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from threading import get_ident
from typing import Any

from fsspec import AbstractFileSystem
from relaqs_engine.duck import ROW_GROUP_PROTOCOL, FileState, state_digest
from relaqs_engine.layouts.footers import RowGroupFile, end_of_file


class RowGroupFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Serves the row groups of some files, read only.

    Args:
        files: whose row groups are served.
    """

    protocol = ROW_GROUP_PROTOCOL
    cachable = False

    def __init__(self, files: Iterable[FileState]) -> None:
        super().__init__()
        self._states = {state_digest(state): state for state in files}

    def open(self, path: str, mode: str = "rb", **options: object) -> _Opened:
        """Return an open file. Raises FileNotFoundError for a name that is not served."""
        found = self._found(path)
        if found is None or mode != "rb":
            raise FileNotFoundError(path)
        state, end = found
        return _Opened(state, end)

    def info(self, path: str, **options: object) -> dict[str, Any]:
        """Return name, size and type. Raises FileNotFoundError for a name that is not served."""
        found = self._found(path)
        if found is None:
            raise FileNotFoundError(path)
        (_, byte_count, _), end = found
        return {"name": path, "size": byte_count + len(end), "type": "file"}

    def exists(self, path: str, **options: object) -> bool:
        """Return whether a name is served."""
        return self._found(path) is not None

    def isfile(self, path: str) -> bool:
        """Return whether a name is served."""
        return self.exists(path)

    def glob(self, path: str, **options: object) -> list[str]:
        """Return the name itself: no name is a pattern."""
        return [path] if self.exists(path) else []

    def modified(self, path: str) -> datetime:
        """Return when the file behind a name was last changed."""
        found = self._found(path)
        if found is None:
            raise FileNotFoundError(path)
        return datetime.fromtimestamp(found[0][2] / 1e9, UTC)

    def _found(self, path: str) -> tuple[FileState, bytes] | None:
        named = RowGroupFile.named(path)
        state = None if named is None else self._states.get(named.state_digest)
        if named is None or state is None:
            return None
        return state, end_of_file(state, named.group, named.columns)


class _Opened(io.RawIOBase):
    """An open file: the bytes of the user's, then another footer.

    Several threads of DuckDB read one open file at the same time, each by a `seek` and then a `read`. So each
    thread has a position and a descriptor of its own: with one position for all, a thread would be given
    bytes from where another had just put it.
    """

    def __init__(self, state: FileState, end: bytes) -> None:
        self._path, self._data_bytes, _ = state
        self._end = end
        self._files: dict[int, io.FileIO] = {}  # by the number of the thread
        self._positions: dict[int, int] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._positions.get(get_ident(), 0)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        from_ = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell()}.get(whence, self._data_bytes + len(self._end))
        self._positions[get_ident()] = from_ + offset
        return from_ + offset

    def read(self, size: int = -1) -> bytes:
        at = self.tell()
        left = self._data_bytes + len(self._end) - at
        wanted = max(0, left if size < 0 else min(size, left))
        data = self._read_data(at, min(wanted, self._data_bytes - at)) if at < self._data_bytes else b""
        if len(data) < wanted:
            begun = at + len(data) - self._data_bytes
            data += self._end[begun : begun + wanted - len(data)]
        self._positions[get_ident()] = at + len(data)
        return data

    def _read_data(self, at: int, byte_count: int) -> bytes:
        thread = get_ident()
        file = self._files.get(thread)
        if file is None:
            file = self._files[thread] = io.FileIO(self._path)
        file.seek(at)
        return file.read(byte_count) or b""

    def close(self) -> None:
        if not self.closed:
            for file in self._files.values():
                file.close()
        super().close()
