"""Tables that grow: rows are appended to the partitions that there are, and their files are made one again.

**Appending.** Any prefix of the partitions stays a random sample of all rows. New rows are hashed into the
partitions that there are, and are one more file of each:

    part-00000.parquet    part-00001.parquet    …    as laid out
    + its new rows        + its new rows        …    each append adds one file to a partition

With a cluster key the hash is that of the key, so a unit stays whole in its partition. Where the unit is a
row, the hash is of its place in the source, which every batch counts from the start. So each batch has a
seed of its own. Else the tenth rows of all batches would fall together, and would not be independent.

Nothing that is there is changed or read anew, but for the key's columns and a sample. Replacing the manifest
is the switch, as it is when a table is laid out. Queries that run go on over the files that they began with.

**What is known afterwards.** What certifies intervals stays true: the ends of columns, the largest unit,
and which rows are outliers. What helps to plan, the numbers of distinct values, is estimated anew from a
sample of old and new rows. The numbers that were counted are then between that of the old rows and that of
old and new ones. The index of heavy units gets the new rows of its units, and those units that have grown
past its bounds.

- Of columns, the least and greatest values, NULLs and bytes hold for all rows, or are not known.
- Of units that are cluster keys: a new row may belong to a unit that is there. So the key's columns of the
  old rows are read, but only units that got new rows are counted. The largest unit certifies intervals,
  and is exact.

**Compacting** makes one file of the many that appends leave in each partition. The rows, and their order,
stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from relaqs_engine.duck import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    Cursor,
    list_literal,
    open_for_writing,
    parquet_rows,
    quote_text,
)
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.assignment import (
    HASH_SCHEME,
    Assignment,
    Spread,
    hash_probe,
    in_turn,
    key_unit,
    known_by,
    together,
)
from relaqs_engine.layouts.build import Build, Progress, building, new_files
from relaqs_engine.layouts.column_statistics import (
    FEW_SAMPLE_ROWS,
    column_bytes,
    column_statistics,
    described,
    distinct_counts,
    with_counted_values,
    with_ends_by_group,
    with_values_by_group,
    with_zones,
    with_zones_of_more,
)
from relaqs_engine.layouts.folder import (
    Writing,
    folder_here,
    layout_folders,
    publish_together,
    settle,
    writing,
)
from relaqs_engine.layouts.heavy_units import grown_heavy_units, with_heavy_units
from relaqs_engine.layouts.manifest import Column, DistinctCount, Layout, Partition, Scalar, Table
from relaqs_engine.layouts.manifest_file import check_intact, read_manifest
from relaqs_engine.layouts.outliers import (
    MOST_SHARE,
    Indexed,
    outlier_index,
    with_outlier_units,
    without_index,
    written_outliers,
)
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.partitions import PartitionJob, PartitionWriter, WrittenPartitions, fitted
from relaqs_engine.layouts.shuffling import write_in_one_pass
from relaqs_engine.layouts.sources import RESERVED_PREFIX, ParquetSource, TableSource, fingerprint, is_path


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Some rows of a table, and what is known of their columns."""

    columns: Sequence[Column]
    row_count: int

    def is_empty(self, column: Column) -> bool:
        """Whether a column has no values, so that its ends are not known because there are none."""
        return column.null_count == self.row_count


def grown_columns(
    cursor: Cursor, old: KnownRows, new: KnownRows, distinct_counts: Sequence[int]
) -> tuple[Column, ...]:
    """Return what is known of old and new rows together.

    Args:
        cursor: of DuckDB, which compares the values that a manifest has as texts.
        old: the rows that a table has. The ends of its outlier index stay.
        new: the rows that were added.
        distinct_counts: of each column, over all rows, by a sample.
    """
    return tuple(
        replace(
            before,
            minimum=_end(cursor, "least", before, added, old, new),
            maximum=_end(cursor, "greatest", before, added, old, new),
            null_count=before.null_count + added.null_count,
            distinct_count=_within(distinct_count, distinct),
            byte_count=before.byte_count + added.byte_count,
            most_unit_rows=None,  # a unit may have grown
            distinct=distinct,
            by_group=(),  # the new rows may have the same values
            ends_by=(),
        )
        for before, added, distinct_count in zip(old.columns, new.columns, distinct_counts, strict=True)
        for distinct in (before.distinct and before.distinct.with_rows(added.distinct),)
    )


