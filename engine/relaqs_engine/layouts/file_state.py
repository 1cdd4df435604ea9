"""The state of a file: its size, and the time of its last change. In another state it may hold other rows."""

from __future__ import annotations

import os
from datetime import datetime

from relaqs_engine.duck import FileState


def state_of(path: str | os.PathLike[str]) -> FileState | None:
    """Return a file's state now, None where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return os.fspath(path), found.st_size, found.st_mtime_ns


def change_in_words(before: FileState) -> str | None:
    """Return how a file differs from how it was, None where it does not. One that is gone is not there.

    >>> change_in_words(("no/such/file", 1_234, 1_700_000_000_000_000_000))
    'it had 1,234 bytes, written 2023-11-14 ...; now it is not there'
    """
    now = state_of(before[0])
    if now == before:
        return None
    return f"it had {_in_words(before)}; now it {'is not there' if now is None else 'has ' + _in_words(now)}"


def _in_words(state: FileState) -> str:
    _, byte_count, modified_ns = state
    seconds, nanoseconds = divmod(modified_ns, 10**9)
    written = datetime.fromtimestamp(seconds).isoformat(" ")
    return f"{byte_count:,} bytes, written {written}.{nanoseconds:09d}"
