"""Where output goes: to standard output, or to a file that is there in full or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from relaqs.arguments import ArgumentError

STANDARD_OUTPUT = "-"
_SUFFIXES = {".parquet": "parquet", ".md": "markdown", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_by_name(path: str | None) -> str:
    """Return the format that a file's name stands for, "table" where it says nothing.

    >>> format_by_name("late.parquet"), format_by_name("late.txt")
    ('parquet', 'table')
    """
    return _SUFFIXES.get(Path(path or "").suffix.lower(), "table")


@contextmanager
def text_into(path: str | None) -> Iterator[TextIO]:
    """Yield a file to write text to. None and "-" are standard output."""
    if path is None or path == STANDARD_OUTPUT:
        yield sys.stdout
        return
    with _finished(Path(path)) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def bytes_into(path: str | None) -> Iterator[BinaryIO]:
    """Yield a file to write bytes to. None and "-" are standard output."""
    if path is None or path == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        return
    with _finished(Path(path)) as draft, draft.open("wb") as file:
        yield file


@contextmanager
def _finished(path: Path) -> Iterator[Path]:
    """Yield a draft that takes the file's place when the block ends well, and is removed when it does not."""
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device or a pipe is written as it is
        yield path
        return
    if not path.parent.is_dir():
        raise ArgumentError(
            f"there is no folder {path.parent} to write {path.name} into; make it, or name another"
        )
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
