"""Writing the outlier index of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relaqs_engine.duck import Cursor, parquet_rows, quote_text
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import Column, Partition
from relaqs_engine.layouts.outliers import MOST_SHARE, outlier_condition, with_inliers
from relaqs_engine.layouts.parquet import copy_to_parquet, settled

Indexed = tuple[tuple[Column, ...], Partition | None]
"""Columns, with the ends of those that are in an outlier index, and the index; None where there is none."""


def outlier_index(
    cursor: Cursor, target: Writing, columns: tuple[Column, ...], partitions: Sequence[Partition]
) -> Indexed:
    """Return the columns and the outlier index of written partitions.

    The ends come from a sample. If they let through more rows than an index may have, there is none.
    """
    columns = with_inliers(cursor, target.files_of, columns, partitions)
    if not any(column.has_outliers for column in columns):
        return columns, None
    rows = sum(partition.row_count for partition in partitions)
    index = written_outliers(cursor, target, columns, target.files_of(partitions))
    if index is None or index.row_count > MOST_SHARE * rows:
        return without_index(columns), None
    return columns, index


def written_outliers(
    cursor: Cursor, target: Writing, columns: Sequence[Column], files: Sequence[Path]
) -> Partition | None:
    """Write the outliers among the rows of some files. Return None where there are none."""
    table = parquet_rows(files)
    file = target.parts / "outliers.parquet"
    copy_to_parquet(cursor, f"SELECT * FROM {table} WHERE {outlier_condition(columns)}", file)
    ((rows,),) = cursor.rows(f"SELECT count(*) FROM read_parquet({quote_text(str(file))})")
    if rows:
        return settled(cursor, target, file, rows, unit_count=rows)
    file.unlink()
    return None


def without_index(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of a layout that has no outlier index."""
    return tuple(replace(column, inlier_low=None, inlier_high=None) for column in columns)
