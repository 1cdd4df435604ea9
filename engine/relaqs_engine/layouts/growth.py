"""The layout of a table once rows were added: its files, and all that is known of its rows.

What certifies intervals stays true: the ends of columns, the largest unit, and which rows are outliers. What
helps to plan, the numbers of distinct values, is estimated anew from a sample of old and new rows. The
numbers that were counted are then between that of the old rows and that of old and new ones. The index
of heavy units is dropped: a unit outside may have grown heavier than those in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relaqs_engine.layouts.assignment import key_unit, known_by
from relaqs_engine.layouts.build import Build
from relaqs_engine.layouts.distinct import FEW_SAMPLE_ROWS, distinct_counts, with_counted_values
from relaqs_engine.layouts.grown_columns import KnownRows, grown_columns
from relaqs_engine.layouts.grown_units import GrownUnits, grown_units
from relaqs_engine.layouts.manifest import Column, Layout, Partition
from relaqs_engine.layouts.outlier_files import Indexed, without_index, written_outliers
from relaqs_engine.layouts.outliers import MOST_SHARE
from relaqs_engine.layouts.partitions import WrittenPartitions
from relaqs_engine.layouts.statistics import column_statistics, described

MOST_GROWN_SHARE = 2 * MOST_SHARE
"""Of all rows, in an outlier index that has grown. One that is larger is dropped: it is read in each first
step."""


def grown(build: Build, held: Layout, written: WrittenPartitions) -> Layout:
    """Return the layout with what was written, and all that is known of its rows."""
    target, row_count = build.target, held.row_count + sum(each.row_count for each in written.partitions)
    units = _units(build, held, written)
    partitions = tuple(
        _with_rows(partition, further, unit_count)
        for partition, further, unit_count in zip(
            held.partitions, written.partitions, units.new_units, strict=True
        )
    )
    columns = _columns(build, held, written, partitions)
    columns, outliers = _with_outliers(
        build, replace(held, columns=columns, row_count=row_count), target.files_of(written.partitions)
    )
    return replace(
        held,
        columns=columns,
        partitions=partitions,
        row_count=row_count,
        unit_count=sum(partition.unit_count for partition in partitions),
        max_unit_rows=max(held.max_unit_rows, units.largest),
        typical_unit_rows=units.typical_rows(held, row_count),
        unit_kurtosis_rows=None,
        outliers=outliers,
        outlier_units=None,
        heavy=None,
        companions=(),
    )


def _units(build: Build, held: Layout, written: WrittenPartitions) -> GrownUnits:
    if not held.cluster_key:
        return GrownUnits.rows([partition.row_count for partition in written.partitions])
    files = build.target.files_of(written.partitions)
    return grown_units(build.cursor, held, files)


def _with_rows(partition: Partition, further: Partition, new_units: int) -> Partition:
    """Return a partition with the rows of another. new_units: how many units it did not have before."""
    blocks = zip(partition.block_rows, further.block_rows, strict=True)
    return Partition(
        files=(*partition.files, *further.files),
        row_count=partition.row_count + further.row_count,
        unit_count=partition.unit_count + new_units,
        block_rows=tuple(rows + more for rows, more in blocks),
    )


def _columns(
    build: Build, held: Layout, written: WrittenPartitions, partitions: Sequence[Partition]
) -> tuple[Column, ...]:
    """Return the columns with what is known of old and new rows together."""
    columns = [(column.name, column.type) for column in held.columns]
    if not held.is_sampled:
        return column_statistics(build.cursor, build.target.files_of(partitions), columns)
    files = build.target.files_of(written.partitions)
    if written.seen is None:
        new = column_statistics(build.cursor, files, columns)
    else:
        extremes = written.seen.extremes(build.cursor, columns)
        new = described(files, columns, extremes, [0] * len(columns))
    key = key_unit([(name, held.column(name).type) for name in held.cluster_key])
    names = [name for name, _ in columns]
    distinct = distinct_counts(build.cursor, build.target.files_of, partitions, names, key, FEW_SAMPLE_ROWS)
    new_rows = sum(partition.row_count for partition in written.partitions)
    about = [replace(column, distinct_count=count) for column, count in zip(new, distinct, strict=True)]
    new = with_counted_values(build.cursor, files, about, new_rows)
    old = known_by(build.cursor, held).columns
    return grown_columns(build.cursor, KnownRows(old, held.row_count), KnownRows(new, new_rows), distinct)


def _with_outliers(build: Build, layout: Layout, new_files: Sequence[Path]) -> Indexed:
    """Return the columns and the outlier index, with the outliers among the new rows, or without an index."""
    index = layout.outliers
    if index is None:
        return layout.columns, None
    more = written_outliers(build.cursor, build.target, layout.columns, new_files)
    if more is None:
        return layout.columns, index
    if index.row_count + more.row_count > MOST_GROWN_SHARE * layout.row_count:
        return without_index(layout.columns), None
    return layout.columns, _with_rows(index, more, more.row_count)
