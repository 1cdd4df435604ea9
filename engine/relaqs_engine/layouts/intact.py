"""Whether a file of a layout holds the bytes that were written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from relaqs_engine.errors import DataError
from relaqs_engine.layouts.manifest import StoredFile

HOW_TO_MEND = (
    "restore the file, or lay the table out again with relaqs.shuffle (`relaqs verify` names all files that "
    "are damaged)"
)


def fault_of(path: Path, stored: StoredFile, columns: Iterable[int]) -> str:
    """Return what is wrong with a file, in words; "" if nothing is.

    Args:
        path: where it is.
        stored: its entry in the manifest.
        columns: positions of the columns to look at. The footer always is.
    """
    try:
        byte_count = path.stat().st_size
        if byte_count != stored.byte_count:
            return f"has {byte_count:,} bytes, not {stored.byte_count:,}"
        is_damaged = bool(damaged_columns(path, stored, columns))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "does not hold the bytes that were written" if is_damaged else ""


def damaged_columns(path: Path, stored: StoredFile, columns: Iterable[int]) -> list[int | None]:
    """Return which of the columns are not as they were written. None is what belongs to no column.

    Of a file of an older layout all bytes are looked at, and None means all of them.
    """
    if stored.checksums is not None:
        return stored.checksums.damaged(path, columns)
    with path.open("rb") as file:
        is_damaged = hashlib.file_digest(file, "sha256").hexdigest() != stored.sha256
    return [None] if is_damaged else []


def check_intact(directory: Path, files: Iterable[StoredFile], columns: Iterable[int]) -> None:
    """Return if these columns of a table's files are as written. Raises DataError naming the first fault."""
    positions = tuple(columns)
    for stored in files:
        path = directory / stored.file
        if fault := fault_of(path, stored, positions):
            raise DataError(f"{path} {fault}; {HOW_TO_MEND}")
