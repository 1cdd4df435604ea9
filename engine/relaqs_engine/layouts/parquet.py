"""Write one Parquet file of a layout, and make its entry in the manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq


from relaqs_engine.duck import Cursor, quote_text
from relaqs_engine.layouts.checksums import checksums_of
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import Partition, StoredFile
from relaqs_engine.stores.mirror import Extent

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
    stored = StoredFile(
        file=f"{target.data_name}/{file.name}",
        row_count=row_count,
        byte_count=byte_count,
        sha256=digest,
        checksums=checksums_of(file, _extents(cursor, file)),
    )
    return Partition((stored,), row_count, unit_count, block_rows)


def _extents(cursor: Cursor, file: Path) -> list[list[Extent]]:
    """Return the extents of each column, one for each row group."""
    import pyarrow.parquet as pq  # 30 ms, and only what writes files needs it

    footer = pq.read_metadata(file)
    leaf_counts = _leaf_counts(cursor, file, footer)
    found: list[list[Extent]] = [[] for _ in leaf_counts]
    for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
        leaves = (_extent(group.column(i)) for i in range(footer.num_columns))
        for extents, count in zip(found, leaf_counts, strict=True):
            extents.append(_whole(list(islice(leaves, count))))
    return found


def _extent(chunk: pq.ColumnChunkMetaData) -> Extent:
    return chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size


def _leaf_counts(cursor: Cursor, file: Path, footer: pq.FileMetaData) -> list[int]:
    """Return how many columns Parquet has for each of ours: several for a nested one, one after another."""
    if not any("." in footer.schema.column(i).path for i in range(footer.num_columns)):
        return [1] * footer.num_columns  # none is nested: its path would be `column.field`
    nodes = cursor.rows(f"SELECT num_children FROM parquet_schema({quote_text(str(file))})")
    child_counts = iter([count or 0 for (count,) in nodes])  # in the order of a walk, the root first

    def leaves() -> int:
        children = next(child_counts)
        return sum(leaves() for _ in range(children)) or 1

    return [leaves() for _ in range(next(child_counts))]


def _whole(parts: Sequence[Extent]) -> Extent:
    """Return the one extent that neighbours make together."""
    begin = min(at for at, _ in parts)
    return begin, max(at + size for at, size in parts) - begin