def _within(number: int, known: DistinctCount | None) -> int:
    return number if known is None else round(min(max(number, known.least), known.most))


def _end(
    cursor: Cursor,
    which: Literal["least", "greatest"],
    before: Column,
    added: Column,
    old: KnownRows,
    new: KnownRows,
) -> Scalar:
    ends = [
        column.minimum if which == "least" else column.maximum
        for column, rows in ((before, old), (added, new))
        if not rows.is_empty(column)
    ]
    if not ends or None in ends:
        return None
    if any(isinstance(end, str) for end in ends):
        return _of_texts(cursor, which, before.type, [str(end) for end in ends])
    return (min if which == "least" else max)(ends)  # type: ignore[type-var]


def _of_texts(cursor: Cursor, which: str, type_text: str, ends: Sequence[str]) -> str | None:
    """Return one of the ends, compared as values of their type; None where one is not read back as such."""
    values = [f"TRY_CAST({quote_text(end)} AS {type_text})" for end in ends]
    is_read = " AND ".join(f"{value} IS NOT NULL" for value in values)
    ((found,),) = cursor.rows(f"SELECT CASE WHEN {is_read} THEN {which}({', '.join(values)})::VARCHAR END")
    assert found is None or isinstance(found, str)
    return found


_FRESH = f"{RESERVED_PREFIX}fresh"
_HELD = f"{RESERVED_PREFIX}held"


@dataclass(frozen=True, slots=True)
class GrownUnits:
    """What new rows do to a table's units.

    Attributes:
        new_units: how many units each partition has that it did not have before.
        largest: the rows of the largest unit that got new rows.
        more_squared_rows: by how much the sum of each unit's rows squared grew.
    """

    new_units: tuple[int, ...]
    largest: int
    more_squared_rows: float

    @classmethod
    def rows(cls, new_rows: Sequence[int]) -> GrownUnits:
        """Return what new rows of each partition do where the unit is a row."""
        return cls(tuple(new_rows), 1, float(sum(new_rows)))

    def typical_rows(self, held: Layout, row_count: int) -> float:
        """Return the rows of the unit that a row belongs to, on average, of a table that now has so many."""
        if held.typical_unit_rows == 1.0 < held.max_unit_rows:
            return 1.0  # the layout does not say
        return (held.typical_unit_rows * held.row_count + self.more_squared_rows) / row_count


def grown_units(cursor: Cursor, held: Layout, new_files: Sequence[Path]) -> GrownUnits:
    """Return what new rows do to the units of a clustered table.

    Args:
        held: the table without them.
        new_files: those of the new rows.
    """
    names_of_columns = [column.name for column in held.columns]
    check_intact(held.directory, held.files, map(names_of_columns.index, held.cluster_key))
    unit = key_unit([(name, held.column(name).type) for name in held.cluster_key])
    assignment = Assignment(unit, held.seed, len(held.partitions))
    names = [f"k{i}" for i in range(len(unit))]
    key = ", ".join(f"{sql} AS {name}" for sql, name in zip(unit, names, strict=True))
    same = " AND ".join(f"fresh.{name} IS NOT DISTINCT FROM held.{name}" for name in names)
    part = assignment.partition(assignment.unit_hash)
    cursor.run(
        f"CREATE OR REPLACE TEMP TABLE {_FRESH} AS "
        f"SELECT {key}, any_value({part}) AS part, count(*) AS added "
        f"FROM {parquet_rows(new_files)} GROUP BY ALL"
    )
    cursor.run(
        f"CREATE OR REPLACE TEMP TABLE {_HELD} AS SELECT held.*, count(*) AS had "
        f"FROM (SELECT {key} FROM {parquet_rows(held.paths)}) AS held "
        f"SEMI JOIN {_FRESH} AS fresh ON {same} GROUP BY ALL"
    )
    found = cursor.rows(
        "SELECT part, count(*) FILTER (had IS NULL), max(added + coalesce(had, 0)), "
        "sum(added::DOUBLE * added + 2.0 * added * coalesce(had, 0)) "
        f"FROM {_FRESH} AS fresh LEFT JOIN {_HELD} AS held ON {same} GROUP BY part"
    )
    for table in (_FRESH, _HELD):
        cursor.run(f"DROP TABLE {table}")
    new_units = {part: count for part, count, _, _ in found}
    return GrownUnits(
        tuple(new_units.get(i, 0) for i in range(len(held.partitions))),
        max((largest for _, _, largest, _ in found), default=1),
        sum(squared for *_, squared in found),
    )


