"""The audit log: who asked what, one JSON object a line, in a file that does not grow without end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LARGEST_BYTES = 8 << 20
KEPT_FILES = 3
LONGEST_VALUE = 2_000


class AuditLog:
    """Appends entries to a file; once it is full it becomes `.1`, that `.2`, and the oldest goes.

    clock: seconds since 1970.
    """

    def __init__(
        self, path: Path, *, largest_bytes: int = LARGEST_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._largest_bytes = largest_bytes
        self._clock = clock
        self._file = path.open("a", encoding="utf-8")
        path.chmod(0o600)  # it holds every query that anybody asked

    def note(self, what: str, user: str | None, **circumstances: Any) -> None:
        """Write one entry, on disk at once. Long texts are cut."""
        entry = {"at": round(self._clock(), 3), "what": what, "user": user}
        entry |= {name: _short(value) for name, value in circumstances.items()}
        self._file.write(json.dumps(entry, default=str) + "\n")
        self._file.flush()
        if self._file.tell() >= self._largest_bytes:
            self._rotate()

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT_FILES, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self._path.open("a", encoding="utf-8")
        self._path.chmod(0o600)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return value[:LONGEST_VALUE] + "…"
    return value
