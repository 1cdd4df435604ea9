"""Write one Parquet file of a layout, and make its entry in the manifest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from relaqs_engine.duck import Cursor, quote_text
from relaqs_engine.layouts.checksums import checksums_of
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import Partition

WRITE_OPTIONS = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 122880"
"""Parquet as DuckDB itself scans it fastest."""


def copy_to_parquet(cursor: Cursor, select: str, file: Path) -> None:
    cursor.run(f"COPY ({select}) TO {quote_text(str(file))} ({WRITE_OPTIONS})")


def settled(
    cursor: Cursor,
    target: Writing,
    file: Path,
    row_count: int,
    unit_count: int,
    block_rows: tuple[int, ...] = (),
) -> Partition:
    """Make sure that a written file is on disk, and return its entry in the manifest."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        byte_count = handle.tell()
    return Partition(
        file=f"{target.data_name}/{file.name}",
        row_count=row_count,
        unit_count=unit_count,
        byte_count=byte_count,
        sha256=digest,
        block_rows=block_rows,
        checksums=checksums_of(cursor, file),
    )