MOST_GROWN_SHARE = 2 * MOST_SHARE
"""Of all rows, in an outlier index that has grown. One that is larger is dropped: it is read in each first
step."""


def grown(build: Build, held: Layout, written: WrittenPartitions) -> Layout:
    """Return the layout with what was written, and all that is known of its rows."""
    target, row_count = build.target, held.row_count + sum(each.row_count for each in written.partitions)
    units = _units(build, held, written)
    partitions = tuple(
        together(partition, further, unit_count)
        for partition, further, unit_count in zip(
            held.partitions, written.partitions, units.new_units, strict=True
        )
    )
    columns = _columns(build, held, written, partitions)
    columns, outliers = _with_outliers(
        build, replace(held, columns=columns, row_count=row_count), target.files_of(written.partitions)
    )
    made = replace(
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
        heads=(),
    )
    files = target.files_of(written.partitions)
    made = replace(made, heavy=grown_heavy_units(build.cursor, target, held, made, files))
    return with_zones_of_more(build.cursor, files, made)


def _units(build: Build, held: Layout, written: WrittenPartitions) -> GrownUnits:
    if not held.cluster_key:
        return GrownUnits.rows([partition.row_count for partition in written.partitions])
    files = build.target.files_of(written.partitions)
    return grown_units(build.cursor, held, files)


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
    return layout.columns, together(index, more, more.row_count)


def append(
    source: TableSource,
    into: str | Path,
    *,
    batch: str = "",
    only_new_files: bool = False,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    threads: int | None = None,
    progress: Progress | None = None,
    spread: Spread = in_turn,
) -> Layout:
    """Return the layout of a table after the rows of a source were added to it.

    Other layouts of the same table beside it, such as `orders@customer`, get the rows at the same time. Two
    appends to one table take turns. Sessions that are open go on with the rows that they had when they
    were opened, until `Session.refresh`.

    Args:
        source: as `shuffle` takes it. Its columns must be those of the table, in any order.
        into: the table's folder.
        batch: a name for these rows. If a batch of this name was appended before, nothing is done.
        only_new_files: whether to take only those files of the source that the table was not made of. Where
            one of the others has changed or is gone, LayoutError is raised.
        memory_limit_bytes: beyond it, disk in `into` is used.
        threads: of DuckDB. The default is all cores.
        progress: called with the share done and what is being done.
        spread: threads of the caller, for all else.

    Raises:
        LayoutError: there is no layout, the columns are others, or the disk is full.
        DataError: the source cannot be read.

    A crash or an interrupt at any point leaves the table without the new rows, or with all of them.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from relaqs_engine.layouts import shuffle
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = shuffle(pa.table({"fare": list(range(1000))}), f"{folder}/trips", partitions=4)
    ...     layout = append(pa.table({"fare": [5000, 6000]}), f"{folder}/trips", batch="may")
    ...     again = append(pa.table({"fare": [5000, 6000]}), f"{folder}/trips", batch="may")
    >>> layout.row_count, layout.column("fare").maximum, again.row_count
    (1002, 6000, 1002)
    """
    directory = folder_here(into)
    present = read_manifest(directory)
    appendable(present)
    if only_new_files:
        source = new_files(source if is_path(source) else (), present)
        if not source:
            return present
    report = progress or (lambda share, doing: None)
    report(0.0, "opening the source")
    how = partial(building, force=True, memory_limit_bytes=memory_limit_bytes, threads=threads, waits=True)
    folders = layout_folders(directory)
    with ExitStack() as stack:
        first = stack.enter_context(how(source, folders[0]))
        builds = [first, *(stack.enter_context(how(first.source, folder)) for folder in folders[1:])]
        held = [read_manifest(build.target.directory) for build in builds]
        _check_same_rows(held)
        if first.source.row_count and (not batch or batch not in held[0].batches):
            held = _appended(builds, held, batch, report, spread)
    report(1.0, "done")
    return next(layout for layout in held if layout.table == directory.name)


