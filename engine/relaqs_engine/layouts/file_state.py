"""How a file differs from how it was: its size, and the time of its last change."""

from __future__ import annotations

from datetime import datetime

from relaqs_engine.duck import FileState, file_state


def change_in_words(before: FileState) -> str | None:
    """Return how a file differs from how it was, None where it does not.

    >>> change_in_words(("no/such/file", 1_234, 1_700_000_000_000_000_000))
    'it had 1,234 bytes, written 2023-11-14 ...; now it is not there'
    """
    now = file_state(before[0])
    if now == before:
        return None
    return f"it {_in_words(before, 'had', 'was')}; now it {_in_words(now, 'has', 'is')}"


def _in_words(state: FileState, has: str, is_: str) -> str:
    _, byte_count, modified_ns = state
    if byte_count < 0:
        return f"{is_} not there"
    seconds, nanoseconds = divmod(modified_ns, 10**9)
    written = datetime.fromtimestamp(seconds).isoformat(" ")
    return f"{has} {byte_count:,} bytes, written {written}.{nanoseconds:09d}"
