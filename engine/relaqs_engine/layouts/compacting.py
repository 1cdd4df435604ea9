"""Make one file of the many that appends leave in each partition. The rows, and their order, stay."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from relaqs_engine.duck import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    Cursor,
    list_literal,
    open_for_writing,
    parquet_rows,
)
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.assignment import key_unit, known_by
from relaqs_engine.layouts.build import Progress
from relaqs_engine.layouts.distinct import (
    FEW_SAMPLE_ROWS,
    distinct_counts,
    with_counted_values,
    with_values_by_group,
)
from relaqs_engine.layouts.ends_by_group import with_ends_by_group
from relaqs_engine.layouts.folder import Writing, writing
from relaqs_engine.layouts.heavy_files import with_heavy_units
from relaqs_engine.layouts.intact import check_intact
from relaqs_engine.layouts.manifest import Layout, Partition
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.outlier_files import outlier_index, without_index
from relaqs_engine.layouts.outlier_units import with_outlier_units
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.statistics import column_bytes
from relaqs_engine.layouts.together import folder_here, layout_folders, settle


def compact(
    directory: str | Path,
    *,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Layout:
    """Return the layout of a table after each of its partitions was made one file again.

    Each append adds a file to each partition, and each file takes time to open. Queries that run go on over
    the files that they began with. The first write after the last of them has ended removes those.

    Args:
        directory: the table's folder.
        memory_limit_bytes: beyond it, disk in the folder is used.
        threads: of DuckDB. The default is all cores.
        progress: called with the share done and what is being done.

    Raises:
        LayoutError: there is no layout, or the disk is full.
        DataError: a file does not hold the bytes that were written.

    A crash or an interrupt at any point leaves the table as it was, or compacted.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from relaqs_engine.layouts import append, shuffle
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = shuffle(pa.table({"fare": list(range(1000))}), f"{folder}/trips", partitions=4)
    ...     grown = append(pa.table({"fare": list(range(500))}), f"{folder}/trips")
    ...     layout = compact(f"{folder}/trips")
    >>> len(grown.files), len(layout.files), layout.row_count
    (8, 4, 1500)
    """
    folder = folder_here(directory)
    read_manifest(folder)  # an error now, before anything is made
    report = progress or (lambda share, doing: None)
    settle(layout_folders(folder))
    with writing(folder, force=True, waits=True) as target:
        held = read_manifest(folder)
        if not held.is_compact:
            target.check_space(sum(partition.byte_count for partition in held.partitions))
            cursor = open_for_writing(
                target.scratch / "spill", memory_limit_bytes=memory_limit_bytes, threads=threads
            )
            with closing(cursor):
                held = _compacted(cursor, target, held, report)
            target.replace(held)
    report(1.0, "done")
    return held


def _compacted(cursor: Cursor, target: Writing, held: Layout, progress: Progress) -> Layout:
    partitions = tuple(
        _as_one_file(cursor, target, held, position, progress) for position in range(len(held.partitions))
    )
    files = target.files_of(partitions)
    byte_counts = column_bytes(files, [column.name for column in held.columns])
    columns = tuple(replace(column, byte_count=byte_counts[column.name]) for column in held.columns)
    layout = replace(held, columns=columns, partitions=partitions)
    return _measured_anew(cursor, target, layout, progress) if held.is_sampled else layout


def _as_one_file(
    cursor: Cursor, target: Writing, held: Layout, position: int, progress: Progress
) -> Partition:
    partition, count = held.partitions[position], len(held.partitions)
    if len(partition.files) == 1:
        return partition
    progress(0.9 * position / count, f"writing partition {position + 1} of {count}")
    check_intact(held.directory, partition.files, range(len(held.columns) + held.is_sampled))
    file = target.parts / f"part-{position:05d}.parquet"
    copy_to_parquet(cursor, f"SELECT * FROM {parquet_rows(held.paths_of(position))}", file)
    made = settled(cursor, target, file, partition.row_count, partition.unit_count, partition.block_rows)
    ((rows,),) = cursor.rows(f"SELECT count(*) FROM read_parquet({list_literal([str(file)])})")
    if rows != partition.row_count:
        raise DataError(
            f"partition {position} of {held.directory} has {rows} rows, not {partition.row_count}"
        )
    return made


def _measured_anew(cursor: Cursor, target: Writing, layout: Layout, progress: Progress) -> Layout:
    """Return the layout with indexes and numbers of distinct values of all rows that there are."""
    progress(0.9, "counting distinct values")
    key = key_unit([(name, layout.column(name).type) for name in layout.cluster_key])
    names = [column.name for column in layout.columns]
    counts = distinct_counts(cursor, target.files_of, layout.partitions, names, key, FEW_SAMPLE_ROWS)
    about = [
        replace(column, distinct_count=count) for column, count in zip(layout.columns, counts, strict=True)
    ]
    files = target.files_of(layout.partitions)
    columns = with_counted_values(cursor, files, about, layout.row_count)
    columns = with_values_by_group(cursor, files, columns, layout.row_count, layout.cluster_key)
    columns, outliers = outlier_index(cursor, target, without_index(columns), layout.partitions)
    columns = with_ends_by_group(cursor, files, columns, layout.row_count)
    layout = known_by(cursor, replace(layout, columns=columns, outliers=outliers))
    if not layout.cluster_key:
        return layout
    return with_heavy_units(cursor, target, with_outlier_units(cursor, target, layout))