def appendable(layout: Table) -> Path:
    """Return the folder of a table that rows can be added to. Raises LayoutError for the user's own files."""
    if layout.remote is not None:
        return folder_here(str(layout.remote.address))
    if layout.is_plain or layout.is_cached:
        raise LayoutError(
            f"{layout.table} is made of {layout.source}, and has its rows from there: add a file there and "
            "open a new session; or lay the table out into a folder of its own with relaqs.shuffle, and "
            "append to that"
        )
    return layout.directory


def _check_same_rows(layouts: Sequence[Layout]) -> None:
    first, *others = layouts
    for other in others:
        if other.row_count != first.row_count:
            raise LayoutError(
                f"{first.directory} and {other.directory} are two layouts of one table, and hold "
                f"{first.row_count} and {other.row_count} rows; lay both out from the same data"
            )


def _appended(
    builds: Sequence[Build], held: Sequence[Layout], batch: str, progress: Progress, spread: Spread
) -> list[Layout]:
    """Append to all layouts of a table, and return them."""
    layouts = []
    for i, (build, layout) in enumerate(zip(builds, held, strict=True)):
        share = partial(_share_of, progress, i, len(builds))
        layout = _written_to(build, layout, share, spread)
        names = (*layout.batches, *([batch] if batch else []))
        files = (*layout.source_files, *builds[0].given)
        layouts.append(replace(layout, batches=names, source_files=files))
    publish_together([(build.target, layout) for build, layout in zip(builds, layouts, strict=True)])
    return layouts


def _share_of(progress: Progress, done: int, count: int, share: float, doing: str) -> None:
    """Tell how far one of several layouts is. done: how many are."""
    progress((done + share) / count, doing)


def _written_to(build: Build, held: Layout, progress: Progress, spread: Spread) -> Layout:
    """Write new rows beside a layout, and return what it becomes with them."""
    source = fitted(build.source, held, build.cursor, build.target.scratch)
    written = _written(build, held, source, progress, spread)
    if (
        sum(each.row_count for each in written.partitions) != source.row_count
        or fingerprint(build.source.files) != build.state
    ):
        raise DataError(
            f"{build.source.description} changed while it was being appended; nothing was, so append it again"
        )
    progress(0.9, "updating what is known of the columns")
    return grown(build, held, written)


def _written(
    build: Build, held: Layout, source: ParquetSource, progress: Progress, spread: Spread
) -> WrittenPartitions:
    """Write the new rows: a file for each partition that some of them fall into."""
    if not held.is_sampled:
        file = build.target.parts / "part-00000.parquet"
        copy_to_parquet(build.cursor, f"SELECT * FROM {source.sql}", file)
        only = settled(build.cursor, build.target, file, source.row_count, unit_count=source.row_count)
        return WrittenPartitions((only,), 1, 1.0)
    job = PartitionJob(
        build.cursor,
        source,
        build.target,
        _assignment(build, held, source),
        held.cluster_key,
        lambda share, doing: progress(0.8 * share, doing),
        adds_to_a_table=True,
    )
    memory_limit_bytes = build.memory_limit_bytes
    return write_in_one_pass(job, memory_limit_bytes, spread) or PartitionWriter(job).write(
        memory_limit_bytes
    )


def _assignment(build: Build, held: Layout, source: ParquetSource) -> Assignment:
    if not held.cluster_key:
        return Assignment(source.row_identity, _seed_of_batch(held), len(held.partitions))
    if (held.hash_scheme, held.hash_probe) != (HASH_SCHEME, hash_probe(build.cursor)):
        raise LayoutError(
            f"{held.directory} was laid out by {held.created_with}, which hashed its cluster key in another "
            "way, so new rows would not meet their units; lay the table out again with `relaqs shuffle`"
        )
    key = [(name, held.column(name).type) for name in held.cluster_key]
    return Assignment(key_unit(key), held.seed, len(held.partitions))


def _seed_of_batch(held: Layout) -> int:
    """Return the seed of the next batch of a table whose unit is a row. No two batches have the same."""
    text = f"{held.seed} after {held.row_count} rows"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


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
    >>> from relaqs_engine.layouts import shuffle
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
    layout = with_zones(cursor, files, layout)
    if not layout.cluster_key:
        return layout
    return with_heavy_units(cursor, target, with_outlier_units(cursor, target, layout))
