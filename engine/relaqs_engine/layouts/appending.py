"""Append rows to a table that was laid out. Any prefix of its partitions stays a random sample of all rows.

New rows are hashed into the partitions that there are, and are one more file of each:

    part-00000.parquet    part-00001.parquet    …    as laid out
    + its new rows        + its new rows        …    each append adds one file to a partition

With a cluster key the hash is that of the key, so a unit stays whole in its partition. Where the unit is a
row, the hash is of its place in the source, which every batch counts from the start. So each batch has a seed
of its own. Else the tenth rows of all batches would fall together, and would not be independent.

Nothing that is there is changed or read anew, but for the key's columns and a sample. Replacing the manifest
is the switch, as it is when a table is laid out. Queries that run go on over the files that they began with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from relaqs_engine.duck import DEFAULT_MEMORY_LIMIT_BYTES
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.assignment import HASH_SCHEME, Assignment, hash_probe, key_unit
from relaqs_engine.layouts.build import Build, Progress, building
from relaqs_engine.layouts.cached_files import is_cached
from relaqs_engine.layouts.fitting import fitted
from relaqs_engine.layouts.growth import grown
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.new_files import new_files
from relaqs_engine.layouts.one_pass import write_in_one_pass
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.partitions import PartitionJob, PartitionWriter, WrittenPartitions
from relaqs_engine.layouts.sources import ParquetSource, TableSource, fingerprint, is_path
from relaqs_engine.layouts.spread import Spread, in_turn
from relaqs_engine.layouts.together import folder_here, layout_folders, publish_together


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


def appendable(layout: Layout) -> Path:
    """Return the folder of a table that rows can be added to. Raises LayoutError for the user's own files."""
    if layout.remote is not None:
        return folder_here(str(layout.remote.address))
    if layout.is_plain or is_cached(layout.directory):
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
